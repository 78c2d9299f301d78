"""Mini-batches that are drawn as the privacy plan says: each item, or each subject, by a coin of its own.

What a loader's ``collate_fn`` makes of items must be there by itself, whatever the others are.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from operator import length_hint
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from subjectdp.api.private_loss import ItemLosses
from subjectdp.api.private_step import Draw, PrivateStep
from subjectdp.api.watched import LARGE, Changes, Watched
from subjectdp.engine.batches import Grouping, Part, group_parts, item_parts, leaves_of, of_items, plain, tensors_in
from subjectdp.engine.generators import States, generators_kept, seed_all
from subjectdp.engine.probe import DRAWN, TRIED, TRIED_AGAIN, own_copy, tried_positions
from subjectdp.errors import DataError, ModelError, PrivacyError, expected
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.sampling import StepKey, items_of_subjects, sample_items, subjects_of_round


def places_to_try(items: int) -> list[int]:
    """Positions of the items to try: at least three, some twice where there are fewer."""
    return (tried_positions(items) * 3)[: max(3, len(tried_positions(items)))]


def tried_batch(loader: DataLoader[Any], device: torch.device) -> tuple[Any, Any]:
    """Inputs and targets of a few items from all over the data set, as the loader hands them over.
    Raises DataError where there are no (inputs, targets), ModelError for a ``collate_fn`` that sorts or mixes items."""
    dataset: Any = loader.dataset
    chosen = places_to_try(len(dataset))
    try:
        items = [dataset[i] for i in chosen]
    except LookupError as problem:
        allowed = f"one with items by position, 0 to {len(dataset) - 1}: reading one gave {problem!r}"
        raise expected("data set", type(dataset).__name__, allowed, DataError) from problem
    try:
        check_collate(loader, items)
        batch = loader.collate_fn(items)
    except (RuntimeError, TypeError) as problem:
        allowed = f"one that puts any number of items together, such as items padded to one length: {problem}"
        raise expected("collate_fn", type(loader.collate_fn).__name__, allowed, DataError) from problem
    if getattr(dataset, "__getitems__", None):  # of a whole batch; one that draws is not compared
        once_more, whole = ([dataset[i] for i in chosen], dataset.__getitems__(chosen))
        if _alike(loader.collate_fn(once_more), batch) and not _alike(loader.collate_fn(whole), batch):
            raise ModelError(
                "Expected a data set whose __getitems__ returns the items of its __getitem__, those of this one depend "
                "on their neighbours. Change items one by one, in __getitem__; a collate_fn gets a list of them."
            )
    return inputs_and_targets(batch, device)


def _data_of(value: Any, seen: set[int]) -> Iterator[Any]:
    """What is long of all that a data set, and those that it is made of, hold: no trial has to copy it."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Dataset) or (isinstance(value, list | tuple) and len(value) <= LARGE):
        for each in [*vars(value).values()] if isinstance(value, Dataset) else value:
            yield from _data_of(each, seen)
    elif (getattr(value, "nbytes", 0) or length_hint(value)) > LARGE:
        yield value


def _stacks(collate: Any) -> bool:
    """Whether it is torch's own, for its own types: that stacks items, and needs no trial, which takes many batches."""
    return collate is default_collate and all(
        each.__module__ == default_collate.__module__ for each in default_collate_fn_map.values()
    )


def check_collate(loader: DataLoader[Any], items: list[Any]) -> bool:
    """Tries a ``collate_fn`` on items, and says whether it draws numbers: then under many states of the generators.
    Raises ModelError where it sorts, mixes or drops them, or keeps something of them for the next."""
    if _stacks(loader.collate_fn):
        return False
    every, collate, data = list(range(len(items))), loader.collate_fn, [*_data_of(loader.dataset, set())]

    def made(places: list[int], seed: int, by: Callable[[list[Any]], Any] = collate) -> list[Tensor]:
        seed_all(seed)
        return tensors_in(by([own_copy(items[i]) for i in places]))  # which it may use up

    with generators_kept():
        for copies in ([0] * len(items), [every[-1]] * len(items)):
            after_all, alone = own_copy(collate, data), own_copy(collate, data)
            made(every, 1, after_all), made(copies, 1, alone)
            _check_rows(made(copies, 1, after_all), made(copies, 1, alone), every, every)
        seed_all()
        before, usual = States.now(), made(every, 1)
        drawn, half = not before.are(States.now()), len(items) // 2
        if any(each.shape[:1] != (len(items),) for each in usual):
            raise ModelError(_MIXES)
        few = len(items) <= TRIED
        for seed in range(1, (DRAWN if few else 2) + 1) if drawn else (1,):
            for kept, one in ((every[half:], every[-1]), (every[:half], 0)):
                others = [place if place in kept else one for place in every]
                _check_rows(made(every, seed), made(others, seed), kept, kept)
        if not drawn:
            for order in (every[::-1], [*every[1:], 0], *([every[i]] for i in tried_positions(len(items)))):
                _check_rows(usual, made(order, 1), order, list(range(len(order))))
    return drawn


def _check_rows(batch: list[Tensor], other: list[Tensor], rows: list[int], of_other: list[int]) -> None:
    for one, two in zip(batch, other, strict=True):
        padded = one.shape[1:] != two.shape[1:]  # left to BatchCheck
        if two.shape[:1] < (len(of_other),) or not (
            padded or torch.equal(one[rows].nan_to_num(), two[of_other].nan_to_num())
        ):
            raise ModelError(_MIXES)


_MIXES = (
    "Expected a collate_fn that keeps the items in their order and each by itself: this one sorts, mixes or drops "
    "them. Change items in the data set, or in the module; leave some out by a Subset, before make_private."
)


def _alike(batch: Any, other: Any) -> bool:
    pairs = zip(tensors_in(batch), tensors_in(other), strict=True)
    return all(torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in pairs)


TARGETS = ("labels", "label", "targets", "target", "y")
"""Names of the targets in a mapping; the first that is there."""


def inputs_and_targets(batch: Any, device: torch.device) -> tuple[Any, Any]:
    """Of a batch, texts (such as names) left out: (inputs, ..., targets), one tensor that is both, or a mapping with
    ``labels`` or another of :data:`TARGETS`. Raises DataError for anything else."""
    named = isinstance(batch, Mapping)
    given: Any = {name: batch[name] for name in batch.keys()} if named else batch  # noqa: SIM118 - a TensorDict's items
    whole = dict(enumerate(given if isinstance(given, list | tuple) else [given])) if not named else given
    parts = {n: part for n, part in whole.items() if not all(isinstance(each, str) for each in leaves_of(part))}
    known = [n for n in (TARGETS if named else [*parts][-1:]) if n in parts and tensors_in(parts[n])]
    if not known or not all(tensors_in(part) for part in [*parts.values()][:1]):
        kinds = ", ".join(map(str, whole) if named else (type(part).__name__ for part in whole.values()))
        allowed = f"tensors, (inputs, targets), or a mapping with {', '.join(TARGETS[:-1])} or {TARGETS[-1]}"
        raise expected("a batch of the data loader", f"{type(batch).__name__} of {kinds}", allowed, DataError)
    targets = parts.pop(known[0])
    several: Any = tuple(parts.values())
    inputs = parts if named else targets if not parts else several[0] if len(parts) == 1 else several
    inputs, targets = (of_items(plain(values), lambda tensor: tensor.to(device)) for values in (inputs, targets))
    return of_items(inputs, lambda tensor: tensor.float() if tensor.dtype is torch.float64 else tensor), targets


_Change = Callable[[Tensor], Tensor]


def _same(tensor: Tensor) -> Tensor:
    return tensor


def _flat(tensor: Tensor) -> Tensor:
    return tensor.flatten(1) if tensor.dim() > 2 else tensor


_OF_INPUTS: tuple[_Change, ...] = (
    *(_same, Tensor.float),
    lambda each: each if each.is_floating_point() else each.long(),
    *(_flat, lambda each: each.unsqueeze(1)),
    lambda each: each.float() if each.dtype is torch.uint8 else each,  # pictures beside words
    *(lambda each: _flat(each).float(), lambda each: each.unsqueeze(1).float()),
)
_OF_TARGETS: tuple[_Change, ...] = (
    *(_same, Tensor.long, Tensor.float),
    lambda each: (each if each.dim() < 2 else each.squeeze(1)).long(),  # classes
)
_OF_OUTPUTS: tuple[_Change, ...] = (
    _same,
    lambda each: each.squeeze(-1) if each.dim() > 1 else each,  # one number an item
    lambda each: each.squeeze(1) if each.dim() > 2 else each,  # one channel
    lambda each: each.movedim(-1, 1) if each.dim() > 2 else each,  # classes before positions
)
_READ: tuple[Callable[[Any], Any], ...] = (lambda outputs: outputs, lambda outputs: tensors_in(outputs)[0])


def _changed(one: Callable[[Any], Any], change: _Change, outputs: Any) -> Any:
    return of_items(one(outputs), change)


class Form(NamedTuple):
    """What a loop does to inputs and targets before module and criterion see them."""

    inputs: _Change = _same
    targets: _Change | None = _same  # None: the inputs are the targets, as in an autoencoder's loop
    read: int = 0  # which of the ways to read a batch

    def of(self, inputs: Any, targets: Any) -> tuple[Any, Any]:
        """Inputs and targets in this form."""
        inputs, targets = self.ways(inputs, targets)[self.read]
        given = of_items(inputs, self.inputs)
        return given, given if self.targets is None else of_items(targets, self.targets)

    @staticmethod
    def ways(inputs: Any, targets: Any) -> list[tuple[Any, Any]]:
        """As they are; one tensor of a mapping; the first two of several; targets first."""
        others = [(each, targets) for each in inputs.values()] if isinstance(inputs, dict) else [(targets, inputs)]
        return [(inputs, targets), *([inputs[:2]] if isinstance(inputs, tuple) and inputs[1:] else []), *others]


class BatchCheck:
    """Looks at each batch: whether the data set is as long as it was, now and then whether its ``collate_fn`` keeps
    items apart, and, where they are padded further than in any batch before, whether their gradients are theirs alone.
    """

    check_padded: Callable[[Any, list[Any]], None] | None = None  # None: items may mix
    _form = Form()

    def __init__(self, loader: DataLoader[Any], device: torch.device, in_loop: bool) -> None:
        self.device, self.in_loop = device, in_loop
        self._loader, self._seen, self._tried = loader, set[Any](), 0
        dataset: Any = loader.dataset
        self._dataset, self._items = dataset, len(dataset)
        self._batches = self._largest = 0
        self._collate, self._state = loader.collate_fn, Watched({"collate_fn": loader.collate_fn})
        self._changes = Changes()

    def tried(self, run: Callable[[Any], Any], losses: ItemLosses) -> tuple[Any, Any, ItemLosses]:
        """Inputs and targets of a few items, as :func:`tried_batch`, and the losses to try them with.

        Those of a loop are in the form that it usually gives them where module (``run``) or criterion do not take them
        as they are: as float or long, flattened. Nothing is trained so: each step has what its loop gives.
        """
        batch = tried_batch(self._loader, self.device)
        ways = range(len(Form.ways(*batch)) if self.in_loop else 0)
        for read, of_inputs in product(ways, _OF_INPUTS):
            if (output := _given(run, Form(of_inputs, read=read).of(*batch)[0])) is None:
                continue
            for one, of_targets, of_outputs in product(_READ, (*_OF_TARGETS, None), _OF_OUTPUTS):
                form = Form(of_inputs, of_targets, read)
                given, tried = form.of(*batch), ItemLosses(losses.criterion, partial(_changed, one, of_outputs))
                if _given(own_copy(tried), output, given[1]) is not None:
                    self._form = form
                    return *given, tried
        return *batch, losses

    def _made(self, items: list[Any]) -> tuple[Any, Any]:
        batch = self._loader.collate_fn([own_copy(item) for item in items])
        return self._form.of(*inputs_and_targets(batch, self.device))

    def check_all_tried(self) -> None:
        """As at a call, of the items tried."""
        places = places_to_try(self._items)
        self(places, self._made([self._dataset[place] for place in places]))

    def check_length(self) -> None:
        """Raises DataError for a data set of another length."""
        if (now := len(self._dataset)) != self._items:
            allowed = f"the {self._items} that it had: each is its subject's by position, so make a new engine"
            raise expected("items of the data set", now, allowed, DataError)

    def __call__(self, places: Sequence[int], batch: Any) -> None:
        """Looks at a batch, of the items at those places. Raises ModelError where the ``collate_fn`` mixes them or
        padding changes a gradient, DataError as :meth:`check_length`."""
        self.check_length()
        if self.check_padded is None or _stacks(self._loader.collate_fn):
            return
        size = sum(shape.numel() for shape in _sizes(batch))
        longer = size > self._tried and _sizes(batch) not in self._seen
        if not (self._is_due(len(places)) or longer):
            return
        items = [self._dataset[place] for place in places]
        drawn = check_collate(self._loader, items)
        if not longer:
            return
        self._seen.add(_sizes(batch))
        whole, alone = self._made(items), [(i, self._made([item])) for i, item in enumerate(items)]
        if padded := [each for each in alone if _sizes(each[1]) != _sizes(whole)]:
            padded.sort(key=lambda each: sum(tensor.numel() for tensor in tensors_in(each[1])))
            if drawn:
                raise ModelError(
                    "Expected a collate_fn that draws numbers to pad all items to one length: whether an item's "
                    "gradient changes with the longest item of its batch cannot be told from what is drawn."
                )
            self.check_padded(whole, padded[:TRIED])
            self._tried = size

    def _is_due(self, items: int) -> bool:
        """Whether the ``collate_fn`` is tried: as often as a module is, and where it has been changed."""
        state, self._batches = Watched({"collate_fn": self._loader.collate_fn}), self._batches + 1
        changed = self._changes.see(state.changed(self._state)) or self._loader.collate_fn is not self._collate
        due = changed or self._batches - 1 in (0, *TRIED_AGAIN) or items > 1.1 * self._largest
        self._collate, self._state = self._loader.collate_fn, state
        if due:
            self._largest = max(items, self._largest)
        return due


def _given(run: Callable[..., Any], *arguments: Any) -> Any:
    """What code of anyone's returns; None where it takes no such arguments."""
    with torch.no_grad(), generators_kept(), warnings.catch_warnings(action="ignore"):
        try:
            return run(*arguments)
        except Exception:  # whatever it raises
            return None


def _sizes(batch: Any) -> tuple[torch.Size, ...]:
    return tuple(each.shape[1:] for each in tensors_in(batch))


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


_AS_MADE = ("dataset", "sampler", "batch_sampler", "batch_size", "collate_fn", "drop_last", "num_workers")


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
        self._check, self._live, self.dataset, self.batch_size = check, 0, loader.dataset, loader.batch_size

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _AS_MADE and "batch_size" in vars(self):
            raise PrivacyError(f"Expected the loader as make_private made it, {name} was set: make a new engine.")
        super().__setattr__(name, value)

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
                self._check.check_length()
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
