"""Norms of long vectors, with a rounding error within the margin that clipping allows for.

On the CPU torch adds the squares of a float32 vector in as many running sums as a register has lanes, eight or sixteen.
In a long sum the squares of small entries fall below the last digit and are lost: a vector of six million numbers may
be 2 % longer than its computed norm, and would be clipped to 2 % more than the clip norm. Here the vector is cut into
pieces, and the norm is that of the pieces' norms.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MARGIN = 1.0 + 2.0**-18  # clipping to C over this keeps the true norm at or below C

_PIECE = 256  # 32 additions in each of eight lanes; three such levels serve six million numbers


def row_norms(rows: Tensor) -> Tensor:
    """(n,) the L2 norm of each row of a (n, d) float32 tensor, relative error below 2^-18 whatever the entries.

    A row with an infinity or NaN has a norm that is not finite. As fast as torch's norm.
    """
    if rows.device.type == "cpu":  # a GPU adds up in a tree anyway
        while rows.shape[1] > _PIECE:
            count = rows.shape[1] // _PIECE
            pieces = rows[:, : count * _PIECE].view(len(rows), count, _PIECE)
            rows = torch.cat([torch.linalg.vector_norm(pieces, dim=2), rows[:, count * _PIECE :]], dim=1)
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def clip_factors(norms: Tensor, clip_norm: float | Tensor) -> Tensor:
    """min(1, C/‖g‖) of norms (n,), slightly less where it is below 1; C > 0, infinity, or one for each norm."""
    factors = norms.clamp_min(1e-30).reciprocal_().mul_(clip_norm / _MARGIN)
    return factors.clamp_(max=1.0)
