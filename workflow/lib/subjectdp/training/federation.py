"""A simulated federation: the server and silo sides of ``algorithms.base``, executing one privacy plan."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.algorithms.base import Algorithm, Batch, LocalStep
from subjectdp.data.partition import Partition
from subjectdp.mechanisms.clipping import ClippingEngine
from subjectdp.mechanisms.noise import add_gaussian
from subjectdp.mechanisms.plan import DivisorRule, NoiseRule, PrivacyPlan, TrustModel
from subjectdp.sampling.batches import BatchStatistics, batch_statistics, sample_items, sample_silos
from subjectdp.sampling.keys import Purpose, key_bytes
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

    def run_round(self, round_: int) -> float:
        """Runs one round (counted from 1) and leaves the new global model in the engine; returns its seconds."""
        start = time.perf_counter()
        chosen = sample_silos(self.partition.silos, self.plan.settings.silos_per_round, self.seed, round_)
        self.engine.flat.load(self.theta)
        self.algorithm.server_round(Round(self, round_, [int(i) for i in chosen]), self.algorithm.local_step)
        self.engine.flat.load(self.theta)
        return time.perf_counter() - start

    @cached_property
    def noise_name(self) -> str:
        """Tells the noise of algorithms apart, which share partition and sampling for a seed."""
        mechanism = self.plan.mechanism
        return f"{mechanism.algorithm}:{mechanism.variant}:{mechanism.mode.value}"


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
        optimiser = make_optimiser(flat.vector, self.federation.optimiser)
        for step in range(self.federation.plan.silos[silo].steps_per_round):
            descend(optimiser, flat.vector, local_step(SiloStep(self.federation, self.round, silo, step)))
        return flat.vector.clone()

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
        name = self.federation.noise_name
        key = key_bytes(self.federation.seed, Purpose.NOISE, name, self.round, self.silo, self.step)
        # a multiplier of 0 is no noise, also where nothing is clipped (C infinite)
        std = 0.0 if noise_multiplier == 0.0 else noise_multiplier * self._clip_norm()
        noisy = add_gaussian(total, std, key)
        if self.silo != SERVER:
            self._record(noise_multiplier)
        return noisy

    def divisor(self, batch: Batch) -> float:
        if self.plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
            return float(max(1, batch.subjects))
        return self.plan.silos[self.silo].divisor

    def _clip_norm(self) -> float:
        clip_norm = self.plan.clip_norm
        return float("inf") if clip_norm is None else clip_norm

    def _record(self, noise_multiplier: float) -> None:
        self.federation.recorder.step(
            self.round, self.silo, self.step, self._statistics, noise_multiplier, self._clipped_fraction
        )
