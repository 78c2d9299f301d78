"""Mini-batches that are drawn as the privacy plan says: each item, or each subject, by a coin of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from subjectdp.api.private_step import Draw, PrivateStep
from subjectdp.engine.groups import Grouping, group_parts, item_parts
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.sampling.batches import StepKey, sample_items
from subjectdp.sampling.subjects import items_of_subjects, subjects_of_round


class Sampler:
    """Draws the mini-batches of a plan with one silo.

    Args:
        plan: sampling probability and sampler.
        positions: (items,) the data set's positions that may be drawn.
        owners: (items,) number of the subject of each.
        grouped: subjects are clipped, not items.
        capacity: items that go through the model at once.
        seed: of all draws.
    """

    def __init__(
        self,
        plan: PrivacyPlan,
        positions: NDArray[np.int64],
        owners: NDArray[np.int64],
        grouped: bool,
        capacity: int,
        seed: int,
    ) -> None:
        self.plan, self.positions, self.owners, self.grouped = plan, positions, owners, grouped
        self.capacity, self.seed = capacity, seed

    def draws(self, step: int) -> list[Draw]:
        """The mini-batch of a step, from 0, in parts that fit; of an empty one a padded item of weight 0."""
        chosen = self._chosen(StepKey(self.seed, step + 1, 0, 0))
        if not len(chosen):
            return [Draw([int(self.positions[0])], Grouping.of_items(1), [0.0], last=True)]
        return self._subjects(chosen) if self.grouped else self._items(chosen)

    def _chosen(self, key: StepKey) -> NDArray[np.int64]:
        silo, settings = self.plan.silos[0], self.plan.settings
        if not self.plan.mechanism.samples_subjects:
            return sample_items(len(self.owners), silo, settings.sampling, settings.batch_size, key)
        subjects, q = int(self.owners.max()) + 1, silo.sampling_probability
        taking_part = subjects_of_round(subjects, settings.subject, q, key.seed, key.round_)
        return items_of_subjects(self.owners, taking_part, settings.subject.items, key)

    def _items(self, chosen: NDArray[np.int64]) -> list[Draw]:
        items = self.positions[chosen]
        parts = list(item_parts(len(items), self.capacity))
        return [
            Draw(items[part.items].tolist(), part.grouping, None, last=part is parts[-1]) for part in parts
        ]

    def _subjects(self, chosen: NDArray[np.int64]) -> list[Draw]:
        """A subject's gradient is the mean over its items in the mini-batch."""
        items, numbers = self.positions[chosen], np.unique(self.owners[chosen], return_inverse=True)[1]
        weights = (1.0 / np.bincount(numbers))[numbers]
        draws = []
        for part in group_parts(torch.from_numpy(numbers), self.capacity):
            order = np.asarray(part.items)
            draws.append(Draw(items[order].tolist(), part.grouping, weights[order].tolist(), last=False))
        draws[-1] = Draw(draws[-1].positions, draws[-1].grouping, draws[-1].weights, last=True)
        return draws


class PrivateLoader:
    """Batches of a data set, drawn by a :class:`Sampler`: an epoch is about 1/q steps.

    A step whose mini-batch does not fit into the memory asked for comes as several batches; the optimiser moves after
    the last of them.
    """

    def __init__(
        self, loader: DataLoader[Any], sampler: Sampler, step: PrivateStep, next_step: Callable[[], int]
    ) -> None:
        self._loader, self._sampler, self._step, self._next_step = loader, sampler, step, next_step
        self.dataset = loader.dataset

    def __len__(self) -> int:
        """Steps of an epoch."""
        return max(1, round(1 / self._sampler.plan.silos[0].sampling_probability))

    def __iter__(self) -> Iterator[Any]:
        return self.take(len(self))

    def take(self, steps: int) -> Iterator[Any]:
        """The batches of the next ``steps`` steps, such as the local steps of a round."""
        self._step.abandon()
        pending: deque[Draw] = deque()
        first = self._next_step()

        def positions() -> Iterator[list[int]]:
            for step in range(first, first + steps):
                for draw in self._sampler.draws(step):
                    pending.append(draw)
                    yield draw.positions

        batches: DataLoader[Any] = DataLoader(
            self.dataset,
            batch_sampler=positions(),
            num_workers=self._loader.num_workers,
            collate_fn=self._loader.collate_fn,
            pin_memory=self._loader.pin_memory,
        )
        for batch in batches:
            self._step.begin(pending.popleft())
            yield batch
