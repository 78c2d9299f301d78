"""A simulated federation: the server side of ``algorithms.protocols``, executing one privacy plan.

What a round needs is the global model, the server's optimisers and the round's number; all else stays the same over the
run. Silos keep nothing between rounds, so that any process that holds the same federation can train any of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.algorithms.base import Algorithm
from subjectdp.algorithms.protocols import GridStep, LocalStep
from subjectdp.data.partition import Partition
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.errors import ConfigError, expected
from subjectdp.noise.subject_weights import budget_weights, clip_norms
from subjectdp.plan.plan import Clipping, NoiseDistribution, NoiseRule, PrivacyPlan, TrustModel
from subjectdp.sampling.batches import sample_silos
from subjectdp.training.evaluation import Evaluation, Score
from subjectdp.training.items.device_data import ResidentData
from subjectdp.training.record.environment import synchronise
from subjectdp.training.record.records import Recorder
from subjectdp.training.record.steplog import StepLog
from subjectdp.training.steps.averaging import AveragingSettings, IterateAverage
from subjectdp.training.steps.gradients import ExactGradients, Gradients
from subjectdp.training.steps.integer_grid import GridPlan, grid_plan
from subjectdp.training.steps.optimisers import OptimiserSettings, check_linear, descend, make_optimiser
from subjectdp.training.steps.silo_step import SERVER, UPDATE, SiloStep

if TYPE_CHECKING:
    from subjectdp.training.workers.processes import Results, Team

Kind = Literal["train", "grid", "step"]
_OF_UPDATES = (Clipping.PER_UPDATE, Clipping.PER_SUBJECT_UPDATE)


class Federation:
    """Everything that stays the same over the rounds of one run, and the global model.

    Attributes:
        theta: float32 (P,), the global model.
        average: of the global models so far; None: the newest one is evaluated and saved.
        log: what the round's local steps did, until ``run_round`` hands it to the recorder.
        gradients: how the gradient sums of a mini-batch are computed.
        team: other processes that train silos of a round as well; None: this one trains them all.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        plan: PrivacyPlan,
        partition: Partition,
        data: ResidentData,
        engine: ClippingEngine,
        optimiser: OptimiserSettings,
        server_optimiser: OptimiserSettings,
        seed: int,
        recorder: Recorder,
        averaging: AveragingSettings | None = None,
    ) -> None:
        self.algorithm, self.plan, self.partition, self.data, self.engine = (
            algorithm,
            plan,
            partition,
            data,
            engine,
        )
        check_linear(plan, optimiser)
        self.optimiser, self.server_optimiser = optimiser, server_optimiser
        self.seed, self.recorder = seed, recorder
        self.log = StepLog()
        self.gradients: Gradients = ExactGradients(engine, plan.settings.views)
        self.team: Team | None = None
        self.device = engine.flat.vector.device
        self.theta = engine.flat.vector.clone()
        self.central_optimiser = make_optimiser(self.theta, optimiser)
        self.averaging_optimiser = None
        if server_optimiser.name != "none":
            self.averaging_optimiser = make_optimiser(self.theta, server_optimiser)
        self.average: IterateAverage | None = None
        if averaging is not None and averaging.name != "none":
            self.average = IterateAverage(averaging, plan.rounds, self.theta)
        self.grid: GridPlan | None = None
        if plan.settings.noise_distribution == NoiseDistribution.SKELLAM:
            if algorithm.grid_round is None:
                raise expected(
                    "joint.noise", "skellam", f"gaussian with algorithm {algorithm.name}", ConfigError
                )
            self.grid = grid_plan(plan, engine.flat.size, optimiser)

    def run_round(self, round_: int) -> float:
        """Runs one round (counted from 1) and leaves the new global model in the engine; returns its seconds."""
        start = time.perf_counter()
        chosen = sample_silos(self.partition.silos, self.plan.settings.silos_per_round, self.seed, round_)
        self.engine.flat.load(self.theta)
        server = Round(self, round_, [int(i) for i in chosen])
        if self.grid is not None and self.algorithm.grid_round is not None:
            self.algorithm.grid_round(server)
        elif self.plan.mechanism.clipping in _OF_UPDATES and self.algorithm.update_round is not None:
            self.algorithm.update_round(server)
        else:
            self.algorithm.server_round(server, self.algorithm.local_step)
        self.engine.flat.load(self.theta)
        if self.average is not None:
            self.average.update(self.theta, round_)
        for row in self.log.take():
            self.recorder.step(*row)
        synchronise(self.device)
        return time.perf_counter() - start

    def score(self, addresses: NDArray[np.int32], batch_size: int) -> Score:
        """Scores the reported model on the items at ``addresses``, in batches; by all processes of a team."""
        self.engine.flat.load(self.reported)
        work = Evaluation(addresses, batch_size)
        places = range(work.batches)
        if self.team is None:
            return work.score(work.run(self, place) for place in places)
        results = self.team.results(self, work, self.reported)
        return work.score(results.take(place) for place in places)

    @property
    def reported(self) -> Tensor:
        """The model that is evaluated and saved, (P,): the average over rounds, where there is one."""
        return self.theta if self.average is None else self.average.vector

    @cached_property
    def noise_name(self) -> str:
        """Tells the noise of runs apart, which share partition and sampling for a seed, and of a run on changed data.

        Were it the same under two noise multipliers, or with and without a subject, a difference of two models would be
        free of it.
        """
        mechanism, hashes = self.plan.mechanism, self.partition.data_hashes
        data = ",".join(f"{name}={hashes[name]}" for name in sorted(hashes))
        return (
            f"{mechanism.algorithm}:{mechanism.variant}:{mechanism.mode.value}:{self.recorder.run_id}:{data}"
        )

    @cached_property
    def subject_clip_norms(self) -> NDArray[np.float32]:
        """C_a of each subject at each silo, (silos, subjects); parts of a budget, where the plan has one."""
        partition, plan = self.partition, self.plan
        if not plan.mechanism.shared_budget:
            return np.full((partition.silos, partition.subjects), plan.settings.clip_norm, np.float32)
        settings = plan.settings.subject
        rule = settings.weights, plan.mechanism.trust, plan.silos_per_subject, settings.item_noise
        return clip_norms(budget_weights(partition.counts(), *rule), plan.settings.clip_norm)

    def grid_plan(self) -> GridPlan:
        """Grids and ring; ConfigError where the plan's noise is not integer."""
        if self.grid is None:
            raise expected("joint.noise", "gaussian", "skellam for steps on a grid", ConfigError)
        return self.grid


@dataclass(frozen=True)
class SiloWork:
    """The part of a round that its silos do, for any process that holds the federation; parts are ``silos``.

    Attributes:
        silos: those of the round.
        kind: "train" for local steps on the silo's own model, "grid" for the same in integers, "step" for one local
            step at the global model.
        local_step: a function of a module, if it is to reach another process.
    """

    round: int
    silos: tuple[int, ...]
    kind: Kind
    local_step: Callable[[Any], Tensor]

    def order(self, federation: Federation) -> list[int]:
        """Those with the most planned items first, so that processes end together."""

        def planned(place: int) -> float:
            plan = federation.plan.silos[self.silos[place]]
            return plan.steps_per_round * plan.items * plan.sampling_probability

        return sorted(range(len(self.silos)), key=lambda place: -planned(place))

    def run(self, federation: Federation, place: int) -> Tensor:
        """One silo's result (P,): float32, or int64 on the grid. Reads the global model, writes the engine's."""
        return Round(federation, self.round, []).work(self.kind, self.silos[place], self.local_step)


class Round:
    """The server's side of one round (``algorithms.protocols.ServerRound``)."""

    def __init__(self, federation: Federation, round_: int, silos: list[int]) -> None:
        self.federation, self.round, self.silos = federation, round_, silos
        self.silo_count = len(silos)
        self._results: dict[SiloWork, Results] = {}

    @property
    def model(self) -> Tensor:
        return self.federation.theta

    @property
    def adds_noise_once(self) -> bool:
        mechanism = self.federation.plan.mechanism
        return mechanism.trust is TrustModel.CENTRAL and mechanism.noise_rule is NoiseRule.CONSTANT

    @property
    def divisor(self) -> float:
        return sum(self.federation.plan.silos[silo].divisor for silo in self.silos)

    def train_locally(self, silo: int, local_step: Callable[[LocalStep], Tensor]) -> Tensor:
        return self._result("train", silo, local_step)

    def train_on_grid(self, silo: int, local_step: Callable[[GridStep], Tensor]) -> Tensor:
        return self._result("grid", silo, local_step)

    def one_step(self, silo: int, local_step: Callable[[LocalStep], Tensor]) -> Tensor:
        return self._result("step", silo, local_step)

    def secure_sum(self, updates: Iterable[Tensor]) -> Tensor:
        return self.federation.grid_plan().secure_sum(updates).to(self.model)

    @property
    def unit(self) -> float:
        return self.federation.grid_plan().unit

    def add_noise(self, total: Tensor) -> Tensor:
        return SiloStep(self.federation, self.round, SERVER, 0).add_noise(
            total, self.federation.plan.silos[0].noise_multiplier
        )

    def noisy_update(self, silo: int, update: Tensor) -> Tensor:
        return SiloStep(self.federation, self.round, silo, UPDATE).release(update)

    def set_model(self, model: Tensor) -> None:
        federation = self.federation
        if federation.averaging_optimiser is None:
            federation.theta.copy_(model)
        else:
            descend(federation.averaging_optimiser, federation.theta, federation.theta - model)

    def descend(self, gradient: Tensor) -> None:
        descend(self.federation.central_optimiser, self.federation.theta, gradient)

    def work(self, kind: Kind, silo: int, local_step: Callable[[Any], Tensor]) -> Tensor:
        """What one silo does in this round, done here and now."""
        if kind == "step":
            return local_step(SiloStep(self.federation, self.round, silo, 0))
        self.federation.engine.flat.load(self.federation.theta)
        return (self._train if kind == "train" else self._train_on_grid)(silo, local_step)

    def _result(self, kind: Kind, silo: int, local_step: Callable[[Any], Tensor]) -> Tensor:
        """One silo's result; a team works on all silos when the first is asked for."""
        federation = self.federation
        if federation.team is None:
            return self.work(kind, silo, local_step)
        work = SiloWork(self.round, tuple(self.silos), kind, local_step)
        if work not in self._results:
            self._results[work] = federation.team.results(federation, work, federation.theta)
        return self._results[work].take(self.silos.index(silo))

    def _train(self, silo: int, local_step: Callable[[Any], Tensor]) -> Tensor:
        flat, schedule = self.federation.engine.flat, self.federation.plan.silos[silo]
        optimiser = make_optimiser(flat.vector, self.federation.optimiser)
        for group in optimiser.param_groups:
            group["lr"] *= schedule.learning_rate_factor
        for step in range(schedule.steps_per_round):
            descend(optimiser, flat.vector, local_step(SiloStep(self.federation, self.round, silo, step)))
        return flat.vector.clone()

    def _train_on_grid(self, silo: int, local_step: Callable[[Any], Tensor]) -> Tensor:
        flat = self.federation.engine.flat
        update = torch.zeros(flat.size, dtype=torch.int64)
        for step in range(self.federation.plan.silos[silo].steps_per_round):
            integers = local_step(SiloStep(self.federation, self.round, silo, step))
            update += integers
            flat.vector.sub_((integers * self.unit).to(flat.vector))
        return update
