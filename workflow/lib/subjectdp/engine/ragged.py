"""Tensors with as many rows as values of the data say: chosen by a mask, a list, or numbers that Python read.

How many of these rows are whose is another in each pass, also where it was one number for all items that were seen.
Names of torch's functions decide; what is taken for ragged and is not costs time alone.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

_READING = (
    *("tolist", "item", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "__contains__"),
    *("equal", "allclose", "is_nonzero"),
)
DRAWING = {
    *("rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "normal"),
    *("normal_", "uniform_", "exponential_", "bernoulli_", "random_"),
}
_WRITING, _JOINING = ("tensor", "as_tensor", "asarray"), ("cat", "concat", "concatenate")
_PICKING = ("nonzero", "argwhere", "masked_select", "_pack_padded_sequence")
_CHOOSING = ("__getitem__", "index_select", "take", "narrow", "topk")


def tensors_of(values: Any) -> Iterator[Tensor]:
    """As those of the leaves of a tree, for the many functions that nobody follows: three times as fast."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for each in values:
            yield from tensors_of(each)
    elif isinstance(values, dict):
        yield from tensors_of(list(values.values()))


class Ragged:
    """The ragged tensors of a pass of ``items``, of which :meth:`see` is told each function."""

    def __init__(self, items: int, is_shared: Callable[[Tensor], bool]) -> None:
        self._items, self._is_shared = items, is_shared
        self._found: dict[int, tuple[Tensor, set[int]]] = {}
        self._read = False  # Python has read numbers of the data
        self._made, self._drawn = set[int](), set[int]()  # what functions of data gave, and of an item's own draws
        self._written: dict[int, Tensor] = {}  # made of numbers that may have been read

    def __contains__(self, tensor: Tensor) -> bool:
        return id(tensor) in self._found

    def see(self, name: str, args: Any, kwargs: Any, output: Any) -> None:
        """Marks the outputs of a function that have a size which values of the data decide."""
        given, made = list(tensors_of((args, kwargs))), list(tensors_of(output))
        sizes = {n for each in given for n in self._found.get(id(each), (each, ()))[1]}
        if (name in DRAWING and made[0].shape[:1] == (self._items,)) or any(id(each) in self._drawn for each in given):
            self._drawn.update(map(id, made))
        if not all(map(self._is_shared, given)):
            self._made.update(map(id, made))
        if self._read and name in _WRITING:
            self._written.update({id(each): each for each in made})
        self._read = self._read or (name in _READING and self._of_data(given[0]))
        if any(map(self._of_data, _counting(name, args, given))):
            sizes |= {each.shape[0] for each in made if each.dim()}
        elif self._read and name in _JOINING:
            sizes |= {each.shape[0] for each in made} - {1, *(n for each in given for n in each.shape)}
        elif name in _CHOOSING and self._of_data(given[0]):
            sizes |= {n for each in made for n in each.shape if self._read} - {1, *given[0].shape}
            sizes |= self._listed(name, args, given)
        for each in made:
            if own := sizes & set(each.shape):
                self._found[id(each)] = each, own

    def _listed(self, name: str, args: Any, given: list[Tensor]) -> set[int]:
        """How many rows one list of numbers chooses, if these are of the data."""
        index = given[1:] if name != "__getitem__" else args[1] if isinstance(args[1], tuple) else (args[1],)
        lists = [each for each in index if isinstance(each, Tensor | list | np.ndarray)]
        if len(lists) != 1 or not (self._of_data(lists[0]) if isinstance(lists[0], Tensor) else self._read):
            return set()
        numbers = torch.as_tensor(lists[0])
        return {int(numbers.sum()) if numbers.dtype is torch.bool else len(numbers)} if numbers.dim() == 1 else set()

    def _of_data(self, tensor: Tensor) -> bool:
        """Whether a tensor was made of data in this pass, or is data: no mask that a module holds. What numpy makes of
        numbers that were read comes from nowhere."""
        made = self._read or id(tensor) in self._made or tensor.shape[:1] == (self._items,)
        return id(tensor) in self._written or id(tensor) in self._drawn or (made and not self._is_shared(tensor))


def _counting(name: str, args: Any, given: list[Tensor]) -> list[Tensor]:
    """The arguments whose values say how many rows a function gives."""
    if name == "__getitem__":
        return [each for each in tensors_of(args[1]) if each.dtype in (torch.bool, torch.uint8) and each.dim()]
    counted = {"where": len(given) == 1, "repeat_interleave": len(given) > 1 or len(args) == 1}
    return given if name in _PICKING or "unique" in name or counted.get(name, False) else []
