"""``SubjectPrivacyEngine``: private training of any module of torch, and ``clip_sum``, its clipped sums alone."""

import inspect
import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from subjectdp.api.accounting import account, calibrate, mechanism
from subjectdp.api.counts import Counts
from subjectdp.api.loader import BatchCheck, PrivateLoader, Sampler, check_loader, places_to_try
from subjectdp.api.private_loss import ItemLosses, PrivateLoss
from subjectdp.api.private_step import (
    PlainPassGuard,
    PrivateModule,
    PrivateStep,
    check_processes,
    refuse_second_training,
    watched,
)
from subjectdp.api.report import Spending, plain
from subjectdp.api.schedule import Schedule
from subjectdp.api.watched import Changes, Watched
from subjectdp.data.names import numbered
from subjectdp.engine.batches import autocast_on, call, number_of, taken
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.layout import Layout, batch_norm_replaced, refuse_by_name
from subjectdp.engine.probe import TRIED_AGAIN, check_batch, check_model, check_padding, copied, find_layout
from subjectdp.errors import (
    ConfigError,
    ModelError,
    PrivacyError,
    check_numbers,
    expected,
    number,
    unknown,
    whole_number,
)
from subjectdp.io.freed_memory import keep_freed_memory
from subjectdp.noise.gaussian import add_gaussian, add_secure_gaussian
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.plan.plan import Clipping, DivisorRule, Mechanism, NoiseSource, PrivacyPlan
from subjectdp.plan.rules import check_ranges

_HOOKS = ("forward", "forward_pre", "backward", "backward_pre")
NOISE_ALONE = "The loss of the items tried does not depend on {}: trained by noise alone."


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
        subjects_per_step: expected number of subjects of a step, with ``sample="subjects"``; None: the loader's
            ``batch_size``, which then counts subjects.
        fix: replaces BatchNorm, whose statistics mix items, by GroupNorm with its scale and shift, and says so.
    """

    clip: str = "subject"
    sample: str = "items"
    clip_norm: float = 1.0
    noise_multiplier: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    steps: int | None = None
    max_items_per_subject: int | None = None
    subjects_per_step: int | None = None
    fix: bool = False

    def check(self) -> None:
        """Raises ConfigError where the settings do not say what to do."""
        for name, allowed in (("clip", ("subject", "item")), ("sample", ("items", "subjects"))):
            if getattr(self, name) not in allowed:
                raise unknown(name, str(getattr(self, name)), allowed)
        whole = ("steps", "max_items_per_subject", "subjects_per_step")
        check_numbers(self, whole, ("clip_norm", "epsilon", "delta"), from_zero=("noise_multiplier",))
        if (self.clip, self.sample) == ("item", "subjects"):
            raise expected("clip", "item", "subject where subjects are sampled: else nothing bounds a subject")
        if self.subjects_per_step is not None and self.sample != "subjects":
            raise expected("subjects_per_step", self.subjects_per_step, 'left out without sample="subjects"')
        if self.noise_multiplier is not None and self.epsilon is not None:
            raise expected("one of noise_multiplier and epsilon", "both", "given")
        if self.epsilon is not None and self.steps is None:
            raise expected("steps", None, "given with epsilon: the noise depends on their number")

    def mechanism(self) -> Mechanism:
        """What is accounted for."""
        if self.clip == "item":  # no paper's run: it claims nothing
            return replace(
                mechanism("local_item_dp"),
                algorithm="item_clipping",
                beyond_papers=True,
                reference="SubjectPrivacyEngine: items clipped and drawn",
            )
        if self.sample == "subjects":
            return mechanism("subject_sampling")
        return replace(
            mechanism("capped_item_dp"),
            algorithm="subject_clipping",
            clipping=Clipping.PER_SUBJECT,
            divisor_rule=DivisorRule.EXPECTED_SUBJECTS,
            reference="SubjectPrivacyEngine: subjects clipped, items sampled",
        )


class SubjectPrivacyEngine(Spending):
    """Makes the training of a module private for the people whose items it sees; one engine for one training.

    The loop stays as it is: ``loss = criterion(model(inputs), targets); loss.backward(); optimizer.step()``. The
    gradient is Σ Clip(g) + N(0, σ²C² I), divided by a public constant. Guarantee: :meth:`get_epsilon` bounds ε of all
    models that the optimiser has made so far, provided that an item's output and loss depend on that item alone
    (:mod:`subjectdp.engine.probe` tries it) and that nothing but the loop's private steps reads the data. Public are
    taken to be the number of items (or of subjects, where they are drawn), the cap and the settings. Losses and other
    un-noised values are not covered.

    Args:
        seed: of samples and noise; None (the default) takes a secret one from the operating system. A given seed is for
            tests: who knows it can remove the noise, and two trainings with one seed share their noise.
    """

    silos = ("silo",)

    def __init__(self, seed: int | None = None) -> None:
        self._seed = secrets.randbits(256) if seed is None else whole_number("seed", seed, 0)
        self._source = NoiseSource.SECURE if seed is None else NoiseSource.REPRODUCIBLE
        self._process, self._draws = os.getpid(), 0
        self._most_steps: int | None = None

    def make_private(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        criterion: Callable[[Any, Any], Tensor],
        data_loader: DataLoader[Any],
        subjects: Sequence[Any],
        settings: PrivacySettings,
    ) -> tuple[PrivateModule, Optimizer, PrivateLoss, PrivateLoader]:
        """Module, optimiser, criterion and loader to train with, in place of the ones given.

        glibc's malloc is told to keep freed memory for the next step, unless variables ``MALLOC_...`` say otherwise.

        Args:
            module: any that treats items one by one, with the items in the first dimension of all that it is given. It
                is trained in place: the parameters that require a gradient, float32 and on one device. The others stay
                frozen.
            optimizer: any of torch that needs no closure, over the trained parameters; the same object is returned.
            criterion: a loss of torch (its ``reduction`` is replaced), or a function of the module's output and the
                targets that returns the losses (B,) of the items, or their mean or sum.
            data_loader: its data set by position, its ``collate_fn``, workers and ``batch_size`` are used: mini-batches
                are drawn anew, of that expected size. A batch is (inputs, ..., targets), one tensor that is
                both, or a mapping whose ``labels`` are the targets and whose rest are the module's arguments by name.
            subjects: the subject of each item of the data set (:func:`subjectdp.data.names.person`): equal numbers and
                equal texts are one person, a missing value is refused.
            settings: clipping, sampling and noise.

        Raises:
            ConfigError: settings or arguments that do not fit one another.
            ModelError: a module that the engine cannot train, with the reason.
            PrivacyError: what cannot be accounted for.
        """
        if self._plan is not None:
            raise ConfigError("Expected a new SubjectPrivacyEngine for each training, this one has made one private.")
        if not isinstance(settings, PrivacySettings):
            raise expected("settings", type(settings).__name__, "PrivacySettings")
        settings.check()
        keep_freed_memory()
        items, batch_size = check_loader(data_loader)
        positions, owners = self._kept(numbered(subjects, items)[0], settings.max_items_per_subject)
        plan = _planned(owners, batch_size, settings)
        plan = replace(plan, settings=replace(plan.settings, noise_source=self._source))
        _check_module(module, optimizer)
        capacity, grouped = 2 * batch_size, settings.clip == "subject"
        batches = BatchCheck(data_loader, next(module.parameters()).device, in_loop=True)
        engine, trial = trained_engine(module, criterion, batches, capacity, check_model, settings.fix)

        def try_again(now: Sequence[Watched]) -> bool:
            return trial(self._steps, now, autocast_on(engine.flat.vector.device) and not self._steps)

        step = PrivateStep(engine, grouped, settings.clip_norm, self._release, try_again)
        sampler = Sampler(plan, positions, owners, grouped, capacity, self._seed)
        loader = PrivateLoader(data_loader, sampler, step, self._next_draw, batches)
        optimizer.register_step_pre_hook(step.before_optimizer_step)
        self._plan, self._most_steps = plan, settings.steps
        return PrivateModule(module, step).train(module.training), optimizer, PrivateLoss(step), loader

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` needs beside the states of module and optimiser. It holds no seed."""
        return {"steps": self.steps, "draws": self._draws, "plan": plain(self.plan)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state, after :meth:`make_private` with the same data and settings.

        What this engine has released since the state was saved stays counted, and no draw is used twice.

        Raises:
            PrivacyError: the state is that of another plan: its steps cannot be added to this one's.
        """
        if not isinstance(state, Mapping) or state.get("plan") != plain(self.plan):
            raise PrivacyError("Expected the state of an engine with the same data, sampling, clipping and noise.")
        steps = whole_number("steps of the state", state.get("steps"), 0)
        draws = whole_number("draws of the state", state.get("draws", steps), 0)
        self._steps = max(self._steps, steps)
        self._draws = max(self._draws, draws)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError(
            "An engine cannot be pickled or copied: it holds the secret of the noise, and a copy would use it again. "
            "Save engine.state_dict()."
        )

    def _next_draw(self) -> int:
        self._draws += 1
        return self._draws - 1

    def _release(self, total: Tensor) -> Tensor:
        """The noisy mean of one step's clipped sum."""
        silo = self.plan.silos[0]
        if self._most_steps is not None and self._steps >= self._most_steps:
            raise PrivacyError(f"Expected at most {self._most_steps} steps: the noise was made for them.")
        if os.getpid() != self._process:
            raise PrivacyError(
                "Expected the engine to be used in the process that made it: a forked one has the same noise. Make the "
                "engine in the process that trains."
            )
        self._steps += 1
        std = silo.noise_multiplier * self.plan.settings.clip_norm
        key = key_bytes(self._seed, Purpose.NOISE, "api", self._steps)
        add = add_secure_gaussian if self._source is NoiseSource.SECURE else add_gaussian
        return add(total, std, key).div_(silo.divisor)

    def _kept(self, owners: NDArray[np.int64], cap: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the items to train on and their subjects, at most ``cap`` of each."""
        if cap is None:
            return np.arange(len(owners)), owners
        order = numpy_generator(self._seed, Purpose.PARTITION, "api").permutation(len(owners))
        order = order[np.argsort(owners[order], kind="stable")]
        kept = np.sort(order[np.arange(len(order)) - np.searchsorted(owners[order], owners[order]) < cap])
        return kept, owners[kept]


@_disable_dynamo
def clip_sum(
    module: nn.Module,
    inputs: Any,
    targets: Any,
    clip_norm: float,
    subjects: Sequence[Any] | None = None,
    criterion: Callable[[Any, Any], Tensor] | None = None,
) -> dict[str, Tensor]:
    """Σ_i min(1, C/‖g_i‖) g_i over items, or the same over subjects with g_a the mean gradient of a subject's items.

    Without noise: the sum itself is not private. The module is copied at each call and not changed;
    :class:`SubjectPrivacyEngine` does not copy.

    Args:
        module: any that treats items one by one; the sum is over the parameters that require a gradient.
        inputs: B items: a tensor, a tuple of the module's arguments, or a mapping of those by name.
        targets: of the items.
        clip_norm: C > 1e-18.
        subjects: the subject of each item; None clips items.
        criterion: a loss of torch, or a function that returns losses (B,); None for cross-entropy.

    Returns:
        A tensor for each parameter, by name.

    Raises:
        ModelError: a module or loss that mixes items (it is tried on a few at each call), or that the engine cannot do.
        ConfigError: another clip norm, or subjects of another number.
        DataError: a subject that is missing.
    """
    if not (isinstance(clip_norm, float) and clip_norm == float("inf")):
        clip_norm = number("clip_norm", clip_norm, above=1e-18)  # factors below it may be no normal float32
    check_parameters(module)
    losses = ItemLosses(nn.CrossEntropyLoss() if criterion is None else criterion)
    if not (items := number_of(targets)):
        raise expected("inputs", "no items", "at least one item")
    if number_of(inputs) != items:
        raise expected("inputs", f"{number_of(inputs)} items", f"as many items as targets, {items}")
    some, wanted = (taken(values, places_to_try(items)) for values in (inputs, targets))
    layout = find_layout(module, trained_parameters(module), some)
    flat = FlatParameters(copied(module).train(module.training), layout.trained)
    engine = ClippingEngine(flat, item_loss=losses, layout=layout)
    check_model(module, losses, some, wanted, layout)
    check_batch(engine, inputs, targets)
    weights = groups = None
    if subjects is not None:
        groups = torch.from_numpy(numbered(subjects, items)[0])
        weights = (1.0 / torch.bincount(groups))[groups].to(flat.vector.device)
    total, _ = engine.clipped_sum(inputs, targets, clip_norm, weights, groups)
    return {name: view.clone() for name, view in engine.flat.views(total).items()}


def _planned(owners: NDArray[np.int64], batch_size: int, settings: PrivacySettings) -> PrivacyPlan:
    """The plan of one silo that holds the items, for one step after another."""
    chosen, items = settings.mechanism(), np.bincount(owners)
    held = np.flatnonzero(items)
    if not chosen.samples_subjects and batch_size > len(owners):
        raise expected("batch_size of the data loader", batch_size, f"at most the {len(owners)} items to train on")
    rows = np.stack([np.arange(len(held)), np.zeros_like(held), items[held]], axis=1)
    counts = Counts(tuple(map(str, held)), SubjectPrivacyEngine.silos, rows)
    schedule = Schedule(
        rounds=1 if settings.steps is None else settings.steps,
        steps=1,
        batch_size=None if chosen.samples_subjects else batch_size,
        sampling_probability=_coin(len(held), batch_size, settings) if chosen.samples_subjects else None,
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


def _coin(subjects: int, batch_size: int, settings: PrivacySettings) -> float:
    """The probability of each subject to be drawn: public, whatever the number of items."""
    if (wanted := settings.subjects_per_step) is None:
        return min(batch_size, subjects) / subjects
    if not 1 <= wanted <= subjects:
        raise expected("subjects_per_step", wanted, f"from 1 to the {subjects} subjects")
    return wanted / subjects


def check_parameters(module: nn.Module) -> None:
    """Raises ModelError for parameters that cannot live in one float32 vector."""
    if not isinstance(module, nn.Module):
        raise expected("module", type(module).__name__, "an nn.Module of torch", ModelError)
    if not (parameters := trained_parameters(module)):
        raise ModelError("Expected a module with parameters that require a gradient.")
    made = [each for each in module.modules() if isinstance(each, torch.jit.ScriptModule | torch.fx.GraphModule)]
    if any(isinstance(each, torch.jit.ScriptModule) or "train" in vars(each) for each in made):  # of torch.export
        raise ModelError("Expected a module as it was before torch.jit or torch.export: its layers cannot be seen.")
    for name, parameter in parameters.items():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ModelError(f"Expected parameters with values, {name!r} has none yet: call the module on items first.")
        if parameter.numel() and not parameter.data_ptr():
            raise ModelError(f"Expected parameters in memory, {name!r} is on device meta or sharded: load it whole.")
        if parameter.dtype is not torch.float32:
            raise ModelError(f"Expected float32 parameters to train, {name!r} is {parameter.dtype}.")
    places = [parameter.data_ptr() for parameter in parameters.values() if parameter.numel()]
    if len(set(places)) < len(places):
        raise ModelError("Expected parameters with memory of their own, two share it: assign one nn.Parameter to both.")
    devices = {str(parameter.device) for parameter in module.parameters()}
    if len(devices) > 1:
        raise ModelError(f"Expected all parameters on one device, they are on {', '.join(sorted(devices))}.")


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Those that require a gradient, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _check_module(module: nn.Module, optimizer: Optimizer) -> None:
    check_parameters(module)
    refuse_second_training(module)
    check_processes(module)
    if not isinstance(optimizer, Optimizer) or not hasattr(optimizer, "_optimizer_step_pre_hooks"):
        raise expected("optimizer", type(optimizer).__name__, "one of torch, not one that wraps it")
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    if held != {id(parameter) for parameter in trained_parameters(module).values()}:
        raise expected(
            "trained parameters of the optimiser", len(held), "exactly those of the module: put several into one"
        )
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        allowed = "one that needs no closure: each would be a release of its own"
        raise expected("optimizer", type(optimizer).__name__, allowed)


class Trial:
    """Tries a module again after 1, 10 and 100 steps, and where it or the criterion has been changed: parts, hooks and
    flags each time, anything else that they read at its first change, its second, fourth, eighth and so on."""

    def __init__(self, module: nn.Module, criterion: Any, check: Callable[[], list[str]], unused: list[str]) -> None:
        self._module, self._criterion, self._check, self._unused = module, criterion, check, set(unused)
        self._made = _made_of(module)
        self._known: Sequence[Watched] = watched(module, criterion)
        self._changes = Changes()

    def __call__(self, steps: int, now: Sequence[Watched] | None = None, once_more: bool = False) -> bool:
        """Whether this step is one of those: its own mini-batch is to be tried too, as each that is larger than before.

        ``now``: what module and criterion are. Raises ModelError for a module that does not treat items one by one any
        more.
        """
        made, known = _made_of(self._module), watched(self._module, self._criterion) if now is None else now
        pairs = zip(("module", "criterion"), known, self._known, strict=True)
        parameters = {id(each) for each in self._module.parameters()}
        often = self._changes.see({f"{name}.{key}" for name, new, old in pairs for key in new.changed(old, parameters)})
        again = steps in TRIED_AGAIN or once_more or made != self._made or often
        self._known = known
        if again:
            if new := sorted(set(self._check()) - self._unused):
                warnings.warn(NOISE_ALONE.format(", ".join(new)), stacklevel=5)
            self._made, self._unused = made, self._unused | set(new)
        return again


def _made_of(module: nn.Module) -> list[Any]:
    """What code outside of a module may change to make it another one; parameters and numbers are not looked at."""
    parts: list[Any] = [tuple(vars(nn.modules.module)[f"_global_{kind}_hooks"]) for kind in _HOOKS]
    for each in module.modules():
        own = vars(each)
        of_others = [
            key
            for kind in _HOOKS
            for key, hook in own.get(f"_{kind}_hooks", {}).items()
            if not isinstance(getattr(hook, "__self__", hook), PlainPassGuard)
        ]
        flags = {name: value for name, value in own.items() if type(value) in (bool, str) and name != "training"}
        parts.append((each, of_others, flags, own.get("forward"), getattr(type(each), "forward", None)))
    return parts


def trained_engine(
    module: nn.Module, criterion: Any, batches: BatchCheck, capacity: int, check: Callable[..., list[str]], fix: bool
) -> tuple[ClippingEngine, Trial]:
    """The engine of a module that has been tried, and what tries it again; ``batches`` are tried from now on.

    Warns of what is slow or not trained. ``capacity`` items go through the module at once, ``check`` is one of
    :mod:`subjectdp.engine.probe`, all else as of :class:`SubjectPrivacyEngine`.
    """
    if not isinstance(fix, bool):
        raise expected("fix", fix, "True or False")
    with batch_norm_replaced(module, fix) as layers:
        if layers:
            warnings.warn(f"GroupNorm is in place of BatchNorm now: {'; '.join(layers)}.", stacklevel=3)
        return _tried_engine(module, criterion, batches, capacity, check)


def _tried_engine(
    module: nn.Module, criterion: Any, batches: BatchCheck, capacity: int, check: Callable[..., list[str]]
) -> tuple[ClippingEngine, Trial]:
    tell = partial(warnings.warn, stacklevel=4)
    refuse_by_name(module)
    losses, trained = ItemLosses(criterion), trained_parameters(module)
    inputs, targets, tried = batches.tried(lambda given: call(copied(module), given), losses)
    items_apart = check is check_model
    layout = find_layout(module, trained, inputs) if items_apart else Layout(frozenset(trained), frozenset())
    if unused := check(module, tried, inputs, targets, layout):
        tell(NOISE_ALONE.format(", ".join(unused)))
    if items_apart:
        batches.check_padded = lambda whole, alone: check_padding(module, tried, layout, whole, alone)
        batches.check_all_tried()
    engine = ClippingEngine(FlatParameters(module, layout.trained), capacity, losses, layout)
    if layout.alone:
        modules = ", ".join(name or "the whole module" for name in layout.alone)
        tell(f"Items go one by one through {modules}: exact, and slower.")
    if items_apart and (slow := engine.followed):
        names = ", ".join(slow[:6]) + (f" and {len(slow) - 6} more" if len(slow) > 6 else "")
        tell(f"No layer rule covers {names}: their clipping is exact, and may be slower.")
    return engine, Trial(module, criterion, lambda: check(module, tried, inputs, targets, layout), unused)
