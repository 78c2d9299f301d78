"""Where a search, a rule or a choice may err, it errs towards more noise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from accounting.plans import HIGRAD_V1, SUBJECT, plan
from subjectdp.accounting.calibration import calibrate_noise_multiplier
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, with_noise
from subjectdp.accounting.published import group_target
from subjectdp.accounting.shifts import sampled_gaussian
from subjectdp.accounting.sound import unit_epsilon

LOSS = (MixtureSteps(1.0, sampled_gaussian(0.02), 500),)
DELTA = 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.998, 0.9995, 0.9, 1.002, 1.5])
def test_a_guess_on_the_unsafe_side_is_not_taken(factor: float) -> None:
    """A guess whose ε is a little above the target, by the accountant that evaluates it at full accuracy at once."""
    enough = calibrate_noise_multiplier(LOSS, 2.0, DELTA, "rdp")
    found = calibrate_noise_multiplier(LOSS, 2.0, DELTA, "rdp", guess=enough * factor)
    assert 0.99 * 2.0 <= epsilon_of(with_noise(LOSS, found), DELTA, "rdp") <= 2.0


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_group_privacy_of_the_groups_target_is_the_target(size: int) -> None:
    """Z times (ε/Z, δ') is (ε, Z e^((Z-1)ε/Z) δ')."""
    share, log_delta = group_target(4.0, DELTA, size)
    assert size * share == pytest.approx(4.0, rel=1e-12)
    assert size * math.exp((size - 1) * share) * math.exp(log_delta) == pytest.approx(DELTA, rel=1e-9)


def test_silos_that_cannot_be_ordered_take_the_least_noise() -> None:
    """One silo samples a little more, another has a quarter of its noise: the bound covers both together."""
    base = plan(HIGRAD_V1, 8.0, silos=3, rounds=10, held=2)
    more, quiet = (
        replace(base.silos[0], sampling_probability=0.0206),
        replace(base.silos[0], noise_multiplier=2.0),
    )
    bound = unit_epsilon(replace(base, silos=(more, quiet, more)), SUBJECT, every_silo=True)
    pair = replace(base, silos=(more, quiet))
    assert unit_epsilon(pair, SUBJECT, every_silo=True) <= bound * (1 + 1e-9)
