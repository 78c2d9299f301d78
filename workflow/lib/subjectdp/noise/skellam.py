"""Skellam noise on an integer grid: randomised rounding of clipped gradients, integer noise, and conversion back.

Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated Learning" (arXiv 2110.04995), with
the conditional randomised rounding of Kairouz, Liu and Steinke (arXiv 2102.06387, proposition 4). A gradient that is
clipped to C becomes a vector of integer multiples of C/2^bits. The noise of several silos adds up exactly.

The noise is calibrated to the sensitivity *after* rounding, and slightly larger than a Gaussian of the same noise
multiplier, so that its Rényi divergence is no larger at any integer order (:func:`skellam_variance`): a noise
multiplier from Rényi accounting at integer orders is valid for both. The sampler uses floating-point Poisson
generators: research noise.

Silos add up integers modulo m, and the server learns that sum alone (:func:`modular_sum`): secure aggregation as an
ideal functionality. In a ring of 62 bits the updates of a round, signal and noise, fit at any setting that trains. A
sum that does not would wrap around, which costs accuracy, never privacy: it stops the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import DataError, PrivacyError, expected

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

CONDITION = 1e-9
"""β of the conditional rounding: a rounding satisfies the bound with probability at least 1 - β.

The sources use e^-0.5. That lowers the bound very little (by 5e-5 of it at 16 bits), but redrawing a third of the
roundings biases entries towards 0 by up to some hundredths of a step.
"""

WIDE_VARIANCE = 2.0**41
"""Above it the Poisson sampler's acceptance test loses its precision, and noise is drawn as a rounded Gaussian. For a
variance μ the probabilities of the two differ by a factor within 1 ± (t⁴/24 + 1)/μ at t standard deviations, which is
2e-10 at ten of them and 2^41, and 2e-17 at 2^64 (32 bits)."""

LARGEST_VARIANCE = 2.0**90
"""Above it float64 does not hold every integer of the noise."""

_MOST_TRIES = 1000  # each satisfies the bound with probability at least 1 - β


def rounded_l2_bound(norm_bound: float, dimension: int, condition: float = CONDITION) -> float:
    """Bound on the L2 norm of a randomised rounding to integers, for vectors (P,) of norm c, at most ``norm_bound``.

    min(c + √P, √(c² + P/4 + √(2 log 1/β) (c + √P/2))): the first always holds, the second with probability at least 1 -
    β (arXiv 2102.06387, proposition 4). PrivacyError for arguments out of range.
    """
    if not (math.isfinite(norm_bound) and norm_bound > 0):
        raise expected("norm bound before rounding", norm_bound, "a positive number", PrivacyError)
    if dimension < 1:
        raise expected("dimension", dimension, "at least 1", PrivacyError)
    if not 0.0 <= condition < 1.0:
        raise expected("condition of the rounding", condition, "in [0, 1)", PrivacyError)
    root = math.sqrt(dimension)
    always = norm_bound + root
    if condition == 0.0:
        return always
    slack = math.sqrt(2.0 * math.log(1.0 / condition)) * (norm_bound + root / 2.0)
    return min(always, math.sqrt(norm_bound**2 + dimension / 4.0 + slack))


def l1_bound(l2: float, dimension: int) -> float:
    """Bound on the L1 norm of an integer vector (P,) of L2 norm at most ``l2``: min(√P l2, l2²), as |z| ≤ z²."""
    return min(math.sqrt(dimension) * l2, l2 * l2)


def skellam_variance(noise_multiplier: float, l2: float, dimension: int) -> float:
    """Smallest variance μ whose Rényi divergence is at most that of N(0, (σ l2)²) at every integer order a ≥ 2.

    For sensitivities Δ₂ = ``l2`` and Δ₁ = ``l1_bound``, the Skellam mechanism has D_a ≤ aΔ₂²/(2μ) +
    min(((2a-1)Δ₂² + 6Δ₁)/(4μ²), 3Δ₁/(2μ)) (arXiv 2110.04995, theorem 3.5). With a ≥ 2 and r = Δ₁/Δ₂² the sum is
    at most aΔ₂²/(2μ) (1 + min((1 + 1.5 r)/μ, 1.5 r)), which must be at most a/(2σ²).
    """
    if not noise_multiplier >= 0:
        raise expected("noise multiplier", noise_multiplier, "at least 0", PrivacyError)
    gaussian = (noise_multiplier * l2) ** 2
    ratio = l1_bound(l2, dimension) / (l2 * l2)
    quadratic = (gaussian + math.sqrt(gaussian * gaussian + 4.0 * gaussian * (1.0 + 1.5 * ratio))) / 2.0
    return min(quadratic, gaussian * (1.0 + 1.5 * ratio))


@dataclass(frozen=True)
class Grid:
    """Gradients of dimension P and norm at most ``clip_norm`` as integer vectors; ``step`` is the length of one."""

    step: float
    clip_norm: float
    dimension: int
    condition: float = CONDITION

    def __post_init__(self) -> None:
        for key in ("step", "clip_norm"):
            value = getattr(self, key)
            if not (math.isfinite(value) and value > 0):
                raise expected(f"{key} of the grid", value, "a positive number", PrivacyError)

    @classmethod
    def of_bits(cls, bits: int, clip_norm: float, dimension: int) -> Grid:
        return cls(clip_norm / 2.0**bits, clip_norm, dimension)

    @property
    def scaled_norm(self) -> float:
        """C in steps."""
        return self.clip_norm / self.step

    @property
    def l2(self) -> float:
        """L2 sensitivity of a sum of rounded gradients to one of them, in steps."""
        return rounded_l2_bound(self.scaled_norm, self.dimension, self.condition)

    def variance(self, noise_multiplier: float) -> float:
        """Variance of the integer noise, in squared steps; PrivacyError above the sampler's limit (fewer bits lower
        it)."""
        if (variance := skellam_variance(noise_multiplier, self.l2, self.dimension)) > LARGEST_VARIANCE:
            raise PrivacyError(
                f"Expected integer noise of variance at most 2^90 on a grid of step {self.step:g}, got {variance:.3g} "
                f"for noise multiplier {noise_multiplier:g}. Lower joint.bits."
            )
        return variance

    def rounded(self, gradient: NDArray[np.floating], generator: np.random.Generator) -> Integers:
        """A clipped gradient (P,) as integers: randomised unbiased rounding, with an L2 norm of at most ``l2``.

        A vector above the clip norm is scaled down to it first, so the bound holds for any input. Roundings beyond the
        bound are redrawn, which biases an entry by at most β/(1 - β) steps. PrivacyError for a vector of another
        dimension, or one that is not finite.
        """
        scaled = np.asarray(gradient, dtype=np.float64) / self.step
        if scaled.shape != (self.dimension,):
            raise expected("shape of a gradient", scaled.shape, f"({self.dimension},)", PrivacyError)
        norm = float(np.sqrt(scaled @ scaled))
        if not math.isfinite(norm):
            raise expected("norm of a gradient", norm, "finite", PrivacyError)
        if norm > self.scaled_norm:
            scaled *= self.scaled_norm / norm
        below = np.floor(scaled)
        scaled -= below
        for _ in range(_MOST_TRIES):
            rounded = below + (generator.random(self.dimension) < scaled)
            if float(rounded @ rounded) <= self.l2**2:
                return rounded.astype(np.int64)
        raise PrivacyError(f"No rounding within the norm bound {self.l2:g} in {_MOST_TRIES} tries.")

    def noise(self, noise_multiplier: float, generator: np.random.Generator) -> Integers:
        """Skellam noise (P,) for a noise multiplier (see :func:`skellam_variance`); zeros for 0."""
        return skellam(self.variance(noise_multiplier), self.dimension, generator)


def skellam(variance: float, size: int, generator: np.random.Generator) -> Integers:
    """``size`` independent differences of two Poisson variables of mean ``variance``/2 each.

    Above :data:`WIDE_VARIANCE` a rounded Gaussian, which is the same to far below the sampler's precision. PrivacyError
    for a variance below 0 or above 2^90.
    """
    if not 0.0 <= variance <= LARGEST_VARIANCE:
        raise expected("variance of Skellam noise", variance, "between 0 and 2^90", PrivacyError)
    if variance > WIDE_VARIANCE:
        return np.rint(generator.standard_normal(size) * math.sqrt(variance)).astype(np.int64)
    noise = generator.poisson(variance / 2.0, size)
    noise -= generator.poisson(variance / 2.0, size)
    return noise.astype(np.int64, copy=False)


RING = 2**62
"""The sum of two residues of a larger ring may overflow 64 bits."""


def modular_sum(parts: Iterable[Integers], modulus: int = RING) -> Integers:
    """The sum of at least one vector (P,) modulo ``modulus``, as the integers nearest to 0.
    DataError for no vector, or a sum that wrapped around (which a simulation can tell, a server cannot)."""
    total, real = None, np.zeros(())
    for part in parts:
        residues = np.mod(part, modulus)  # what a silo sends
        total = residues if total is None else np.mod(total + residues, modulus)
        real = real + part.astype(np.float64)
    if total is None:
        raise expected("vectors to sum", 0, "at least one", DataError)
    nearest = np.where(total > (modulus - 1) // 2, total - modulus, total)
    if wrapped := int(np.count_nonzero(np.abs(real - nearest) > modulus / 2)):
        raise DataError(
            f"Expected sums that a ring of {modulus} integers holds, {wrapped} of {len(total)} entries wrapped around. "
            "Lower joint.bits, training.local_steps or training.batch_size."
        )
    return nearest
