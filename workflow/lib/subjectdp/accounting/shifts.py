"""How far one step moves a sum, as a distribution: three kinds.

**Shift.** The unit's removal leaves N(0, σ²); with it, the sum moves by s_j with probability p_j.

**Turned.** A subject's coin (probability q) falls the same in both neighbours, and what is released if it says yes
differs: (1-q)N(0) + qN(u) against (1-q)N(0) + qN(v), in any dimension, |u|, |v| ≤ 1 and |u - v| ≤ b. For α = e^ε ≥ 1
advanced joint convexity (Balle, Barthe, Gaboardi, arXiv 1807.01647, theorem 2) gives, with α' = 1 + (α-1)/q,

    H_α(P‖Q) = q H_α'(N(u) ‖ (1 - α/α') N(0) + α/α' N(v)),

and moving u to the origin leaves shifts of lengths |u| ≤ 1 and |u - v| ≤ b, so that (corollary 4.7 of arXiv 2310.15526)

    H_α(P‖Q) ≤ h(α) = q H_α'(N(0) ‖ (1 - α/α') N(1) + α/α' N(b)).

The same holds for H_α(Q‖P), and for α < 1 by H_α(P‖Q) = 1 - α + α H_(1/α)(Q‖P). Of the pair (1-q)N(0) + qN(1),
(1-q)N(0) + qN(1-b), h is the hockey-stick divergence: only outcomes beyond the middle of 1-b and 1 have a positive
loss. The law that takes these outcomes once as they are and once with P and Q exchanged, and the rest as loss 0, is
thus at least as bad for every neighbour at every α, and so are its compositions. For b = 2 it is that pair itself.

**Told.** Which of several shifts may happen is drawn without regard to the unit: by the coins of its subject's other
items, by a coin that the observer knows, or by which silos take part in a round. Hockey-stick divergences are jointly
convex, so that the mean over the draws bounds them; privacy losses mix in the same way.

**Joined.** One of several series of releases, nobody knows which. The largest of their hockey-stick divergences at each
α is convex in α: it belongs to a pair of laws that dominates each of them, and so do compositions with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from subjectdp.errors import PrivacyError, expected

_TAIL = 1e-18  # probability mass that may be moved up to the largest sensitivity


@dataclass(frozen=True)
class Shift:
    """The distribution of one step's sensitivity: values ascending, probabilities summing to one."""

    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def of(cls, sensitivities: Iterable[float], probabilities: Iterable[float]) -> Shift:
        """Sorts the atoms, merges equal ones, drops those of probability 0 and normalises the sum to exactly 1.

        Raises PrivacyError when a probability or sensitivity is negative or the sum is not one.
        """
        mass: dict[float, float] = {}
        for value, probability in zip(sensitivities, probabilities, strict=True):
            if value < 0 or probability < 0:
                raise expected("sensitivity and probability", (value, probability), "non-negative", PrivacyError)
            mass[float(value)] = mass.get(float(value), 0.0) + float(probability)
        total = sum(mass.values())
        if abs(total - 1.0) > 1e-9:
            raise expected("sum of the sampling probabilities", total, "1", PrivacyError)
        kept = sorted((value, p / total) for value, p in mass.items() if p > 0)
        return cls(tuple(value for value, _ in kept), tuple(p for _, p in kept))

    def convolve(self, other: Shift) -> Shift:
        """The distribution of the sum of two independent shifts, trimmed (a subject at two silos, one joint noise)."""
        values: list[float] = []
        masses: list[float] = []
        for value, probability in zip(self.sensitivities, self.probabilities, strict=True):
            values.extend(value + further for further in other.sensitivities)
            masses.extend(probability * further for further in other.probabilities)
        return Shift.of(values, masses).trimmed()

    def trimmed(self) -> Shift:
        """Moves the upper tail's mass to the largest sensitivity: fewer atoms, and never a smaller ε."""
        probabilities = np.asarray(self.probabilities)
        above = np.cumsum(probabilities[::-1])[::-1]
        keep = int(np.searchsorted(-above, -_TAIL, side="right"))  # atoms whose upper mass exceeds the tail
        if keep >= len(probabilities) - 1:
            return self
        values = (*self.sensitivities[:keep], self.sensitivities[-1])
        return Shift.of(values, (*self.probabilities[:keep], float(above[keep])))


def sampled_gaussian(sampling_probability: float, sensitivity: float = 1.0) -> Shift:
    """The Poisson-subsampled Gaussian; at q = 1 the plain Gaussian."""
    return Shift.of((0.0, sensitivity), (1.0 - sampling_probability, sampling_probability))


@dataclass(frozen=True)
class Turned(Shift):
    """One coin in both neighbours. ``sensitivities``: (0, b), b how far what a drawn unit releases may move."""

    @classmethod
    def by(cls, q: float, moved: float) -> Shift:
        """The shift for the coin's probability ``q``; at q = 1 the Gaussian of sensitivity ``moved``."""
        return sampled_gaussian(1.0, moved) if q >= 1.0 else cls((0.0, moved), (1.0 - q, q))


@dataclass(frozen=True)
class Told(Shift):
    """Shifts that are drawn apart from the unit. The sensitivities and probabilities are those over all draws.

    ``parts``: (probability, releases, shift); a draw may decide over several releases with that shift.
    """

    parts: tuple[tuple[float, int, Shift], ...]

    @classmethod
    def among(cls, parts: Iterable[tuple[float, int, Shift]]) -> Shift:
        """Of (probability, releases, shift); one release that is certain is no draw."""
        drawn = tuple((float(weight), steps, shift) for weight, steps, shift in parts if weight > 0)
        if len(drawn) == 1 and drawn[0][1] == 1:
            return drawn[0][2]
        atoms = [
            (value, weight * p)
            for weight, _, shift in drawn
            for value, p in zip(shift.sensitivities, shift.probabilities, strict=True)
        ]
        whole = Shift.of((value for value, _ in atoms), (p for _, p in atoms))
        return cls(whole.sensitivities, whole.probabilities, drawn)


@dataclass(frozen=True)
class Joined(Shift):
    """The worst of several series of releases. ``parts``: (noise over the common noise, releases, shift)."""

    parts: tuple[tuple[float, int, Shift], ...]


def single_steps(sigma: float, shift: Shift) -> list[tuple[float, Shift]]:
    """Noise and shift of each step that a joined series is made of; of any other shift itself."""
    if not isinstance(shift, Joined):
        return [(sigma, shift)]
    return [(sigma * ratio, part) for ratio, _, part in shift.parts]


def known_coin(shift: Shift) -> Shift:
    """The shift to somebody who knows whether the coin of a sampled (or turned) unit said yes."""
    still = Shift((0.0,), (1.0,))
    atoms = zip(shift.sensitivities, shift.probabilities, strict=True)
    return Told.among((p, 1, still if value == 0.0 else sampled_gaussian(1.0, value)) for value, p in atoms)
