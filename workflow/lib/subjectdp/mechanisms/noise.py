"""Gaussian noise with keyed randomness: one generator a draw, never shared, never reseeded.

On the CPU torch's Mersenne twister takes a 32-bit seed only; a run draws so many noise vectors that two of them would
be likely to share one. The twister's whole state is therefore filled from the key (SHAKE-256), so that streams of
different keys are unrelated. On other devices the 64-bit seed of the counter-based generator is the key.

This is research noise: the floating-point attacks of Mironov (2012) are out of scope and said so on every privacy card.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

TAIL = 5.0
"""Standard normal numbers beyond it, 6 in ten million, are drawn from the exact tail."""

_PIECE = (
    1 << 15
)  # numbers drawn at once: with the part of the sum that they are added to, they fit a core's cache
_STATE_OFFSET = 24  # seed (8 bytes), left, seeded, next: the 624 words of the twister follow
_STATE_BYTES = 624 * 8  # stored as 64-bit integers, 32 bits used


def keyed_generator(key: bytes, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator of its own for ``key`` (32 bytes)."""
    device = torch.device(device)
    generator = torch.Generator(device)
    if device.type != "cpu":
        generator.manual_seed(int.from_bytes(key[:8], "little") & 0x7FFF_FFFF_FFFF_FFFF)
        return generator
    generator.manual_seed(0)
    state = generator.get_state().clone()
    words = torch.frombuffer(bytearray(hashlib.shake_256(key).digest(624 * 4)), dtype=torch.int32)
    unsigned = words.to(torch.int64) & 0xFFFF_FFFF
    state[_STATE_OFFSET : _STATE_OFFSET + _STATE_BYTES] = unsigned.view(torch.uint8)
    generator.set_state(state)
    return generator


def add_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,) in place and returns it; std 0 adds nothing.

    On the CPU in pieces that stay in cache, with exact tails (see :func:`_redraw_tails`).
    """
    if std == 0.0 or total.numel() == 0:
        return total
    generator = keyed_generator(key, total.device)
    if total.device.type != "cpu":
        return total.add_(torch.empty_like(total).normal_(generator=generator), alpha=std)
    piece = torch.empty(min(_PIECE, total.numel()), dtype=total.dtype)
    tails: np.random.Generator | None = None
    for part in torch.split(total.view(-1), _PIECE):
        noise = piece[: part.numel()].normal_(generator=generator)
        numbers = noise.numpy()  # the same memory
        if max(-numbers.min(), numbers.max()) > TAIL:
            tails = _tail_generator(key) if tails is None else tails
            _redraw_tails(numbers, tails)
        part.add_(noise, alpha=std)
    return total


def _redraw_tails(numbers: NDArray[np.float32], generator: np.random.Generator) -> None:
    """Draws every number beyond ``TAIL`` again from the tail's exact law, its sign kept.

    torch makes normal numbers from uniform ones of 24 bits, so that none is beyond 5.8 and the last ones lie on a
    coarse grid. Given that a number is beyond t, √(t² - 2 log U) with U uniform, taken with probability t over itself,
    has the normal law there (Marsaglia 1964); U has 53 bits, which reaches 9.9.
    """
    where = np.flatnonzero(np.abs(numbers) > TAIL)
    lengths = np.array([_beyond_tail(generator) for _ in range(len(where))], dtype=numbers.dtype)
    numbers[where] = np.copysign(lengths, numbers[where])


def _beyond_tail(generator: np.random.Generator) -> float:
    while True:
        length = math.sqrt(TAIL * TAIL - 2.0 * math.log1p(-generator.random()))
        if generator.random() * length <= TAIL:
            return length


def _tail_generator(key: bytes) -> np.random.Generator:
    words = np.frombuffer(hashlib.shake_256(b"tails" + key).digest(16), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=words))
