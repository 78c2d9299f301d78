"""Mini-batches that are drawn as the privacy plan says: each item, or each subject, by a coin of its own."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler

from subjectdp.api.collated import BatchCheck
from subjectdp.api.private_step import Draw, PrivateStep
from subjectdp.engine.batches import Grouping, Part, group_parts, item_parts
from subjectdp.errors import DataError, PrivacyError, expected
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.sampling import StepKey, items_of_subjects, sample_items, subjects_of_round


@dataclass(frozen=True)
class Sampler:
    """Draws the mini-batches of a plan with one silo."""

    plan: PrivacyPlan
    positions: NDArray[np.int64]  # (items,) of the data set, that may be drawn
    owners: NDArray[np.int64]  # (items,) number of the subject of each
    grouped: bool  # subjects are clipped, not items
    capacity: int  # items that go through the model at once
    seed: int = field(repr=False)  # of all draws

    def draw(self, number: int) -> Draw:
        """The mini-batch of the draw of that number, from 0; of an empty one a padded item of weight 0."""
        chosen = self._chosen(StepKey(self.seed, number + 1, 0, 0))
        if not len(chosen):
            part = Part(slice(0, 1), slice(0, 1), Grouping.of_items(1))
            return Draw([int(self.positions[0])], (part,), [0.0])
        items = self.positions[chosen]
        if not self.grouped:
            return Draw(items.tolist(), tuple(item_parts(len(items), self.capacity)), None)
        # a subject's gradient is the mean over its items in the mini-batch; the loader hands them over part by part
        numbers = np.unique(self.owners[chosen], return_inverse=True)[1]
        weights, parts = (1.0 / np.bincount(numbers))[numbers], []
        order: list[int] = []
        for part in group_parts(torch.from_numpy(numbers), self.capacity):
            own = np.arange(len(chosen))[np.asarray(part.items)].tolist()
            parts.append(replace(part, items=slice(len(order), len(order) + len(own))))
            order += own
        return Draw(items[order].tolist(), tuple(parts), weights[order].tolist())

    def _chosen(self, key: StepKey) -> NDArray[np.int64]:
        silo, settings = self.plan.silos[0], self.plan.settings
        if not self.plan.mechanism.samples_subjects:
            return sample_items(len(self.owners), silo, settings.sampling, settings.batch_size, key)
        subjects, q = int(self.owners.max()) + 1, silo.sampling_probability
        taking_part = subjects_of_round(subjects, q, key.seed, key.round_)
        return items_of_subjects(self.owners, taking_part, settings.subject.items, key)


class PrivateLoader:
    """Batches of a data set, drawn by a :class:`Sampler`: one a step; an epoch is about 1/q steps.

    Its sampler and batches take the place of the given loader's; data set, ``collate_fn`` and workers are that one's.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        sampler: Sampler,
        step: PrivateStep,
        next_draw: Callable[[], int],
        check: BatchCheck,
    ) -> None:
        self._loader, self._sampler, self._step, self._next_draw = loader, sampler, step, next_draw
        self._check, self._live, self.dataset = check, 0, loader.dataset

    def __len__(self) -> int:
        return max(1, round(1 / self._sampler.plan.silos[0].sampling_probability))

    def __iter__(self) -> Iterator[Any]:
        return self.take(len(self))

    def take(self, steps: int) -> Iterator[Any]:
        """The batches of the next ``steps`` steps, such as the local steps of a round. A batch at hand is forgotten.

        Raises PrivacyError where a noisy gradient, which counts, is at hand and no optimiser has stepped with it.
        """
        self._step.check_stepped()
        self._step.abandon()
        self._live += 1
        return self._batches(steps, self._live)

    def _batches(self, steps: int, own: int) -> Iterator[Any]:
        pending: deque[Draw] = deque()

        def positions() -> Iterator[list[int]]:
            for _ in range(steps):
                pending.append(self._sampler.draw(self._next_draw()))
                yield pending[-1].positions

        names = ["num_workers", "collate_fn", "pin_memory"]
        if self._loader.num_workers:
            names += ["worker_init_fn", "multiprocessing_context", "prefetch_factor", "timeout"]
        options: Any = {name: getattr(self._loader, name) for name in names}
        items = _OneByOne(self.dataset) if getattr(self.dataset, "__getitems__", None) else self.dataset
        for batch in DataLoader[Any](items, batch_sampler=positions(), **options):
            self._check_live(own)
            draw = pending.popleft()
            self._check(draw.positions, batch)
            self._step.begin(draw, batch)
            yield batch
            del batch  # before the next one is loaded
        self._check_live(own)

    def _check_live(self, own: int) -> None:
        if own != self._live:
            raise PrivacyError(
                "Expected one iterator of the private loader at a time, a newer one was made: its draws are accounted, "
                "the older one's cannot be."
            )


class _OneByOne(Dataset[Any]):
    """A data set whose items are fetched one by one, not by ``__getitems__``, which sees a whole batch and may mix it.
    All else is the data set's: a ``worker_init_fn`` may set its attributes."""

    __getitems__ = None

    def __init__(self, whole: Any) -> None:
        vars(self)["whole"] = whole

    def __getitem__(self, place: int) -> Any:
        return self.whole[place]

    def __getattr__(self, name: str) -> Any:
        if "whole" not in vars(self):  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.whole, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.whole, name, value)


def check_loader(loader: DataLoader[Any]) -> tuple[int, int]:
    """Items of the loader's data set and its batch size.

    Raises DataError for one without items by position, ConfigError for a batch size or sampler that cannot be honoured.
    """
    if not isinstance(loader, DataLoader):
        raise expected("data_loader", type(loader).__name__, "a DataLoader of torch")
    length = getattr(loader.dataset, "__len__", None)
    if length is None or not hasattr(loader.dataset, "__getitem__"):
        raise expected("data set", type(loader.dataset).__name__, "one with a length and items by position", DataError)
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise expected(
            "data_loader",
            type(loader).__name__,
            "one whose batches are DataLoader's: put changes of items in the data set or in collate_fn",
        )
    if loader.batch_size is None:
        raise expected("batch_size of the data loader", None, "given")
    items, sampler = int(length()), loader.sampler
    shuffled = type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == items
    if not (shuffled or type(sampler) is SequentialSampler):
        allowed = "left out: each item or subject is drawn by the same coin. For a part of the data give a Subset of it"
        raise expected("sampler of the data loader", type(sampler).__name__, allowed)
    return items, loader.batch_size
