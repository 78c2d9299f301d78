"""A data set in memory, as the parsers return it: its invariants, its counts, and its split.

Train, validation and test items of each subject follow LEAF's rules. Items that are their own subjects cannot be split
by subject. They are split within each silo that the source names, or all together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.names import check_distinct, check_name, check_spelling
from subjectdp.errors import DataError, expected
from subjectdp.noise.keys import Purpose, numpy_generator

IMAGE = "image"
TEXT = "text"
VECTOR = "vector"
WINDOW = 80  # characters of a Shakespeare window (LEAF's SEQ_LEN)

Integers = NDArray[np.int64]
Addresses = NDArray[np.int32]
Silos = NDArray[np.int16]
Features = NDArray[np.uint8] | NDArray[np.float32]
Labels = NDArray[np.uint8] | NDArray[np.int32] | NDArray[np.float32]
_LARGEST_ADDRESS = 2**31 - 1


@dataclass(frozen=True)
class Content:
    """A data set in memory, before it is written.

    ``first_items`` and ``items`` are (subjects,) int64: subject i has the addresses ``first_items[i] .. first_items[i]
    + items[i] - 1`` in LEAF's order. ``groups`` names the play of a character, or is empty. ``features`` and ``labels``
    are as in :mod:`subjectdp.data.store`. ``own_subjects``: without subject ids, each item is its own subject.
    ``classes`` 0: labels are numbers in [0, 1], float32. ``silo_names`` and ``silos`` (one an item) say where the items
    lie, if the source does.
    """

    dataset: str
    kind: str
    features: Features
    labels: Labels
    subject_ids: list[str]
    groups: list[str]
    first_items: Integers
    items: Integers
    classes: int
    window: int = 0
    vocabulary: str = ""
    dark_on_light: bool = True  # images: 255 is the background, as in FEMNIST
    own_subjects: bool = False
    silo_names: tuple[str, ...] = ()
    silos: Silos = field(default_factory=lambda: np.empty(0, np.int16))
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of an item as models take it: (channels, height, width), (numbers,) or (characters,)."""
        if self.window:
            return (self.window,)
        stored = self.features.shape[1:]
        if self.kind != IMAGE:
            return stored
        return (1, *stored) if len(stored) == 2 else (*stored[2:], *stored[:2])


def check_content(content: Content) -> None:
    """DataError unless lengths, addresses, labels and names of ``content`` are consistent."""
    _check_types(content)
    name, subjects, items = content.dataset, len(content.subject_ids), len(content.features)
    if subjects == 0:
        raise DataError(f"The {name} source holds no subject with an item.")
    lengths = {len(content.groups), len(content.first_items), len(content.items)}
    if lengths != {subjects}:
        raise DataError(f"{name}: columns of lengths {sorted(lengths)} for {subjects} subjects.")
    _check_names(content)
    if items > _LARGEST_ADDRESS:
        raise DataError(f"{name}: {items} addresses do not fit 32 bits.")
    last = content.first_items + content.items + content.window
    if content.items.min() < 1 or content.first_items.min() < 0 or last.max() > items:
        raise DataError(f"{name}: a subject without items, or with items outside of the features.")
    if (np.diff(content.first_items) < 0).any():
        raise DataError(f"{name}: expected the subjects in the order of their items' addresses (first_items rising).")
    if (content.first_items[1:] < last[:-1]).any() or (content.kind != TEXT and int(content.items.sum()) != items):
        raise DataError(f"{name}: an item that is of two subjects, or of none.")
    if content.own_subjects and int(content.items.max()) > 1:
        raise DataError(f"{name}: own_subjects, and a subject with several items: leave own_subjects out.")
    if content.kind != TEXT and len(content.labels) != items:
        raise DataError(f"{name}: {items} items, {len(content.labels)} labels.")
    if len(content.silos) != (items if content.silo_names else 0):
        raise DataError(f"{name}: {items} items, {len(content.silos)} silos of items.")
    _check_values(content)


def _check_names(content: Content) -> None:
    name = content.dataset
    named = {"subject": content.subject_ids, "group": set(content.groups) - {""}, "silo": content.silo_names}
    for kind, names in named.items():
        for each in names:
            check_name(each, f"a {kind}'s name", name)
        check_distinct(names, f"the {kind}s", name)
    check_spelling(content.subject_ids, name)
    check_spelling(content.silo_names, name, "silo")


def _check_types(content: Content) -> None:
    for name in ("features", "labels", "first_items", "items", "silos"):
        column, flat = getattr(content, name), name != "features"
        whole = flat and name != "labels"
        fits = isinstance(column, np.ndarray) and not (flat and column.ndim != 1)
        if not fits or (whole and column.dtype.kind not in "iu"):
            got = f"{column.dtype} {column.shape}" if isinstance(column, np.ndarray) else type(column).__name__
            allowed = f"an array of NumPy{', of one dimension' * flat}{', of whole numbers' * whole}"
            raise expected(f"{content.dataset} {name}", got, allowed, DataError)
    for name in ("subject_ids", "groups", "silo_names"):
        names = getattr(content, name)
        if not isinstance(names, Sequence | np.ndarray) or not all(isinstance(each, str) for each in names):
            raise expected(f"{content.dataset} {name}", names, "a list of texts", DataError)


def _check_values(content: Content) -> None:
    labels, name = content.labels, content.dataset
    numbers = np.float32 if content.kind == VECTOR else np.uint8
    if content.features.dtype != numbers:
        raise expected(f"{name} features", content.features.dtype.name, numbers.__name__, DataError)
    if content.classes and content.kind != TEXT and not np.issubdtype(labels.dtype, np.integer):
        raise expected(f"{name} labels", labels.dtype.name, "whole numbers", DataError)
    symbols = (f"{name} symbols", content.features) if content.kind == TEXT else (f"{name} labels", labels)
    of_silos = (f"{name} silos", content.silos)
    for (key, values), count in ((symbols, content.classes), (of_silos, len(content.silo_names))):
        if count and not 0 <= int(values.min()) <= int(values.max()) < count:
            raise expected(key, f"{int(values.min())}..{int(values.max())}", f"0..{count - 1}", DataError)
    if not content.classes and (labels.dtype != np.float32 or not ((labels >= 0) & (labels <= 1)).all()):
        raise expected(f"{name} labels", "others", "numbers from 0 to 1", DataError)
    if content.features.dtype == np.float32 and not np.isfinite(content.features).all():
        raise expected(f"{name} features", "NaN or infinity", "finite numbers", DataError)


def most_copies(content: Content) -> int:
    """The most equal items of one subject, labels aside: 2 where LEAF lists an image twice, 1 for text (windows)."""
    if content.kind == TEXT:
        return 1
    most = 1
    for first, count in zip(content.first_items.tolist(), content.items.tolist(), strict=True):
        rows = np.ascontiguousarray(content.features[first : first + count]).reshape(count, -1)
        most = max(most, int(np.unique(rows.view(f"V{rows.nbytes // count}"), return_counts=True)[1].max()))
    return most


def subjects_in_order(names: Iterable[str], items: Sequence[int] | Integers, window: int = 0) -> dict[str, Any]:
    """The subjects' columns of a :class:`Content` whose items lie subject by subject, in no groups."""
    ids, counts = list(names), np.asarray(items, dtype=np.int64)
    ends = np.cumsum(counts + window)
    return {"subject_ids": ids, "groups": [""] * len(ids), "first_items": ends - counts - window, "items": counts}


def single_items(count: int) -> dict[str, Any]:
    """The subjects' columns of a :class:`Content` of ``count`` items that name nobody: each is its own subject."""
    names = (f"item {index}" for index in range(count))
    return subjects_in_order(names, np.ones(count, dtype=np.int64)) | {"own_subjects": True}


def stored_labels(labels: Integers, classes: int) -> Labels:
    """Labels as they are stored: one byte each where that is enough."""
    return labels.astype(np.uint8) if classes <= 256 else labels.astype(np.int32)


def count_content(content: Content, test_fraction: float) -> dict[str, Any]:
    """Users, items, groups, classes, vocabulary, statistics of items a user, and the counts after the split.

    ``classes`` are those that occur (image) or the vocabulary's (text); ``std`` is the population's; the
    split's counts follow LEAF's rule for ``test_fraction`` (before the validation part is taken off).
    """
    items = content.items
    pools = Pools.of(content)
    train, test, kept = sizes_after_split(pools.sizes, test_fraction, content.kind)
    shared = (train + test)[pools.subjects :]
    return {
        "users": len(items),
        "items": int(items.sum()),
        "groups": len({group for group in content.groups if group != ""}),
        "classes": content.classes if content.kind == TEXT or not content.classes else len(np.unique(content.labels)),
        "vocabulary": len(content.vocabulary),
        "mean": float(items.mean()),
        "std": float(items.std()),
        "median": float(np.median(items)),
        "min": int(items.min()),
        "max": int(items.max()),
        "silos": len(content.silo_names),
        "users_after_split": int(kept[: pools.subjects].sum() + shared[kept[pools.subjects :]].sum()),
        "train_items": int(train[kept].sum()),
        "test_items": int(test[kept].sum()),
    }


def check_expected(counts: Mapping[str, Any], wanted: Mapping[Any, int]) -> None:
    """DataError listing each count of ``wanted`` that differs from ``counts``."""
    differences = [
        f"{key}: expected {value}, found {counts.get(key, 'no such count')}"
        for key, value in wanted.items()
        if counts.get(key) != value
    ]
    if differences:
        remedy = "Another edition of the source, or a wrong file; correct data.path or data.expected."
        raise DataError(f"The data are not what data.expected says: {'; '.join(differences)}. {remedy}")


@dataclass(frozen=True)
class Splits:
    """Item addresses of each part, ordered by subject and address, and the subject index of train items (int32).

    ``train_silos``: where the source says that the train items lie, int16; empty where it names none of its
    ``silos``. ``own_subjects``: each item is its own subject.
    """

    train_items: Addresses
    train_subjects: Addresses
    validation_items: Addresses
    test_items: Addresses
    train_silos: Silos = field(default_factory=lambda: np.empty(0, np.int16), kw_only=True)
    silos: int = field(default=0, kw_only=True)
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

    Test: LEAF's split by sample with train fraction ``1 - test_fraction``. Images: at random, keyed by seed and subject
    id, so that a subject's split depends on no other subject. Text: first part train, then a gap of ``window - 1``
    windows, so that no test window's input shares a character with a train window's input, then test. Subjects with
    fewer than two items, or left without a test item, are dropped as LEAF drops them; a table's single items are split
    together. Validation: the same rule on the train part, but a subject may have no validation items. Items that are
    their own subjects are split at random, within each silo that the source names. The fractions are trusted.
    """
    pools = Pools.of(prepared)
    train, test, kept = sizes_after_split(pools.sizes, test_fraction, prepared.kind)
    if not kept.any():
        raise DataError(f"No subject of {prepared.dataset} is left at data.test_fraction {test_fraction}.")
    fit, _ = part_sizes(train, validation_fraction)
    if prepared.kind == TEXT:
        first, items = prepared.first_items[kept], prepared.items[kept]
        return _splits(prepared, *_parts_of_text(first, items, train[kept], test[kept], fit[kept]))
    parts: tuple[list[Integers], ...] = ([], [], [])
    for key, members, number in _members(prepared, pools, kept):
        order = numpy_generator(seed, Purpose.SPLIT, *key).permutation(members)
        for part, chosen in zip(parts, np.split(order, [fit[number], train[number]]), strict=True):
            part.append(chosen)
    return _splits(prepared, *(np.sort(np.concatenate(part)) for part in parts))


def _splits(prepared: Content, train: Integers, validation: Integers, test: Integers) -> Splits:
    owners = np.searchsorted(prepared.first_items, train, side="right") - 1
    items, subjects, *others = (each.astype(np.int32) for each in (train, owners, validation, test))
    silos = prepared.silos[train if len(prepared.silos) > 0 else []]
    own, named = prepared.own_subjects, len(prepared.silo_names)
    return Splits(items, subjects, *others, train_silos=silos, silos=named, own_subjects=own)


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


def _parts_of_text(
    first: Integers, items: Integers, train: Integers, test: Integers, fit: Integers
) -> tuple[Integers, Integers, Integers]:
    validation = np.maximum(0, train - fit - (WINDOW - 1))
    return (
        addresses(first, fit),
        addresses(first + train - validation, validation),
        addresses(first + items - test, test),
    )


def addresses(starts: Integers, lengths: Integers) -> Integers:
    """The addresses of the spans, one after another."""
    before = np.cumsum(lengths) - lengths
    found: Integers = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return found
