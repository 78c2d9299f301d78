"""``SubjectRelease``: federated training of one's own module in which each person is clipped once a round, over silos.

The rounds are those of the algorithms ``subject_release`` and ``uldp_fl`` themselves, run by :mod:`subjectdp.training`.
"""

import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader

from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.registry import algorithm
from subjectdp.api.accounting import mechanism, words_of_the_api
from subjectdp.api.counts import Counts
from subjectdp.api.engine import check_parameters, trained_engine, trained_parameters
from subjectdp.api.loader import BatchCheck, check_loader, inputs_and_targets
from subjectdp.api.private_step import guard, refuse_second_training
from subjectdp.api.report import Spending, plain
from subjectdp.api.schedule import untuned_schedule
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.names import numbered
from subjectdp.data.partition import Partition
from subjectdp.engine.batches import tensors_in
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.layout import in_words, refuse_by_name
from subjectdp.engine.probe import check_batch, check_keeps_nothing, check_model, is_larger
from subjectdp.errors import (
    ConfigError,
    DataError,
    ModelError,
    PrivacyError,
    check_numbers,
    expected,
    unknown,
    whole_number,
)
from subjectdp.io.freed_memory import keep_freed_memory
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.plan.plan import (
    AccountingMode,
    BudgetWeights,
    Horizontal,
    NoiseSource,
    PlanSettings,
    PrivacyPlan,
    SamplingMethod,
    SubjectSettings,
    TrustModel,
)
from subjectdp.training.device_data import DeviceDataset
from subjectdp.training.federation import Federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import MODEL, GlobalModel, run_round

_ALGORITHMS = {"gradient": "subject_release", "update": "uldp_fl"}


@dataclass(frozen=True)
class ReleaseSettings:
    """One release a round for each person, over all of its silos. Give ``epsilon`` or ``noise_multiplier``.

    Attributes:
        rounds: R; further ones are refused.
        epsilon, delta: target of a person over all silos and rounds.
        noise_multiplier: noise std over C: of each silo under local trust, else of the sum over silos.
        clip: ``"gradient"`` (SubjectRelease: the mean gradient of a person's items at a silo, one server step a round)
            or ``"update"`` (ULDP-FL: the update of ``local_steps`` steps on a person's items, added by the server).
        clip_norm: C, of a person over all its silos.
        trust: who sees what: ``"local"`` (each silo's noisy sum is seen), ``"secure_aggregation"`` (their sum alone)
            or, for gradients, ``"central"`` (a trusted server adds the noise).
        weights: how C is split over a person's silos: ``"uniform"``, ``"proportional"`` to its items, or ``"fixed"``.
        sampling_probability: of a person in a round, one coin for all silos.
        items: most items of a person at a silo in a round, drawn anew; None: all.
        silos_per_subject: most silos that may hold one person; None: all. More in the data are refused.
        optimizer, learning_rate, momentum: ``"sgd"``, ``"momentum"`` or ``"adam"``, of the server for gradients and of
            a person's local steps for updates.
        local_steps: steps of a person's own model, with ``clip="update"``.
        averaged_rounds: the last part of the rounds whose mean model is the result; None: the last model.
        fix: replaces BatchNorm by GroupNorm, with its scale and shift, and says so.
        seed: of samples and noise, for tests; None takes a secret one from the operating system.
    """

    rounds: int
    epsilon: float | None = None
    delta: float = 1e-5
    noise_multiplier: float | None = None
    clip: str = "gradient"
    clip_norm: float = 1.0
    trust: str = "local"
    weights: str = "uniform"
    sampling_probability: float = 1.0
    items: int | None = None
    silos_per_subject: int | None = None
    optimizer: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    local_steps: int = 1
    averaged_rounds: float | None = None
    fix: bool = False
    seed: int | None = field(default=None, repr=False)

    @classmethod
    def untuned(
        cls,
        subjects: int,
        weights: int,
        epsilon: float,
        delta: float = 1e-5,
        silos: int = 1,
        silos_per_subject: int | None = None,
    ) -> Self:
        """The rule of :func:`subjectdp.untuned_schedule`: from public numbers alone, under local trust.

        Chosen for a linear head on features of mean square norm about 1; arguments as there.
        """
        rule = untuned_schedule(subjects, weights, epsilon, delta, silos, silos_per_subject)
        return cls(
            rounds=rule.rounds,
            epsilon=epsilon,
            delta=delta,
            clip_norm=rule.clip_norm,
            silos_per_subject=silos_per_subject,
            learning_rate=rule.learning_rate,
            averaged_rounds=0.5,
        )

    def check(self) -> None:
        """Raises ConfigError where the settings do not say what to do."""
        trusts = [each.value for each in TrustModel if self.clip != "update" or each is not TrustModel.CENTRAL]
        allowed = {
            "clip": list(_ALGORITHMS),
            "trust": trusts,
            "weights": [each.value for each in BudgetWeights],
            "optimizer": ["sgd", "momentum", "adam"],
        }
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise unknown(name, str(getattr(self, name)), values)
        whole_number("rounds", self.rounds)
        whole_number("seed", self.seed or 0, 0)
        numbers = ("clip_norm", "delta", "epsilon", "learning_rate", "averaged_rounds")
        check_numbers(self, ("local_steps", "items", "silos_per_subject"), numbers, ("noise_multiplier", "momentum"))
        if (self.epsilon is None) == (self.noise_multiplier is None):
            given = "neither" if self.epsilon is None else "both"
            raise expected("one of noise_multiplier and epsilon", given, "given")
        if self.clip == "gradient" and self.local_steps != 1:
            raise expected("local_steps", self.local_steps, 'left out without clip="update": a round is one step')
        if self.momentum >= 1 or (self.optimizer == "sgd" and self.momentum != type(self).momentum):
            wanted = "below 1, and left out with optimizer='sgd', which does not read it"
            raise expected("momentum", self.momentum, wanted)
        if self.averaged_rounds is not None and self.averaged_rounds > 1:
            raise expected("averaged_rounds", self.averaged_rounds, "above 0 and at most 1")

    def plan(self, counts: Counts) -> PrivacyPlan:
        """The plan of a federation with those counts; of these only the sizes of silos and federation are read."""
        silos = len(counts.silos)
        bound = silos if self.silos_per_subject is None else self.silos_per_subject
        facts = counts.facts(None)
        if facts.silos_per_subject > bound:
            raise expected("silos_per_subject", bound, f"at least {facts.silos_per_subject}, those of one person here")
        weights = BudgetWeights(self.weights)
        settings = PlanSettings(
            mode=AccountingMode.SOUND,
            horizontal=Horizontal.SOUND,
            sampling=SamplingMethod.POISSON_SUBJECTS,
            epsilon=1.0 if self.epsilon is None else self.epsilon,
            delta=self.delta,
            clip_norm=self.clip_norm,
            rounds=self.rounds,
            local_steps=1,
            batch_size=1,
            noise_multiplier=self.noise_multiplier,
            noise_source=NoiseSource.SECURE if self.seed is None else NoiseSource.REPRODUCIBLE,
            subject=SubjectSettings(self.sampling_probability, self.items, weights, self.local_steps),
        )
        chosen = mechanism(_ALGORITHMS[self.clip], self.trust)
        return make_plan(chosen, replace(facts, silos_per_subject=bound), settings)


class SubjectRelease(Spending):
    """Trains a module over silos, with a guarantee for each person over all of them.

    Guarantee: :meth:`get_epsilon` bounds ε of all models after the rounds so far, for what ``trust`` lets be seen.
    Public are taken to be the numbers of silos and of persons, and the settings. Whatever else is computed from the
    data, such as losses, is not covered. The silos are simulated in this process.

    Args:
        module: any; it is trained in place, holding the global model (or the average) after each round. With
            ``clip="gradient"`` its items must not mix, and it is tried as by :class:`subjectdp.SubjectPrivacyEngine`;
            with ``clip="update"`` nothing of a pass may stay in it.
        criterion: a loss of torch, or a function of the module's output and the targets that returns losses (B,).
        data_loader: of all silos' items: its data set by position and its ``collate_fn`` are used, as by the engine;
            ``batch_size`` items go through the module at once.
        subjects, silos: of each item, by position; equal numbers and texts are one, missing values are refused.
        settings: rounds, clipping, noise and trust.

    Raises:
        ConfigError: settings that do not fit one another or the data.
        DataError: missing names, or batches without targets.
        ModelError: a module that cannot be trained, with the reason.
    """

    busy = False  # its module may be used between rounds

    def __init__(
        self,
        module: nn.Module,
        criterion: Callable[[Any, Any], Tensor],
        data_loader: DataLoader[Any],
        subjects: Sequence[Any],
        silos: Sequence[Any],
        settings: ReleaseSettings,
    ) -> None:
        self._check(module, settings)
        keep_freed_memory()
        counts, partition = _federated(subjects, silos, check_loader(data_loader)[0])
        self.module, self.settings, self.silos, self._loads = module, settings, counts.silos, 0
        self._seed = secrets.randbits(256) if settings.seed is None else settings.seed
        with words_of_the_api():
            self._plan = settings.plan(counts)
        if self.plan.delta_warning is not None:
            warnings.warn(self.plan.delta_warning, stacklevel=2)
        # where gradients are clipped the items are kept apart; where updates are, the passes of different people
        check = check_model if settings.clip == "gradient" else check_keeps_nothing
        batches = BatchCheck(data_loader, next(module.parameters()).device, in_loop=False)
        capacity = data_loader.batch_size or 1
        engine, self._try = trained_engine(module, criterion, batches, capacity, check, settings.fix)
        name = cast(Any, settings.optimizer)
        self._items = _Items(data_loader, batches, engine if settings.clip == "gradient" else None)
        self._federation = Federation(
            rule=algorithm(self.plan.mechanism.algorithm, None).round_rule(self.plan),
            plan=self.plan,
            partition=partition,
            data=cast(DeviceDataset, self._items),
            engine=engine,
            seed=self._seed,
            noise_name="SubjectRelease of one's own module",
            optimiser=OptimizerConfig(name=name, learning_rate=settings.learning_rate, momentum=settings.momentum),
            averaged_rounds=settings.averaged_rounds,
        )
        self._model = GlobalModel(self._federation)
        engine.flat.require_gradients(True)
        guard(module, self)

    def round(self) -> None:
        """One round: draws people, trains each silo, adds noise and moves the module.

        Raises:
            PrivacyError: more rounds than the noise was made for.
            ModelError: a module that keeps something of a pass beside its parameters, or that changed its own.
        """
        if self._steps >= self.settings.rounds:
            raise PrivacyError(f"Expected at most {self.settings.rounds} rounds: the noise was made for them.")
        flat = self._federation.engine.flat
        self._check_as_left(flat)
        before, kept = self._model.state(), {name: each.clone() for name, each in self.module.named_buffers()}
        self._items.tried = self._try(self._steps)
        self._steps += 1
        flat.require_gradients(False)
        try:
            refuse_by_name(self.module)
            with in_words("The module"):
                run_round(self._federation, self._model, self._steps, StepLog())
            self._check_buffers(kept)
        except BaseException:  # nothing of a round that failed is shown
            self._model.restore(before)
            raise
        finally:
            flat.require_gradients(True)
            flat.load(self._model.reported)

    @staticmethod
    def _check(module: nn.Module, settings: ReleaseSettings) -> None:
        if not isinstance(settings, ReleaseSettings):
            raise expected("settings", type(settings).__name__, "ReleaseSettings")
        settings.check()
        check_parameters(module)
        refuse_second_training(module)

    def _check_as_left(self, flat: FlatParameters) -> None:
        """Raises PrivacyError for other parameters, or other values, than the last round left."""
        trained, left = trained_parameters(self.module), flat.views(self._model.reported)
        if list(trained) != list(flat.parameters):
            raise PrivacyError("Expected the trained parameters of the first round: make a new SubjectRelease.")
        for name, view in flat.views(flat.vector).items():
            same = trained[name].data_ptr() == view.data_ptr()
            if not same or not torch.equal(trained[name].nan_to_num(), left[name].nan_to_num()):
                raise PrivacyError(
                    f"Expected the module as the last round left it, {name!r} was changed: load weights before "
                    "SubjectRelease is made, or its own state by load_state_dict."
                )

    def _check_buffers(self, kept: dict[str, Tensor]) -> None:
        """Of the sizes that a round found; those that a pass makes anew are looked at by the trial."""
        for name, now in self.module.named_buffers():
            before = kept.get(name, now)
            if now.shape == before.shape and not torch.equal(now, before):
                now.copy_(before)
                raise ModelError(
                    f"Expected a module that a pass leaves as it is, {name!r} keeps values of the items, unclipped and "
                    "without noise."
                )

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` needs; it holds the model and no seed."""
        return {"rounds": self._steps, "plan": plain(self.plan), "model": self._model.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from a saved state with the same people, silos and settings; no draw is used twice.

        Rounds that were released since then stay counted. Raises PrivacyError for the state of another plan.
        """
        model = state.get("model") if isinstance(state, Mapping) else None
        held = model.get(MODEL) if isinstance(model, Mapping) else None
        if getattr(held, "shape", None) != self._model.vector.shape or state.get("plan") != plain(self.plan):
            raise PrivacyError("Expected the state of a SubjectRelease with the same people, silos and settings.")
        rounds = whole_number("rounds of the state", state.get("rounds"), 0)
        self._steps, self._loads = max(self._steps, rounds), self._loads + 1
        own = key_bytes(self._seed, Purpose.NOISE, "loaded", self._loads, self._steps)
        self._federation = replace(self._federation, seed=int.from_bytes(own, "little"))
        self._model.restore(state["model"])
        self._federation.engine.flat.load(self._model.reported)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError("A SubjectRelease cannot be pickled or copied: it holds the secret of the noise.")


class _Items:
    """Batches of anyone's data set, by position, for :mod:`subjectdp.training`; tried where ``engine`` clips items."""

    tried = False

    def __init__(self, loader: DataLoader[Any], check: BatchCheck, engine: ClippingEngine | None) -> None:
        self._loader, self._check, self._device, self._engine = loader, check, check.device, engine

    def batch(self, addresses: NDArray[np.int32]) -> tuple[Any, Any]:
        if not len(addresses):
            return torch.zeros(0, device=self._device), torch.zeros(0, device=self._device)
        items = [self._loader.dataset[int(place)] for place in addresses]
        moved = inputs_and_targets(self._loader.collate_fn(items), self._device)
        for tensor in (each for part in moved for each in tensors_in(part)):
            if tensor.shape[:1] != (len(items),):
                allowed = f"{len(items)} in the first dimension"
                raise expected("items of a batch", tuple(tensor.shape), allowed, DataError)
        self._check(addresses.tolist(), moved)
        if self._engine is not None and (self.tried or is_larger(self._engine, len(items))):
            check_batch(self._engine, *moved)
        return moved


def _federated(subjects: Sequence[Any], silos: Sequence[Any], items: int) -> tuple[Counts, Partition]:
    """The counts, and the items of each silo ordered by person."""
    owners, people = numbered(subjects, items)
    places, names = numbered(silos, items, "silo")
    if not items:
        raise ConfigError("Expected data with items.")
    order = np.lexsort((np.arange(items), owners, places))
    pairs, sizes = np.unique(np.stack([owners, places], axis=1), axis=0, return_counts=True)
    counts = Counts(people, names, np.column_stack([pairs, sizes]))
    none, facts = np.zeros(0, np.int32), {"counts": {"subjects": len(people)}}
    offsets = np.concatenate([[0], np.cumsum(np.bincount(places))])
    return counts, Partition(order.astype(np.int32), owners[order].astype(np.int32), offsets, none, none, facts)
