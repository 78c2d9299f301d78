"""Privacy events: every mechanism of the library as a composition of mixtures of Gaussians.

One noisy step moves the sum by j clip norms with probability p_j (because of sampling) and adds Gaussian noise, so the
pair N(0, σ²) against Σ_j p_j N(s_j, σ²) dominates it (Charles et al., arXiv 2407.07737; vector shifts are dominated by
their norms, Choquette-Choo et al., arXiv 2310.15526, corollary 4.7). Sensitivities and standard deviations are in units
of the clip norm. How far a step moves a sum is a distribution, of one of four kinds.

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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import Clipping, NoiseDistribution, PrivacyUnit, SamplingMethod

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

_TAIL = 1e-24  # probability that may be moved up to the largest sensitivity: of 1e8 steps' a thousandth of δ = 1e-12

MOST_ITEMS = 1_000_000  # of a subject at a silo whose counts are told apart: beyond, its ε is in the billions


@dataclass(frozen=True)
class Shift:
    """The distribution of one step's sensitivity: values ascending, probabilities summing to one."""

    sensitivities: tuple[float, ...]
    probabilities: tuple[float, ...]

    @classmethod
    def of(cls, sensitivities: Iterable[float], probabilities: Iterable[float]) -> Shift:
        """Sorts the atoms, merges equal ones, drops those of probability 0 and normalises the sum to exactly 1. The
        upper tail's mass moves to the largest sensitivity: fewer atoms, and never a smaller ε.
        Raises PrivacyError when a probability or sensitivity is negative or the sum is not one."""
        mass: dict[float, float] = {}
        for value, probability in zip(sensitivities, probabilities, strict=True):
            if value < 0 or probability < 0:
                raise expected("sensitivity and probability", (value, probability), "non-negative", PrivacyError)
            mass[float(value)] = mass.get(float(value), 0.0) + float(probability)
        total = sum(mass.values())
        if abs(total - 1.0) > 1e-9:
            raise expected("sum of the sampling probabilities", total, "1", PrivacyError)
        values, masses = zip(*sorted((value, p / total) for value, p in mass.items() if p > 0), strict=True)
        above = np.cumsum(masses[::-1])[::-1]
        keep = int(np.searchsorted(-above, -_TAIL, side="right"))  # atoms whose upper mass exceeds the tail
        if keep < len(values) - 1:
            values, masses = (*values[:keep], values[-1]), (*masses[:keep], float(above[keep]))
        return cls(values, masses)

    def convolve(self, other: Shift) -> Shift:
        """The distribution of the sum of two independent shifts (a subject at two silos, one joint noise).
        PrivacyError for those on a coin: the sum of their atoms is no bound for them."""
        if type(self) is not Shift or type(other) is not Shift:
            raise PrivacyError("No bound is known for a sum of shifts that rest on a coin.")
        values = [value + further for value in self.sensitivities for further in other.sensitivities]
        masses = [probability * further for probability in self.probabilities for further in other.probabilities]
        return Shift.of(values, masses)


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


Series = tuple[tuple[float, int, Shift], ...]  # noise over the common noise, releases with it, shift


@dataclass(frozen=True)
class Told(Shift):
    """Series of releases, one of which is drawn apart from the unit; the atoms are those over all draws."""

    parts: tuple[tuple[float, Series], ...]  # (probability, series)

    @classmethod
    def among(cls, parts: Iterable[tuple[float, Series]]) -> Shift:
        """Of (probability, series); one release that is certain is no draw."""
        drawn = tuple((float(weight), series) for weight, series in parts if weight > 0)
        if len(drawn) == 1 and [each[:2] for each in drawn[0][1]] == [(1.0, 1)]:
            return drawn[0][1][0][2]
        shifts = [(weight / len(series), shift) for weight, series in drawn for _, _, shift in series]
        values = (value for _, shift in shifts for value in shift.sensitivities)
        whole = Shift.of(values, (weight * p for weight, shift in shifts for p in shift.probabilities))
        return cls(whole.sensitivities, whole.probabilities, drawn)


@dataclass(frozen=True)
class Joined(Shift):
    """The worst of several series of equal releases, each a part."""

    parts: Series


def single_steps(sigma: float, shift: Shift) -> list[tuple[float, Shift]]:
    """Noise and shift of each step that a joined series is made of; of any other shift itself."""
    if not isinstance(shift, Joined):
        return [(sigma, shift)]
    return [(sigma * ratio, part) for ratio, _, part in shift.parts]


def known_coin(shift: Shift) -> Shift:
    """The shift to somebody who knows whether the coin of a sampled (or turned) unit said yes."""
    still = Shift((0.0,), (1.0,))
    atoms = zip(shift.sensitivities, shift.probabilities, strict=True)
    return Told.among((p, ((1.0, 1, sampled_gaussian(1.0, value) if value > 0 else still),)) for value, p in atoms)


@dataclass(frozen=True)
class MixtureSteps:
    """``steps`` adaptively composed steps of a mixture-of-Gaussians mechanism."""

    noise_multiplier: float
    shift: Shift
    steps: int


PrivacyLoss = tuple[MixtureSteps, ...]


def merged(loss: Iterable[MixtureSteps]) -> PrivacyLoss:
    """Adds up the steps of identical mechanisms, so that sixteen equal silos are computed once."""
    counts: dict[tuple[float, Shift], int] = {}
    for part in loss:
        key = (part.noise_multiplier, part.shift)
        counts[key] = counts.get(key, 0) + part.steps
    return tuple(MixtureSteps(sigma, shift, steps) for (sigma, shift), steps in counts.items())


def with_noise(loss: PrivacyLoss, noise_multiplier: float) -> PrivacyLoss:
    """The same steps with one common noise multiplier."""
    return tuple(replace(part, noise_multiplier=noise_multiplier) for part in loss)


def subject_sampling_probability(sampling_probability: float, items: int | float) -> float:
    """q_s = 1 - (1 - q)^k: the chance that Poisson sampling takes at least one of k items."""
    if sampling_probability >= 1.0:
        return 1.0
    return float(-np.expm1(items * np.log1p(-sampling_probability)))


def participation(sampling: SamplingMethod, q: float, k: int, items: int) -> list[float]:
    """P(j of a unit's ``k`` items are in the batch), j = 0..k: binomial, or hypergeometric for a fixed size q·items.
    Each is right to 1e-12 of itself, and so is what it adds to ε: none is rounded at the cost of another."""
    if k > MOST_ITEMS:
        raise expected("items of a subject at a silo", k, f"at most {MOST_ITEMS:,}, by a cap", PrivacyError)
    if sampling is SamplingMethod.POISSON:
        from scipy import stats

        return [float(p) for p in stats.binom.pmf(np.arange(k + 1), k, q)]
    batch, own = fixed_batch_size(q, items), min(k, items)
    others = items - own
    counts = np.arange(max(0, batch - others), min(own, batch) + 1.0)  # those that may be
    before = counts[:-1]  # p_(j+1)/p_j: scipy's law is off by 1e-8 of itself where a silo has 1e8 items
    ratios = (own - before) * (batch - before) / ((before + 1) * (others - batch + before + 1))
    logs = np.cumsum(np.append(0.0, np.log(ratios)))
    masses = np.zeros(k + 1)
    masses[counts.astype(int)] = np.exp(logs - logs.max())
    return [float(p) for p in masses / masses.sum()]


def fixed_batch_size(q: float, items: int) -> int:
    """B = q·items, a whole number of items. Raises ConfigError where it is none (to 0.01) or not in 1..items."""
    batch = round(q * items)
    if not 1 <= batch <= items or abs(q * items - batch) > 0.01:
        allowed = f"a whole number of items from 1 to {items} (B = sampling probability times items)"
        raise expected("fixed batch size", q * items, allowed)
    return batch


def unit_shift(clipping: Clipping, unit: PrivacyUnit, sampling: SamplingMethod, q: float, k: int, items: int) -> Shift:
    """How far one unit of one silo moves that silo's un-noised sum in one release; PrivacyError where no bound exists.

    Poisson sampling is for add/remove and zero-out adjacency. A fixed-size batch B is compared with the batch of B
    other items that the neighbour would draw: j own items in, j others out (Ganesh, arXiv 2401.10294).

    Args:
        clipping: what is clipped. An update (PER_UPDATE) is one of one mini-batch here; :func:`update_shift` has more.
        unit, sampling: the privacy unit, and how mini-batches are drawn.
        q: sampling probability of an item, or of a subject where subjects are sampled.
        k: most items of one subject at the silo; not read where subjects are sampled.
        items: items of the silo; read for fixed batches only.
    """
    if clipping is Clipping.NONE:
        raise expected("clipping", str(clipping), "a rule that bounds a unit's contribution", PrivacyError)
    if unit is PrivacyUnit.SILO:
        if clipping not in (Clipping.PER_BATCH, Clipping.PER_UPDATE):
            raise PrivacyError(
                f"Silo-level privacy needs clipping of the whole mini-batch or update, got {str(clipping)!r}: a "
                "silo's other contributions are not bounded by a constant."
            )
        return sampled_gaussian(1.0, 2.0)
    if sampling is SamplingMethod.POISSON_SUBJECTS:
        if clipping not in (Clipping.PER_SUBJECT, Clipping.PER_SUBJECT_UPDATE):
            what = "clipping where subjects are sampled"
            raise expected(what, str(clipping), "that of a subject's whole part", PrivacyError)
        # a sampled subject moves the sum by at most C; an item may reverse its subject's part, on the same coin
        return sampled_gaussian(q) if unit is PrivacyUnit.SUBJECT else Turned.by(q, 2.0)
    if clipping is Clipping.PER_UPDATE:
        return update_shift(unit, sampling, q, k, items, local_steps=1)
    own = k if unit is PrivacyUnit.SUBJECT else 1
    if clipping is Clipping.PER_SUBJECT and own < k and sampling is SamplingMethod.POISSON:
        # alone it adds its subject's clipped mean (C), beside others it may reverse it; their coins are not its own
        beside = subject_sampling_probability(q, k - 1)
        alone, turned = (((1.0, 1, sampled_gaussian(q, moved)),) for moved in (1.0, 2.0))
        return Told.among(((1 - beside, alone), (beside, turned)))
    # in the same digits as a claim's loss, so that both are accounted once
    if own == 1 and sampling is SamplingMethod.POISSON:
        return sampled_gaussian(q, _moved(clipping, sampling, unit, 1, k))
    moved = (_moved(clipping, sampling, unit, j, k) for j in range(own + 1))
    return Shift.of(moved, participation(sampling, q, own, items))


def update_shift(unit: PrivacyUnit, sampling: SamplingMethod, q: float, k: int, items: int, local_steps: int) -> Shift:
    """How far an item or a subject moves a silo's clipped update of ``local_steps`` mini-batches (else
    :func:`unit_shift`).

    If any of the mini-batches holds it, the update moves by up to 2C (its direction may reverse), otherwise not at all.
    Fixed mini-batches have none of a unit's items with the hypergeometric probability of 0.
    """
    own = k if unit is PrivacyUnit.SUBJECT else 1
    if sampling is SamplingMethod.POISSON:
        return sampled_gaussian(subject_sampling_probability(q, own * local_steps), 2.0)
    missed = participation(sampling, q, own, items)[0]
    return sampled_gaussian(subject_sampling_probability(1.0 - missed, local_steps), 2.0)


def _moved(clipping: Clipping, sampling: SamplingMethod, unit: PrivacyUnit, j: int, k: int) -> float:
    """The largest change of the sum, in clip norms, when j items of the unit are in the batch."""
    if j == 0:
        return 0.0
    if clipping is Clipping.PER_BATCH:
        return 2.0
    fixed = sampling is SamplingMethod.FIXED_BATCH_SIZE
    if clipping is Clipping.PER_ITEM:
        return 2.0 * j if fixed else float(j)
    if clipping is Clipping.PER_ITEM_SUBJECT_MEAN:
        # The unit's own mean moves by at most C. Each of the j items that it displaces moves its subject's mean by at
        # most C: the mean vanishes (C), or a mean of n >= 2 items loses r of them (2rC/n <= rC).
        return 1.0 + j if fixed else 1.0
    # PER_SUBJECT: a clipped mean of others may reverse (2C) when an item joins or leaves.
    own = 1.0 if unit is PrivacyUnit.SUBJECT or k == 1 else 2.0
    return own + 2.0 * j if fixed else own


def dp_event(loss: PrivacyLoss) -> DpEvent:
    """The loss as a dp-accounting event, for other accountants and for the manifest."""
    from dp_accounting import dp_event as events

    if any(type(part.shift) is not Shift for part in loss):
        raise PrivacyError("dp-accounting has no event for a coin that both neighbours share.")
    if any(part.noise_multiplier <= 0 for part in loss):
        return events.NonPrivateDpEvent()
    parts = [_step_event(part, events) for part in loss]
    return parts[0] if len(parts) == 1 else events.ComposedDpEvent(parts)


def _step_event(part: MixtureSteps, events: Any) -> Any:
    if part.steps != 1:
        return events.SelfComposedDpEvent(_step_event(replace(part, steps=1), events), part.steps)
    values, weights = part.shift.sensitivities, part.shift.probabilities
    if values == (0.0,):
        return events.NoOpDpEvent()
    if len(values) > 2 or (len(values) == 2 and values[0] > 0.0):
        return events.MixtureOfGaussiansDpEvent(part.noise_multiplier, list(values), list(weights))
    gaussian = events.GaussianDpEvent(part.noise_multiplier / values[-1])
    return gaussian if len(values) == 1 else events.PoissonSampledDpEvent(weights[1], gaussian)


_MOST_ATOMS = 64  # that are written out
_GAUSSIAN = "mixture of Gaussians"
_SKELLAM = "mixture of shifted Skellam noises, each diverging at most as the Gaussian at every integer order"


def recorded(loss: PrivacyLoss, noise: NoiseDistribution) -> list[dict[str, Any]]:
    """The loss in full where it is small, else without its atoms; JSON-able."""
    kept = _atoms(loss) <= _MOST_ATOMS
    law = _SKELLAM if noise is NoiseDistribution.SKELLAM else _GAUSSIAN

    def record(part: MixtureSteps) -> dict[str, Any]:
        shift, values = part.shift, list(part.shift.sensitivities)
        return {
            "mechanism": law if type(shift) is Shift else f"{law}, {type(shift).__name__.lower()}",
            "noise_multiplier": part.noise_multiplier,
            "steps": part.steps,
            "sensitivities": values if kept else f"{len(values)} atoms",
            "probabilities": list(shift.probabilities) if kept else None,
        }

    return [record(part) for part in loss]


def recorded_loss(record: Any) -> PrivacyLoss | None:
    """The loss of a manifest's ``event`` with Gaussian noise; None if it is not whole, or not the only one."""
    if not isinstance(record, list) or len(record) != 1:
        return None
    if any(part["probabilities"] is None or part["mechanism"] != _GAUSSIAN for part in record[0]):
        return None

    def read(part: Any) -> MixtureSteps:
        shift = Shift(tuple(part["sensitivities"]), tuple(part["probabilities"]))
        return MixtureSteps(part["noise_multiplier"], shift, part["steps"])

    return tuple(map(read, record[0]))


def recorded_event(loss: PrivacyLoss, noise: NoiseDistribution) -> str | None:
    """The loss as the text of a dp-accounting event, for add/remove adjacency; its classes are in ``dp_event``.
    None for noise that is not Gaussian, and for a loss with many atoms or on coins."""
    plain = noise is NoiseDistribution.GAUSSIAN and all(type(part.shift) is Shift for part in loss)
    return repr(dp_event(loss)) if plain and _atoms(loss) <= _MOST_ATOMS else None


def _atoms(loss: PrivacyLoss) -> int:
    return sum(len(part.shift.sensitivities) for part in loss)
