"""The rule of the scorecard: every branch, its edges, and that no order of arguments changes it."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectdp.scorecard.targets import Kind, Setting, Target
from subjectdp.scorecard.verdicts import Measured, Verdict, judge

SETTING = Setting("femnist", 3500, 16, 1.0, 100, 512, "epoch", "rounds_over_sqrt_s", 4.0, 1e-5)
VALUE = Target(
    id="t",
    paper="v1",
    place="section 4.1",
    statement="words",
    kind=Kind.VALUE,
    metric="test_accuracy",
    setting=SETTING,
    versus_setting=SETTING,
    algorithm="local_item_dp",
    printed=78.0,
    tolerance=2.0,
)
ORDER = replace(VALUE, kind=Kind.ORDER, versus=("fed_avg",), printed=math.nan, tolerance=math.nan)
CLAIM = replace(VALUE, kind=Kind.CLAIM, metric="epsilon", printed=4.0, tolerance=0.005)
BOUND = replace(VALUE, kind=Kind.BOUND, metric="excess_loss", printed=math.nan, tolerance=math.nan)
BELOW = replace(VALUE, kind=Kind.BELOW, printed=50.0, tolerance=0.0)


def ours(low: float, high: float, **more: object) -> Measured:
    mean = (low + high) / 2
    return replace(Measured(mean, low, high, 3, "here"), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "measured", "verdict"),
    [
        (VALUE, ours(76.5, 79.5), Verdict.REPRODUCED),
        (VALUE, ours(76.0, 80.0), Verdict.REPRODUCED),
        (VALUE, ours(75.9, 79.0), Verdict.NOT_AT_THIS_SCALE),
        (VALUE, ours(60.0, 90.0), Verdict.NOT_AT_THIS_SCALE),
        (VALUE, ours(70.0, 75.9), Verdict.DIFFERS),
        (VALUE, ours(80.1, 81.0), Verdict.DIFFERS),
        (VALUE, ours(76.5, 79.5, at_setting=False), Verdict.NOT_AT_THIS_SCALE),
        (VALUE, ours(76.5, 79.5, synthetic=True), Verdict.NOT_AT_THIS_SCALE),
        (VALUE, ours(math.nan, math.nan), Verdict.NOT_AT_THIS_SCALE),
        (VALUE, None, Verdict.NOT_RUN),
        (BELOW, ours(40.0, 49.9), Verdict.REPRODUCED),
        (BELOW, ours(50.0, 52.0), Verdict.DIFFERS),
        (BELOW, ours(45.0, 55.0), Verdict.NOT_AT_THIS_SCALE),
        (ORDER, ours(0.1, 8.0), Verdict.REPRODUCED),
        (ORDER, ours(0.1, 8.0, at_setting=False), Verdict.REPRODUCED),
        (ORDER, ours(0.1, 8.0, synthetic=True), Verdict.NOT_AT_THIS_SCALE),
        (ORDER, ours(-8.0, -0.1, at_setting=False), Verdict.DIFFERS),
        (ORDER, ours(-1.0, 8.0), Verdict.NOT_AT_THIS_SCALE),
        (ORDER, ours(math.nan, math.nan), Verdict.NOT_AT_THIS_SCALE),
        (CLAIM, ours(3.997, 3.997, synthetic=True, at_setting=False), Verdict.REPRODUCED),
        (CLAIM, ours(4.1, 4.1, epsilon_lower=4.1), Verdict.REFUTED),
        (CLAIM, ours(4.1, 4.1), Verdict.NOT_PROVABLE),
        (CLAIM, ours(9.0, 9.0, epsilon_lower=3.9), Verdict.NOT_PROVABLE),
        (CLAIM, Measured(math.inf, math.inf, math.inf, 0, "here"), Verdict.NOT_PROVABLE),
        (CLAIM, Measured(math.inf, math.inf, math.inf, 0, "here", epsilon_lower=5.0), Verdict.REFUTED),
        (BOUND, ours(-3.0, -0.1, synthetic=True), Verdict.REPRODUCED),
        (BOUND, ours(-3.0, -0.1, cannot_fail=True), Verdict.CANNOT_FAIL),
        (BOUND, ours(0.1, 2.0), Verdict.REFUTED),
        (BOUND, ours(-0.1, 0.1), Verdict.NOT_AT_THIS_SCALE),
        (BOUND, ours(math.nan, math.nan), Verdict.NOT_AT_THIS_SCALE),
    ],
)
def test_the_rule(target: Target, measured: Measured | None, verdict: Verdict) -> None:
    found, reason = judge(target, measured)
    assert found is verdict
    assert reason


@given(st.floats(0, 100), st.floats(0, 30), st.booleans(), st.booleans())
def test_only_real_runs_at_the_papers_setting_compare_numbers(
    mean: float, half: float, at_setting: bool, synthetic: bool
) -> None:
    """And then a narrower interval around the same mean never turns one decision into the other."""
    wide = judge(VALUE, ours(mean - half, mean + half, at_setting=at_setting, synthetic=synthetic))[0]
    narrow = judge(VALUE, ours(mean - half / 2, mean + half / 2, at_setting=at_setting, synthetic=synthetic))[0]
    if synthetic or not at_setting:
        assert wide is narrow is Verdict.NOT_AT_THIS_SCALE
    elif wide is not Verdict.NOT_AT_THIS_SCALE:
        assert narrow is wide
