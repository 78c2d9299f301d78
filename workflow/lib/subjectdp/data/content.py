"""A data set in memory, as the parsers return it: its invariants, its counts, and the expected counts."""

from collections.abc import Mapping
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
    name, subjects = content.dataset, len(content.subject_ids)
    if subjects == 0:
        raise DataError(f"The {name} source holds no subject with an item.")
    lengths = {len(content.groups), len(content.first_items), len(content.items)}
    if lengths != {subjects}:
        raise DataError(f"{name}: columns of lengths {sorted(lengths)} for {subjects} subjects.")
    for subject in content.subject_ids:
        check_name(subject, "a subject's name", name)
    for group in set(content.groups) - {""}:
        check_name(group, "a group's name", name)
    check_distinct(content.subject_ids, "the subjects", name)
    check_distinct(set(content.groups), "the groups", name)
    if len(content.features) > _LARGEST_ADDRESS:
        raise DataError(f"{name}: {len(content.features)} addresses do not fit 32 bits.")
    last = content.first_items + content.items + content.window
    if content.items.min() < 1 or content.first_items.min() < 0 or last.max() > len(content.features):
        raise DataError(f"{name}: a subject without items, or with items outside of the features.")
    _check_symbols(content)
    _check_silos(content)


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


def single_items(count: int) -> dict[str, Any]:
    """The subjects' columns of a :class:`Content` of ``count`` items that name nobody: each is its own subject."""
    return {
        "subject_ids": [f"item {index}" for index in range(count)],
        "groups": [""] * count,
        "first_items": np.arange(count, dtype=np.int64),
        "items": np.ones(count, dtype=np.int64),
        "own_subjects": True,
    }


def stored_labels(labels: Integers, classes: int) -> Labels:
    """Labels as they are stored: one byte each where that is enough."""
    return labels.astype(np.uint8) if classes <= 256 else labels.astype(np.int32)


def _check_symbols(content: Content) -> None:
    text = content.kind == TEXT
    if not text and len(content.labels) != len(content.features):
        raise DataError(f"{content.dataset}: {len(content.features)} items, {len(content.labels)} labels.")
    values = content.features if text else content.labels
    if content.classes == 0:
        _check_numbers(content)
    elif int(values.min()) < 0 or int(values.max()) >= content.classes:
        key = f"{content.dataset} {'symbols' if text else 'labels'}"
        found = f"{int(values.min())}..{int(values.max())}"
        raise expected(key, found, f"0..{content.classes - 1}", DataError)
    if content.features.dtype == np.float32 and not np.isfinite(content.features).all():
        raise expected(f"{content.dataset} features", "NaN or infinity", "finite numbers", DataError)


def _check_numbers(content: Content) -> None:
    if content.labels.dtype != np.float32 or not ((content.labels >= 0) & (content.labels <= 1)).all():
        raise expected(f"{content.dataset} labels", "others", "numbers from 0 to 1", DataError)


def _check_silos(content: Content) -> None:
    name, silos = content.dataset, content.silos
    if not content.silo_names:
        return
    for silo in content.silo_names:
        check_name(silo, "a silo's name", name)
    check_distinct(content.silo_names, "the silos", name)
    if len(silos) != len(content.features):
        raise DataError(f"{name}: {len(content.features)} items, {len(silos)} silos of items.")
    if silos.min() < 0 or silos.max() >= len(content.silo_names):
        allowed = f"0..{len(content.silo_names) - 1}"
        raise expected(f"{name} silos", f"{silos.min()}..{silos.max()}", allowed, DataError)


def count_content(content: Content, test_fraction: float) -> dict[str, Any]:
    """Users, items, groups, classes, vocabulary, statistics of items a user, and the counts after the split.

    ``classes`` are those that occur (image) or the vocabulary's (text); ``std`` is the population's; the
    split's counts follow LEAF's rule for ``test_fraction`` (before the validation part is taken off).
    """
    items = content.items
    pools = Pools.of(content)
    train, test, kept = sizes_after_split(pools.sizes, test_fraction, content.kind)
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
        "users_after_split": _users_left(content, pools, train + test, kept),
        "train_items": int(train[kept].sum()),
        "test_items": int(test[kept].sum()),
    }


def _users_left(content: Content, pools: Pools, items: Integers, kept: NDArray[np.bool_]) -> int:
    if content.own_subjects:
        return int(items[kept].sum())
    singles = int(items[-1]) if len(pools.singles) and kept[-1] else 0
    return int(kept[: len(content.items)].sum()) + singles


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
