"""Pen strokes of the 62 FEMNIST classes, taken from typefaces that matplotlib ships.

Of each glyph the distance of every pixel to its thinned skeleton is kept: drawn with a pen of radius r it is "distance
<= r", after any smooth warp. Distances are fixed-point integers: no pixel flips where a processor rounds otherwise.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from scipy.ndimage import distance_transform_edt, label

CLASSES = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters of the labels 0..61, in LEAF's order."""

GRID = 112  # height and width of a distance field
CAP_HEIGHT = 60  # of a capital H, in grid pixels
DISTANCE_UNIT = 32  # distances are integers in units of 1/32 grid pixel

# Faces whose skeleton looks like something a hand could have written (cmmi10's digits are old-style figures and cmsy10
# has script capitals only).
_SHIPPED = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
FACES = (
    ("cmss10", 3, CLASSES),
    ("DejaVuSans", 3, CLASSES),
    ("DejaVuSansMono", 2, CLASSES),
    ("cmti10", 2, CLASSES),
    ("STIXGeneralItalic", 3, CLASSES),
    ("DejaVuSerif-Italic", 2, CLASSES),
    ("cmtt10", 1, CLASSES),
    ("STIXGeneral", 1, CLASSES),
    ("cmmi10", 2, CLASSES[10:]),
    ("cmsy10", 0.5, CLASSES[10:36]),
)
"""Typefaces: file, share of the writers, and the characters that each lends."""


@dataclass(frozen=True)
class StrokeFields:
    """Distance fields of some faces: what a pen is drawn through."""

    distance: NDArray[np.uint16]  # (faces, 62, GRID, GRID), in 1/DISTANCE_UNIT grid pixel
    lends: NDArray[np.bool_]  # (faces, 62) whether the face has a shape of its own for the class, else face 0's
    shares: NDArray[np.float64]  # (faces,) of the writers, sum 1


@cache
def stroke_fields() -> StrokeFields:
    """The distance fields of every face and class; computed once a process (about a second)."""
    lends = np.array([[character in lent for character in CLASSES] for _, _, lent in FACES])
    bitmaps = np.zeros((int(lends.sum()), GRID, GRID), dtype=bool)
    owners = np.argwhere(lends)
    for index, (name, _, _) in enumerate(FACES):
        rows = np.flatnonzero(owners[:, 0] == index)
        bitmaps[rows] = _rasterise(_SHIPPED / f"{name}.ttf", [CLASSES[owners[row, 1]] for row in rows])
    skeletons = thin(bitmaps)
    distance = np.zeros((len(FACES), len(CLASSES), GRID, GRID), dtype=np.uint16)
    for (face, character), skeleton in zip(owners, skeletons, strict=True):
        exact = distance_transform_edt(~skeleton)
        distance[face, character] = np.rint(exact * DISTANCE_UNIT).astype(np.uint16)
    distance = np.where(lends[:, :, None, None], distance, distance[:1])
    shares = np.array([share for _, share, _ in FACES], dtype=np.float64)
    return StrokeFields(distance=distance, lends=lends, shares=shares / shares.sum())


def _rasterise(path: Path, characters: list[str]) -> NDArray[np.bool_]:
    """Bitmaps (n, GRID, GRID) of the characters, capitals CAP_HEIGHT high, the ink's box in the centre."""
    probe = ImageFont.truetype(str(path), 200, layout_engine=ImageFont.Layout.BASIC)
    _, top, _, bottom = probe.getbbox("H")
    size = round(200 * CAP_HEIGHT / (bottom - top))
    font = ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)
    bitmaps = np.zeros((len(characters), GRID, GRID), dtype=bool)
    for index, character in enumerate(characters):
        left, top, right, bottom = font.getbbox(character)
        canvas = Image.new("L", (GRID, GRID), 0)
        origin = ((GRID - left - right) / 2, (GRID - top - bottom) / 2)
        ImageDraw.Draw(canvas).text(origin, character, fill=255, font=font)
        bitmaps[index] = np.asarray(canvas) > 127
    return bitmaps


def thin(bitmaps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Skeletons of a stack of bitmaps (n, h, w): the parallel thinning of Zhang and Suen (CACM 27(3), 1984).

    Every connected piece (8-neighbourhood) keeps at least one pixel and stays connected.
    """
    tables, image = _thinning_tables(), bitmaps.astype(np.uint8)
    while True:
        before = int(image.sum())
        for table in tables:
            image[table[_neighbour_code(image)]] = 0
        if int(image.sum()) == before:
            return _restore_vanished(bitmaps, image.astype(bool))


def _restore_vanished(bitmaps: NDArray[np.bool_], skeletons: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Restore one pixel of each piece that thinning erased, such as the 2 x 2 dot of an i."""
    in_plane = np.zeros((3, 3, 3), dtype=bool)
    in_plane[1] = True
    pieces, count = label(bitmaps, structure=in_plane)
    lost = np.setdiff1d(np.arange(1, count + 1), pieces[skeletons])
    for piece in lost:
        where = np.argwhere(pieces == piece)
        skeletons[tuple(where[len(where) // 2])] = True
    return skeletons


# The neighbours P2..P9 of a pixel, clockwise from the one above, as (row, column) steps.
_RING = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


def _neighbour_code(image: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Of each pixel, its eight neighbours as bits 0..7 and itself as bit 8."""
    code = image.astype(np.int16) << 8
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1))).astype(np.int16)
    for bit, (down, right) in enumerate(_RING):
        code |= padded[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width] << bit
    return code


def _thinning_tables() -> NDArray[np.bool_]:
    """(2, 512) for each of the neighbour codes, whether the first or the second pass removes the pixel."""
    tables = np.zeros((2, 512), dtype=bool)
    for code in range(256, 512):
        ring = [code >> bit & 1 for bit in range(8)]
        steps = sum(ring[k] == 0 and ring[(k + 1) % 8] == 1 for k in range(8))
        if not (2 <= sum(ring) <= 6 and steps == 1):
            continue
        above, right, below, left = ring[0], ring[2], ring[4], ring[6]
        tables[0, code] = above * right * below == 0 and right * below * left == 0
        tables[1, code] = above * right * left == 0 and above * below * left == 0
    return tables
