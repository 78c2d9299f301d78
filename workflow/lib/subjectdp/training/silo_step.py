"""One local step of a silo (``algorithms.base.LocalStep``): sampling, clipping and noise as the plan says.

Last, two sums that the engine does not make: of single subjects' clipped updates, and of items' rounded gradients.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from subjectdp.algorithms.base import Batch
from subjectdp.engine.batches import of_items
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import Factor, LongSum, clip_factors, row_norms
from subjectdp.engine.probe import check_batch, is_larger
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.gaussian import add_gaussian, add_secure_gaussian
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.noise.skellam import Grid
from subjectdp.plan.plan import DivisorRule, NoiseSource
from subjectdp.sampling import (
    BatchStatistics,
    StepKey,
    batch_statistics,
    items_of_subjects,
    sample_items,
    subjects_of_round,
)
from subjectdp.training.device_data import DeviceDataset, to_device
from subjectdp.training.federation import Federation, Optimiser
from subjectdp.training.records import LoggedStep

SERVER = -1  # the "silo" in noise keys of the server's own noise
UPDATE = -1  # the "step" in noise keys of the noise on a silo's whole update
_TRIED = (11, 101)  # rounds in which silo 0 tries a mini-batch once more
_NUMBERS_AT_ONCE = 1 << 24  # of all gradients that are kept at a time: 64 MiB
_MOST_VALUES = 1 << 22  # of parameters held at once


class MiniBatch:
    """One drawn mini-batch (see ``algorithms.base.Batch``); its items are loaded on first use."""

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
    """One local step of one silo (``base.LocalStep``, ``IntegerStep``) at the model in the engine's parameters."""

    def __init__(self, federation: Federation, round_: int, silo: int, step: int) -> None:
        self.federation, self.round, self.silo, self.step = federation, round_, silo, step
        self.plan, self.engine = federation.plan, federation.engine
        self._drawn: MiniBatch | None = None
        self._noised = False
        noised_by_server = self.plan.mechanism.server_noise and silo != SERVER
        self._noise_multiplier = self.plan.silos[silo].noise_multiplier if noised_by_server else 0.0
        self._clipped_fraction: Tensor | float = float("nan")

    @property
    def row(self) -> LoggedStep:
        """What the step did, for the log."""
        drawn = BatchStatistics(0, 0, 0) if self._drawn is None else self._drawn.statistics
        return LoggedStep(self.round, self.silo, self.step, *drawn, self._noise_multiplier, self._clipped_fraction)

    def sample_batch(self) -> MiniBatch:
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> MiniBatch:
        federation, settings = self.federation, self.plan.settings
        items, owners = federation.partition.silo(self.silo)
        key = StepKey(federation.seed, self.round, self.silo, self.step)
        schedule, mechanism = self.plan.silos[self.silo], self.plan.mechanism
        if mechanism.samples_subjects:
            q, place = schedule.sampling_probability, () if mechanism.shared_budget else (self.silo, self.step)
            chosen = subjects_of_round(federation.partition.subjects, q, federation.seed, self.round, *place)
            positions = items_of_subjects(owners, chosen, settings.subject.items, key)
        else:
            positions = sample_items(len(items), schedule, settings.sampling, settings.batch_size, key)
        return MiniBatch(items[positions], owners[positions], federation.data, federation.device)

    def gradient_sum(self, batch: Batch) -> Tensor:
        return self.engine.gradient_sum(batch.inputs, batch.labels)

    def clipped_sum(self, batch: Batch, weights: Tensor | None = None, factor: Factor | None = None) -> Tensor:
        self._try(batch)
        clip_norm = self._clip_norm() / self.plan.silos[self.silo].fused_steps
        total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, clip_norm, weights, factor=factor)
        self._clipped_fraction = (norms > clip_norm).mean(dtype=torch.float32)
        return total

    def subject_sum(self, batch: Batch) -> Tensor:
        return self._sum_of_subjects(batch, updates=False)

    def subject_update_sum(self, batch: Batch) -> Tensor:
        return self._sum_of_subjects(batch, updates=True)

    def _sum_of_subjects(self, batch: Batch, updates: bool) -> Tensor:
        if not isinstance(batch, MiniBatch):
            raise TypeError(f"Expected a mini-batch of SiloStep.sample_batch, got {type(batch).__name__}.")
        subjects, groups, weights = batch.subject_groups
        clip_norms = to_device(self.federation.subject_clip_norms(self.silo, subjects), self.federation.device)
        if updates:
            total, norms = subject_update_sum(self.federation, batch, groups, weights, clip_norms)
        else:
            self._try(batch)
            total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, clip_norms, weights, groups)
        self._clipped_fraction = (norms > clip_norms).mean(dtype=torch.float32)
        return total

    def _try(self, batch: Batch) -> None:
        """Raises ModelError for a model that mixes the items of this mini-batch."""
        once_more = self.round in _TRIED and self.silo == self.step == 0
        if batch.items > 1 and (once_more or is_larger(self.engine, batch.items)):
            check_batch(self.engine, batch.inputs, batch.labels)

    def clip(self, vector: Tensor) -> Tensor:
        clip_norm = self._clip_norm()
        norms = row_norms(vector.unsqueeze(0))
        self._clipped_fraction = ~(norms[0] <= clip_norm)
        return _clipped(vector.unsqueeze(0), norms, clip_norm)[0]  # the factor of a short vector is exactly 1

    def noise_multiplier(self, batch: Batch) -> float:
        ends_fused = (self.step + 1) % self.plan.silos[self.silo].fused_steps == 0
        return self.plan.noise_multiplier(self.silo, batch.largest_group) if ends_fused else 0.0

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        key = self._noise_key(noise_multiplier)
        std = 0.0 if noise_multiplier == 0.0 else noise_multiplier * self._clip_norm()
        add = add_secure_gaussian if self.plan.settings.noise_source is NoiseSource.SECURE else add_gaussian
        return add(total, std, key_bytes(*key))

    def release(self, update: Tensor) -> Tensor:
        """Clip(update, C_i) + N(0, σ²C² I): a silo's one release of the round."""
        return self.add_noise(self.clip(update), self.plan.silos[self.silo].noise_multiplier)

    def rounded_sum(self, batch: Batch) -> Tensor:
        generator = numpy_generator(self.federation.seed, Purpose.DITHER, *self._place)
        grid = self.federation.grid
        total, self._clipped_fraction = rounded_sum(self.engine, batch, grid, self._clip_norm(), generator)
        return total

    def add_integer_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        generator = numpy_generator(*self._noise_key(noise_multiplier))
        return total.add_(torch.from_numpy(self.federation.grid.noise(noise_multiplier, generator)))

    def divisor(self, batch: Batch) -> float:
        if self.plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:
            return float(max(1, batch.subjects))
        return self.plan.silos[self.silo].divisor

    def _noise_key(self, noise_multiplier: float) -> tuple[Any, ...]:
        if self._noised:  # the key is the step's: the difference of two sums would be free of noise
            allowed = "called once in a step (a second call would give the same noise again)"
            raise expected("add_noise", "a second call", allowed, PrivacyError)
        self._noised, self._noise_multiplier = True, noise_multiplier
        return self.federation.seed, Purpose.NOISE, *self._place

    @property
    def _place(self) -> tuple[str | int, ...]:
        return self.federation.noise_name, self.round, self.silo, self.step

    def _clip_norm(self) -> float:
        return float("inf") if self.plan.clip_norm is None else self.plan.clip_norm


def subject_update_sum(
    federation: Federation, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
) -> tuple[Tensor, Tensor]:
    """Σ_a Clip(θ_a - θ, C_a) (P,) and the unclipped norms (subjects,).

    θ_a starts from the global model θ and takes the plan's local steps along the mean gradient of the subject's items,
    with an optimiser of its own. An update that is not finite contributes nothing. The engine holds θ before and after.

    Subjects with few items train at once, each with its own row of parameters: optimisers work element by element.
    Others train one after another, and so do all if the model cannot be batched over its parameters.

    Args:
        groups: (items,) the place of each item's subject, from 0, on the CPU; every place has an item.
        weights: (items,) 1 over the items of the item's subject.
        clip_norms: (subjects,) C_a.
    """
    engine, device = federation.engine, clip_norms.device
    theta = engine.flat.vector.clone()
    total, norms = LongSum(theta), torch.zeros_like(clip_norms)
    for subjects, items, counted in _chunks(engine, groups):
        subjects, items = subjects.to(device), items.to(device)
        models = theta.repeat(len(subjects), 1)
        _train(federation, models, batch, items, weights[items] * counted.to(device))
        updates = models.sub_(theta)
        norms[subjects] = row_norms(updates)
        clipped = _clipped(updates, norms[subjects], clip_norms[subjects]).sum(0)
        total.take(clipped if total.part is None else total.part.add_(clipped))
    engine.flat.load(theta)
    return total.sum(), norms


def _chunks(engine: ClippingEngine, groups: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    if len(groups) == 0:
        return
    sizes = torch.bincount(groups)
    order, by_size = torch.argsort(groups, stable=True), torch.argsort(sizes, stable=True)
    starts = torch.cumsum(sizes, 0) - sizes
    for chosen in _cuts(engine, sizes[by_size].tolist()):
        subjects = by_size[chosen]
        places = torch.arange(int(sizes[subjects].max()))
        counted = places < sizes[subjects, None]
        yield subjects, order[starts[subjects, None] + places.where(counted, 0)], counted


def _cuts(engine: ClippingEngine, sizes: list[int]) -> Iterator[slice]:
    recurrent = any(isinstance(layer, nn.RNNBase) for layer in engine.flat.model.modules())
    batchable = not recurrent and not engine.followed  # torch batches layers with rules
    rows = max(1, _MOST_VALUES // engine.flat.size) if batchable else 1
    start = 0
    for end in range(1, len(sizes) + 1):
        more = end < len(sizes) and end - start < rows
        if not (more and (end - start + 1) * sizes[end] <= engine.physical_batch_size):
            yield slice(start, end)
            start = end


def _train(federation: Federation, models: Tensor, batch: Batch, items: Tensor, shares: Tensor) -> None:
    engine = federation.engine
    inputs, labels = (of_items(values, lambda tensor: tensor[items]) for values in (batch.inputs, batch.labels))
    optimiser = Optimiser(federation.optimiser)

    def loss(vector: Tensor, inputs: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        outputs = functional_call(engine.flat.model, engine.flat.views(vector), (inputs,))
        return engine.item_loss(outputs, labels) @ shares

    gradients = vmap(grad(loss), randomness="error")
    for _ in range(federation.plan.settings.subject.local_steps):
        if len(items) == 1:
            engine.flat.load(models[0])
            one, wanted = (of_items(values, lambda tensor: tensor[0]) for values in (inputs, labels))
            gradient = engine.gradient_sum(one, wanted, shares[0]).unsqueeze(0)
        else:
            gradient = gradients(models, inputs, labels, shares).detach()
        optimiser.step(models, gradient)


def _clipped(updates: Tensor, norms: Tensor, clip_norms: float | Tensor) -> Tensor:
    """(n, P) each clipped; one that is not finite cannot be bounded, and contributes nothing."""
    finite = torch.isfinite(norms)
    kept = torch.where(finite[:, None], updates, 0.0)
    return kept * torch.where(finite, clip_factors(norms, clip_norms), 0.0)[:, None]


def rounded_sum(
    engine: ClippingEngine, batch: Batch, grid: Grid, clip_norm: float, generator: np.random.Generator
) -> tuple[Tensor, float]:
    """Σ_j Round(Clip(g_j, C)) as int64 (P,) on the CPU, and the fraction of items that were clipped (NaN for none).

    Rounded before the sum: one item's norm does not bound the sensitivity of a sum that is rounded afterwards. An item
    whose gradient is not finite contributes nothing.
    """
    total = np.zeros(grid.dimension, np.int64)
    clipped = 0
    for gradients in _item_gradients(engine, batch.inputs, batch.labels):
        for gradient in gradients.cpu().numpy().astype(np.float64):
            norm = float(np.sqrt(gradient @ gradient))
            clipped += int(not norm <= clip_norm)
            if not np.isfinite(norm):
                continue
            factor = min(1.0, clip_norm / norm) if norm > 0 else 1.0
            total += grid.rounded(gradient * factor, generator)
    return torch.from_numpy(total), clipped / batch.items if batch.items else float("nan")


def _item_gradients(engine: ClippingEngine, inputs: Tensor, labels: Tensor) -> Iterator[Tensor]:
    # float32 (items at once, P) in the order of the vector: rounding changes every gradient before the sum
    at_once = max(1, min(64, _NUMBERS_AT_ONCE // engine.flat.size))
    for start in range(0, len(labels), at_once):
        rows = slice(start, start + at_once)
        yield _gradients(engine, inputs[rows], labels[rows])


def _gradients(engine: ClippingEngine, inputs: Tensor, labels: Tensor) -> Tensor:
    model = engine.flat.model
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):  # vmap does not support them
        items = range(len(labels))
        return torch.stack([engine.gradient_sum(inputs[i : i + 1], labels[i : i + 1]) for i in items])

    def loss(parameters: dict[str, Tensor], item: Tensor, label: Tensor) -> Tensor:
        return engine.item_loss(functional_call(model, parameters, (item.unsqueeze(0),)), label.unsqueeze(0)).sum()

    parameters = {name: value.detach() for name, value in model.named_parameters()}
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, labels)
    in_order = (gradients[name] for name in engine.flat.shapes)  # of the vector, where convolutions are channels-last
    rows = (g.permute(0, 1, 3, 4, 2) if g.dim() == 5 else g for g in in_order)
    return torch.cat([g.reshape(len(labels), -1) for g in rows], dim=1)
