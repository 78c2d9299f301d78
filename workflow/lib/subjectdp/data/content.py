"""A data set in memory, as the parsers return it: its invariants, its counts, and the expected counts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.names import check_distinct, check_name
from subjectdp.data.splits import TEXT, Integers, Pools, Silos, sizes_after_split
from subjectdp.errors import DataError, expected

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


def check_content(content: Content) -> None:
    """DataError unless lengths, addresses, labels and names of ``content`` are consistent."""
    name, subjects, items = content.dataset, len(content.subject_ids), len(content.features)
    if subjects == 0:
        raise DataError(f"The {name} source holds no subject with an item.")
    lengths = {len(content.groups), len(content.first_items), len(content.items)}
    if lengths != {subjects}:
        raise DataError(f"{name}: columns of lengths {sorted(lengths)} for {subjects} subjects.")
    named = {"subject": content.subject_ids, "group": set(content.groups) - {""}, "silo": content.silo_names}
    for kind, names in named.items():
        for each in names:
            check_name(each, f"a {kind}'s name", name)
        check_distinct(names, f"the {kind}s", name)
    if items > _LARGEST_ADDRESS:
        raise DataError(f"{name}: {items} addresses do not fit 32 bits.")
    last = content.first_items + content.items + content.window
    if content.items.min() < 1 or content.first_items.min() < 0 or last.max() > items:
        raise DataError(f"{name}: a subject without items, or with items outside of the features.")
    if content.kind != TEXT and len(content.labels) != items:
        raise DataError(f"{name}: {items} items, {len(content.labels)} labels.")
    if content.silo_names and len(content.silos) != items:
        raise DataError(f"{name}: {items} items, {len(content.silos)} silos of items.")
    _check_values(content)


def _check_values(content: Content) -> None:
    labels, name = content.labels, content.dataset
    symbols = (f"{name} symbols", content.features) if content.kind == TEXT else (f"{name} labels", labels)
    for (key, values), count in (
        (symbols, content.classes),
        ((f"{name} silos", content.silos), len(content.silo_names)),
    ):
        if count and not 0 <= int(values.min()) <= int(values.max()) < count:
            raise expected(key, f"{int(values.min())}..{int(values.max())}", f"0..{count - 1}", DataError)
    if not content.classes and (labels.dtype != np.float32 or not ((labels >= 0) & (labels <= 1)).all()):
        raise expected(f"{name} labels", "others", "numbers from 0 to 1", DataError)
    if content.features.dtype == np.float32 and not np.isfinite(content.features).all():
        raise expected(f"{name} features", "NaN or infinity", "finite numbers", DataError)


def most_copies(content: Content) -> int:
    """The most equal items of one subject, labels aside: 2 where LEAF lists a writer's first image twice.

    1 for text, whose items are windows that overlap.
    """
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
        raise DataError(
            "The data are not what data.expected says: "
            + "; ".join(differences)
            + ". Another edition of the source, or a wrong file; correct data.path or data.expected."
        )
