"""Changes to valid files: of single bytes, of numbers, of spans; drawn by a generator that a key determines."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

NUMBERS = (
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFE,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFE,
    0xFFFF_FFFF,
)
TOKENS = (
    b"\0",
    b"\x00" * 64,
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"../../",
    b'"',
    b"\\u0000",
    b"\\ud800",
    b"1e999",
    b"NaN",
    b"-1",
    b"9" * 5000,
    b"[[[[",
    b"{}",
    b"<html>",
    b"\r",
    b"\x0c",
    b"\xe2\x80\xa8",
    b"${HOME}",
    b"!!python/object/apply:os.system [id]",
)

Change = Callable[[bytes, random.Random], bytes]


def _flip(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([raw[place] ^ (1 << rng.randrange(8))]) + raw[place + 1 :]


def _set(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw))
    return raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]


def _number(raw: bytes, rng: random.Random) -> bytes:
    width = rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) & ((1 << 8 * width) - 1)
    place = rng.randrange(len(raw))
    return raw[:place] + value.to_bytes(width, rng.choice(("little", "big"))) + raw[place + width :]


def _span(raw: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(raw))
    return start, min(len(raw), start + rng.choice((1, 2, 7, 30, 200, 3000)))


def _delete(raw: bytes, rng: random.Random) -> bytes:
    start, end = _span(raw, rng)
    return raw[:start] + raw[end:]


def _repeat(raw: bytes, rng: random.Random) -> bytes:
    start, end = _span(raw, rng)
    return raw[:end] + raw[start:end] * rng.choice((1, 1, 2, 20)) + raw[end:]


def _move(raw: bytes, rng: random.Random) -> bytes:
    start, end = _span(raw, rng)
    rest = raw[:start] + raw[end:]
    place = rng.randrange(len(rest) + 1)
    return rest[:place] + raw[start:end] + rest[place:]


def _insert(raw: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(raw) + 1)
    return raw[:place] + rng.choice(TOKENS) + raw[place:]


def _noise(raw: bytes, rng: random.Random) -> bytes:
    start, end = _span(raw, rng)
    return raw[:start] + rng.randbytes(end - start) + raw[end:]


def _cut(raw: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw))]


def _cut_start(raw: bytes, rng: random.Random) -> bytes:
    return raw[rng.randrange(len(raw)) :]


CHANGES: Sequence[Change] = (
    *(
        _flip,
        _flip,
        _set,
        _number,
        _number,
        _delete,
        _repeat,
        _move,
        _insert,
        _insert,
        _noise,
        _cut,
        _cut_start,
    ),
)


def generator(key: str) -> random.Random:
    """The generator of one input: the same key gives the same input, on any machine."""
    return random.Random(key)


def mutate(raw: bytes, rng: random.Random, changes: Sequence[Change] = CHANGES) -> bytes:
    """``raw`` with one to four changes, mostly one."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if raw:
            raw = rng.choice(changes)(raw, rng)
    return raw
