"""Gaussian noise with keyed randomness: each draw has its own stream.

On the CPU the 32-byte key is the key of a stream cipher (:mod:`subjectdp.noise.normals`; hand-written, see decision
0021). On other devices 63 bits of it seed the device's counter-based generator, which is no cipher.

Floating-point numbers leak (Mironov 2012): which of them noise can turn a sum into depends on the sum.
:func:`add_secure_gaussian` takes two measures against it (decision 0024): a draw is the sum of four (Holohan and
Braghin, arXiv 2107.10138; Opacus' secure mode), and the result is rounded to a public grid.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import torch
from torch import Tensor

from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.torch_keys import keyed_generator

DRAWS = 4
"""Draws that a secure one adds up."""

GRID_BITS = 12
"""The grid of secure noise has between 2^12 and 2^13 steps in a standard deviation; its variance is 2^-27 of the
noise's at most."""


def add_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,) in place and returns it; std 0 adds nothing.

    ``key``: 32 bytes. The numbers are float32 standard normals, multiplied by ``std`` in the dtype of ``total``.
    """
    if std == 0.0 or total.numel() == 0:
        return total
    if total.device.type != "cpu":
        noise = torch.empty_like(total).normal_(generator=keyed_generator(key, total.device))
        return total.add_(noise, alpha=std)
    from subjectdp.noise.normals import LARGEST, add_normals  # runs without noise need not load the compiler

    if total.numel() > LARGEST:  # the cipher's counter would start again: the same noise twice
        raise expected("numbers under one key", total.numel(), f"at most {LARGEST}", PrivacyError)
    numbers = total.view(-1).numpy()  # the same memory
    add_normals(numbers, numbers.dtype.type(std), np.frombuffer(key, dtype=np.uint32))
    return total


def add_secure_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,) in place, rounds it to the grid and returns it.

    Whatever the sum was, each entry is then a multiple of :func:`grid_of`. Noise is drawn on the CPU, in float64.

    Args:
        total: float32 or float64, on any device.
        std: 0 adds nothing.
        key: 32 bytes.
    """
    if std == 0.0 or total.numel() == 0:
        return total
    noisy, grid = summed_draws(total.numel(), std, key), grid_of(std)
    noisy.add_(total.detach().cpu().to(torch.float64).view(-1))
    return total.copy_(noisy.div_(grid).round_().mul_(grid).view_as(total))


def summed_draws(size: int, std: float, key: bytes) -> Tensor:
    """N(0, std² I), float64 (size,): the sum of ``DRAWS`` draws with keys of their own."""
    noise = torch.zeros(size, dtype=torch.float64)
    for part in range(DRAWS):
        own = hashlib.blake2b(bytes([part]), key=key, digest_size=32, person=b"secure noise").digest()
        add_gaussian(noise, std / math.sqrt(DRAWS), own)
    return noise


def grid_of(std: float) -> float:
    """The grid of secure noise of that standard deviation, a power of two."""
    return 2.0 ** (math.floor(math.log2(std)) - GRID_BITS)
