"""How a subject's budget is split over the silos that hold it: w_{a,i} is the subject's clip norm at silo i over C.

A subject a adds at most w_{a,i} C to the sum of silo i in one round. An observer who sees every silo's noisy sum (noise
std σC each) sees the vector of all sums; the subject moves it by at most √(Σ_i w²) C. With Σ_i w_{a,i}² ≤ 1 the silos'
releases together are one Gaussian release of noise multiplier σ. If only the sum over silos is seen, the lengths of the
contributions add up, and Σ_i w_{a,i} ≤ 1 is needed (ULDP-FL, Kato et al., arXiv 2308.12210). A subject's weights depend
on its own numbers of items and on public constants only, so adding or removing a subject changes no other weights.
"""

import math

import numpy as np
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import BudgetWeights, TrustModel

Weights = NDArray[np.float64]


def budget_weights(counts: NDArray[np.int64], rule: BudgetWeights, trust: TrustModel, most_silos: int) -> Weights:
    """w (silos, subjects) float64 within the budget; 0 where a silo holds no item of a subject.

    ``counts`` (silos, subjects) are items; Σw² ≤ 1 under LOCAL trust, otherwise Σw ≤ 1; ``most_silos`` is the public
    bound on a subject's silos. PrivacyError for a subject at more of them, or weights beyond the budget.
    """
    held = counts > 0
    if (most := int(held.sum(axis=0).max(initial=0))) > most_silos:
        raise expected("silos of one subject", most, f"at most {most_silos}, the plan's bound", PrivacyError)
    shares = (counts if rule is BudgetWeights.PROPORTIONAL else held).astype(np.float64)
    norm = np.full(counts.shape[1], float(most_silos))
    squared = trust is TrustModel.LOCAL
    if rule is not BudgetWeights.FIXED:
        norm = (shares**2 if squared else shares).sum(axis=0)
    weights: Weights = np.divide(shares, np.sqrt(norm) if squared else norm, out=np.zeros_like(shares), where=held)
    check_budget(weights, trust)
    return weights


def check_budget(weights: Weights, trust: TrustModel) -> None:
    """Raises PrivacyError if a subject's weights (silos, subjects) are negative or exceed the budget of 1."""
    used = (weights**2 if trust is TrustModel.LOCAL else weights).sum(axis=0)
    if not (np.all(weights >= 0) and np.all(used <= 1 + 1e-12)):
        raise expected("budget of a subject over its silos", float(used.max(initial=0)), "at most 1", PrivacyError)


def clip_norms(weights: Weights, clip_norm: float) -> NDArray[np.float32]:
    """w C as float32, rounded down, so that rounding never exceeds a subject's budget."""
    exact = weights * (clip_norm * (1.0 - 2.0**-39))  # covers the rounding of the weights themselves
    near = exact.astype(np.float32)
    above = near.astype(np.float64) > exact
    return np.where(above, np.nextafter(near, np.float32(0.0)), near).astype(np.float32)


def moved_at_one_silo(rule: BudgetWeights, trust: TrustModel, most_silos: int) -> float:
    """How far removing a subject's items at *one* silo moves the release, in clip norms; its other items stay.

    The subject may get larger weights at its other silos, so this is no special case of leaving all. With weights w
    before and w' after (equal elsewhere only if the rule is ``fixed``), the vector of all sums moves by at most √(w_i²
    + Σ (w'_j - w_j)²), and the sum over silos by at most w_i + Σ (w'_j - w_j), since each gradient keeps its direction.
    For ``fixed`` this is one weight; for ``uniform`` at most 1 (a single silo). With a share s of the budget at the
    silo it is √(2 - 2√(1 - s)) for squares and 2s for lengths; s may be close to 1 for ``proportional``.
    """
    side_by_side = trust is TrustModel.LOCAL
    if rule is BudgetWeights.FIXED:
        return 1.0 / (math.sqrt(most_silos) if side_by_side else most_silos)
    if rule is BudgetWeights.UNIFORM or most_silos == 1:
        return 1.0
    return math.sqrt(2.0) if side_by_side else 2.0


def reach(trust: TrustModel, most_silos: int) -> float:
    """Σ_i w_i of a subject spread evenly over ``most_silos``: the most it adds to the silos' sum, in clip norms."""
    return float(np.sqrt(most_silos)) if trust is TrustModel.LOCAL else 1.0
