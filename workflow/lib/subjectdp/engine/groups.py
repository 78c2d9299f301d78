"""Groups of items that are clipped as one: the parts of a batch, and the order of the items of a part.

A group's gradient is the sum over its items, so that a layer rule for one item with T positions also serves for one
group of m items with m·T positions. Items of a part are sorted by the size of their group, then by group; groups of
equal size form a :class:`Run`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from subjectdp.errors import PrivacyError, expected


@dataclass(frozen=True)
class Run:
    """Consecutive groups of equal size, in a part whose items are sorted."""

    start: int  # first item
    groups: int
    size: int  # items of each group

    @property
    def items(self) -> slice:
        """The items of all its groups."""
        return slice(self.start, self.start + self.groups * self.size)


@dataclass(frozen=True)
class Grouping:
    """The groups of a part, in the order of its items."""

    runs: tuple[Run, ...]

    @classmethod
    def of_items(cls, items: int) -> Grouping:
        """Each item is its own group."""
        return cls((Run(0, items, 1),))

    @property
    def count(self) -> int:
        """Number of groups."""
        return sum(run.groups for run in self.runs)

    def to_items(self, values: Tensor) -> Tensor:
        """(groups,) values, repeated for each item of their group: (items,)."""
        if all(run.size == 1 for run in self.runs):
            return values
        parts, start = [], 0
        for run in self.runs:
            parts.append(values[start : start + run.groups].repeat_interleave(run.size))
            start += run.groups
        return torch.cat(parts)


@dataclass(frozen=True)
class Part:
    """The items that go through the model at once, and their groups."""

    items: Tensor | slice  # positions in the batch
    groups: Tensor | slice  # numbers of the groups, in the grouping's order
    grouping: Grouping


def item_parts(items: int, capacity: int) -> Iterator[Part]:
    """A batch of ``items`` single items in parts of at most ``capacity`` and of nearly equal size."""
    if items == 0:
        return
    size = -(-items // -(-items // capacity))  # the batch over the number of passes, rounded up
    for start in range(0, items, size):
        where = slice(start, min(start + size, items))
        yield Part(where, where, Grouping.of_items(where.stop - where.start))


def group_numbers(groups: Tensor, items: int) -> Tensor:
    """The group of each item (items,) int64 on the CPU, checked.

    Raises:
        PrivacyError: another shape, numbers that are not whole, or below 0.
    """
    if groups.shape != (items,):
        raise expected("groups", tuple(groups.shape), f"one number an item, shape ({items},)", PrivacyError)
    if groups.is_floating_point() or groups.is_complex() or groups.dtype is torch.bool:
        raise expected("type of groups", str(groups.dtype), "a type of whole numbers", PrivacyError)
    numbers = groups.to("cpu", torch.int64)
    if items and int(numbers.min()) < 0:
        raise expected("groups", int(numbers.min()), "numbers from 0 on", PrivacyError)
    return numbers


def group_parts(numbers: Tensor, capacity: int) -> Iterator[Part]:
    """A grouped batch in parts of whole groups, of at most ``capacity`` items unless a single group is larger.

    Args:
        numbers: (items,) int64 on the CPU, the group of each item.
        capacity: items that may go through the model at once, at least 1.
    """
    sizes = torch.bincount(numbers)
    by_size = torch.sort(sizes, stable=True).indices
    by_size = by_size[sizes[by_size] > 0]
    rank = torch.empty_like(sizes)
    rank[by_size] = torch.arange(len(by_size))
    order = torch.sort(rank[numbers], stable=True).indices
    first_group = first_item = 0
    counts: list[int] = sizes[by_size].tolist()
    for groups in _packed(counts, capacity):
        chosen = counts[first_group : first_group + groups]
        items = sum(chosen)
        yield Part(
            order[first_item : first_item + items],
            by_size[first_group : first_group + groups],
            Grouping(tuple(_runs(chosen))),
        )
        first_group, first_item = first_group + groups, first_item + items


def _packed(sizes: list[int], capacity: int) -> Iterator[int]:
    groups = items = 0
    for size in sizes:
        if groups and items + size > capacity:
            yield groups
            groups = items = 0
        groups, items = groups + 1, items + size
    if groups:
        yield groups


def _runs(sizes: list[int]) -> Iterator[Run]:
    start = 0
    for size in sorted(set(sizes)):
        groups = sizes.count(size)
        yield Run(start, groups, size)
        start += groups * size
