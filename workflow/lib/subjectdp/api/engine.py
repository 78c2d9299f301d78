"""``SubjectPrivacyEngine``: private training of any module of torch, and ``clip_sum``, its clipped sums alone."""

from __future__ import annotations

import copy
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from subjectdp.accounting.sound import unit_epsilon
from subjectdp.api.accounting import account, calibrate, mechanism
from subjectdp.api.counts import Counts
from subjectdp.api.loader import PrivateLoader, Sampler
from subjectdp.api.private_step import PrivateLoss, PrivateModule, PrivateStep, item_losses
from subjectdp.api.report import UNITS, PrivacyReport
from subjectdp.api.schedule import Schedule
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ConfigError, DataError, ModelError, PrivacyError, expected, unknown
from subjectdp.noise.gaussian import add_gaussian, add_secure_gaussian
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.plan.plan import Clipping, DivisorRule, Mechanism, NoiseSource, PrivacyPlan
from subjectdp.plan.rules import check_ranges

_TRIED = 4  # items of the data set that a module is tried on
_SILO = "silo"


@dataclass(frozen=True)
class PrivacySettings:
    """What is clipped, sampled and noised. Give ``noise_multiplier``, or ``epsilon`` and ``steps``.

    Attributes:
        clip: ``"subject"`` (the mean gradient of a subject's items in the mini-batch) or ``"item"``.
        sample: ``"items"`` (a coin for each item) or ``"subjects"`` (a coin for each subject, then all its items).
        clip_norm: C, the L2 bound on what is clipped.
        noise_multiplier: noise std over C on the sum.
        epsilon: target for the noise: of a subject with ``clip="subject"``, else of an item.
        delta: δ of the target.
        steps: steps of the optimiser that the target is for; further ones are refused.
        max_items_per_subject: further items of a subject are left out, chosen at random. Needed where subjects are
            clipped and items sampled.
    """

    clip: str = "subject"
    sample: str = "items"
    clip_norm: float = 1.0
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    steps: int | None = None
    max_items_per_subject: int | None = None

    def check(self) -> None:
        """Raises ConfigError where the settings do not say what to do."""
        for name, allowed in (("clip", ("subject", "item")), ("sample", ("items", "subjects"))):
            if getattr(self, name) not in allowed:
                raise unknown(name, str(getattr(self, name)), allowed)
        if (self.clip, self.sample) == ("item", "subjects"):
            raise expected(
                "clip", "item", "subject where subjects are sampled: else nothing bounds a subject"
            )
        if self.noise_multiplier is not None and self.epsilon is not None:
            raise expected("one of noise_multiplier and epsilon", "both", "given")
        if self.epsilon is not None and self.steps is None:
            raise expected("steps", None, "given with epsilon: the noise depends on their number")

    def mechanism(self) -> Mechanism:
        """What is accounted for."""
        if self.clip == "item":
            return mechanism("local_item_dp")
        if self.sample == "subjects":
            return mechanism("subject_sampling")
        return replace(
            mechanism("capped_item_dp"),
            algorithm="subject_clipping",
            clipping=Clipping.PER_SUBJECT,
            divisor_rule=DivisorRule.EXPECTED_SUBJECTS,
            reference="SubjectPrivacyEngine: subjects clipped, items sampled",
        )


class SubjectPrivacyEngine:
    """Makes the training of a module private for the people whose items it sees; one engine for one training.

    The loop stays as it is: ``loss = criterion(model(inputs), targets); loss.backward(); optimizer.step()``. The
    gradient is Σ Clip(g) + N(0, σ²C² I), divided by a public constant. Guarantee: :meth:`get_epsilon` bounds ε of all
    models that the optimiser has made so far, provided that an item's output and loss depend on that item alone.
    Losses and other un-noised values are not covered.

    Args:
        seed: of samples and noise; None (the default) takes a secret one from the operating system. A given seed is for
            tests: who knows it can remove the noise, and two trainings with one seed share their noise.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._seed = secrets.randbits(256) if seed is None else seed
        self._source = NoiseSource.SECURE if seed is None else NoiseSource.REPRODUCIBLE
        self._steps = 0
        self._plan: PrivacyPlan | None = None
        self._settings: PrivacySettings | None = None

    def make_private(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        criterion: Callable[[Tensor, Tensor], Tensor],
        data_loader: DataLoader[Any],
        subjects: Sequence[Any],
        settings: PrivacySettings,
    ) -> tuple[PrivateModule, Optimizer, PrivateLoss, PrivateLoader]:
        """Module, optimiser, criterion and loader to train with, in place of the ones given.

        Args:
            module: one tensor (B, ...) in, one out; every item by itself. It is trained in place, so that it must not
                be used by another engine. Its parameters have to be float32, on one device and all trainable.
            optimizer: any of torch, over all parameters of ``module``; the same object is returned.
            criterion: a loss of torch (its ``reduction`` is replaced), or a function of outputs and targets that
                returns the losses (B,) of the items.
            data_loader: its data set, (inputs, targets) by position, and its ``batch_size`` are used: mini-batches are
                drawn anew, of that expected size.
            subjects: the subject of each item of the data set: any values that can be compared and hashed.
            settings: clipping, sampling and noise.

        Raises:
            ConfigError: settings or arguments that do not fit one another.
            ModelError: a module that the engine cannot train, with the reason.
            PrivacyError: what cannot be accounted for.
        """
        if self._plan is not None:
            raise ConfigError(
                "Expected a new SubjectPrivacyEngine for each training, this one has made one private."
            )
        settings.check()
        items, batch_size = _data_of(data_loader)
        positions, owners = self._kept(_numbered(subjects, items), settings.max_items_per_subject)
        plan = _planned(owners, batch_size, settings)
        plan = replace(plan, settings=replace(plan.settings, noise_source=self._source))
        _check_module(module, optimizer)
        engine = ClippingEngine(FlatParameters(module), 2 * batch_size, item_losses(criterion))
        _try_out(engine, data_loader)
        grouped = settings.clip == "subject"
        step = PrivateStep(engine, grouped, settings.clip_norm, self._release)
        sampler = Sampler(plan, positions, owners, grouped, 2 * batch_size, self._seed)
        loader = PrivateLoader(data_loader, sampler, step, lambda: self._steps)
        optimizer.register_step_pre_hook(step.before_optimizer_step)
        self._plan, self._settings = plan, settings
        return PrivateModule(module, step).train(module.training), optimizer, PrivateLoss(step), loader

    @property
    def steps(self) -> int:
        """Steps of the optimiser so far."""
        return self._steps

    @property
    def plan(self) -> PrivacyPlan:
        """The plan that sampler, noise and accountant share. Raises ConfigError before :meth:`make_private`."""
        if self._plan is None:
            raise ConfigError("Expected make_private to be called first.")
        return self._plan

    def get_epsilon(self, delta: float = 1e-5, unit: str = "subject") -> float:
        """ε at ``delta`` after the steps so far, of an ``"item"`` or of a ``"subject"`` (all its items here).

        A subject with items elsewhere, trained on too, needs ``subjectdp.account`` over all silos.

        Raises:
            ConfigError: another unit, or δ out of range.
            PrivacyError: the mechanism bounds nothing for the unit.
        """
        if unit not in ("item", "subject"):
            raise unknown("unit", unit, ("item", "subject"))
        if not 0 < delta < 0.1:
            raise expected("delta", delta, "above 0 and below 0.1")
        return 0.0 if self.steps == 0 else unit_epsilon(self._so_far(delta), *UNITS[unit])

    def report(self, delta: float = 1e-5) -> PrivacyReport:
        """The guarantees after the steps so far, with what they assume. Raises ConfigError before the first step."""
        if self.steps == 0:
            raise ConfigError("Expected at least one step of the optimiser before a report.")
        return PrivacyReport(self._so_far(delta), (_SILO,))

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` needs beside the states of module and optimiser. It holds no seed."""
        return {"steps": self.steps, "plan": _plain(self.plan)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state, after :meth:`make_private` with the same data and settings.

        Raises:
            PrivacyError: the state is that of another plan: its steps cannot be added to this one's.
        """
        if state["plan"] != _plain(self.plan):
            raise PrivacyError(
                "Expected the state of an engine with the same data, sampling, clipping and noise."
            )
        self._steps = int(state["steps"])

    def _so_far(self, delta: float) -> PrivacyPlan:
        return replace(self.plan, rounds=self.steps, settings=replace(self.plan.settings, delta=delta))

    def _release(self, total: Tensor) -> Tensor:
        """The noisy mean of one step's clipped sum."""
        silo, planned = self.plan.silos[0], self._settings.steps if self._settings is not None else None
        if planned is not None and self._steps >= planned:
            raise PrivacyError(f"Expected at most {planned} steps: the noise was made for them.")
        self._steps += 1
        std = silo.noise_multiplier * self.plan.settings.clip_norm
        key = key_bytes(self._seed, Purpose.NOISE, "api", self._steps)
        if self._source is NoiseSource.SECURE:
            return add_secure_gaussian(total, std, [(1.0, key)]).div_(silo.divisor)
        return add_gaussian(total, std, key).div_(silo.divisor)

    def _kept(
        self, owners: NDArray[np.int64], cap: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the items to train on and their subjects, at most ``cap`` of each."""
        if cap is None:
            return np.arange(len(owners)), owners
        if cap < 1:
            raise expected("max_items_per_subject", cap, "at least 1")
        order = numpy_generator(self._seed, Purpose.PARTITION, "api").permutation(len(owners))
        order = order[np.argsort(owners[order], kind="stable")]
        first = np.searchsorted(owners[order], owners[order])
        kept = np.sort(order[np.arange(len(order)) - first < cap])
        return kept, owners[kept]


def clip_sum(
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    clip_norm: float,
    subjects: Sequence[Any] | None = None,
    criterion: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Σ_i min(1, C/‖g_i‖) g_i over items, or the same over subjects with g_a the mean gradient of a subject's items.

    Without noise: the sum itself is not private. The module is copied at each call and not changed;
    :class:`SubjectPrivacyEngine` does not copy.

    Args:
        module: one tensor (B, ...) in, one out; every item by itself.
        inputs, targets: (B, ...).
        clip_norm: C > 0.
        subjects: the subject of each item; None clips items.
        criterion: a loss of torch, or a function that returns losses (B,); None for cross-entropy.

    Returns:
        A tensor for each parameter, by name.

    Raises:
        ModelError: a module that mixes items, or that the engine cannot do.
        ConfigError: a clip norm that is not positive, or subjects of another number.
    """
    if not clip_norm > 0:
        raise expected("clip_norm", clip_norm, "positive")
    own = copy.deepcopy(module)
    _check_parameters(own)
    loss = nn.CrossEntropyLoss() if criterion is None else criterion
    engine = ClippingEngine(FlatParameters(own), item_loss=item_losses(loss))
    weights = groups = None
    if subjects is not None:
        groups = torch.from_numpy(_numbered(subjects, len(targets)))
        weights = (1.0 / torch.bincount(groups))[groups].to(inputs.device)
    total, _ = engine.clipped_sum(inputs, targets, clip_norm, weights, groups)
    return {name: view.clone() for name, view in engine.flat.views(total).items()}


def _numbered(subjects: Sequence[Any], items: int) -> NDArray[np.int64]:
    """Subjects as numbers from 0 on, in order of appearance."""
    if len(subjects) != items:
        raise expected("subjects", len(subjects), f"one for each of the {items} items")
    numbers: dict[Any, int] = {}
    plain = subjects.tolist() if hasattr(subjects, "tolist") else subjects
    return np.array([numbers.setdefault(subject, len(numbers)) for subject in plain], np.int64)


def _data_of(loader: DataLoader[Any]) -> tuple[int, int]:
    """Items of the loader's data set and its batch size."""
    length = getattr(loader.dataset, "__len__", None)
    if length is None or not hasattr(loader.dataset, "__getitem__"):
        raise expected(
            "data set", type(loader.dataset).__name__, "one with a length and items by position", DataError
        )
    if loader.batch_size is None:
        raise expected("batch_size of the data loader", None, "given")
    return int(length()), loader.batch_size


def _planned(owners: NDArray[np.int64], batch_size: int, settings: PrivacySettings) -> PrivacyPlan:
    """The plan of one silo that holds the items, for one step after another."""
    if batch_size > len(owners):
        raise expected(
            "batch_size of the data loader", batch_size, f"at most the {len(owners)} items to train on"
        )
    chosen, items = settings.mechanism(), np.bincount(owners)
    held = np.flatnonzero(items)
    rows = np.stack([np.arange(len(held)), np.zeros_like(held), items[held]], axis=1)
    counts = Counts(tuple(map(str, held)), (_SILO,), rows)
    schedule = Schedule(
        rounds=1 if settings.steps is None else settings.steps,
        steps=1,
        batch_size=None if chosen.samples_subjects else batch_size,
        sampling_probability=batch_size / len(owners) if chosen.samples_subjects else None,
        max_items_per_subject=settings.max_items_per_subject,
    )
    if settings.epsilon is not None:
        report = calibrate(chosen, counts, schedule, settings.epsilon, settings.delta)
    elif settings.noise_multiplier is not None:
        report = account(chosen, counts, schedule, settings.noise_multiplier, settings.delta)
    else:
        raise expected("one of noise_multiplier and epsilon", "neither", "given")
    changed = replace(report.plan.settings, clip_norm=settings.clip_norm)
    check_ranges(changed)
    return replace(report.plan, settings=changed)


def _check_parameters(module: nn.Module) -> None:
    """Raises ModelError for parameters that cannot live in one float32 vector."""
    parameters = dict(module.named_parameters())
    if not parameters:
        raise ModelError("Expected a module with parameters.")
    for name, parameter in parameters.items():
        if parameter.dtype is not torch.float32:
            raise ModelError(f"Expected float32 parameters, {name!r} is {parameter.dtype}.")
    devices = {str(parameter.device) for parameter in parameters.values()}
    if len(devices) > 1:
        raise ModelError(f"Expected all parameters on one device, they are on {', '.join(sorted(devices))}.")


def _check_module(module: nn.Module, optimizer: Optimizer) -> None:
    _check_parameters(module)
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            raise ModelError(
                f"Expected trainable parameters only, {name!r} is frozen. Compute the frozen part's features first, "
                "and train on them."
            )
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if held != {id(parameter) for parameter in module.parameters()}:
        raise expected("parameters of the optimiser", len(held), "exactly those of the module")


def _try_out(engine: ClippingEngine, loader: DataLoader[Any]) -> None:
    """Tries the module on a few items: they must not mix, and must leave no trace but in the parameters."""
    dataset: Any = loader.dataset
    batch = loader.collate_fn([dataset[i] for i in range(min(_TRIED, len(dataset)))])
    if not (
        isinstance(batch, list | tuple) and len(batch) > 1 and all(isinstance(x, Tensor) for x in batch[:2])
    ):
        raise expected(
            "a batch of the data loader", type(batch).__name__, "tensors (inputs, targets)", DataError
        )
    module, device = engine.flat.model, engine.flat.vector.device
    inputs, targets = batch[0].to(device), batch[1].to(device)
    training, before = module.training, {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        module.train()
        with torch.no_grad():
            module(inputs)
        for name, buffer in module.named_buffers():
            if not torch.equal(buffer, before[name]):
                raise ModelError(
                    f"Expected buffers that training leaves alone, {name!r} keeps values of the items."
                )
        module.eval()  # without dropout
        engine.check_items_apart(inputs, targets)
    finally:
        module.train(training)
        for name, buffer in module.named_buffers():
            buffer.copy_(before[name])


def _plain(plan: PrivacyPlan) -> Any:
    """The plan as JSON has it."""
    return json.loads(json.dumps(plan.to_dict(), default=str))
