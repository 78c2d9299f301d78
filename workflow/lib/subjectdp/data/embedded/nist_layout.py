"""Synthetic FEMNIST archives in the layout of NIST Special Database 19 (by_class.zip and by_write.zip).

Of the upstream's layout there is what LEAF's rules read::

    by_class/<hex ASCII of the class>/hsf_<part>/hsf_<part>_<number>.png
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
_TIMESTAMP = (1995, 1, 1, 0, 0, 0)


def write_files(folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Draws ``subjects`` writers and writes both archives, atomically; returns their paths."""
    by_class: defaultdict[tuple[int, int], list[bytes]] = defaultdict(list)  # of label and part, in writer order
    by_write = folder / BY_WRITE
    with atomic_path(by_write) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for writer in range(subjects):
            part = _PARTS[writer * len(_PARTS) // subjects]
            items = draw_writer(seed, writer, items_per_subject)
            for name, label, png in _writer_files(writer, items):
                _add(archive, f"by_write/hsf_{part}/{name}", png)
                by_class[label, part].append(png)
    with atomic_path(folder / BY_CLASS) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for (label, part), images in sorted(by_class.items()):
            for number, png in enumerate(images):
                code = f"{ord(CLASSES[label]):02x}"
                _add(archive, f"by_class/{code}/hsf_{part}/hsf_{part}_{number:05d}.png", png)
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


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Adds an entry with a fixed time stamp, so that the archive's bytes are a function of its content."""
    entry = zipfile.ZipInfo(name, date_time=_TIMESTAMP)
    entry.create_system = 3
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, content)


def encode_png(image: NDArray[np.bool_]) -> bytes:
    """A 1-bit greyscale PNG of an image (128, 128), True = ink (black)."""
    stream = io.BytesIO()
    Image.fromarray(~image).save(stream, "PNG")
    return stream.getvalue()
