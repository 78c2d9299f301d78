"""Canaries for a real training run: subjects (or items) whose gradients are crafted and known to the auditor.

White-box Dirac canaries: the items of canary c have the gradient −λ e_c, λ > C, on a parameter of their own and 0 on
all others; clipping makes it −C e_c. They pass through the same code as other items: the silo's sampler, the model
and its backward pass, the clipping engine, weights, sum, noise and divisor of the training loop. A wrapped model
recognises them by a last input column; in the wrapped data set they have the addresses beyond the data set.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.data.partition import Partition
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import FederationFacts, PrivacyUnit

_CERTAIN = 1e4  # logit that makes a canary's loss linear in its own parameter
LABEL = 1  # of every canary item


class Data(Protocol):
    """The resident data set as federation and evaluation use it."""

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class Canaries:
    """The canaries of an audit.

    A canary has ``items`` items at each silo that holds it; each of ``silos`` holds every canary.
    """

    count: int
    items: int
    silos: tuple[int, ...]
    seed: int
    name: str

    @property
    def unit(self) -> PrivacyUnit:
        """Whether a canary is an item or a subject."""
        return PrivacyUnit.ITEM if self.items == 1 and len(self.silos) == 1 else PrivacyUnit.SUBJECT

    def members(self) -> NDArray[np.bool_]:
        """(count,) bool: which canaries take part, by independent fair coins."""
        return numpy_generator(self.seed, Purpose.AUDIT, "members", self.name).random(self.count) < 0.5

    def planned_facts(self, facts: FederationFacts) -> FederationFacts:
        """The public facts of a federation with places for all canaries."""
        added = [self.count if silo in self.silos else 0 for silo in range(len(facts.items))]
        cap = max(self.items, facts.max_items_per_subject or 1)
        return replace(
            facts,
            items=tuple(n + self.items * more for n, more in zip(facts.items, added, strict=True)),
            subjects=tuple(n + more for n, more in zip(facts.subjects, added, strict=True)),
            largest_subject=tuple(max(n, self.items) for n in facts.largest_subject),
            max_items_per_subject=cap,
            silos_per_subject=max(facts.silos_per_subject, len(self.silos)),
        )

    def inserted(self, partition: Partition, addresses: int) -> Partition:
        """The partition with the items of the canaries that take part, addressed from ``addresses`` on."""
        chosen = np.flatnonzero(self.members())
        owners = np.repeat(chosen, self.items)
        first = partition.subjects
        items, subjects, sizes = [], [], []
        for silo in range(partition.silos):
            own_items, own_subjects = partition.silo(silo)
            more = owners if silo in self.silos else owners[:0]
            items.append(np.concatenate([own_items, addresses + more]))
            subjects.append(np.concatenate([own_subjects, first + more]))
            sizes.append(len(items[-1]))
        return replace(
            partition,
            train_items=np.concatenate(items).astype(np.int32),
            train_subjects=np.concatenate(subjects).astype(np.int32),
            train_offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            facts={
                **partition.facts,
                "counts": {**partition.facts["counts"], "subjects": first + self.count},
            },
        )


class CanaryData:
    """A resident data set in which address ``size`` + c is an item of canary c.

    Inputs are flattened and get a last column: 0 for an item of the data set, c + 1 for an item of canary c.
    """

    def __init__(self, inner: Data, size: int) -> None:
        self.inner, self.size = inner, size
        inputs, _ = inner.batch(np.zeros(1, np.int64))
        self.shape, self._dtype, self.device = tuple(inputs.shape[1:]), inputs.dtype, inputs.device

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        where = np.asarray(addresses, dtype=np.int64)
        real = where < self.size
        inputs, labels = self.inner.batch(where[real])
        rows = inputs.flatten(1) if len(inputs) else inputs.reshape(0, int(np.prod(self.shape)))
        if real.all():
            return torch.cat([rows, rows.new_zeros(len(rows), 1)], dim=1), labels
        at = torch.from_numpy(np.flatnonzero(real))
        joined = torch.zeros(len(where), rows.shape[1] + 1, dtype=self._dtype)
        joined[at, :-1] = rows
        joined[:, -1] = torch.from_numpy(np.where(real, 0, where - self.size + 1)).to(self._dtype)
        targets = torch.full((len(where),), LABEL, dtype=torch.int64)
        targets[at] = labels
        return joined, targets


class CanaryModel(nn.Module):
    """A model for :class:`CanaryData`: the inner model for real items, one parameter for each canary.

    A canary's loss is λ·(its parameter) up to a constant while parameters stay far below 10^4/λ. The inner model gets
    no gradient from it.
    """

    def __init__(self, inner: nn.Module, shape: tuple[int, ...], count: int, gradient: float) -> None:
        super().__init__()
        self.inner, self.shape, self.gradient = inner, shape, gradient
        self.canaries = nn.Embedding(count + 1, 1, padding_idx=0)
        nn.init.zeros_(self.canaries.weight)

    def forward(self, rows: Tensor) -> Tensor:
        which = rows[:, -1].long()
        logits: Tensor = self.inner(rows[:, :-1].reshape(-1, *self.shape))
        value = self.canaries(which.unsqueeze(1)).squeeze(1) * self.gradient  # (n, 1)
        certain = torch.full_like(logits[:, :1], _CERTAIN)
        rest = torch.zeros_like(logits[:, 2:])
        crafted = torch.cat([certain, value - _CERTAIN, rest], dim=1)
        return torch.where((which == 0).unsqueeze(1), logits, crafted)


def canary_slice(shapes: dict[str, tuple[int, ...]], name: str = "canaries.weight") -> slice:
    """The canaries' parameters in the flat vector (see ``FlatParameters``), without the padding row.

    Raises PrivacyError for a model without canaries.
    """
    start = 0
    for key, shape in shapes.items():
        size = int(np.prod(shape))
        if key == name:
            return slice(start + 1, start + size)
        start += size
    raise expected("parameters of the audited model", sorted(shapes), f"with {name}", PrivacyError)
