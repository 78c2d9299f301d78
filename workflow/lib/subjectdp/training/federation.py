"""A simulated federation: the server and silo sides of ``algorithms.base``, executing one privacy plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.algorithms.base import Algorithm, Batch, GridStep, LocalStep
from subjectdp.data.partition import Partition
from subjectdp.errors import ConfigError, expected
from subjectdp.mechanisms.clipping import ClippingEngine
from subjectdp.mechanisms.noise import add_gaussian
from subjectdp.mechanisms.plan import DivisorRule, NoiseDistribution, NoiseRule, PrivacyPlan, TrustModel
from subjectdp.sampling.batches import BatchStatistics, batch_statistics, sample_items, sample_silos
from subjectdp.sampling.keys import Purpose, key_bytes, numpy_generator
from subjectdp.training.grid import GridPlan, grid_plan, rounded_sum
from subjectdp.training.optimisers import OptimiserSettings, descend, make_optimiser
from subjectdp.training.records import Recorder
from subjectdp.training.resident import ResidentData

SERVER = -1  # the "silo" in noise keys of the server's own noise


@dataclass(frozen=True)
class MiniBatch:
    """One drawn mini-batch (see ``algorithms.base.Batch``)."""

    inputs: Tensor
    labels: Tensor
    owners: NDArray[np.int32]  # subject of each item
    statistics: BatchStatistics

    @property
    def items(self) -> int:
        return self.statistics.items

    @property
    def subjects(self) -> int:
        return self.statistics.subjects

    @property
    def largest_group(self) -> int:
        return self.statistics.largest_group

    @property
    def group_sizes(self) -> Tensor:
        _, inverse, counts = np.unique(self.owners, return_inverse=True, return_counts=True)
        return torch.from_numpy(counts[inverse].astype(np.float32)).to(self.inputs.device)


class Federation:
    """Everything that stays the same over the rounds of one run, and the global model."""

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
    ) -> None:
        self.algorithm, self.plan, self.partition, self.data, self.engine = (
            algorithm,
            plan,
            partition,
            data,
            engine,
        )
        self.optimiser, self.server_optimiser = optimiser, server_optimiser
        self.seed, self.recorder = seed, recorder
        self.theta = engine.flat.vector.clone()
        self.central_optimiser = make_optimiser(self.theta, optimiser)
        self.averaging_optimiser = None
        if server_optimiser.name != "none":
            self.averaging_optimiser = make_optimiser(self.theta, server_optimiser)
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
        if self.grid is None or self.algorithm.grid_round is None:
            self.algorithm.server_round(server, self.algorithm.local_step)
        else:
            self.algorithm.grid_round(server)
        self.engine.flat.load(self.theta)
        return time.perf_counter() - start

    @cached_property
    def noise_name(self) -> str:
        """Tells the noise of algorithms apart, which share partition and sampling for a seed."""
        mechanism = self.plan.mechanism
        return f"{mechanism.algorithm}:{mechanism.variant}:{mechanism.mode.value}"

    def grid_plan(self) -> GridPlan:
        """Grids and ring; ConfigError where the plan's noise is not integer."""
        if self.grid is None:
            raise expected("joint.noise", "gaussian", "skellam for steps on a grid", ConfigError)
        return self.grid


class Round:
    """The server's side of one round (``algorithms.base.ServerRound``)."""

    def __init__(self, federation: Federation, round_: int, silos: list[int]) -> None:
        self.federation, self.round, self.silos = federation, round_, silos
        self.silo_count = len(silos)

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
        flat = self.federation.engine.flat
        flat.load(self.federation.theta)
        schedule = self.federation.plan.silos[silo]
        optimiser = make_optimiser(flat.vector, self.federation.optimiser)
        for group in optimiser.param_groups:
            group["lr"] *= schedule.learning_rate_factor
        for step in range(schedule.steps_per_round):
            descend(optimiser, flat.vector, local_step(SiloStep(self.federation, self.round, silo, step)))
        return flat.vector.clone()

    def train_on_grid(self, silo: int, local_step: Callable[[GridStep], Tensor]) -> Tensor:
        flat = self.federation.engine.flat
        flat.load(self.federation.theta)
        update = torch.zeros(flat.size, dtype=torch.int64)
        for step in range(self.federation.plan.silos[silo].steps_per_round):
            integers = local_step(SiloStep(self.federation, self.round, silo, step))
            update += integers
            flat.vector.sub_((integers * self.unit).to(flat.vector))
        return update

    def secure_sum(self, updates: Iterable[Tensor]) -> Tensor:
        return self.federation.grid_plan().secure_sum(updates).to(self.model)

    @property
    def unit(self) -> float:
        return self.federation.grid_plan().unit

    def step_of(self, silo: int) -> SiloStep:
        return SiloStep(self.federation, self.round, silo, 0)

    def add_noise(self, total: Tensor) -> Tensor:
        return SiloStep(self.federation, self.round, SERVER, 0).add_noise(
            total, self.federation.plan.silos[0].noise_multiplier
        )

    def set_model(self, model: Tensor) -> None:
        federation = self.federation
        if federation.averaging_optimiser is None:
            federation.theta.copy_(model)
        else:
            descend(federation.averaging_optimiser, federation.theta, federation.theta - model)

    def descend(self, gradient: Tensor) -> None:
        descend(self.federation.central_optimiser, self.federation.theta, gradient)


class SiloStep:
    """One local step (``algorithms.base.LocalStep``): sampling, clipping and noise as the plan says."""

    def __init__(self, federation: Federation, round_: int, silo: int, step: int) -> None:
        self.federation, self.round, self.silo, self.step = federation, round_, silo, step
        self.plan = federation.plan
        self._clipped_fraction = float("nan")
        self._statistics = BatchStatistics(0, 0, 0)

    @property
    def noise_before_average(self) -> bool:
        return self.plan.settings.noise_before_average

    def sample_batch(self) -> MiniBatch:
        items, owners = self.federation.partition.silo(self.silo)
        settings = self.plan.settings
        positions = sample_items(
            len(items),
            self.plan.silos[self.silo],
            settings.sampling,
            settings.batch_size,
            self.federation.seed,
            self.round,
            self.silo,
            self.step,
        )
        self._statistics = batch_statistics(owners[positions])
        inputs, labels = self.federation.data.batch(items[positions])
        return MiniBatch(inputs, labels, owners[positions], self._statistics)

    def gradient_sum(self, batch: Batch) -> Tensor:
        total = self.federation.engine.gradient_sum(batch.inputs, batch.labels)
        if self.plan.mechanism.noise_rule is NoiseRule.NONE:
            self._record(0.0)
        return total

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None) -> Tensor:
        clip_norm = self._clip_norm()
        total, norms = self.federation.engine.clipped_sum(batch.inputs, batch.labels, clip_norm, weights)
        self._clipped_fraction = float((norms > clip_norm).float().mean()) if batch.items else float("nan")
        if (
            self.plan.mechanism.trust is TrustModel.CENTRAL
            and self.plan.mechanism.noise_rule is NoiseRule.CONSTANT
        ):
            self._record(self.plan.silos[self.silo].noise_multiplier)
        return total

    def clip(self, vector: Tensor) -> Tensor:
        clip_norm = self._clip_norm()
        norm = float(torch.linalg.vector_norm(vector))
        self._clipped_fraction = float(norm > clip_norm)
        return vector * (clip_norm / norm) if norm > clip_norm else vector

    def noise_multiplier(self, batch: Batch) -> float:
        return self.plan.noise_multiplier(self.silo, batch.largest_group)

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        key = key_bytes(self.federation.seed, Purpose.NOISE, *self._key)
        # a multiplier of 0 is no noise, also where nothing is clipped (C infinite)
        std = 0.0 if noise_multiplier == 0.0 else noise_multiplier * self._clip_norm()
        noisy = add_gaussian(total, std, key)
        if self.silo != SERVER:
            self._record(noise_multiplier)
        return noisy

    def rounded_sum(self, batch: Batch) -> Tensor:
        federation = self.federation
        generator = numpy_generator(federation.seed, Purpose.DITHER, *self._key)
        total, self._clipped_fraction = rounded_sum(
            federation.engine,
            batch,
            self._clip_norm(),
            self.plan.silos[self.silo].learning_rate_factor,
            federation.grid_plan().grids[self.silo],
            generator,
        )
        return total

    def add_integer_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        generator = numpy_generator(self.federation.seed, Purpose.NOISE, *self._key)
        noise = self.federation.grid_plan().grids[self.silo].noise(noise_multiplier, generator)
        self._record(noise_multiplier)
        return total.add_(torch.from_numpy(noise))

    def divisor(self, batch: Batch) -> float:
        if self.plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
            return float(max(1, batch.subjects))
        return self.plan.silos[self.silo].divisor

    @property
    def _key(self) -> tuple[str | int, ...]:
        return self.federation.noise_name, self.round, self.silo, self.step

    def _clip_norm(self) -> float:
        clip_norm = self.plan.clip_norm if self.silo == SERVER else self.plan.clip_norm_of(self.silo)
        return float("inf") if clip_norm is None else clip_norm

    def _record(self, noise_multiplier: float) -> None:
        self.federation.recorder.step(
            self.round, self.silo, self.step, self._statistics, noise_multiplier, self._clipped_fraction
        )
