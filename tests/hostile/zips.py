"""Zip files of changed fields, and a slow reader of one file in a zip."""

from __future__ import annotations

import io
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

from hostile.mutations import NUMBERS, mutate
from hostile.outcomes import Invalid


def zipped(files: Mapping[str, bytes], rng: random.Random | None = None) -> bytes:
    """The files as a zip file, deflated, or stored in one of three that ``rng`` draws."""
    stored = rng is not None and rng.random() < 1 / 3
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            add(archive, name, content, stored)
    return stream.getvalue()


def add(
    archive: zipfile.ZipFile, name: str, content: bytes, stored: bool = False, mode: int = 0o100644
) -> None:
    """Adds an entry whose bytes do not depend on the time of day."""
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    archive.writestr(info, content)


def unzipped(path: Path, ending: str) -> bytes:
    """The only file of that ending, by the standard library; :class:`Invalid` where it cannot read it."""
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [name for name in archive.namelist() if name.lower().endswith(ending)]
            return archive.read(name)
    except Exception as problem:
        raise Invalid(f"zip: {problem}") from None


_FIELDS = {  # signature -> (offset, width) of each field of the format
    b"PK\x03\x04": ((4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)),
    b"PK\x01\x02": (
        (4, 2),
        (6, 2),
        (8, 2),
        (10, 2),
        (16, 4),
        (20, 4),
        (24, 4),
        (28, 2),
        (30, 2),
        (32, 2),
        (38, 4),
        (42, 4),
    ),
    b"PK\x05\x06": ((4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)),
}


def change_field(raw: bytes, rng: random.Random) -> bytes:
    """One field of a local header, of the directory or of the record at the end set to an odd number."""
    signature = rng.choice(sorted(_FIELDS))
    places = [place for place in range(len(raw)) if raw.startswith(signature, place)]
    if not places:
        return mutate(raw, rng)
    offset, width = rng.choice(_FIELDS[signature])
    place = rng.choice(places) + offset
    old = int.from_bytes(raw[place : place + width], "little")
    new = rng.choice((*NUMBERS, old + 1, old - 1, old ^ (1 << rng.randrange(8 * width)))) % (1 << 8 * width)
    return raw[:place] + new.to_bytes(width, "little") + raw[place + width :]
