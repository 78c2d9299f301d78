"""LEAF's own output as a source: FEMNIST and Shakespeare JSON, in a folder, a zip file, or a single file.

LEAF writes the folders all_data, sampled_data, rem_user_data, train and test; the most processed one that is present is
read (train and test first). LEAF's train and test parts are pooled for each user and split again by this project's
rules, so that all sources, seeds and fractions are treated alike. For Shakespeare this restores the user's whole text,
including the 79 windows that LEAF leaves out between the parts.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from subjectdp.data.archives import Archive, Readable
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.content import Content, single_items
from subjectdp.data.femnist import CLASSES, SIDE
from subjectdp.data.json_stream import read_users
from subjectdp.data.leaf_files import STAGES, LeafFile, find_files, opened
from subjectdp.data.names import check_name
from subjectdp.data.progress import Progress
from subjectdp.data.shakespeare import text_content
from subjectdp.data.splits import IMAGE, TEXT, WINDOW
from subjectdp.errors import DataError, expected, in_words

PIXELS = SIDE * SIDE
GAP = WINDOW - 1
_TOLERANCE = 1e-3  # of a grey level; LEAF's floats are k/255 to 16 digits
_LOGGER = logging.getLogger(__name__)


@dataclass
class Users:
    """What is collected over the files: each user's parts in order of appearance, plays, and counts for the notes."""

    kind: str
    parts: dict[str, list[Any]] = field(default_factory=dict)
    stages: dict[str, set[str]] = field(default_factory=dict)
    plays: dict[str, str] = field(default_factory=dict)
    empty: int = 0
    declared_too_many: int = 0

    def add(self, user: str, value: Any, stage: str, where: str) -> int:
        """Add a user's items from one file; returns their number."""
        x, y = _columns(value, where)
        if len(y) == 0:
            self.empty += 1
            return 0
        stages = self.stages.setdefault(user, set())
        if stage in stages or (stages and stage not in STAGES[0]):
            raise DataError(f"{where}: is in an earlier file already; give the folder of one data set only.")
        stages.add(stage)
        part = _image_part(x, y, where) if self.kind == IMAGE else _text_part(x, y, where)
        self.parts.setdefault(user, []).append(part)
        return len(y)

    def check_header(self, header: dict[str, Any], counts: dict[str, int], name: str) -> None:
        """Compare a file's lists of users, sample counts and plays with what it holds."""
        listed, declared = header.get("users"), header.get("num_samples")
        if not isinstance(listed, list) or not isinstance(declared, list) or len(listed) != len(declared):
            raise DataError(f"{name}: expected the lists users and num_samples, of equal length.")
        if not all(isinstance(user, str) for user in listed):
            raise DataError(f"{name}: the list users must hold names (text) only.")
        if len(set(listed)) != len(listed) or set(listed) != counts.keys():
            different = in_words(sorted(set(listed) ^ counts.keys())[:3])
            raise DataError(f"{name}: users and user_data list different users (for instance {different}).")
        for user, number in zip(listed, declared, strict=True):
            surplus = number - counts[user] if type(number) is int else None
            if surplus == GAP and self.kind == TEXT:
                self.declared_too_many += 1  # LEAF's test files count the gap's windows
            elif surplus != 0:
                raise expected(
                    f"{name}: num_samples of {user!r}", number, f"{counts[user]}, the length of y", DataError
                )
        if self.kind == TEXT:
            self.plays.update(_plays(header, name))


def load(dataset: str, path: Path) -> Content:
    """Read the LEAF JSON at ``path`` as ``dataset``; DataError naming file, user and problem."""
    users = Users(DATASETS[dataset].kind)
    with opened(path) as archive:
        files = find_files(archive)
        progress = Progress(_LOGGER, f"bytes of {path.name}", sum(f.member.size for f in files))
        for file in files:
            _read_file(archive, file, users, progress)
        progress.finish()
    notes = {
        "files": len(files),
        "stages": "+".join(sorted({file.stage or "unnamed" for file in files})),
        "users_without_items": users.empty,
        "users_declared_79_too_many": users.declared_too_many,
    }
    return content_of(users, notes)


def content_of(users: Users, notes: dict[str, Any]) -> Content:
    """The content of what was collected."""
    return _image_content(users, notes) if users.kind == IMAGE else _text_content(users, notes)


def with_people(content: Content, none: bool) -> Content:
    """``content`` where its users are people, and where ``none`` are, as items that are their own subjects.

    Raises:
        DataError: users that LEAF's sampling ``-s iid`` made up; text, whose windows overlap, without people.
    """
    made_up = set(content.subject_ids) == {str(number) for number in range(len(content.subject_ids))}
    if none and content.kind == TEXT:
        raise DataError("Expected data.subject to be left out: windows of a text overlap, and are no single items.")
    if none:
        return replace(content, **single_items(len(content.labels)))
    if made_up and len(content.subject_ids) > 1:
        raise DataError(
            f"Expected users that are people, got {content.subject_ids[0]!r} to {content.subject_ids[-1]!r}: LEAF's "
            'sampling -s iid deals items to users that it makes up. Sample with -s niid, or set data.subject to "none".'
        )
    return content


class _Counted:
    """A stream whose reading is shown as progress."""

    def __init__(self, stream: Readable, progress: Progress) -> None:
        self._stream, self._progress = stream, progress

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._progress.add(len(chunk))
        return chunk


def _read_file(archive: Archive, file: LeafFile, users: Users, progress: Progress) -> None:
    name = f"{archive.path}: {file.member.name}"
    header: dict[str, Any] = {}
    counts: dict[str, int] = {}
    with archive.open(file.member) as stream:
        for user, value in read_users(_Counted(stream, progress), name, header):
            check_name(user, "a user's name", name)
            counts[user] = users.add(user, value, file.stage, f"{name}: user {user!r}")
    users.check_header(header, counts, name)


def _columns(value: Any, where: str) -> tuple[list[Any], list[Any]]:
    if not isinstance(value, dict) or not {"x", "y"} <= value.keys():
        raise DataError(f"{where}: expected an object with the keys x and y.")
    x, y = value["x"], value["y"]
    if not isinstance(x, list) or not isinstance(y, list):
        raise DataError(f"{where}: x and y must be lists.")
    if len(x) != len(y):
        raise DataError(f"{where}: {len(x)} entries in x, {len(y)} in y.")
    return x, y


# --- FEMNIST ------------------------------------------------------------------------------------------------


def _image_part(x: list[Any], y: list[Any], where: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Grey levels (n, 28, 28) and labels (n,), both uint8."""
    if any(bool in set(map(type, row)) for row in x if isinstance(row, list)) or bool in set(map(type, y)):
        raise DataError(f"{where}: true and false are no numbers.")
    pixels = _numbers(x, (len(x), PIXELS), f"{where}: x")
    if not (pixels.min() >= 0 and pixels.max() <= 1):  # also refuses what is not a number
        raise expected(f"{where}: pixels", f"{pixels.min()}..{pixels.max()}", "in [0, 1]", DataError)
    levels = np.rint(255 * pixels)
    if np.abs(255 * pixels - levels).max() > _TOLERANCE:
        raise DataError(f"{where}: pixels are not multiples of 1/255, as LEAF's are; were the images rescaled?")
    labels = _numbers(y, (len(y),), f"{where}: y")
    if labels.dtype.kind == "f" or labels.min() < 0 or labels.max() >= CLASSES:
        raise expected(f"{where}: labels", f"{labels.min()}..{labels.max()}", f"whole, 0..{CLASSES - 1}", DataError)
    return levels.astype(np.uint8).reshape(-1, SIDE, SIDE), labels.astype(np.uint8)


def _numbers(values: list[Any], shape: tuple[int, ...], where: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.shape != shape or array.dtype.kind not in "fiu":
        sizes = " x ".join(map(str, shape))
        raise DataError(f"{where}: expected {sizes} numbers; found other lengths, or entries that are no numbers.")
    return array


def _image_content(users: Users, notes: dict[str, Any]) -> Content:
    if not users.parts:
        raise DataError("The LEAF files hold no user with an image.")
    parts = [part for user_parts in users.parts.values() for part in user_parts]
    items = np.array([sum(len(p[1]) for p in user_parts) for user_parts in users.parts.values()], dtype=np.int64)
    return Content(
        dataset="femnist",
        kind=IMAGE,
        features=np.concatenate([part[0] for part in parts]),
        labels=np.concatenate([part[1] for part in parts]),
        subject_ids=list(users.parts),
        groups=[""] * len(items),
        first_items=np.cumsum(items) - items,
        items=items,
        classes=CLASSES,
        notes=notes,
    )


# --- Shakespeare --------------------------------------------------------------------------------------------


def _text_part(x: list[Any], y: list[Any], where: str) -> str:
    """The text that the windows are cut from, if they are consecutive (stride 1); DataError otherwise."""
    if not all(isinstance(w, str) and len(w) == WINDOW for w in x):
        raise DataError(f"{where}: x must be strings of {WINDOW} characters.")
    if not all(isinstance(c, str) and len(c) == 1 for c in y):
        raise DataError(f"{where}: y must be single characters.")
    text: str = x[0] + "".join(y)
    broken = next((i for i, w in enumerate(x) if text[i : i + WINDOW] != w), None)
    if broken is not None:
        raise DataError(
            f"{where}: window {broken} does not follow the one before. Text is stored once and indexed, so a "
            "user's windows must be consecutive; LEAF's sampling (--sf below 1) shuffles one user in each "
            "file. Use LEAF's all_data.json, or data.source upstream."
        )
    return text


def _join(texts: list[str], user: str) -> str:
    """A user's train and test text, which share one character (LEAF) or 80 (LEAF before 2020)."""
    joined: str = texts[0]
    for text in texts[1:]:
        overlap = next((n for n in (WINDOW, 1) if joined.endswith(text[:n])), None)
        if overlap is None:
            raise DataError(f"User {user!r}: the train and the test part are not one text; give all_data.json.")
        joined += text[overlap:]
    return joined


def _plays(header: dict[str, Any], name: str) -> Iterator[tuple[str, str]]:
    """(user, play) by the hierarchies list, if there is one."""
    plays = header.get("hierarchies")
    if plays is None:
        return
    if not isinstance(plays, list) or len(plays) != len(header["users"]):
        raise DataError(f"{name}: hierarchies must list one play for each user.")
    for user, play in zip(header["users"], plays, strict=True):
        if not isinstance(play, str):
            raise expected(f"{name}: the play of {user!r}", play, "a name (text)", DataError)
        check_name(play, "a play's name", name)
        yield user, play


def _text_content(users: Users, notes: dict[str, Any]) -> Content:
    texts = {user: _join(parts, user) for user, parts in users.parts.items()}
    return text_content(texts, [users.plays.get(user, "") for user in texts], notes)
