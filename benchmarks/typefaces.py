"""Typefaces that look handwritten, as npm installs them from Fontsource, for :mod:`benchmarks.pretrain`.

They are public (SIL Open Font License or Apache License 2.0) and their designers, not the writers of any data set, drew
them. None is a part of this package: ``npm ci --prefix workflow/envs/typefaces --ignore-scripts`` fetches them.

``typefaces.csv`` has a row for each: the family, the characters that it lends (*capitals*: its small letters look like
capitals), whether characters for the head are drawn with it, and the SHA-256 of its file.
"""

from __future__ import annotations

import csv
from pathlib import Path

from subjectdp.data.embedded.glyphs import CLASSES, PRINT, Face
from subjectdp.errors import expected
from subjectdp.io.atomic import sha256_of

TABLE = Path(__file__).with_name("typefaces.csv")
_SHARES = 120.0  # of all handwritten faces together
_PRINT_SHARE = 0.7  # of each share that a face of the embedded data set has there
_LENDS = {"all": CLASSES, "capitals": CLASSES[:36]}


def typefaces(folder: Path, *, of_head: bool = False) -> tuple[Face, ...]:
    """The installed faces, each with the same share, and those of the embedded data set.

    Args:
        folder: ``node_modules`` that ``npm ci`` filled.
        of_head: only the faces whose characters the head is fitted to; their letters look like those of a form.

    Raises:
        ConfigError: a file is missing or another one.
    """
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["head"] == "yes" or not of_head]
    share = _SHARES / len(rows)
    faces = [Face(_checked(folder, row["family"], row["sha256"]), share, _LENDS[row["lends"]]) for row in rows]
    return (*faces, *(Face(face.file, _PRINT_SHARE * face.share, face.lends) for face in PRINT))


def _checked(folder: Path, family: str, sha256: str) -> Path:
    file = folder / "@fontsource" / family / "files" / f"{family}-latin-400-normal.woff"
    found = sha256_of(file)[:16] + "..." if file.is_file() else "no file"
    if found != sha256[:16] + "...":
        allowed = f"the file of sha256 {sha256[:16]}...; run npm ci --prefix workflow/envs/typefaces --ignore-scripts"
        raise expected(str(file), found, allowed)
    return file
