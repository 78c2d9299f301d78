"""Gaussian noise with keyed randomness: each draw has its own stream.

On the CPU the 32-byte key is the key of a stream cipher (:mod:`subjectdp.noise.normals`; hand-written, see decision
0021). On other devices 64 bits of it seed the device's counter-based generator.

This is research noise: floating-point attacks (Mironov 2012) are out of scope, as every privacy report says.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from subjectdp.noise.torch_keys import keyed_generator


def add_gaussian(total: Tensor, std: float, key: bytes) -> Tensor:
    """Adds N(0, std² I) to ``total`` (P,) in place and returns it; std 0 adds nothing.

    ``key``: 32 bytes. The numbers are float32 standard normals, multiplied by ``std`` in the dtype of ``total``.
    """
    if std == 0.0 or total.numel() == 0:
        return total
    if total.device.type != "cpu":
        noise = torch.empty_like(total).normal_(generator=keyed_generator(key, total.device))
        return total.add_(noise, alpha=std)
    from subjectdp.noise.normals import add_normals  # runs without noise need not load the compiler

    numbers = total.view(-1).numpy()  # the same memory
    add_normals(numbers, numbers.dtype.type(std), np.frombuffer(key, dtype=np.uint32))
    return total
