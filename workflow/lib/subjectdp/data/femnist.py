"""FEMNIST from NIST SD19's by_class and by_write archives, as LEAF makes it.

NIST stores each image twice: by_class knows its label, by_write its writer. LEAF (Caldas et al. 2018,
data/femnist) matches the two by the md5 of the file's bytes. Its results depend on the order of
``os.listdir``; here everything is taken in sorted order.
"""

import hashlib
import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subjectdp.data import archives
from subjectdp.data.archives import Archive, Member
from subjectdp.data.content import IMAGE, Content, Integers, subjects_in_order
from subjectdp.errors import DataError
from subjectdp.io.job_log import Progress

CLASSES = 62
SIDE = 28
_LARGEST_SIDE = 1024  # NIST's have 128
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # 8 bits at most: Pillow cuts deeper grey levels off at 255
_HEX = re.compile(r"[0-9A-Fa-f]{2}")
_LARGEST_FILE = 64 << 20  # bytes; a PNG of 128 x 128 pixels has about 1 kB, an index file perhaps 20 MB

# What Pillow's reader raises for broken chunks; its warnings are raised as well.
_BROKEN = (
    *(OSError, SyntaxError, ValueError, EOFError, LookupError),
    *(struct.error, zlib.error, Image.DecompressionBombError, Warning),
)


def load_upstream(folder: Path, duplicate_first_image_bug: bool = False, decode: bool = True) -> Content:
    """Reads by_class and by_write (zip files, or unpacked folders) in ``folder``.

    ``duplicate_first_image_bug``: repeat the first image of each writer but the first, as LEAF's code does.
    Without ``decode`` the pixels stay zero (for counts only, in a fraction of the time). DataError for a missing or
    unsafe archive, an image of by_write that by_class lacks, or one that is no square PNG.
    """
    with _find_archive(folder, "by_class") as by_class, _find_archive(folder, "by_write") as by_write:
        labelled, written = list_by_class(by_class), list_by_write(by_write)
        class_digests, _ = read_images(by_class, [member for member, _ in labelled], decode=False)
        digests, pixels = read_images(by_write, [member for member, _ in written], decode)
    label_of = dict(zip(reversed(class_digests), (label for _, label in reversed(labelled)), strict=True))  # first wins
    missing = [member.name for (member, _), digest in zip(written, digests, strict=True) if digest not in label_of]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(written)} images of by_write are not in by_class (first: {missing[0]}): "
            "the archives do not belong together, or one is incomplete."
        )
    labels = np.array([label_of[digest] for digest in digests], dtype=np.uint8)
    order, counts, writers = group_by_writer([writer for _, writer in written], duplicate_first_image_bug)
    notes: dict[str, int] = {"by_class_images": len(labelled), "by_write_images": len(written)}
    notes["duplicate_first_image_bug"] = duplicate_first_image_bug
    if not decode:
        pixels = np.broadcast_to(np.uint8(0), (len(order), SIDE, SIDE))
    elif not np.array_equal(order, np.arange(len(pixels))):  # else there is no need of a copy
        pixels = pixels[order]
    people = subjects_in_order(writers, counts)
    return Content("femnist", IMAGE, pixels, labels[order], classes=CLASSES, notes=notes, **people)


def _find_archive(folder: Path, name: str) -> AbstractContextManager[Archive]:
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder: expected one with by_class.zip and by_write.zip. For LEAF's own JSON, "
            "set the source to leaf_json."
        )
    for candidate in (folder / f"{name}.zip", folder / name):
        if candidate.exists():
            return archives.open_archive(candidate, _LARGEST_FILE)
    raise DataError(f"{folder} has no {name}.zip: put NIST SD19's by_class.zip and by_write.zip there.")


def _listed(archive: Archive, top: str) -> Iterator[tuple[Member, list[str]]]:
    """The files, with the parts of their names below the top folder, which an unpacked archive may lack."""
    for member in archive.members:
        parts = member.name.split("/")
        yield member, parts[parts[0] == top :]


def list_by_class(archive: Archive) -> list[tuple[Member, int]]:
    """Images of ``<hex class>/<hsf_N>/<image>`` and their labels: two-letter classes, ``hsf`` but not ``mit`` below."""
    listed = [
        (member, relabel(parts[0], member.name))
        for member, parts in _listed(archive, "by_class")
        if len(parts) == 3 and len(parts[0]) == 2 and "hsf" in parts[1] and "mit" not in parts[1]
    ]
    if not listed:
        raise DataError(f"{archive.path} holds no image by_class/<hex class>/hsf_N/<image>: not NIST's by_class.")
    return listed


def list_by_write(archive: Archive) -> list[tuple[Member, str]]:
    """All files of ``<hsf_N>/<writer>/<type>/<image>`` with their writers."""
    listed = [(member, parts[1]) for member, parts in _listed(archive, "by_write") if len(parts) == 4]
    if not listed:
        raise DataError(f"{archive.path} holds no image by_write/hsf_N/<writer>/<type>/<image>: not NIST's by_write.")
    return listed


def relabel(hex_class: str, name: str) -> int:
    """LEAF's label of a class folder: 30-39 is 0-9, 41-5a (A-Z) 10-35, 61-7a (a-z) 36-61; else DataError."""
    code = int(hex_class, 16) if _HEX.fullmatch(hex_class) is not None else -1
    for first, last, label in ((0x30, 0x39, 0), (0x41, 0x5A, 10), (0x61, 0x7A, 36)):
        if first <= code <= last:
            return label + code - first
    raise DataError(f"{name}: class folder {hex_class!r} is not a hex code of 0-9, A-Z or a-z (30..7a).")


def group_by_writer(writers: list[str], duplicate_first: bool) -> tuple[Integers, Integers, list[str]]:
    """Order by writer (stable), items of each, and writers by appearance; ``duplicate_first``: LEAF's bug."""
    places: dict[str, list[int]] = {}
    for index, writer in enumerate(writers):
        places.setdefault(writer, []).append(index)
    if duplicate_first:
        for writer in list(places)[1:]:
            places[writer].insert(0, places[writer][0])
    order = np.array([index for group in places.values() for index in group], dtype=np.int64)
    return order, np.array([len(group) for group in places.values()], dtype=np.int64), list(places)


def read_images(archive: Archive, members: list[Member], decode: bool) -> tuple[list[bytes], NDArray[np.uint8]]:
    """The md5 of each member's bytes, and its pixels (n, 28, 28); without ``decode`` none of them."""
    digests = []
    pixels = np.empty((len(members) if decode else 0, SIDE, SIDE), dtype=np.uint8)
    progress = Progress(f"{archive.path.name}, {'images' if decode else 'digests'}", len(members))
    for index, member in enumerate(members):
        content = archive.read(member)
        digests.append(hashlib.md5(content, usedforsecurity=False).digest())
        if decode:
            pixels[index] = leaf_pixels(content, f"{archive.path}: {member.name}")
        progress.add(1)
    progress.finish()
    return digests, pixels


def leaf_pixels(png: bytes, name: str = "image", largest: int = _LARGEST_SIDE) -> NDArray[np.uint8]:
    """The 28 x 28 grey levels that LEAF divides by 255: (28, 28) uint8; DataError for an unsuitable image.

    LEAF (data/femnist/preprocess/data_to_json.py) converts to ``L`` and calls ``thumbnail``, in Pillow 5 and 6 one
    Lanczos resize in 8 bits. Later versions halve the image with a box filter first, so the resize is written out.
    """
    try:
        with warnings.catch_warnings(action="error"), Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            (width, height), frames = image.size, getattr(image, "n_frames", 1)
            if width != height or not SIDE <= width <= largest:  # nothing is unpacked before
                allowed = f"a square of {SIDE}..{largest}" if largest > SIDE else f"{SIDE} x {SIDE}"
                raise DataError(f"{name} has {width} x {height} pixels: expected {allowed}.")
            if image.mode not in _MODES or frames != 1:
                found = f"mode {image.mode} and {frames} frames"
                raise DataError(f"{name} is a PNG image of {found}: expected {', '.join(_MODES)} and one frame.")
            grey = image.convert("L")
    except DataError:
        raise
    except _BROKEN as error:
        raise DataError(f"{name} is not a readable PNG image ({error}).") from None
    if width != SIDE:
        grey = grey.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return np.asarray(grey, dtype=np.uint8)
