"""Train, validation and test items of each subject: LEAF's rules for text, and for all other items.

Items that are their own subjects cannot be split by subject. They are split within each silo that the source names, or
all together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import DataError
from subjectdp.noise.keys import Purpose, numpy_generator

if TYPE_CHECKING:
    from subjectdp.data.content import Content

IMAGE = "image"
TEXT = "text"
VECTOR = "vector"
WINDOW = 80  # characters of a Shakespeare window (LEAF's SEQ_LEN)

Integers = NDArray[np.int64]
Addresses = NDArray[np.int32]
Silos = NDArray[np.int16]


@dataclass(frozen=True)
class Splits:
    """Item addresses of each part, ordered by subject and address, with each one's subject index (int32).

    ``train_silos``: where the source says that the train items lie, int16; empty where it names no silo.
    ``own_subjects``: each item is its own subject.
    """

    train_items: Addresses
    train_subjects: Addresses
    validation_items: Addresses
    validation_subjects: Addresses
    test_items: Addresses
    test_subjects: Addresses
    train_silos: Silos = field(default_factory=lambda: np.empty(0, np.int16), kw_only=True)
    own_subjects: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Pools:
    """The items that are split as one: those of a subject; of a silo, or all, where items are their own subjects.

    The single items of a table's subjects are a pool of their own: a person with one row is in one part, at random.
    ``sizes`` (pools,) are those of the subjects' pools, then those of the ``shared`` ones, of which it has the
    addresses.
    """

    sizes: Integers
    shared: tuple[Integers, ...] = ()

    @classmethod
    def of(cls, data: Content) -> Self:
        """The pools of a data set."""
        if data.own_subjects:
            order, ends = np.arange(len(data.items)), np.empty(0, np.int64)
            if len(data.silos) > 0:
                order, ends = np.argsort(data.silos, kind="stable"), np.cumsum(np.bincount(data.silos))[:-1]
            own, shared = data.items[:0], tuple(np.split(order, ends))
        else:
            own, singles = data.items, data.first_items[(data.items == 1) & (data.kind == VECTOR)]
            shared = (singles,) if len(singles) > 0 else ()
        return cls(np.concatenate([own, np.array([len(pool) for pool in shared], dtype=np.int64)]), shared)

    @property
    def subjects(self) -> int:
        """How many of the pools are a subject's; the others are shared."""
        return len(self.sizes) - len(self.shared)


def split_items(prepared: Content, seed: int, test_fraction: float, validation_fraction: float) -> Splits:
    """Splits each subject's items into train, validation and test.

    Test: LEAF's split by sample with train fraction ``1 - test_fraction``. Images: at random, keyed by seed
    and subject id, so that a subject's split depends on no other subject. Text: first part train, then a gap
    of ``window - 1`` windows, so that no test window's input shares a character with a train window's input,
    then test. Subjects with fewer than two items, or left without a test item, are dropped as LEAF drops
    them; the single items of a table's subjects are split together. Validation: the same rule on the train part with
    ``validation_fraction``, but a subject may have no validation items. Items that are their own subjects are split at
    random, within each silo that the source names.
    The fractions are trusted: the configuration checks them.
    """
    pools = Pools.of(prepared)
    train, test, kept = sizes_after_split(pools.sizes, test_fraction, prepared.kind)
    if not kept.any():
        raise DataError(f"No subject of {prepared.dataset} is left at data.test_fraction {test_fraction}.")
    fit, _ = part_sizes(train, validation_fraction)
    if prepared.kind == TEXT:
        return _split_text(prepared, np.flatnonzero(kept), train[kept], test[kept], fit[kept])
    parts: tuple[list[Integers], ...] = ([], [], [])
    for key, members, number in _members(prepared, pools, kept):
        order = numpy_generator(seed, Purpose.SPLIT, *key).permutation(members)
        for part, chosen in zip(parts, np.split(order, [fit[number], train[number]]), strict=True):
            part.append(chosen)
    columns: list[Addresses] = []
    for part in parts:
        items = np.sort(np.concatenate(part))
        owners = np.searchsorted(prepared.first_items, items, side="right") - 1
        columns += [items.astype(np.int32), owners.astype(np.int32)]
    silos = prepared.silos[columns[0] if len(prepared.silos) > 0 else []]
    return Splits(*columns, train_silos=silos, own_subjects=prepared.own_subjects)


def _members(
    data: Content, pools: Pools, kept: NDArray[np.bool_]
) -> Iterator[tuple[tuple[str | int, ...], Integers, int]]:
    """Of each pool that is kept: the key of its randomness, the addresses of its items, its number."""
    for number in np.flatnonzero(kept[: pools.subjects]).tolist():
        yield (str(data.subject_ids[number]),), data.first_items[number] + np.arange(pools.sizes[number]), number
    for place, shared in enumerate(np.flatnonzero(kept[pools.subjects :]).tolist()):
        yield ("pool", place), pools.shared[shared], pools.subjects + shared


def part_sizes(items: Integers, fraction: float) -> tuple[Integers, Integers]:
    """Sizes of the part that stays, max(1, int((1 - fraction) n)), and of the part taken off."""
    kept = round(1 - fraction, 12)  # 1 - 0.1 must act as the 0.9 that LEAF is given
    first = np.maximum(1, (kept * items).astype(np.int64))
    first = np.minimum(first, items)
    return first, items - first


def sizes_after_split(items: Integers, test_fraction: float, kind: str) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """Train and real test items (after the gap) of each subject, and which subjects LEAF keeps."""
    train, test = part_sizes(items, test_fraction)
    if kind == TEXT:
        test = np.maximum(0, test - (WINDOW - 1))
    return train, test, (items >= 2) & (test >= 1)


def _split_text(prepared: Content, indices: NDArray[np.intp], train: Integers, test: Integers, fit: Integers) -> Splits:
    first = prepared.first_items[indices]
    end = first + prepared.items[indices]
    validation = np.maximum(0, train - fit - (WINDOW - 1))
    return Splits(
        *_spans(first, fit, indices),
        *_spans(first + train - validation, validation, indices),
        *_spans(end - test, test, indices),
    )


def _spans(starts: Integers, lengths: Integers, subjects: NDArray[np.intp]) -> tuple[Addresses, Addresses]:
    """The addresses of the spans, one after another, with each one's subject."""
    before = np.cumsum(lengths) - lengths
    items = np.arange(int(lengths.sum()), dtype=np.int32)
    items += np.repeat((starts - before).astype(np.int32), lengths)
    return items, np.repeat(subjects.astype(np.int32), lengths)
