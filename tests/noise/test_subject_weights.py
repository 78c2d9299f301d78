"""Budgets of subjects over silos: never beyond 1, to the bit; what each rule maximises; nobody else's business."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from subjectdp.errors import PrivacyError
from subjectdp.noise.subject_weights import budget_weights, check_budget, clip_norms, moved_at_one_silo, reach
from subjectdp.plan.plan import BudgetWeights, TrustModel

LOCAL, SUMMED = TrustModel.LOCAL, TrustModel.SECURE_AGGREGATION
RULES = list(BudgetWeights)
TRUSTS = list(TrustModel)


def counts_of(seed: int, silos: int = 5, subjects: int = 40) -> NDArray[np.int64]:
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 30, (silos, subjects)) * (generator.random((silos, subjects)) < 0.6)
    counts[:, 0] = 0  # in the partition, but with nothing left at any silo
    counts[:, 1], counts[2, 1] = 0, 7  # at one silo only
    return counts.astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(RULES), st.sampled_from(TRUSTS), st.floats(1e-4, 1e3))
def test_no_subject_has_more_than_its_budget_to_the_bit(
    seed: int, rule: BudgetWeights, trust: TrustModel, clip: float
) -> None:
    """Exact rational arithmetic on the float32 bounds that the engine is given."""
    weights = budget_weights(counts_of(seed), rule, trust, 5)
    for column in clip_norms(weights, clip).T:
        parts = [Fraction(float(value)) for value in column]
        used = sum(part * part for part in parts) if trust is LOCAL else sum(parts)
        assert used <= (Fraction(clip) ** 2 if trust is LOCAL else Fraction(clip))


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("rule", RULES)
def test_the_budget_is_used_where_a_silo_holds_the_subject(rule: BudgetWeights, trust: TrustModel) -> None:
    counts = counts_of(1)
    weights = budget_weights(counts, rule, trust, 5)
    assert np.all(weights[counts == 0] == 0)
    assert np.all(weights[counts > 0] > 0)
    used = (weights**2 if trust is LOCAL else weights).sum(axis=0)
    held = (counts > 0).sum(axis=0)
    expected = held / 5 if rule is BudgetWeights.FIXED else np.minimum(held, 1)
    np.testing.assert_allclose(used, expected, rtol=1e-12)


def test_values_of_the_simple_rules() -> None:
    counts = np.array([[3], [0], [1]])
    cases = {
        (BudgetWeights.UNIFORM, LOCAL): [2**-0.5, 0, 2**-0.5],
        (BudgetWeights.UNIFORM, SUMMED): [0.5, 0, 0.5],
        (BudgetWeights.PROPORTIONAL, LOCAL): [3 / 10**0.5, 0, 1 / 10**0.5],
        (BudgetWeights.PROPORTIONAL, SUMMED): [0.75, 0, 0.25],
        (BudgetWeights.FIXED, LOCAL): [0.5, 0, 0.5],
        (BudgetWeights.FIXED, SUMMED): [0.25, 0, 0.25],
    }
    for (rule, trust), expected in cases.items():
        found = budget_weights(counts, rule, trust, 4)[:, 0]
        np.testing.assert_allclose(found, expected, err_msg=f"{rule}, {trust}")
    assert reach(LOCAL, 16) == 4.0
    assert reach(SUMMED, 16) == reach(TrustModel.CENTRAL, 16) == 1.0


@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("rule", RULES)
def test_a_subject_decides_over_nobody_elses_weights(rule: BudgetWeights, trust: TrustModel) -> None:
    """What the guarantee rests on: without a subject, all other subjects are clipped as before."""
    counts = counts_of(3)
    before = budget_weights(counts, rule, trust, 5)
    for subject in range(counts.shape[1]):
        after = budget_weights(np.delete(counts, subject, axis=1), rule, trust, 5)
        assert np.array_equal(np.delete(before, subject, axis=1), after)


@pytest.mark.parametrize("trust", [LOCAL, SUMMED])
@pytest.mark.parametrize("rule", RULES)
def test_a_subject_that_leaves_one_silo_moves_no_more_than_is_stated(rule: BudgetWeights, trust: TrustModel) -> None:
    """Everybody's gradient as long as its bound, and in one direction; then the worst counts of all."""
    generator = np.random.default_rng(4)
    stated = moved_at_one_silo(rule, trust, 6)
    most = 0.0
    for trial in range(400):
        column = np.floor(10 ** generator.uniform(0, 7, 6)).astype(np.int64) * (generator.random(6) < 0.5)
        silo = int(generator.integers(6))
        column[silo] = max(1, column[silo]) if trial % 2 else 10**8
        left = column.copy()
        left[silo] = 0
        before, after = (budget_weights(c[:, None], rule, trust, 6)[:, 0] for c in (column, left))
        change = np.abs(before - after)
        most = max(most, float(np.linalg.norm(change) if trust is LOCAL else change.sum()))
    assert most <= stated + 1e-12
    assert most > 0.99 * stated


def test_weights_beyond_the_budget_are_refused() -> None:
    check_budget(np.array([[0.6], [0.8]]), LOCAL)
    beyond = [(0.6, 0.8, SUMMED, r"at most 1, got 1\.4"), (0.7, 0.8, LOCAL, "at most 1"), (-0.1, 0.2, LOCAL, "budget")]
    for one, other, trust, told in beyond:
        with pytest.raises(PrivacyError, match=told):
            check_budget(np.array([[one], [other]]), trust)
    with pytest.raises(PrivacyError, match="silos of one subject"):
        budget_weights(np.ones((3, 2), np.int64), BudgetWeights.FIXED, LOCAL, 2)
