"""LEAF's data as a source: FEMNIST and Shakespeare as LEAF's JSON, and as others hand them around.

LEAF's own output lies in a folder, a zip file, or a single file.
The most processed of LEAF's folders that is present is read (train and test first). Train and test parts are pooled for
each user and split again by this project's rules, so that all sources, seeds and fractions are treated alike. For
Shakespeare this restores the whole text, including the 79 windows that LEAF leaves out between the parts.

A file is one object ``{users, num_samples, user_data: {user: {x, y}}, ...}``. It is read user by user: parsed, it takes
seven times its size in memory. The standard library parses each value from a buffer; where the buffer ends within a
value, more is read and the value parsed again. (``ijson`` would need a pass over the file for each key, drops repeated
keys and replaces lone surrogates in names.)

Flower Labs hand them around as parquet and CSV: ``image`` (a PNG, or a struct with its bytes), ``writer_id``,
``character`` (0 to 61); ``character_id``, ``x`` (80 characters), ``y``. TensorFlow Federated does as HDF5:
``examples/<client>/pixels`` (28 x 28, 1 is the background) and ``label``; ``examples/<client>/snippets``, lines of a
play. Their train and test files are pooled, too.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray

from subjectdp.data.archives import Readable
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.content import IMAGE, TEXT, WINDOW, Content, single_items, subjects_in_order
from subjectdp.data.femnist import CLASSES, SIDE, leaf_pixels
from subjectdp.data.names import check_name
from subjectdp.data.shakespeare import text_content
from subjectdp.data.sizes import STAGES, find_files, opened
from subjectdp.errors import ConfigError, DataError, SubjectDPError, expected, in_words, unknown
from subjectdp.io.job_log import Progress

_GAP = WINDOW - 1
_TOLERANCE = 1e-3  # of a grey level; LEAF's floats are k/255 to 16 digits
_CHUNK = 1 << 22
_LARGEST_VALUE = 1 << 26  # characters; a user of the real data sets has at most 8 million
_AFTER_NUMBER = tuple(",}] \t\r\n")
_NO_SPACE = re.compile(r"[^ \t\r\n]")


@dataclass
class _Users:
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
        if odd := sorted((Counter(listed) - Counter(counts.keys())) | (Counter(counts.keys()) - Counter(listed))):
            raise DataError(f"{name}: users and user_data list different users, or one twice: {in_words(odd[:3])}.")
        for user, number in zip(listed, declared, strict=True):
            surplus = number - counts[user] if type(number) is int else None
            if surplus == _GAP and self.kind == TEXT:
                self.declared_too_many += 1  # LEAF's test files count the gap's windows
            elif surplus != 0:
                allowed = f"{counts[user]}, the length of y"
                raise expected(f"{name}: num_samples of {user!r}", number, allowed, DataError)
        if self.kind == TEXT and header.get("hierarchies") is not None:
            self.plays.update(_plays(header, name))

    def content(self, notes: dict[str, Any]) -> Content:
        if self.kind == TEXT:
            texts = {user: _joined_text(parts, user) for user, parts in self.parts.items()}
            return text_content(texts, [self.plays.get(user, "") for user in texts], notes)
        if not self.parts:
            raise DataError("The LEAF files hold no user with an image.")
        pixels, labels = zip(*(part for parts in self.parts.values() for part in parts), strict=True)
        facts = subjects_in_order(self.parts, [sum(len(part[1]) for part in parts) for parts in self.parts.values()])
        facts |= {"classes": CLASSES, "notes": notes}
        return Content("femnist", IMAGE, np.concatenate(pixels), np.concatenate(labels), **facts)


def load(dataset: str, path: Path) -> Content:
    """Read what lies at ``path``, in any of the forms, as ``dataset``; DataError naming file, user and problem."""
    users, form = _Users(DATASETS[dataset].kind), _form_of(path)
    return _load_json(users, path) if form is None else _load_tables(users, path, form)


def _load_json(users: _Users, path: Path) -> Content:
    progress = Progress(f"users of {path.name}", None)
    with opened(path) as archive:
        files = find_files(archive)
        for file in files:
            name = f"{archive.path}: {file.member.name}"
            header: dict[str, Any] = {}
            counts: dict[str, int] = {}
            with archive.open(file.member) as stream:
                for user, value in read_users(stream, name, header):
                    check_name(user, "a user's name", name)
                    counts[user] = users.add(user, value, file.stage, f"{name}: user {user!r}")
                    progress.add(1)
            users.check_header(header, counts, name)
    progress.finish()
    notes = {
        "files": len(files),
        "stages": "+".join(sorted({file.stage or "unnamed" for file in files})),
        "users_without_items": users.empty,
        "users_declared_79_too_many": users.declared_too_many,
    }
    return users.content(notes)


def with_people(content: Content, none: bool) -> Content:
    """``content`` where its users are people, and where ``none`` are, as items that are their own subjects.

    DataError for users that LEAF's sampling ``-s iid`` made up, and for text, whose windows overlap, without people.
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


def _columns(value: Any, where: str) -> tuple[list[Any], list[Any]]:
    if not isinstance(value, dict) or not {"x", "y"} <= value.keys():
        raise DataError(f"{where}: expected an object with the keys x and y.")
    x, y = value["x"], value["y"]
    if not isinstance(x, list) or not isinstance(y, list):
        raise DataError(f"{where}: x and y must be lists.")
    if len(x) != len(y):
        raise DataError(f"{where}: {len(x)} entries in x, {len(y)} in y.")
    return x, y


def _image_part(x: list[Any], y: list[Any], where: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Grey levels (n, 28, 28) and labels (n,)."""
    if any(bool in set(map(type, row)) for row in (*x, y) if isinstance(row, list)):
        raise DataError(f"{where}: true and false are no numbers.")
    pixels = _numbers(x, (len(x), SIDE * SIDE), f"{where}: x")
    if not (pixels.min() >= 0 and pixels.max() <= 1):  # also refuses what is not a number
        raise expected(f"{where}: pixels", f"{pixels.min()}..{pixels.max()}", "in [0, 1]", DataError)
    levels = np.rint(255 * pixels)
    if np.abs(255 * pixels - levels).max() > _TOLERANCE:
        raise DataError(f"{where}: pixels are not multiples of 1/255, as LEAF's are; were the images rescaled?")
    labels = _checked_labels(_numbers(y, (len(y),), f"{where}: y"), where)
    return levels.astype(np.uint8).reshape(-1, SIDE, SIDE), labels


def _checked_labels(labels: NDArray[Any], where: str) -> NDArray[np.uint8]:
    """The labels of FEMNIST's images as bytes; DataError for others."""
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= CLASSES:
        found = f"{labels.min()}..{labels.max()}" if labels.dtype.kind in "fiu" else f"{labels[:3].tolist()}..."
        raise expected(f"{where}: labels", found, f"whole, 0..{CLASSES - 1}", DataError)
    return labels.astype(np.uint8)


def _numbers(values: list[Any], shape: tuple[int, ...], where: str) -> NDArray[Any]:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        array = np.asarray(None)
    if array.shape != shape or array.dtype.kind not in "fiu":
        sizes = " x ".join(map(str, shape))
        raise DataError(f"{where}: expected {sizes} numbers; found other lengths, or entries that are no numbers.")
    return array


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
            f"{where}: window {broken} does not follow the one before: the rows were shuffled (LEAF's sampling, --sf "
            "below 1, shuffles one user in each file). Text is stored once and indexed, so a user's windows must be "
            "consecutive. Give the file as it was made, LEAF's all_data.json, or use data.source upstream."
        )
    return text


def _joined_text(texts: list[str], user: str, overlaps: tuple[int, ...] = (WINDOW, 1)) -> str:
    """A user's train and test text, which share one character (LEAF) or 80 (LEAF before 2020)."""
    joined: str = texts[0]
    for text in texts[1:]:
        overlap = next((n for n in overlaps if joined.endswith(text[:n])), None)
        if overlap is None:
            raise DataError(f"User {user!r}: the train and the test part are not one text; give all_data.json.")
        joined += text[overlap:]
    return joined


def _plays(header: dict[str, Any], name: str) -> dict[str, str]:
    plays = header["hierarchies"]
    if not isinstance(plays, list) or len(plays) != len(header["users"]):
        raise DataError(f"{name}: hierarchies must list one play for each user.")
    for user, play in zip(header["users"], plays, strict=True):
        if not isinstance(play, str):
            raise expected(f"{name}: the play of {user!r}", play, "a name (text)", DataError)
        check_name(play, "a play's name", name)
    return dict(zip(header["users"], plays, strict=True))


# --- the stream ---------------------------------------------------------------------------------------------


class _Reader:
    """A text buffer over a binary stream that gives whole JSON values."""

    def __init__(self, stream: Readable, name: str) -> None:
        self._stream, self._name = stream, name
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._json = json.JSONDecoder(
            object_pairs_hook=self._object, parse_constant=lambda name: self.fail(f"a number is {name}")
        )
        self._buffer, self._at = "", 0

    def fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self._name}: {problem}. Expected LEAF's JSON; get or make the file again.")

    def peek(self) -> str:
        """The next character that is not white space; '' at the end."""
        while (found := _NO_SPACE.search(self._buffer, self._at)) is None:
            self._at = len(self._buffer)
            if not self._more():
                return ""
        self._at = found.start()
        return found[0]

    def take(self, allowed: str) -> str:
        """Take the next character, which must be one of ``allowed``."""
        character = self.peek()
        if character == "":
            self.fail("the file ends too early (truncated)")
        if character not in allowed:
            self.fail(f"found {character!r} where one of {allowed!r} belongs: not valid JSON")
        self._at += 1
        return character

    def value(self) -> Any:
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    self.fail(f"a value cannot be read ({error.msg}): truncated, or not valid JSON")
            except DataError:
                raise
            except (ValueError, RecursionError) as error:
                self.fail(f"a value cannot be read ({error})")
            else:
                whole = self._buffer[end - 1] in '"]}' or self._buffer[end : end + 1] in _AFTER_NUMBER
                if whole or not self._more():  # a number at the end of the buffer may go on
                    self._at = end if whole else len(self._buffer)
                    return value

    def members(self, kind: str) -> Iterator[str]:
        """Yield an object's keys, each of which may occur once; the caller takes each value before the next key."""
        seen: set[str] = set()
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        while True:
            if self.peek() != '"':
                self.take('"')
            key = str(self.value())
            self.take(":")
            if key in seen:
                self.fail(f"{kind} {in_words(key)} comes twice")
            seen.add(key)
            yield key
            if self.take(",}") == "}":
                return

    def _more(self) -> bool:
        """Drop what has been parsed and read on; reads twice as much each time, since parsing restarts."""
        rest = self._buffer[self._at :]
        if len(rest) > _LARGEST_VALUE:
            self.fail(f"a single value is longer than {_LARGEST_VALUE} characters, or is not valid JSON")
        chunk = self._stream.read(max(_CHUNK, len(rest)))
        try:
            self._buffer, self._at = rest + self._decode(chunk, final=chunk == b""), 0
        except UnicodeDecodeError as error:
            self.fail(f"a value cannot be read ({error})")
        return chunk != b""

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            self.fail("an object has the same key twice")
        return content


def read_users(stream: Readable, name: str, header: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (user, value) of ``user_data``; put the other top-level keys into ``header`` on the way.

    ``header`` is complete when the iteration ends. DataError unless the file is one whole JSON object with a
    ``user_data`` object, each key once, and nothing after it.
    """
    reader = _Reader(stream, name)
    if reader.peek() in ("", "<"):
        reader.fail("the file is empty" if reader.peek() == "" else "the file is a web page or XML")
    seen: list[str] = []
    for key in reader.members("key"):
        seen.append(key)
        if key == "user_data":
            yield from ((user, reader.value()) for user in reader.members("user"))
        else:
            header[key] = reader.value()
    if reader.peek() != "":
        reader.fail("there is more after the end of the object")
    if "user_data" not in seen:
        reader.fail(f"key 'user_data' is missing (found: {', '.join(sorted(seen)) or 'none'})")


# --- parquet, CSV, HDF5 -------------------------------------------------------------------------------------

_ENDINGS = {".parquet": "Flower Labs' parquet", ".csv": "Flower Labs' CSV", ".h5": "TensorFlow Federated's HDF5"}
KNOWN: dict[tuple[str, str], dict[str, int]] = {
    ("Flower Labs' parquet", "image"): {"items": 814_277},
    ("Flower Labs' parquet", "text"): {"items": 4_226_158},
    ("Flower Labs' CSV", "text"): {"items": 4_226_158},
    ("TensorFlow Federated's HDF5", "image"): {"users": 3_400, "items": 749_068},  # of digits 3,383 and 382,705
    ("TensorFlow Federated's HDF5", "text"): {"users": 715},
    ("LEAF", "image"): {"users": 3_597, "items": 814_255},
    ("LEAF", "text"): {"users": 1_130, "items": 4_226_206},
}
"""Counts of the whole data set in each form, by kind; LEAF: from NIST's archives and the e-text, and as JSON."""

_ROWS = 1 << 16


def _form_of(path: Path) -> str | None:
    """Which of these forms lies at ``path``, by the endings of its files; None for another. DataError for several."""
    names = [path.name] if path.is_file() else [each.name for each in sorted(path.rglob("*")) if each.is_file()]
    if any(name.endswith(".json") for name in names):
        return None
    found = [form for ending, form in _ENDINGS.items() if any(name.endswith(ending) for name in names)]
    if len(found) > 1:
        raise DataError(f"{path} holds files of several forms ({', '.join(found)}): give those of one.")
    return found[0] if found else None


def _load_tables(users: _Users, path: Path, form: str) -> Content:
    kind, ending = users.kind, next(each for each, of in _ENDINGS.items() if of == form)
    files = [path] if path.is_file() else sorted(path.rglob(f"*{ending}"))
    files.sort(key=lambda file: "test" in file.name)  # the train part comes first, as in LEAF's folders
    for file in files:
        try:
            for user, part in _hdf5(file, kind) if ending == ".h5" else _rows(file, kind):
                users.parts.setdefault(user, []).append(part)
        except SubjectDPError:
            raise
        except (OSError, ValueError, TypeError, LookupError, AttributeError) as problem:  # of any layer of the file
            reason = str(problem).partition("\n")[0][:200]
            raise DataError(f"{file} cannot be read as {form} ({reason}).") from None
    notes: dict[str, Any] = {"form": form, "files": len(files)}
    if kind != IMAGE:
        of_lines = ending == ".h5"
        pieces = users.parts.items()
        texts = {name: " ".join(each) if of_lines else _joined_text(each, name, (WINDOW,)) for name, each in pieces}
        users.parts = {user: [text] for user, text in texts.items() if len(text) > WINDOW}
        notes["users with too short a text"] = len(texts) - len(users.parts)
    return users.content(notes)


def _rows(file: Path, kind: str) -> Iterator[tuple[str, Any]]:
    columns = ["writer_id", "image", "character"] if kind == IMAGE else ["character_id", "x", "y"]
    for frame in _frames(file, columns):
        for user, rows in frame.groupby(columns[0], sort=False):
            where = f"{file}: {user}"
            if kind == IMAGE:
                yield str(user), (_pictures(rows["image"], where), _checked_labels(rows["character"].to_numpy(), where))
            else:
                yield str(user), _text_part(rows["x"].tolist(), rows["y"].tolist(), where)


def _frames(file: Path, columns: list[str]) -> Iterator[pd.DataFrame]:
    if file.suffix == ".csv":
        parts = iter(pd.read_csv(file, dtype=str, keep_default_na=False, chunksize=_ROWS))
    else:
        opened = pq.ParquetFile(file)
        names = [name for name in opened.schema_arrow.names if name in columns]
        parts = (batch.to_pandas() for batch in opened.iter_batches(_ROWS, columns=names))
    for part in parts:
        missing = next((name for name in columns if name not in part.columns), None)
        if missing is not None:
            raise unknown(f"{file}: column", missing, part.columns, DataError)
        if part[columns].isna().any(axis=None):
            raise DataError(f"{file}: expected a value in each row of {', '.join(columns)}, got one without.")
        yield part


def _pictures(cells: pd.Series[Any], where: str) -> NDArray[np.uint8]:
    contents: Iterator[Any] = (cell.get("bytes") if isinstance(cell, dict) else cell for cell in cells)
    return np.stack([leaf_pixels(content, f"{where}: an image", largest=SIDE) for content in contents])


def _hdf5(file: Path, kind: str) -> Iterator[tuple[str, Any]]:
    try:
        import h5py  # here: an extra
    except ModuleNotFoundError:
        raise ConfigError(f"Expected the package h5py for {file}: pip install h5py.") from None
    with h5py.File(file, "r") as content:
        for client, group in content["examples"].items():
            if not len(group["label" if kind == IMAGE else "snippets"]):
                continue
            if kind == IMAGE:
                where, pixels, labels = f"{file}: {client}", group["pixels"][:], group["label"][:]
                if len(pixels) != len(labels):
                    raise DataError(f"{where}: {len(pixels)} entries in pixels, {len(labels)} in label.")
                yield client, (_levels(pixels, where), _checked_labels(labels, where))
            else:
                yield client, " ".join(" ".join(each.decode() for each in group["snippets"][:].tolist()).split())


def _levels(pixels: NDArray[Any], where: str) -> NDArray[np.uint8]:
    if pixels.shape[1:] != (SIDE, SIDE) or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise DataError(f"{where}: expected pixels of {SIDE} x {SIDE} numbers from 0 to 1.")
    levels: NDArray[np.uint8] = np.rint(255 * pixels).astype(np.uint8)
    return levels
