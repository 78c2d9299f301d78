"""What a loader's ``collate_fn`` makes of items: each must be there by itself, whatever the others are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from subjectdp.engine.batches import of_items, tensors_in
from subjectdp.engine.probe import TRIED, tried_positions
from subjectdp.errors import DataError, ModelError, expected


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
    batch, places = loader.collate_fn(items), range(len(items))
    if getattr(dataset, "__getitems__", None):  # of a whole batch; one that draws is not compared
        once_more, whole = ([dataset[i] for i in chosen], dataset.__getitems__(chosen))
        if _alike(loader.collate_fn(once_more), batch) and not _alike(loader.collate_fn(whole), batch):
            raise ModelError(
                "Expected a data set whose __getitems__ returns the items of its __getitem__, those of this one depend "
                "on their neighbours. Change items one by one, in __getitem__; a collate_fn gets a list of them."
            )
    for order in ([*places][::-1], [*places[1:], 0], *([place] for place in places)):
        again = tensors_in(loader.collate_fn([items[i] for i in order]))
        for given, other in zip(tensors_in(batch), again, strict=True):
            padded = len(order) == 1 and given.shape[1:] != other.shape[1:]  # left to BatchCheck
            same = padded or torch.equal(given[order].nan_to_num(), other.nan_to_num())
            if given.shape[:1] != (len(items),) or not same:
                raise ModelError(
                    "Expected a collate_fn that keeps the items in their order and each by itself: this one sorts, "
                    "mixes or drops them. Change items in the data set, or in the module."
                )
    return inputs_and_targets(batch, device)


def _alike(batch: Any, other: Any) -> bool:
    pairs = zip(tensors_in(batch), tensors_in(other), strict=True)
    return all(torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in pairs)


def inputs_and_targets(batch: Any, device: torch.device) -> tuple[Any, Any]:
    """Of a batch: (inputs, ..., targets), or a mapping with ``labels``. Raises DataError for anything else."""
    names = list(batch.keys()) if isinstance(batch, Mapping) else []  # a TensorDict iterates over its items
    if "labels" in names:
        found: Any = ({name: batch[name] for name in names if name != "labels"}, batch["labels"])
    elif isinstance(batch, list | tuple) and len(batch) > 1 and tensors_in(batch[0]) and tensors_in(batch[-1]):
        found = (batch[0] if len(batch) == 2 else tuple(batch[:-1])), batch[-1]
    else:
        kinds = type(batch).__name__ + (f" of {', '.join(map(str, names))}" if names else "")
        if isinstance(batch, list | tuple):
            kinds += f" of {', '.join(type(part).__name__ for part in batch)}"
        allowed = "tensors, (inputs, targets), or a mapping with labels"
        raise expected("a batch of the data loader", kinds, allowed, DataError)
    inputs, targets = (of_items(values, lambda tensor: tensor.to(device)) for values in found)
    return of_items(inputs, lambda tensor: tensor.float() if tensor.dtype is torch.float64 else tensor), targets


class BatchCheck:
    """Looks at each batch: whether the data set is as long as it was, and, where items are padded further than in any
    batch before, whether their gradients are theirs alone."""

    check_padded: Callable[[Any, list[Any]], None] | None = None  # None: items may mix

    def __init__(self, loader: DataLoader[Any], device: torch.device) -> None:
        self.device, self._loader, self._seen, self._tried = device, loader, set[Any](), 0
        dataset: Any = loader.dataset
        self._dataset, self._items = dataset, len(dataset)

    def __call__(self, places: Sequence[int], batch: Any) -> None:
        """Looks at a batch, of the items at those places. Raises ModelError where padding changes a gradient, DataError
        for a data set of another length."""
        if (now := len(self._dataset)) != self._items:
            allowed = f"the {self._items} that it had: each is its subject's by position, so make a new engine"
            raise expected("items of the data set", now, allowed, DataError)
        size = sum(shape.numel() for shape in _sizes(batch))
        if self.check_padded is None or size <= self._tried or _sizes(batch) in self._seen:
            return
        self._seen.add(_sizes(batch))
        items = [self._dataset[place] for place in places]
        whole = inputs_and_targets(self._loader.collate_fn(items), self.device)
        alone = [(i, inputs_and_targets(self._loader.collate_fn([item]), self.device)) for i, item in enumerate(items)]
        if padded := [each for each in alone if _sizes(each[1]) != _sizes(whole)]:
            padded.sort(key=lambda each: sum(tensor.numel() for tensor in tensors_in(each[1])))
            self.check_padded(whole, padded[:TRIED])
            self._tried = size


def _sizes(batch: Any) -> tuple[torch.Size, ...]:
    return tuple(each.shape[1:] for each in tensors_in(batch))
