"""Modular sums as secure aggregation computes them: the server learns the sum modulo m and nothing else.

The protocol is simulated as an ideal functionality. The summands are updates of a round: the signal and noise of the
local steps of all silos (arXiv 2407.19286, section 4, last paragraph). In a ring of 62 bits they fit at any setting
that trains. A sum that does not would wrap around, which costs accuracy, never privacy: it stops the run.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import DataError, expected

Integers = NDArray[np.int64]

RING = 2**62
"""The sum of two residues of a larger ring may overflow 64 bits."""


def modular_sum(parts: Iterable[Integers], modulus: int = RING) -> Integers:
    """The sum of at least one vector (P,) modulo ``modulus``, as the integers nearest to 0.

    Raises:
        DataError: no vector, or a sum that wrapped around (which a simulation can tell, a server cannot).
    """
    total, real = None, np.zeros(())
    for part in parts:
        residues = np.mod(part, modulus)  # what a silo sends
        total = residues if total is None else np.mod(total + residues, modulus)
        real = real + part.astype(np.float64)
    if total is None:
        raise expected("vectors to sum", 0, "at least one", DataError)
    nearest = np.where(total > (modulus - 1) // 2, total - modulus, total)
    wrapped = int(np.count_nonzero(np.abs(real - nearest) > modulus / 2))
    if wrapped:
        raise DataError(
            f"Expected sums that a ring of {modulus} integers holds, {wrapped} of {len(total)} entries wrapped around. "
            "Lower joint.bits, training.local_steps or training.batch_size."
        )
    return nearest
