"""One local step of a silo (``algorithms.protocols.LocalStep``): sampling, clipping and noise as the plan says."""

from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.algorithms.protocols import Batch
from subjectdp.engine.flat import Factor, clip_factors, row_norms
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.noise.secure import add_secure_gaussian
from subjectdp.noise.skellam import Grid
from subjectdp.plan.plan import DivisorRule, NoiseSource
from subjectdp.sampling.batches import (
    BatchStatistics,
    StepKey,
    batch_statistics,
    items_of_subjects,
    sample_items,
    subjects_of_round,
)
from subjectdp.training.device_data import DeviceDataset, to_device
from subjectdp.training.federation import Federation
from subjectdp.training.integer_noise import rounded_sum
from subjectdp.training.records import LoggedStep
from subjectdp.training.subject_updates import subject_update_sum

SERVER = -1  # the "silo" in noise keys of the server's own noise
UPDATE = -1  # the "step" in noise keys of the noise on a silo's whole update


class MiniBatch:
    """One drawn mini-batch (see ``algorithms.protocols.Batch``); its items are loaded on first use."""

    def __init__(
        self, addresses: NDArray[np.int32], owners: NDArray[np.int32], data: DeviceDataset, device: torch.device
    ) -> None:
        self.addresses, self.owners = addresses, owners  # of each item: its address, its subject
        self.statistics = batch_statistics(owners)
        self.items, self.subjects, self.largest_group = self.statistics
        self._data, self._device = data, device

    @property
    def inputs(self) -> Tensor:
        return self._loaded[0]

    @property
    def labels(self) -> Tensor:
        return self._loaded[1]

    @property
    def group_sizes(self) -> Tensor:
        _, inverse, counts = np.unique(self.owners, return_inverse=True, return_counts=True)
        return to_device(counts[inverse].astype(np.float32), self._device)

    @cached_property
    def subject_groups(self) -> tuple[NDArray[np.int32], Tensor, Tensor]:
        """Distinct subjects; each item's index into them, on the CPU; each item's weight in its subject's mean."""
        subjects, places, counts = np.unique(self.owners, return_inverse=True, return_counts=True)
        weights = (1.0 / counts)[places].astype(np.float32)
        return subjects, torch.from_numpy(places.astype(np.int64)), to_device(weights, self._device)

    @cached_property
    def _loaded(self) -> tuple[Tensor, Tensor]:
        return self._data.batch(self.addresses)


class SiloStep:
    """One local step of one silo (``algorithms.protocols.LocalStep`` and ``IntegerStep``).

    The engine's parameters are the model that the step is taken at.
    """

    def __init__(self, federation: Federation, round_: int, silo: int, step: int) -> None:
        self.federation, self.round, self.silo, self.step = federation, round_, silo, step
        self.plan, self.engine = federation.plan, federation.engine
        self._drawn: MiniBatch | None = None
        noised_by_server = self.plan.mechanism.server_noise and silo != SERVER
        self._noise_multiplier = self.plan.silos[silo].noise_multiplier if noised_by_server else 0.0
        self._clipped_fraction: Tensor | float = float("nan")

    @property
    def row(self) -> LoggedStep:
        """What the step did, for the log."""
        drawn = BatchStatistics(0, 0, 0) if self._drawn is None else self._drawn.statistics
        place = self.round, self.silo, self.step
        return LoggedStep(*place, drawn, self._noise_multiplier, self._clipped_fraction)

    def sample_batch(self) -> MiniBatch:
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> MiniBatch:
        federation, settings = self.federation, self.plan.settings
        items, owners = federation.partition.silo(self.silo)
        key = StepKey(federation.seed, self.round, self.silo, self.step)
        if self.plan.mechanism.samples_subjects:
            chosen = self._subjects()
            positions = items_of_subjects(owners, chosen, settings.subject.items, key)
        else:
            schedule = self.plan.silos[self.silo]
            positions = sample_items(len(items), schedule, settings.sampling, settings.batch_size, key)
        return MiniBatch(items[positions], owners[positions], federation.data, federation.device)

    def _subjects(self) -> NDArray[np.bool_]:
        return subjects_of_round(
            self.federation.partition.subjects,
            self.plan.silos[self.silo].sampling_probability,
            self.federation.seed,
            self.round,
            *(() if self.plan.mechanism.shared_budget else (self.silo, self.step)),
        )

    def gradient_sum(self, batch: Batch) -> Tensor:
        return self.engine.gradient_sum(batch.inputs, batch.labels)

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None, factor: Factor | None = None) -> Tensor:
        clip_norm = self._clip_norm() / self.plan.silos[self.silo].fused_steps
        total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, clip_norm, weights, factor=factor)
        self._clipped_fraction = _share_above(norms, clip_norm)
        return total

    def subject_sum(self, batch: Batch) -> Tensor:
        return self._sum_of_subjects(batch, updates=False)

    def subject_update_sum(self, batch: Batch) -> Tensor:
        return self._sum_of_subjects(batch, updates=True)

    def _sum_of_subjects(self, batch: Batch, updates: bool) -> Tensor:
        if not isinstance(batch, MiniBatch):
            raise TypeError(f"Expected a mini-batch of SiloStep.sample_batch, got {type(batch).__name__}.")
        subjects, groups, weights = batch.subject_groups
        norms_of = self.federation.subject_clip_norms[self.silo, subjects]
        clip_norms = to_device(norms_of, self.federation.device)
        if updates:
            total, norms = subject_update_sum(self.federation, batch, groups, weights, clip_norms)
        else:
            total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, clip_norms, weights, groups)
        self._clipped_fraction = _share_above(norms, clip_norms)
        return total

    def clip(self, vector: Tensor) -> Tensor:
        clip_norm = self._clip_norm()
        norm = row_norms(vector.unsqueeze(0))[0]
        self._clipped_fraction = ~(norm <= clip_norm)
        # a vector that is not finite cannot be bounded: it contributes nothing
        vector = torch.where(norm.isfinite(), vector, 0.0)
        norm = torch.where(norm.isfinite(), norm, 0.0)
        return vector * clip_factors(norm, clip_norm)  # the factor of a short vector is exactly 1

    def noise_multiplier(self, batch: Batch) -> float:
        ends_fused = (self.step + 1) % self.plan.silos[self.silo].fused_steps == 0
        return self.plan.noise_multiplier(self.silo, batch.largest_group) if ends_fused else 0.0

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        self._noise_multiplier = noise_multiplier
        std = 0.0 if noise_multiplier == 0.0 else noise_multiplier * self._clip_norm()
        add = add_secure_gaussian if self.plan.settings.noise_source is NoiseSource.SECURE else add_gaussian
        return add(total, std, key_bytes(self.federation.seed, Purpose.NOISE, *self._place))

    def release(self, update: Tensor) -> Tensor:
        """Clip(update, C_i) + N(0, σ²C² I): a silo's one release of the round."""
        return self.add_noise(self.clip(update), self.plan.silos[self.silo].noise_multiplier)

    def rounded_sum(self, batch: Batch) -> Tensor:
        generator = numpy_generator(self.federation.seed, Purpose.DITHER, *self._place)
        total, self._clipped_fraction = rounded_sum(self.engine, batch, self._grid, self._clip_norm(), generator)
        return total

    def add_integer_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        self._noise_multiplier = noise_multiplier
        generator = numpy_generator(self.federation.seed, Purpose.NOISE, *self._place)
        return total.add_(torch.from_numpy(self._grid.noise(noise_multiplier, generator)))

    @property
    def _grid(self) -> Grid:
        return self.federation.integer_noise.grid

    def divisor(self, batch: Batch) -> float:
        if self.plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
            return float(max(1, batch.subjects))
        return self.plan.silos[self.silo].divisor

    @property
    def _place(self) -> tuple[str | int, ...]:
        return self.federation.noise_name, self.round, self.silo, self.step

    def _clip_norm(self) -> float:
        return float("inf") if self.plan.clip_norm is None else self.plan.clip_norm


def _share_above(norms: Tensor, bound: float | Tensor) -> Tensor | float:
    if norms.numel() == 0:
        return float("nan")
    if norms.device.type != "cpu":
        return (norms > bound).mean(dtype=torch.float32)
    # a third of the time of torch's comparison and mean
    above = norms.numpy() > (bound.numpy() if isinstance(bound, Tensor) else bound)
    return float(np.float32(np.count_nonzero(above) / above.size))
