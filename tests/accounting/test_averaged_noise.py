"""Noise on the averaged gradient: the papers' scale by hand, each algorithm's formula, and what is refused."""

import math
from dataclasses import replace

import pytest

from accounting import plans
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import averaged_noise
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Mechanism, PrivacyPlan, SamplingMethod, TrustModel


def with_noise(
    mechanism: Mechanism, noise: float, trust: TrustModel = TrustModel.LOCAL, **changes: object
) -> PrivacyPlan:
    """16 silos at the papers' scale, 100 rounds of one epoch, with a given noise multiplier."""
    samples = mechanism.samples_subjects
    settings = plans.settings(
        mode=plans.SOUND,
        noise_multiplier=noise,
        sampling=SamplingMethod.POISSON_SUBJECTS if samples else SamplingMethod.POISSON,
        **changes,
    )
    facts = replace(plans.facts(), total_subjects=3500)
    return make_plan(replace(plans.sound(mechanism), trust=trust), facts, settings)


@pytest.mark.parametrize(
    ("mechanism", "noise", "expected"),
    [
        (plans.LOCAL_ITEM, 1.709, 0.000834),
        (plans.HIGRAD_V3, 46.03, 0.02393),
        (plans.CAPPED, 49.38, 0.02411),
        (plans.USER_LDP, 92.05, 23.01),
        (plans.RELEASE, 10.81, 0.003089),
    ],
)
def test_the_papers_scale(mechanism: Mechanism, noise: float, expected: float) -> None:
    """σ over the divisor, over √16: 512; HiGradAvgDP 3,500 (1 - (1-q)^7.25) = 480.8; 3,500 with a shared budget."""
    found = averaged_noise(with_noise(mechanism, noise))
    assert found == pytest.approx(expected, rel=2e-3)


def test_unequal_silos_add_up_in_squares() -> None:
    plan = with_noise(plans.LOCAL_ITEM, 1.0)
    silos = tuple(replace(silo, noise_multiplier=float(i)) for i, silo in enumerate(plan.silos))
    squares = sum(i**2 for i in range(16))
    assert averaged_noise(replace(plan, silos=silos)) == pytest.approx(math.sqrt(squares) / 512 / 16)


def test_what_depends_on_data_or_on_the_rounds_silos_is_refused() -> None:
    for mechanism in (plans.LOCAL_GROUP, plans.HIGRAD_V3):
        with pytest.raises(PrivacyError, match="public constants"):
            averaged_noise(plans.plan(mechanism, 3.0))
    with pytest.raises(PrivacyError, match="all 16"):
        averaged_noise(with_noise(plans.LOCAL_ITEM, 1.0, silos_per_round=4))
