"""Mini-batches of one fixed size: what a GPU replays without a word from the host.

A drawn mini-batch goes to the device as addresses and weights; places that it does not fill repeat its first item with
weight 0, and what does not fit is a second pass. Sums are those of the drawn items, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.engine.clipping import ClippingEngine
from subjectdp.plan.plan import PrivacyPlan, SamplingMethod
from subjectdp.training.items.device_data import ResidentData, to_device
from subjectdp.training.steps.graphs import replayed
from subjectdp.training.steps.silo_step import drawn_batch

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch

# Standard deviations above the mean that a pass has room for: a step needs a second pass 1 time in 45. More room costs
# more in every step than it saves in those.
_TAIL = 2.0
_MULTIPLE = 8


def capacity_of(plan: PrivacyPlan, physical_batch_size: int) -> int:
    """Places of one pass; nearly all mini-batches of every silo need the same number of passes, one where they fit.

    From the plan's public numbers alone.
    """
    needed = 1.0
    for silo in plan.silos:
        mean = silo.items * silo.sampling_probability
        spread = _TAIL * math.sqrt(mean * (1.0 - silo.sampling_probability))
        drawn = plan.settings.batch_size if _fixed(plan) else min(silo.items, mean + spread)
        needed = max(needed, drawn)
    passes = math.ceil(needed / physical_batch_size)
    return min(physical_batch_size, math.ceil(needed / passes / _MULTIPLE) * _MULTIPLE)


def _fixed(plan: PrivacyPlan) -> bool:
    return plan.settings.sampling is SamplingMethod.FIXED_BATCH_SIZE


class Places:
    """Where a pass finds its items: addresses int64 (n,) and weights float32 (n,) that stay where they are."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.count, self.device = count, device
        self.addresses = torch.zeros(count, dtype=torch.int64, device=device)
        self.weights = torch.zeros(count, dtype=torch.float32, device=device)

    def fill(self, first: int, room: int, addresses: NDArray[Any], weights: Tensor | None) -> None:
        """Puts items into ``room`` places from ``first`` on, with weights (None: 1), the rest with weight 0."""
        part, count = slice(first, first + room), len(addresses)
        padded = np.full(room, addresses[0] if count else 0, np.int64)
        padded[:count] = addresses
        self.addresses[part].copy_(to_device(padded, self.device), non_blocking=True)
        if weights is None:
            ones = (np.arange(room) < count).astype(np.float32)
            self.weights[part].copy_(to_device(ones, self.device), non_blocking=True)
        else:
            self.weights[part].zero_()
            self.weights[first : first + count].copy_(weights)


class PaddedGradients:
    """``training.steps.gradients.Gradients`` by passes of ``capacity`` places."""

    def __init__(self, engine: ClippingEngine, data: ResidentData, capacity: int) -> None:
        self._engine, self._data = engine, data
        device = engine.flat.vector.device
        self._places = Places(capacity, device)
        self._doubt = torch.zeros((), dtype=torch.bool, device=device)
        self._passes: dict[float | None, Callable[[], tuple[Tensor, ...]]] = {}

    def gradient_sum(self, batch: Batch) -> Tensor:
        return self._sum(batch, None, None)[0]

    def clipped_sum(
        self, batch: Batch, clip_norm: float, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._sum(batch, clip_norm, weights)

    def clipped_group_sum(
        self, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As drawn: whole groups do not fit places of one size."""
        return self._engine.clipped_sum(batch.inputs, batch.labels, clip_norms, weights, groups)

    def trustworthy(self) -> bool:
        doubt = bool(self._doubt)
        self._doubt.zero_()
        return not doubt

    def _sum(self, batch: Batch, clip_norm: float | None, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        addresses, room = drawn(batch), self._places.count
        total, norms = torch.zeros_like(self._engine.flat.vector), []
        for start in range(0, len(addresses), room):
            part = slice(start, start + room)
            self._places.fill(0, room, addresses[part], None if weights is None else weights[part])
            found, lengths = self._pass(clip_norm)
            total = found if start == 0 else total.add_(found)
            norms.append(lengths[: len(addresses[part])])
        return total, torch.cat(norms) if norms else total.new_zeros(0)

    def _pass(self, clip_norm: float | None) -> tuple[Tensor, ...]:
        if clip_norm not in self._passes:
            self._passes[clip_norm] = replayed(partial(self._run, clip_norm), self._places.device)
        return self._passes[clip_norm]()

    def _run(self, clip_norm: float | None) -> tuple[Tensor, ...]:
        """The sum (P,) and the norms (capacity,) of what is in the places; None clips nothing and has no norms."""
        inputs, labels = self._data.at(self._places.addresses)
        weights, engine = self._places.weights, self._engine
        if clip_norm is None:
            return engine.gradient_sum(inputs, labels, weights), torch.zeros_like(weights)
        engine.doubt, before = self._doubt, engine.doubt
        try:
            return engine.clipped_sum(inputs, labels, clip_norm, weights)
        finally:
            engine.doubt = before


def drawn(batch: Batch) -> NDArray[np.int32]:
    """The addresses of a mini-batch that ``SiloStep.sample_batch`` has drawn."""
    return drawn_batch(batch).addresses
