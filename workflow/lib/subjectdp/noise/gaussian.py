"""Gaussian noise with keyed randomness: each draw has its own stream.

The 32-byte key is that of a stream cipher (hand-written, see decision 0021). Reproducible noise on a GPU is the
exception: 63 bits of the key seed the device's counter-based generator, which is no cipher.

Floating-point numbers leak (Mironov 2012): which of them noise can turn a sum into depends on the sum. For what is to
be released :func:`add_secure_gaussian` takes two measures against it (decision 0024): each number is a rotation of four
draws, and the result is rounded to a public grid. On a GPU both are operations of torch, since a kernel of its own
would need a compiler at every site: the words of the cipher are the same bits, the numbers made of them may differ in
their last digits. Nothing waits for the device.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numba import float32, int32, uint32
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.compiled import compiled, inner
from subjectdp.errors import PrivacyError, expected

_STATE_OFFSET = 24  # seed (8 bytes), left, seeded, next: the 624 words of the twister follow
_STATE_BYTES = 624 * 8  # stored as 64-bit integers, 32 bits used


def keyed_generator(key: bytes, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator of torch for ``key`` (32 bytes): draws other than noise on the CPU.

    torch's Mersenne twister on the CPU accepts a 32-bit seed only, which many draws would share: its whole state is
    filled from the key (SHAKE-256). Elsewhere 63 bits of the key seed the counter-based generator.
    """
    device = torch.device(device)
    generator = torch.Generator(device)
    if device.type != "cpu":
        generator.manual_seed(int.from_bytes(key[:8], "little") & 0x7FFF_FFFF_FFFF_FFFF)
        return generator
    generator.manual_seed(0)
    state = generator.get_state().clone()
    words = torch.frombuffer(bytearray(hashlib.shake_256(key).digest(624 * 4)), dtype=torch.int32)
    state[_STATE_OFFSET : _STATE_OFFSET + _STATE_BYTES] = (words.to(torch.int64) & 0xFFFF_FFFF).view(torch.uint8)
    generator.set_state(state)
    return generator


ANGLES = 0.5 * math.atan(2.0), math.pi / 8
"""Of the rotations of four draws: the first of pairs, the second of pairs of pairs. A rotation of standard normals is
standard normal. This one keeps every vector of whole numbers, but 0, away from all coordinate planes."""


def add_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,) in place and returns it; std 0 adds nothing.
    float32 standard normals of ``key`` (32 bytes), multiplied by ``std`` in the dtype of ``total``."""
    if std == 0.0 or total.numel() == 0:
        return total
    if total.device.type != "cpu":
        return total.add_(torch.empty_like(total).normal_(generator=keyed_generator(key, total.device)), alpha=std)
    check_size(total)
    numbers = total.view(-1).numpy()  # the same memory
    add_normals(numbers, numbers.dtype.type(std), np.frombuffer(key, dtype=np.uint32))
    return total


def check_size(total: Tensor) -> None:
    """PrivacyError for more numbers than one key has."""
    if total.numel() > LARGEST:  # the cipher's counter would start again: the same noise twice
        raise expected("numbers under one key", total.numel(), f"at most {LARGEST}", PrivacyError)


LANES = 64  # blocks of the cipher that are computed in parallel by vector instructions
WORDS = 16  # of a block
PIECE = WORDS * LANES  # normal numbers per pass; all buffers of a pass fit in the first-level cache
LARGEST = 1 << 33  # numbers per key: the counter has 32 bits and counts pairs in the tails' stream

RARE = 1 << 8  # a radius whose word is below it lies in the tail: 2^-24 of them, lengths beyond 5.77
_TAILS = 1  # the nonce of the tails' stream; the bulk's is 0
CONSTANTS = _C0, _C1, _C2, _C3 = 0x61707865, 0x3320646E, 0x79622D32, 0x6B206574  # "expand 32-byte k"


@inner
def _turned(word: Any, by: int) -> Any:
    return uint32((word << uint32(by)) | (word >> uint32(32 - by)))


@inner
def _quarter(a: Any, b: Any, c: Any, d: Any) -> Any:
    a = uint32(a + b)
    d = _turned(d ^ a, 16)
    c = uint32(c + d)
    b = _turned(b ^ c, 12)
    a = uint32(a + b)
    d = _turned(d ^ a, 8)
    c = uint32(c + d)
    b = _turned(b ^ c, 7)
    return a, b, c, d


@inner
def _double_round(x: Any) -> Any:
    x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15 = x
    x0, x4, x8, x12 = _quarter(x0, x4, x8, x12)
    x1, x5, x9, x13 = _quarter(x1, x5, x9, x13)
    x2, x6, x10, x14 = _quarter(x2, x6, x10, x14)
    x3, x7, x11, x15 = _quarter(x3, x7, x11, x15)
    x0, x5, x10, x15 = _quarter(x0, x5, x10, x15)
    x1, x6, x11, x12 = _quarter(x1, x6, x11, x12)
    x2, x7, x8, x13 = _quarter(x2, x7, x8, x13)
    x3, x4, x9, x14 = _quarter(x3, x4, x9, x14)
    return x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15


@compiled
def cipher_blocks(key: NDArray[np.uint32], counter: np.uint32, nonce: np.uint32, words: NDArray[np.uint32]) -> None:
    """Fills ``words`` (16, lanes): column l is the ChaCha8 block of ``counter`` + l under ``key`` (8,).
    The four double rounds are written out because a loop over them prevents vectorisation."""
    k0, k1, k2, k3, k4, k5, k6, k7 = key[0], key[1], key[2], key[3], key[4], key[5], key[6], key[7]
    c0, c1, c2, c3, zero, kind = uint32(_C0), uint32(_C1), uint32(_C2), uint32(_C3), uint32(0), nonce
    for lane in range(words.shape[1]):
        count = uint32(counter + uint32(lane))
        x = (c0, c1, c2, c3, k0, k1, k2, k3, k4, k5, k6, k7, count, kind, zero, zero)
        x = _double_round(_double_round(_double_round(_double_round(x))))
        words[0, lane], words[1, lane] = uint32(x[0] + c0), uint32(x[1] + c1)
        words[2, lane], words[3, lane] = uint32(x[2] + c2), uint32(x[3] + c3)
        words[4, lane], words[5, lane] = uint32(x[4] + k0), uint32(x[5] + k1)
        words[6, lane], words[7, lane] = uint32(x[6] + k2), uint32(x[7] + k3)
        words[8, lane], words[9, lane] = uint32(x[8] + k4), uint32(x[9] + k5)
        words[10, lane], words[11, lane] = uint32(x[10] + k6), uint32(x[11] + k7)
        words[12, lane], words[13, lane] = uint32(x[12] + count), uint32(x[13] + kind)
        words[14, lane], words[15, lane] = x[14], x[15]


@inner
def _sine(x: Any, square: Any) -> Any:
    """sin x for |x| ≤ π/4."""
    term = float32(-1.9515295891e-4) * square + float32(8.3321608736e-3)
    return (term * square + float32(-1.6666654611e-1)) * square * x + x


@inner
def _cosine(square: Any) -> Any:
    """cos x for |x| ≤ π/4."""
    term = float32(2.443315711809948e-5) * square + float32(-1.388731625493765e-3)
    term = (term * square + float32(4.166664568298827e-2)) * square * square
    return term - float32(0.5) * square + float32(1)


@inner
def _logarithm(above: Any, exponent: Any) -> Any:
    """ln(2^exponent (1 + above)) for 1 + above from √½ to √2."""
    t = above
    p = float32(7.0376836292e-2) * t + float32(-1.1514610310e-1)
    p = p * t + float32(1.1676998740e-1)
    p = p * t + float32(-1.2420140846e-1)
    p = p * t + float32(1.4249322787e-1)
    p = p * t + float32(-1.6668057665e-1)
    p = p * t + float32(2.0000714765e-1)
    p = p * t + float32(-2.4999993993e-1)
    p = p * t + float32(3.3333331174e-1)
    square = t * t
    small = p * square * t + exponent * float32(-2.12194440e-4) - float32(0.5) * square
    return (t + small) + exponent * float32(0.693359375)


@compiled
def normal_pairs(
    radii: NDArray[np.uint32],
    angles: NDArray[np.uint32],
    mantissas: NDArray[np.float32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> None:
    """``first``, ``second`` (n,) = √(-2 ln u) · (cos θ, sin θ), u = (radii + ½)/2^32, θ = 2π angles/2^32.
    ``mantissas`` (n,) is a buffer. Angles are reduced to |x| ≤ π/4, the range of the polynomials."""
    bits = mantissas.view(np.int32)
    for i in range(first.shape[0]):
        mantissas[i] = float32(radii[i]) + float32(0.5)
    for i in range(first.shape[0]):  # u = 2^e m with √½ ≤ m < √2
        shifted = int32(bits[i] - int32(0x3F3504F3))
        bits[i] = int32((shifted & int32(0x007FFFFF)) + int32(0x3F3504F3))
        first[i] = float32(int32(shifted >> int32(23)) - int32(32))
    for i in range(first.shape[0]):
        length = np.sqrt(float32(-2) * _logarithm(mantissas[i] - float32(1), first[i]))
        quarter = uint32(uint32(angles[i] + uint32(1 << 29)) >> uint32(30))
        rest = int32(uint32(angles[i] - uint32(quarter << uint32(30))))
        x = float32(rest) * float32(math.pi / 2**31)
        sine, cosine = _sine(x, x * x), _cosine(x * x)
        swapped = (quarter & uint32(1)) != uint32(0)
        along, across = (sine, cosine) if swapped else (cosine, sine)
        first[i] = along * (length if quarter == uint32(0) or quarter == uint32(3) else -length)
        second[i] = across * (length if quarter < uint32(2) else -length)


@compiled
def redraw_tails(
    key: NDArray[np.uint32],
    offset: np.uint32,
    radii: NDArray[np.uint32],
    first: NDArray[np.float32],
    second: NDArray[np.float32],
) -> None:
    """Redraws tail radii (words below 2^8) with 53-bit uniforms, from a stream of their own.

    Below 2^-24 u is 2^-24 times a uniform number; with 32 bits alone the distribution would end at 6.76 and be coarse
    before. ``offset``: index of the first pair, which is the block counter.
    """
    words = np.empty((16, 1), np.uint32)
    for i in range(first.shape[0]):
        if radii[i] < uint32(RARE):
            cipher_blocks(key, uint32(uint32(offset) + uint32(i)), uint32(_TAILS), words)
            uniform = (float(words[0, 0] >> uint32(5)) * 67108864.0 + float(words[1, 0] >> uint32(6)) + 0.5) / 2.0**53
            longer = math.sqrt(-2.0 * (math.log(uniform) - 24.0 * math.log(2.0)))
            length = math.sqrt(-2.0 * math.log((float(radii[i]) + 0.5) / 2.0**32))
            first[i] = float32(first[i] * (longer / length))
            second[i] = float32(second[i] * (longer / length))


@inner
def _fill_piece(key: Any, start: Any, words: Any, mantissas: Any, numbers: Any) -> None:
    """``numbers`` (PIECE,): the standard normals from number ``start`` of ``key`` (8,) on; the others are buffers."""
    radii, angles = words[: WORDS // 2].reshape(PIECE // 2), words[WORDS // 2 :].reshape(PIECE // 2)
    first, second = numbers[: PIECE // 2], numbers[PIECE // 2 :]
    cipher_blocks(key, uint32(start // WORDS), uint32(0), words)
    normal_pairs(radii, angles, mantissas, first, second)
    if radii.min() < uint32(RARE):
        redraw_tails(key, uint32(start // 2), radii, first, second)


@compiled
def add_normals(total: NDArray[Any], std: Any, key: NDArray[np.uint32]) -> None:
    """``total`` (P,) += ``std`` · z, z standard normal from ``key`` (8,), piece by piece within the cache."""
    words = np.empty((WORDS, LANES), np.uint32)
    mantissas, numbers = np.empty(PIECE // 2, np.float32), np.empty(PIECE, np.float32)
    for start in range(0, total.shape[0], PIECE):
        _fill_piece(key, start, words, mantissas, numbers)
        part = total[start : start + PIECE]
        for i in range(part.shape[0]):
            part[i] += std * numbers[i]


@inner
def _rotated(a: Any, b: Any, cosine: Any, sine: Any) -> None:
    for i in range(a.shape[0]):
        a[i], b[i] = cosine * a[i] - sine * b[i], sine * a[i] + cosine * b[i]


@compiled
def add_rounded(total: NDArray[Any], std: float, grid: float, key: NDArray[np.uint32]) -> None:
    """``total`` (P,) + ``std`` · z rounded to ``grid``, a power of two; z are standard normals, rotated in fours."""
    words = np.empty((WORDS, LANES), np.uint32)
    mantissas, numbers = np.empty(PIECE // 2, np.float32), np.empty(PIECE, np.float32)
    mixed = np.empty(PIECE, np.float64)
    cosines, sines, quarter = np.cos(np.array(ANGLES)), np.sin(np.array(ANGLES)), PIECE // 4
    a, b = mixed[:quarter], mixed[quarter : 2 * quarter]
    c, d = mixed[2 * quarter : 3 * quarter], mixed[3 * quarter :]
    for start in range(0, total.shape[0], PIECE):
        _fill_piece(key, start, words, mantissas, numbers)
        mixed[:] = numbers
        _rotated(a, b, cosines[0], sines[0])
        _rotated(c, d, cosines[0], sines[0])
        _rotated(a, c, cosines[1], sines[1])
        _rotated(b, d, cosines[1], sines[1])
        part = total[start : start + PIECE]
        for i in range(part.shape[0]):
            part[i] = np.rint((part[i] + std * mixed[i]) / grid) * grid


GRID_BITS = 10
"""The grid of secure noise has between 2^10 and 2^11 steps in a standard deviation; its variance is 2^-23 of the
noise's at most."""

_AT_ONCE = 1 << 13  # pieces: some 300 MB
_MOST_RARE = 64  # of 2^22 radii more are rare with a chance of 10^-120


def add_secure_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,), float32 or 64 on any device, rounds it to the grid in place and returns it.

    Whatever the sum was, each entry is then a multiple of :func:`grid_of`. Noise is added in float64; ``std`` 0 adds
    nothing. ``key``: 32 bytes.
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
        d = _turned_words(d.bitwise_xor_(a), left)
        c = c.add_(d)
        b = _turned_words(b.bitwise_xor_(c), right)
    return a, b, c, d


def _turned_words(words: Tensor, by: int) -> Tensor:
    low = (words >> (32 - by)).bitwise_and_((1 << by) - 1)  # the shift of a signed number keeps its sign
    return words.bitwise_left_shift_(by).bitwise_or_(low)
