"""Pixels and digests of many PNG files: one pass over an archive, in a few worker processes."""

from __future__ import annotations

import hashlib
import io
import logging
import multiprocessing
import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from subjectdp.data.archives import Archive, Member
from subjectdp.data.progress import Progress
from subjectdp.errors import DataError

SIDE = 28
DIGEST = np.dtype("V16")  # an md5
_LARGEST_SIDE = 1024  # NIST's have 128
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # 8 bits at most: Pillow cuts deeper grey levels off at 255
_START = re.compile(rb"\x89PNG\r\n\x1a\n.{4}IHDR(.{4})(.{4})", re.DOTALL)
_CHUNK = 500
_POOL_FROM = 4_000  # fewer images are read faster than a pool starts

# What Pillow's reader raises for broken chunks; its warnings are raised as well.
_BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    Warning,
)

Result = tuple[NDArray[np.void], NDArray[np.uint8] | None]


def leaf_pixels(png: bytes, name: str = "image", reducing_gap: float | None = None) -> NDArray[np.uint8]:
    """The 28 x 28 grey levels that LEAF divides by 255: (28, 28) uint8; DataError for an unsuitable image.

    LEAF (data/femnist/preprocess/data_to_json.py) converts to ``L`` and calls ``thumbnail((28, 28),
    ANTIALIAS)``, which for a square image is one Lanczos resize over the whole image, computed in 8 bits.
    Since Pillow 7, ``thumbnail`` first halves a 128 x 128 image with a box filter (its default
    ``reducing_gap=2.0``), before that it did not: public LEAF outputs of both kinds exist, 0.2 grey levels
    apart in the mean. The resize is therefore written out here, with ``reducing_gap`` None: what LEAF's
    published runs (2018-2019, Pillow 5 and 6) did.
    """
    side = _declared_side(png, name)
    try:
        with warnings.catch_warnings(action="error"), Image.open(io.BytesIO(png), formats=("PNG",)) as image:
            mode, size, frames = image.mode, image.size, getattr(image, "n_frames", 1)
            if mode not in _MODES or size != (side, side) or frames != 1:
                raise DataError(
                    f"{name} is a PNG image of mode {mode}, {size[0]} x {size[1]} pixels and {frames} frames: expected "
                    f"{', '.join(_MODES)}, a square of {side} and one frame."
                )
            grey = image.convert("L")
    except DataError:
        raise
    except _BROKEN as error:
        raise DataError(f"{name} is not a readable PNG image ({error}).") from None
    if side != SIDE:
        grey = grey.resize((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=reducing_gap)
    return np.asarray(grey, dtype=np.uint8)


def _declared_side(png: bytes, name: str) -> int:
    """The side of the square that the image says to be, before anything is unpacked; DataError for anything else."""
    start = _START.match(png)
    if start is None:
        raise DataError(f"{name} is not a readable PNG image (it starts with {png[:8]!r}).")
    width, height = (int.from_bytes(side) for side in start.groups())
    if width != height or not SIDE <= width <= _LARGEST_SIDE:
        raise DataError(f"{name} has {width} x {height} pixels: expected a square of {SIDE}..{_LARGEST_SIDE}.")
    return width


def read_images(
    archive: Archive, members: list[Member], logger: logging.Logger, decode: bool, workers: int | None = None
) -> Result:
    """Digests (n,) of the raw bytes and, with ``decode``, pixels (n, 28, 28) of ``members``, in their order.

    ``workers``: number of processes; None: one per core, at most 4, for long lists, else none. Logs progress.
    """
    digests = np.empty(len(members), dtype=DIGEST)
    pixels = np.empty((len(members), SIDE, SIDE), dtype=np.uint8) if decode else None
    kind = "images" if decode else "digests"
    progress = Progress(logger, f"{archive.path.name} {kind}", len(members), "files")
    start = 0
    for part_digests, part_pixels in _map_chunks(archive, members, decode, _workers(workers, len(members))):
        end = start + len(part_digests)
        digests[start:end] = part_digests
        if pixels is not None and part_pixels is not None:
            pixels[start:end] = part_pixels
        progress.add(end - start)
        start = end
    progress.finish()
    return digests, pixels


def _workers(workers: int | None, files: int) -> int:
    if workers is not None:
        return workers
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 0 if files < _POOL_FROM or cores < 2 else min(4, cores)


def _map_chunks(archive: Archive, members: list[Member], decode: bool, workers: int) -> Iterator[Result]:
    chunks = [members[i : i + _CHUNK] for i in range(0, len(members), _CHUNK)]
    if workers == 0 or "fork" not in multiprocessing.get_all_start_methods():
        for chunk in chunks:
            yield _read_chunk(archive, chunk, decode)
        return
    # Other start methods import the calling script again, and a Snakemake script has no main guard.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, initializer=_use_archive, initargs=(archive,)) as pool:
        for batch in range(0, len(chunks), 8 * workers):  # bounded, so that results do not pile up
            futures = [
                pool.submit(_read_chunk_of_worker, chunk, decode) for chunk in chunks[batch : batch + 8 * workers]
            ]
            for future in futures:
                yield _result(future, archive.path)


def _result(future: Future[Result], path: Path) -> Result:
    try:
        return future.result()
    except BrokenProcessPool:
        raise DataError(f"{path}: a worker process was killed while reading it (out of memory?).") from None


_archive_of_worker: Archive
"""Inherited from the parent process: its directory is read once, not once per worker."""


def _use_archive(archive: Archive) -> None:
    global _archive_of_worker
    _archive_of_worker = archive


def _read_chunk_of_worker(members: list[Member], decode: bool) -> Result:
    return _read_chunk(_archive_of_worker, members, decode)


def _read_chunk(archive: Archive, members: list[Member], decode: bool) -> Result:
    digests = np.empty(len(members), dtype=DIGEST)
    pixels = np.empty((len(members), SIDE, SIDE), dtype=np.uint8) if decode else None
    for index, member in enumerate(members):
        content = archive.read(member)
        digests[index] = np.void(hashlib.md5(content, usedforsecurity=False).digest())
        if pixels is not None:
            pixels[index] = leaf_pixels(content, f"{archive.path}: {member.name}")
    return digests, pixels
