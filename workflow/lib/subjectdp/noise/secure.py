"""Gaussian noise for release, on the CPU and on a GPU.

Floating-point numbers leak (Mironov 2012): which of them noise can turn a sum into depends on the sum.
:func:`add_secure_gaussian` takes two measures against it (decision 0024): each number is a rotation of four draws, and
the result is rounded to a public grid.

On a GPU the cipher and the rotations of :mod:`subjectdp.noise.gaussian` are operations of torch, since a kernel of its
own would need a compiler at every site. The words of the cipher are the same bits; the numbers made of them may differ
in their last digits. Nothing waits for the device.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from subjectdp.noise.gaussian import ANGLES, CONSTANTS, LANES, PIECE, RARE, WORDS, add_rounded, check_size

GRID_BITS = 10
"""The grid of secure noise has between 2^10 and 2^11 steps in a standard deviation; its variance is 2^-23 of the
noise's at most."""

_AT_ONCE = 1 << 13  # pieces: some 300 MB
_MOST_RARE = 64  # of 2^22 radii more are rare with a chance of 10^-120


def add_secure_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,) in place, rounds it to the grid and returns it.

    Whatever the sum was, each entry is then a multiple of :func:`grid_of`. Noise is added in float64.

    Args:
        total: float32 or float64, on any device.
        std: 0 adds nothing.
        key: 32 bytes.
    """
    if std == 0.0 or total.numel() == 0:
        return total
    check_size(total)
    if total.device.type == "cuda":
        add_on_device(total.view(-1), std, grid_of(std), key)
        return total
    here = total.detach().cpu().contiguous()  # the same memory where it is there already
    add_rounded(here.view(-1).numpy(), std, grid_of(std), np.frombuffer(key, dtype=np.uint32))
    return total if here.data_ptr() == total.data_ptr() else total.copy_(here)


def grid_of(std: float) -> float:
    """The grid of secure noise of that standard deviation, a power of two."""
    return 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)


def add_on_device(total: Tensor, std: float, grid: float, key: bytes) -> None:
    """``total`` (P,) + ``std`` · z rounded to ``grid``, a power of two; z are standard normals, rotated in fours."""
    cosines, sines = [math.cos(angle) for angle in ANGLES], [math.sin(angle) for angle in ANGLES]
    for start, numbers in normals(total.numel(), key, total.device):
        a, b, c, d = numbers.double().chunk(4, 1)
        a, b = cosines[0] * a - sines[0] * b, sines[0] * a + cosines[0] * b
        c, d = cosines[0] * c - sines[0] * d, sines[0] * c + cosines[0] * d
        a, c = cosines[1] * a - sines[1] * c, sines[1] * a + cosines[1] * c
        b, d = cosines[1] * b - sines[1] * d, sines[1] * b + cosines[1] * d
        part = total[start : start + numbers.numel()]
        noise = torch.cat([a, b, c, d], 1).flatten()[: len(part)]
        part.copy_(noise.mul_(std).add_(part).div_(grid).round_().mul_(grid))


def normals(count: int, key: bytes, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Standard normals, float32 (pieces, 1024) at a time, with the place of the first: together at least ``count``."""
    pieces = -(-count // PIECE)
    for first in range(0, pieces, _AT_ONCE):
        some = first * LANES, min(pieces, first + _AT_ONCE) * LANES
        blocks = torch.arange(*some, device=device).int()
        words = cipher(blocks, key, 0).view(WORDS, -1, LANES).transpose(0, 1)
        radii, angles = words[:, : WORDS // 2].flatten(1), words[:, WORDS // 2 :].flatten(1)
        uniform = ((radii.long() & 0xFFFF_FFFF).float() + 0.5).mul_(2.0**-32)
        lengths = uniform.log().mul_(-2.0).sqrt_()
        _redraw_tails(lengths.view(-1), uniform.view(-1), first * PIECE // 2, key)
        angle = angles.float().mul_(math.pi / 2**31)
        yield first * PIECE, torch.cat([angle.cos().mul_(lengths), angle.sin_().mul_(lengths)], 1)


def _redraw_tails(lengths: Tensor, uniform: Tensor, offset: int, key: bytes) -> None:
    """Of words below 2^8, with 53 bits of a stream of their own: the smallest are looked at, rare or not."""
    smallest = torch.topk(uniform, min(_MOST_RARE, len(uniform)), largest=False)
    words = cipher((smallest.indices + offset).int(), key, 1)[:2].long() & 0xFFFF_FFFF
    fine = ((words[0] >> 5).double() * 67108864.0 + (words[1] >> 6).double() + 0.5) / 2.0**53
    longer = torch.sqrt(-2.0 * (fine.log() - 24.0 * math.log(2.0))).float()
    rare = smallest.values < RARE * 2.0**-32
    lengths[smallest.indices] = torch.where(rare, longer, lengths[smallest.indices])


def cipher(blocks: Tensor, key: bytes, nonce: int) -> Tensor:
    """ChaCha8: int32 (16, n), column l the block of counter ``blocks[l]`` under ``key`` (32 bytes)."""
    constants = np.concatenate([np.array(CONSTANTS, np.uint32), np.frombuffer(key, np.uint32)]).view(np.int32)
    rows = torch.from_numpy(constants).to(blocks.device).unsqueeze(1).expand(12, len(blocks))
    last = torch.stack([blocks, torch.full_like(blocks, nonce), *[torch.zeros_like(blocks)] * 2])
    a, b, c, d = rows[:4].clone(), rows[4:8].clone(), rows[8:12].clone(), last.clone()
    for _ in range(4):
        a, b, c, d = _quarters(a, b, c, d)
        a, b, c, d = _quarters(a, b.roll(-1, 0), c.roll(-2, 0), d.roll(-3, 0))
        b, c, d = b.roll(1, 0), c.roll(2, 0), d.roll(3, 0)
    return torch.cat([a + rows[:4], b + rows[4:8], c + rows[8:12], d + last])


def _quarters(a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    for left, right in ((16, 12), (8, 7)):
        a = a.add_(b)
        d = _turned(d.bitwise_xor_(a), left)
        c = c.add_(d)
        b = _turned(b.bitwise_xor_(c), right)
    return a, b, c, d


def _turned(words: Tensor, by: int) -> Tensor:
    low = (words >> (32 - by)).bitwise_and_((1 << by) - 1)  # the shift of a signed number keeps its sign
    return words.bitwise_left_shift_(by).bitwise_or_(low)
