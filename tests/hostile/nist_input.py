"""NIST's two archives: hostile zip files and images, and a slow reader made of the standard library and Pillow."""

from __future__ import annotations

import functools
import hashlib
import io
import random
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from PIL import Image

from hostile.leaf_input import items_of
from hostile.mutations import generator, mutate
from hostile.outcomes import Case, Invalid, text_or_invalid
from hostile.zips import add, change_field, zipped
from source_files import nist_files, png
from subjectdp.data import femnist
from subjectdp.data.content import check_content
from subjectdp.data.embedded import generate

NAMES = (
    "../../evil.png",
    "/etc/passwd",
    "C:/evil.png",
    "by_write/../../x.png",
    "by_write\\..\\x.png",
    "by_write//hsf_0/f0000_14/d0000_14/x.png",
    "by_write/./hsf_0/f0000_14/d.png",
    "by_write/hsf_0/f0000_14\u202e/d0000_14/x.png",
    "by_write/hsf_0/ /d0000_14/x.png",
    "by_write/hsf_0/f0000_14/d0000_14/x\n.png",
    "by_write/hsf_0/f9999_14/d9999_14/x.png",
    "by_class/zz/hsf_0/x.png",
    "by_class/\uff13\uff10/hsf_0/x.png",
    "by_class/+3/hsf_0/x.png",
    "by_class/30/hsf_0/x.png",
    "a" * 60_000,
)
MODES = (
    0,
    0o100644,
    stat.S_IFLNK | 0o777,
    stat.S_IFCHR | 0o666,
    stat.S_IFBLK,
    stat.S_IFIFO,
    stat.S_IFSOCK,
    0o40755,
)


class NistReader:
    """by_class.zip and by_write.zip. The oracle cannot tell an unsafe archive, so it decides one way only."""

    name = "nist_zip"
    decisive = False

    def generated(self) -> SearchStrategy[Case]:
        """Archives of entries that may be anything."""
        contents = st.sampled_from((b"", b"x", png(0), png(1), png(2, side=28, mode="L"))) | st.binary(
            max_size=40
        )
        entry = st.tuples(
            st.sampled_from((*_sample_names(), *NAMES)), st.sampled_from(MODES), contents, st.booleans()
        )
        return st.tuples(st.lists(entry, max_size=3), st.lists(entry, max_size=3)).map(
            lambda both: Case(
                {
                    "by_class.zip": _extended("by_class.zip", both[0]),
                    "by_write.zip": _extended("by_write.zip", both[1]),
                }
            )
        )

    def mutated(self, key: str) -> Case:
        """Changes of bytes, of fields of the zip format, of the images, and of none that matters."""
        rng = generator(key)
        files = dict(sample(rng.random() < 0.3))
        name = rng.choice(sorted(files))
        kind = rng.random()
        if kind < 0.1:
            return Case({file: _rewritten(raw, rng) for file, raw in files.items()}, valid=True)
        if kind < 0.4:
            files[name] = change_field(files[name], rng)
        elif kind < 0.7:
            files[name] = mutate(files[name], rng)
        else:
            return Case(_with_image(files, hostile_png(rng), rng))
        return Case(files)

    def read(self, folder: Path) -> Any:
        """Writers with their labelled images."""
        content = femnist.load_upstream(folder)
        check_content(content)
        return {writer: sorted(items) for writer, (_, items) in items_of(content).items()}

    def oracle(self, folder: Path) -> Any:
        """As :meth:`read`."""
        return text_or_invalid(functools.partial(_slow_nist, folder))


# --- inputs -------------------------------------------------------------------------------------------------


@functools.cache
def sample(embedded: bool) -> dict[str, bytes]:
    """The two archives: those that the embedded data set writes, or smaller ones."""
    if not embedded:
        by_class, by_write = nist_files(writers=2, images=2)
        return {"by_class.zip": zipped(by_class), "by_write.zip": zipped(by_write)}
    with tempfile.TemporaryDirectory() as folder:
        files = generate("femnist", Path(folder), 2, 3, 0)
        return {file.name: file.read_bytes() for file in files}


@functools.cache
def _sample_names() -> tuple[str, ...]:
    with zipfile.ZipFile(io.BytesIO(sample(False)["by_write.zip"])) as archive:
        return tuple(archive.namelist())


def _extended(name: str, entries: list[tuple[str, int, bytes, bool]]) -> bytes:
    """A sample archive with more entries."""
    stream = io.BytesIO(sample(False)[name])
    with zipfile.ZipFile(stream, "a") as archive:
        for entry, mode, content, stored in entries:
            if entry not in archive.namelist():
                add(archive, entry, content, stored, mode)
    return stream.getvalue()


def _rewritten(raw: bytes, rng: random.Random) -> bytes:
    """The same files in another order, packing and time, with a comment: the same archive to any reader."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    rng.shuffle(entries)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.comment = rng.randbytes(rng.choice((0, 1, 500)))
        for name, content in entries:
            info = zipfile.ZipInfo(name, (1980 + rng.randrange(100), 1, 1, 0, 0, 0))
            info.compress_type = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
            archive.writestr(info, content, compresslevel=rng.randrange(1, 10))
    return stream.getvalue()


def _with_image(files: dict[str, bytes], image: bytes, rng: random.Random) -> dict[str, bytes]:
    """Both archives with one more image, of the same bytes."""
    changed = {}
    names = {
        "by_class.zip": "by_class/41/hsf_0/odd.png",
        "by_write.zip": "by_write/hsf_0/f0000_14/u0000_14/odd.png",
    }
    for file, raw in files.items():
        stream = io.BytesIO(raw)
        with zipfile.ZipFile(stream, "a") as archive:
            add(archive, names[file], image, rng.random() < 0.5)
        changed[file] = stream.getvalue()
    return changed


def chunk(kind: bytes, body: bytes) -> bytes:
    """A PNG chunk with its right checksum."""
    return struct.pack(">L", len(body)) + kind + body + struct.pack(">L", zlib.crc32(kind + body))


def png_with(
    width: int, height: int, depth: int = 8, colour: int = 0, body: bytes = b"", more: bytes = b""
) -> bytes:
    """A PNG that declares what it is told to, whatever its pixels are."""
    header = struct.pack(">2L5B", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + more + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def hostile_png(rng: random.Random) -> bytes:
    """An image that lies about its size, bursts when unpacked, or is broken; sometimes a good one of another mode."""
    side = rng.choice((28, 64, 128))
    rows = zlib.compress(bytes(side * (side + 1)))
    kind = rng.randrange(9)
    if kind == 0:
        return png_with(rng.choice((0, 1, 60_000, 2**31 - 1)), rng.choice((0, 28, 60_000)), body=rows)
    if kind == 1:
        return png_with(side, side, rng.choice((1, 2, 4, 8, 16, 3)), rng.randrange(8), rows)
    if kind == 2:
        more = chunk(rng.choice((b"zTXt", b"iCCP")), b"x\0\0" + zlib.compress(bytes(1 << 22)))
        return png_with(side, side, body=rows, more=more)
    if kind == 3:
        return png_with(side, side, body=zlib.compress(bytes(1 << 22)))
    if kind == 4:
        return png_with(side, side, body=rows[: rng.randrange(len(rows))])
    if kind == 5:
        more = chunk(b"acTL", struct.pack(">2L", rng.choice((0, 1, 2, 2**31)), 0))
        return png_with(side, side, body=rows, more=more)
    if kind == 6:
        return png(rng.randrange(9), side=side, mode=rng.choice(("1", "L", "LA", "P", "RGB", "RGBA", "I;16")))
    if kind == 7:
        return rng.choice((b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"BM" + bytes(60), b"<svg/>"))
    return mutate(png(rng.randrange(9), side=side), rng)


# --- the slow reader ----------------------------------------------------------------------------------------


def _slow_nist(folder: Path) -> dict[str, list[tuple[int, list[int]]]]:
    label_of: dict[str, int] = {}
    for name, content in _entries(folder / "by_class.zip", "by_class", _of_a_class):
        label_of.setdefault(hashlib.sha256(content).hexdigest(), _slow_label(name[0]))
    found: dict[str, list[tuple[int, list[int]]]] = {}
    for name, content in _entries(folder / "by_write.zip", "by_write", lambda parts: len(parts) == 4):
        label = label_of[hashlib.sha256(content).hexdigest()]
        found.setdefault(name[1], []).append((label, _slow_pixels(content)))
    if not found:
        raise Invalid("no image")
    return {writer: sorted(items) for writer, items in found.items()}


def _entries(path: Path, top: str, wanted: Callable[[list[str]], bool]) -> list[tuple[list[str], bytes]]:
    """(parts of the name below the top folder, content) of the wanted files, by name; others may be damaged."""
    found = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(name for name in archive.namelist() if not name.endswith("/")):
            parts = name.split("/")
            parts = parts[1:] if parts[0] == top else parts
            if wanted(parts):
                found.append((parts, archive.read(name)))
    return found


def _of_a_class(parts: list[str]) -> bool:
    return len(parts) == 3 and len(parts[0]) == 2 and "hsf" in parts[1] and "mit" not in parts[1]


def _slow_label(folder: str) -> int:
    characters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    for label, character in enumerate(characters):
        if folder.lower() == f"{ord(character):02x}":
            return label
    raise Invalid("class folder")


def _slow_pixels(content: bytes) -> list[int]:
    """The whole image, decoded, and LEAF's thumbnail of it."""
    with Image.open(io.BytesIO(content)) as image:
        if image.format != "PNG" or image.width != image.height or not 28 <= image.width <= 1024:
            raise Invalid("size")
        grey = image.convert("L")
    grey.thumbnail((28, 28), Image.Resampling.LANCZOS, reducing_gap=None)
    return [int(level) for level in np.asarray(grey).ravel()]
