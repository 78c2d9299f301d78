"""Synthetic FEMNIST archives in the layout of NIST Special Database 19 (by_class.zip and by_write.zip).

The layout is the upstream's, including what LEAF's rules have to drop::

    by_class/<hex ASCII of the class>/hsf_<part>/hsf_<part>_<number>.png
    by_class/<hex ASCII of the class>/hsf_<part>.mit                       an index, dropped
    by_class/<hex ASCII of the class>/train_<hex>/train_<hex>_<number>.png copies, dropped
    by_write/hsf_<part>/f<form>_<nn>/<c|d|l|u><form>_<nn>/<c|d|l|u><form>_<nn>_<number>.png

An image has the very same bytes in both archives: writer and class are matched by md5, as upstream.
"""

import io
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subjectdp.data.embedded.glyphs import CLASSES
from subjectdp.data.embedded.handwriting import WriterItems, draw_writer
from subjectdp.io.atomic import atomic_path

BY_CLASS = "by_class.zip"
BY_WRITE = "by_write.zip"

_PARTS = (0, 1, 2, 3, 4, 6, 7)  # SD19 has no hsf_5
_TRAIN_COPIES = 2  # images of each class repeated under train_XX
_TIMESTAMP = (1995, 1, 1, 0, 0, 0)

ClassImages = dict[int, dict[int, list[bytes]]]
"""Class label -> part -> PNG files, in writer order."""


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Draws ``subjects`` writers and writes both archives, atomically.

    :return: the paths of by_class.zip and by_write.zip.
    """
    by_class: ClassImages = {label: defaultdict(list) for label in range(len(CLASSES))}
    by_write = folder / BY_WRITE
    with atomic_path(by_write) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        _add(archive, "by_write/", b"")
        for writer in range(subjects):
            part = _PARTS[writer * len(_PARTS) // subjects]
            items = draw_writer(seed, writer, items_per_subject)
            for name, label, png in _writer_files(writer, items):
                _add(archive, f"by_write/hsf_{part}/{name}", png)
                by_class[label][part].append(png)
    with atomic_path(folder / BY_CLASS) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        _add(archive, "by_class/", b"")
        for label, parts in by_class.items():
            _add_class(archive, format(ord(CLASSES[label]), "02x"), parts)
    return [folder / BY_CLASS, by_write]


def writer_name(writer: int) -> str:
    """The id of the writer of the given index, in SD19's form: form number and template, f0000_14."""
    return f"f{writer:04d}_{(7 * writer + 14) % 100:02d}"


def _writer_files(writer: int, items: WriterItems) -> Iterator[tuple[str, int, bytes]]:
    """Path below the part, label and PNG bytes of each of a writer's items, field by field as on the form."""
    name = writer_name(writer)
    fields = [_field(int(label), bool(printed)) for label, printed in zip(items.labels, items.printed, strict=True)]
    numbers: Counter[str] = Counter()
    for index in sorted(range(len(fields)), key=lambda i: fields[i]):
        stem = fields[index] + name[1:]
        path = f"{name}/{stem}/{stem}_{numbers[stem]:05d}.png"
        numbers[stem] += 1
        yield path, int(items.labels[index]), encode_png(items.images[index])


def _field(label: int, printed: bool) -> str:
    """The field of the form: c (running text), d (digits), l (lower case) or u (upper case)."""
    if not printed:
        return "c"
    return "d" if label < 10 else "u" if label < 36 else "l"


def _add_class(archive: zipfile.ZipFile, code: str, parts: dict[int, list[bytes]]) -> None:
    _add(archive, f"by_class/{code}/", b"")
    copies: list[bytes] = []
    for part, images in sorted(parts.items()):
        names = [f"hsf_{part}_{number:05d}.png" for number in range(len(images))]
        for name, png in zip(names, images, strict=True):
            _add(archive, f"by_class/{code}/hsf_{part}/{name}", png)
        _add(archive, f"by_class/{code}/hsf_{part}.mit", _index(names, code))
        copies += images[: _TRAIN_COPIES - len(copies)]
    names = [f"train_{code}_{number:05d}.png" for number in range(len(copies))]
    for name, png in zip(names, copies, strict=True):
        _add(archive, f"by_class/{code}/train_{code}/{name}", png)
    _add(archive, f"by_class/{code}/train_{code}.mit", _index(names, code))


def _index(names: list[str], code: str) -> bytes:
    """An index file: the number of images, then each name with its class."""
    return "".join([f"{len(names)}\n", *(f"{name} {code}\n" for name in names)]).encode()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Adds an entry with a fixed time stamp, so that the archive's bytes are a function of its content."""
    entry = zipfile.ZipInfo(name, date_time=_TIMESTAMP)
    entry.create_system = 3
    entry.external_attr = (0o40755 if name.endswith("/") else 0o100644) << 16
    archive.writestr(entry, content)


def encode_png(image: NDArray[np.bool_]) -> bytes:
    """A 1-bit greyscale PNG of an image (128, 128), True = ink (black)."""
    stream = io.BytesIO()
    Image.fromarray(~image).save(stream, "PNG")
    return stream.getvalue()
