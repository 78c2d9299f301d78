"""The counterexample to joint noise over several local steps: its variances, its bounds, and where the claim holds."""

import math

import numpy as np
import pytest

from subjectdp.auditing import counterexample
from subjectdp.auditing.counterexample import Case, demonstrate, releases
from subjectdp.figures.measured import CASE_COLUMNS

RUNS = 20_000


def variance_is(sample: np.ndarray, variance: float) -> bool:
    """Within 4.5 standard errors, and a thousandth for the other silos' mini-batches of finite size."""
    return abs(sample.var() / variance - 1.0) < 4.5 * math.sqrt(2.0 / len(sample)) + 1e-3


@pytest.mark.parametrize(
    ("case", "remaining", "claimed"),
    [
        (Case(10, 1, 0.1, 0.690), 4.76, 4.76),
        (Case(10, 10, 0.1, 0.902), 15.46, 81.4),
        (Case(3, 20, 1.0, 2.0), 88.0, 240.0),
    ],
)
def test_the_noise_of_the_other_silos_is_gone(case: Case, remaining: float, claimed: float) -> None:
    """Numbers worked out by hand: σ²(S+N-1) is left of σ²NS; with one local step nothing is lost."""
    absent = releases(case, False, RUNS)
    assert case.remaining_variance == pytest.approx(remaining, rel=1e-3)
    assert case.claimed_variance == pytest.approx(claimed, rel=1e-3)
    assert variance_is(absent, remaining)
    assert variance_is(absent, claimed) == (case.local_steps == 1)
    assert abs(absent.mean()) < 4.5 * math.sqrt(remaining / RUNS)


def test_the_target_adds_its_clip_norm_in_every_step_that_samples_it() -> None:
    case = Case(4, 30, 0.2, 1.0)
    present = releases(case, True, RUNS)
    variance = case.remaining_variance + 30 * 0.2 * 0.8
    assert present.mean() == pytest.approx(6.0, abs=4.5 * math.sqrt(variance / RUNS))
    assert variance_is(present, variance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "claims"),
    [
        (Case(10, 1, 0.1, 0.690), (0.64, 0.311, 0.311, 3.67)),
        (Case(10, 10, 0.1, 0.902), (0.72, 0.476, 1.50, 3.53)),
        (Case(10, 50, 0.1, 1.179), (1.03, 0.744, 2.75, 3.79)),
        (Case(5, 50, 0.1, 1.179), (1.55, 1.14, 2.92, 3.79)),
    ],
)
def test_what_is_claimed_and_what_is_released(case: Case, claims: tuple[float, ...]) -> None:
    """Claims as Table 1 of the paper has them; the others computed independently of this library."""
    row = demonstrate(case, 400)
    for name, claim in zip(("claimed", "claimed_tight", "released", "own_noise"), claims, strict=True):
        assert row[f"epsilon_{name}"] == pytest.approx(claim, abs=0.005 if name == "claimed_tight" else 0.006)


@pytest.mark.slow
def test_the_claim_is_refuted_for_many_steps_and_each_silos_own_noise_is_not() -> None:
    outcome = demonstrate(Case(10, 50, 1.0, 6.0), RUNS)
    assert outcome["lower_bound"] > outcome["epsilon_claimed"] + 0.3 > outcome["epsilon_claimed_tight"]
    assert outcome["lower_bound"] < outcome["epsilon_released"] < outcome["epsilon_own_noise"]
    assert outcome["true_positive_rate"] > 5 * outcome["false_positive_rate"]


def test_one_local_step_refutes_nothing() -> None:
    outcome = demonstrate(Case(10, 1, 1.0, 2.0), RUNS)
    assert outcome["lower_bound"] < outcome["epsilon_claimed_tight"]
    assert outcome["epsilon_released"] == pytest.approx(outcome["epsilon_claimed_tight"], rel=1e-3)


def test_if_the_noise_were_joint_the_attack_would_stay_below_the_claim() -> None:
    """Power of the refutation: with the claimed variance in the release, the same attack proves less than the claim."""
    case = Case(10, 50, 1.0, 6.0)
    random = np.random.default_rng(0)
    cut = counterexample.threshold(case, RUNS)
    absent = random.normal(0.0, math.sqrt(case.claimed_variance), RUNS)
    hits, alarms = int((absent + 50 > cut).sum()), int((absent > cut).sum())
    bound = counterexample.counts_epsilon(hits, RUNS, alarms, RUNS, counterexample.DELTA)
    assert bound < counterexample.claimed_epsilon(case)[1]


def test_the_table_has_the_columns_that_the_figure_reads() -> None:
    table = counterexample.table([Case(2, 2, 1.0, 2.0)], runs=400)
    assert set(CASE_COLUMNS) <= set(table.columns)
