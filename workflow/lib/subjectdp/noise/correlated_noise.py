"""Correlated noise: banded inverse square root (arXiv 2505.12128; DP-FTRL, arXiv 2103.00039).

Round t adds z_t = Σ_{j<p} c̃_j w_{t-j}, with w independent N(0, σ²C² I) and c̃ the first p coefficients of (1 -
x)^(1/2) = 1 - x/2 - x²/8 - ... The p - 1 rounds after a draw partly cancel it. The model is a sum of rounds, and such
sums contain less noise than with independent draws. The releases of all rounds together are one Gaussian mechanism, C
X + σW, followed by the post-processing C^{-1}: the lower-triangular Toeplitz matrix of c̃. X are the rounds' sums
without noise. The sensitivity is how far one subject moves C X over the whole run (Denisov et al., arXiv 2202.08312,
for inputs that depend on earlier outputs).

All entries of C are non-negative. A subject that adds at most 1 in each of its rounds therefore moves C X farthest by
adding 1 in the same direction each time. With turns exactly b rounds apart those rounds are o, o + b, o + 2b, ...; the
columns for o are truncated columns for 0, so o = 0 is the worst case (Choquette-Choo et al., arXiv 2211.06530,
2306.08153).

If p of the silos take part in a round and only their sum is seen, each silo's own noise continues through the rounds
that it misses. The sum's noise has the covariance K = Σ_i D_i A D_i, with A = C^{-1} C^{-T} and D_i the rounds of
silo i. Splitting X into the parts D_i X/p gives tr Xᵀ K^{-1} X ≤ Σ_i ‖C D_i X‖²/p², since a block of A has no larger
inverse than A. CᵀC has no negative entry and any two rounds share at most p silos, so this is at most ‖C 1‖²/p over
the turns: the value for the same silos in every round.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError, expected

Coefficients = NDArray[np.float64]


@lru_cache(maxsize=256)
def noise_coefficients(band: int) -> Coefficients:
    """Coefficients c̃_0 .. c̃_{band-1} of (1 - x)^(1/2): c̃_0 = 1, c̃_j = c̃_{j-1} (j - 3/2) / j.

    Raises:
        PrivacyError: a band below 1.
    """
    if band < 1:
        raise expected("band of correlated noise", band, "at least 1", PrivacyError)
    orders = np.arange(1, band)
    coefficients = np.concatenate([[1.0], np.cumprod((orders - 1.5) / orders)])
    coefficients.setflags(write=False)  # kept for further calls
    return coefficients


def strategy_coefficients(band: int, rounds: int) -> Coefficients:
    """The first column (rounds,) of C, the inverse of the Toeplitz matrix of :func:`noise_coefficients`.

    c_t = -Σ_{1≤j<band} c̃_j c_{t-j}; never negative, since every c̃_j but the first is.
    """
    back = -noise_coefficients(band)[1:]
    column = np.zeros(rounds)
    column[0] = 1.0
    for t in range(1, rounds):
        reach = min(t, len(back))
        column[t] = back[:reach] @ column[t - reach : t][::-1]
    return column


@lru_cache(maxsize=256)
def sensitivity(band: int, rounds: int, every: int) -> float:
    """‖C Σ_k e_{kb}‖₂: how far a subject with a turn every ``every`` rounds moves C X over ``rounds`` rounds.

    In units of its largest contribution to one round; √⌈rounds/every⌉ for a band of 1.
    """
    column = strategy_coefficients(band, rounds)
    moved = np.zeros(rounds)
    for start in range(0, rounds, every):
        moved[start:] += column[: rounds - start]
    return float(np.linalg.norm(moved))


def prefix_noise(band: int, rounds: int, every: int) -> Coefficients:
    """(rounds,) std of the noise in the sum of the first t rounds' averages, if the whole run is 1-GDP (μ = 1).

    The average divides by the subjects of a round, 1/``every`` of all, and is given for one subject in all. Independent
    noise with every subject in every round has √(rounds · t).
    """
    summed = np.cumsum(np.pad(noise_coefficients(min(band, rounds)), (0, max(0, rounds - band))))
    return np.asarray(sensitivity(band, rounds, every) * every * np.sqrt(np.cumsum(summed**2)))


def best_band(rounds: int, every: int) -> int:
    """The band that minimises the root mean square of :func:`prefix_noise`; 1 if independent noise is best."""
    errors = [
        float(np.mean(prefix_noise(band, rounds, every) ** 2))
        for band in range(1, min(rounds, 8 * every) + 1)
    ]
    return 1 + int(np.argmin(errors))
