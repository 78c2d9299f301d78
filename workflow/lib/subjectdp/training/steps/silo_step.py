"""One local step of a silo (``algorithms.protocols.LocalStep``), executing a privacy plan."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.algorithms.protocols import Batch
from subjectdp.engine.norms import clip_factors, row_norms
from subjectdp.noise.correlated_noise import noise_coefficients
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.plan.plan import Clipping, DivisorRule, NoiseRule, TrustModel
from subjectdp.sampling.batches import BatchStatistics, StepKey, batch_statistics, sample_items
from subjectdp.sampling.subjects import items_of_subjects, subjects_of_round
from subjectdp.training.items.device_data import to_device
from subjectdp.training.steps.integer_grid import rounded_sum
from subjectdp.training.steps.subject_updates import subject_update_sum

if TYPE_CHECKING:
    from subjectdp.training.federation import Federation
    from subjectdp.training.items.device_data import ResidentData
    from subjectdp.training.steps.gradients import Gradients

SERVER = -1  # the "silo" in noise keys of the server's own noise
UPDATE = -1  # the "step" in noise keys of the noise on a silo's whole update


class MiniBatch:
    """One drawn mini-batch (see ``algorithms.protocols.Batch``); its items are loaded when they are first looked at.

    With several ``views`` inputs and labels have a row for each view of each item, item by item. Everything that is
    counted is counted in items.
    """

    def __init__(
        self,
        addresses: NDArray[np.int32],
        owners: NDArray[np.int32],
        data: ResidentData,
        device: torch.device,
        views: int = 1,
    ) -> None:
        self.addresses, self.owners = addresses, owners  # of each item: its address, its subject
        self.statistics = batch_statistics(owners)
        self._data, self._device, self._views = data, device, views

    @property
    def inputs(self) -> Tensor:
        return self._loaded[0]

    @property
    def labels(self) -> Tensor:
        return self._loaded[1]

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
        return to_device(counts[inverse].astype(np.float32), self._device)

    @cached_property
    def subject_groups(self) -> tuple[NDArray[np.int32], Tensor, Tensor]:
        """The subjects; of each item, on the CPU, its subject's place among them; and the weight that makes a mean."""
        subjects, places, counts = np.unique(self.owners, return_inverse=True, return_counts=True)
        weights = (1.0 / counts)[places].astype(np.float32)
        return subjects, torch.from_numpy(places.astype(np.int64)), to_device(weights, self._device)

    @cached_property
    def _loaded(self) -> tuple[Tensor, Tensor]:
        load = self._data.batch if self._views == 1 else self._data.all_views
        return load(self.addresses)


def drawn_batch(batch: Batch) -> MiniBatch:
    """The mini-batch itself; TypeError for one that ``SiloStep.sample_batch`` has not drawn."""
    if not isinstance(batch, MiniBatch):
        raise TypeError(f"Expected a mini-batch of SiloStep.sample_batch, got {type(batch).__name__}.")
    return batch


class SiloStep:
    """One local step (``algorithms.protocols.LocalStep``): sampling, clipping and noise as the plan says."""

    def __init__(
        self,
        federation: Federation,
        round_: int,
        silo: int,
        step: int,
        gradients: Gradients | None = None,
    ) -> None:
        self.federation, self.round, self.silo, self.step = federation, round_, silo, step
        self.plan = federation.plan
        self._gradients = federation.gradients if gradients is None else gradients
        self._clipped_fraction: Tensor | float = float("nan")
        self._statistics = BatchStatistics(0, 0, 0)

    @property
    def noise_before_average(self) -> bool:
        return self.plan.settings.noise_before_average

    def sample_batch(self) -> MiniBatch:
        self._statistics = self._batch.statistics
        return self._batch

    @cached_property
    def _batch(self) -> MiniBatch:
        federation, settings = self.federation, self.plan.settings
        items, owners = federation.partition.silo(self.silo)
        key = StepKey(federation.seed, self.round, self.silo, self.step)
        if self.plan.mechanism.samples_subjects:
            positions = self._subjects_items(owners)
        else:
            plan_silo = self.plan.silos[self.silo]
            positions = sample_items(len(items), plan_silo, settings.sampling, settings.batch_size, key)
        chosen = items[positions], owners[positions]
        return MiniBatch(*chosen, federation.data, federation.device, settings.views)

    def _subjects_items(self, owners: NDArray[np.int32]) -> NDArray[np.int64]:
        """Positions of the items of the subjects that take part."""
        federation, settings = self.federation, self.plan.settings.subject
        chosen = subjects_of_round(
            federation.partition.subjects,
            settings,
            self.plan.silos[self.silo].sampling_probability,
            federation.seed,
            self.round,
            *(() if self.plan.mechanism.shared_budget else (self.silo, self.step)),
        )
        key = StepKey(federation.seed, self.round, self.silo, self.step)
        return items_of_subjects(owners, chosen, settings.items, key)

    def gradient_sum(self, batch: Batch) -> Tensor:
        total = self._gradients.gradient_sum(batch)
        mechanism = self.plan.mechanism
        if mechanism.noise_rule is NoiseRule.NONE or mechanism.clipping is Clipping.PER_UPDATE:
            self._record(0.0)
        return total

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None) -> Tensor:
        clip_norm = self._clip_norm()
        total, norms = self._gradients.clipped_sum(batch, clip_norm, weights)
        self._clipped(norms > clip_norm)
        return total

    def subject_sum(self, batch: Batch) -> Tensor:
        subjects, groups, weights = drawn_batch(batch).subject_groups
        clip_norms = self._subject_clip_norms(subjects)
        total, norms = self._gradients.clipped_group_sum(batch, groups, weights, clip_norms)
        self._clipped(norms > clip_norms)
        return total

    def subject_update_sum(self, batch: Batch) -> Tensor:
        subjects, groups, weights = drawn_batch(batch).subject_groups
        clip_norms = self._subject_clip_norms(subjects)
        total, norms = subject_update_sum(self.federation, batch, groups, weights, clip_norms)
        self._clipped(norms > clip_norms)
        return total

    def _subject_clip_norms(self, subjects: NDArray[np.int32]) -> Tensor:
        return to_device(self.federation.subject_clip_norms[self.silo, subjects], self.federation.device)

    def _clipped(self, beyond: Tensor) -> None:
        """Keeps the clipped fraction; a step whose noise a trusted server adds ends here."""
        self._clipped_fraction = beyond.float().mean() if len(beyond) else float("nan")
        mechanism = self.plan.mechanism
        if mechanism.trust is TrustModel.CENTRAL and mechanism.noise_rule is NoiseRule.CONSTANT:
            self._record(self.plan.silos[self.silo].noise_multiplier)

    def clip(self, vector: Tensor) -> Tensor:
        clip_norm = self._clip_norm()
        norm = row_norms(vector.unsqueeze(0))[0]
        self._clipped_fraction = ~(norm <= clip_norm)
        # nothing bounds what is not finite, and its contribution is nothing
        vector = torch.where(norm.isfinite(), vector, 0.0)
        norm = torch.where(norm.isfinite(), norm, 0.0)
        return vector * clip_factors(norm, clip_norm)  # exactly 1 for a short vector, which stays as it is

    def noise_multiplier(self, batch: Batch) -> float:
        return self.plan.noise_multiplier(self.silo, batch.largest_group)

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        noisy = self._noisy(total, self._std(noise_multiplier))
        if self.silo != SERVER:
            self._record(noise_multiplier)
        return noisy

    def _noisy(self, total: Tensor, std: float) -> Tensor:
        """Noise of this step; correlated noise draws that of earlier rounds again, from their keys."""
        band = self.plan.settings.subject.noise_band if self.plan.mechanism.shared_budget else 1
        for age, coefficient in enumerate(noise_coefficients(min(band, self.round)).tolist()):
            key = key_bytes(self.federation.seed, Purpose.NOISE, *self._key_of(self.round - age))
            if age == 0:
                total = add_gaussian(total, std, key)
            else:
                total.add_(add_gaussian(torch.zeros_like(total), std, key), alpha=coefficient)
        return total

    def release(self, update: Tensor) -> Tensor:
        """A silo's whole update, clipped and noised (``algorithms.protocols.UpdateRound``)."""
        clipped = self.clip(update)
        noise_multiplier = self.plan.silos[self.silo].noise_multiplier
        self.federation.log.release(self.round, self.silo, noise_multiplier, self._clipped_fraction)
        key = key_bytes(self.federation.seed, Purpose.NOISE, *self._key)
        return add_gaussian(clipped, self._std(noise_multiplier), key)

    def rounded_sum(self, batch: Batch) -> Tensor:
        federation = self.federation
        generator = numpy_generator(federation.seed, Purpose.DITHER, *self._key)
        total, self._clipped_fraction = rounded_sum(
            federation.engine,
            batch,
            self.plan.settings.views,
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
        return self._key_of(self.round)

    def _key_of(self, round_: int) -> tuple[str | int, ...]:
        return self.federation.noise_name, round_, self.silo, self.step

    def _clip_norm(self) -> float:
        clip_norm = self.plan.clip_norm if self.silo == SERVER else self.plan.clip_norm_of(self.silo)
        return float("inf") if clip_norm is None else clip_norm

    def _std(self, noise_multiplier: float) -> float:
        """σ C; a multiplier of 0 is no noise, also where nothing is clipped (C infinite)."""
        return 0.0 if noise_multiplier == 0.0 else noise_multiplier * self._clip_norm()

    def _record(self, noise_multiplier: float) -> None:
        self.federation.log.add(
            self.round, self.silo, self.step, self._statistics, noise_multiplier, self._clipped_fraction
        )
        self.federation.recorder.between_steps()
