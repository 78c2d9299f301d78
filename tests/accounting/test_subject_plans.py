"""Plans that sample subjects, share a budget, correlate noise or predict it: known answers and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from accounting import plans
from subjectdp.accounting.events import unit_shift
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.accounting.statements import privacy_statements, sound_statement
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.config.run import load_run
from subjectdp.errors import ConfigError, PrivacyError
from subjectdp.plan.plan import BudgetWeights, Clipping, PrivacyPlan, SamplingMethod, SubjectSettings, TrustModel

LOCAL, SECURE, CENTRAL = TrustModel.LOCAL, TrustModel.SECURE_AGGREGATION, TrustModel.CENTRAL
SUBJECTS = SamplingMethod.POISSON_SUBJECTS
MU = 0.92493  # of (4, 1e-5)
ULDP_FL = {"algorithm": "uldp_fl", "privacy": {"mode": "sound"}}
RELEASE_OF_SUMS = {**ULDP_FL, "algorithm": "subject_release", "subject": {"trust": "secure_aggregation"}}


def facts(silos: int = 16, held: int | None = None, total: int | None = 3500) -> plans.FederationFacts:
    """No cap on a subject's items: none is needed."""
    return replace(plans.facts(silos, 20, held, enforced=False), total_subjects=total)


def settings(subject: SubjectSettings | None = None, **changes: Any) -> plans.PlanSettings:
    base = {"mode": plans.SOUND, "sampling": SUBJECTS, "rounds": 100, "subject": subject or SubjectSettings()}
    return plans.settings(**{**base, **changes})


def release(trust: TrustModel = LOCAL, silos: int = 16, held: int | None = None, **changes: Any) -> PrivacyPlan:
    """SubjectRelease's plan; settings of subjects and of the plan by name."""
    known = SubjectSettings.__dataclass_fields__
    subject = SubjectSettings(**{key: value for key, value in changes.items() if key in known})
    rest = {key: value for key, value in changes.items() if key not in known}
    mechanism = replace(plans.sound(plans.RELEASE), trust=trust)
    return make_plan(mechanism, facts(silos, held), settings(subject, **rest))


def epsilon(plan: PrivacyPlan) -> float:
    return unit_epsilon(plan, plans.SUBJECT, every_silo=True)


def gaussian_epsilon(mu: float, delta: float = plans.DELTA) -> float:
    """Balle and Wang's analytic Gaussian, written out with scipy's normal law."""

    def excess(value: float) -> float:
        first = stats.norm.cdf(mu / 2 - value / mu)
        return float(first - math.exp(value) * stats.norm.cdf(-mu / 2 - value / mu) - delta)

    return float(optimize.brentq(excess, 0.0, 300.0))


# --- one release a round -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rounds", "sigma"), [(25, 5.406), (100, 10.812), (200, 15.290)])
def test_noise_of_full_participation_is_the_root_of_the_rounds(rounds: int, sigma: float) -> None:
    """σ = √R/μ, whoever holds the subject: local trust pays nothing for 16 silos; secure aggregation shares it."""
    for silos in (1, 16):
        plan = release(silos=silos, rounds=rounds)
        assert plan.silos[0].noise_multiplier == pytest.approx(sigma, abs=1e-3)
        assert plan.silos[0].noise_multiplier == pytest.approx(math.sqrt(rounds) / MU, rel=1e-5)
        assert epsilon(plan) == pytest.approx(4.0, abs=2e-3)
        assert epsilon(plan) <= 4.0
    shared = release(SECURE, rounds=rounds)
    assert shared.silos[0].noise_multiplier == pytest.approx(sigma / 4, abs=1e-3)
    assert release(CENTRAL, rounds=rounds).silos[0].noise_multiplier == pytest.approx(sigma, abs=1e-3)


@pytest.mark.parametrize(("held", "trust", "factor"), [(16, LOCAL, 1), (16, SECURE, 1), (1, LOCAL, 4), (1, SECURE, 1)])
def test_noise_on_the_average_gradient(held: int, trust: TrustModel, factor: float) -> None:
    """0.0031 C over 100 rounds with 3,500 subjects: local trust costs nothing where they are spread, 4 x where not."""
    plan = release(trust, held=held)
    total = math.sqrt(sum(silo.noise_multiplier**2 for silo in plan.silos))
    divisor = sum(silo.divisor for silo in plan.silos)
    signal = math.sqrt(held) if trust is LOCAL else 1.0  # what a subject adds up to over its silos
    assert divisor == pytest.approx(3500 * signal)
    assert total / divisor * 1.0 == pytest.approx(factor * 10.812 / 3500, rel=1e-3)
    drawn = release(trust, held=held, sampling_probability=0.1)
    assert sum(silo.divisor for silo in drawn.silos) == pytest.approx(0.1 * divisor)


@pytest.mark.parametrize(
    ("silos", "joint", "counted"),
    [
        (2, {}, 2),
        (2, {"colluding_silos": 1}, 1),
        (16, {"colluding_silos": 1}, 15),
        (16, {"colluding_silos": 12}, 4),
        (16, {"own_noise_only": True}, 1),
    ],
)
@pytest.mark.parametrize("algorithm", [RELEASE_OF_SUMS, ULDP_FL], ids=lambda run: run["algorithm"])
def test_the_noise_of_silos_that_tell_it_does_not_count(
    algorithm: dict[str, Any], silos: int, joint: dict[str, Any], counted: int
) -> None:
    """From the configuration to σ and ε: what hides a subject is the noise that the observer does not know."""
    run = load_run({**algorithm, "partition": {"silos": silos}, "joint": joint})
    plan = make_plan(mechanism_of(run), facts(silos), plan_settings(run))
    hidden = plan.silos[0].noise_multiplier * math.sqrt(counted)
    assert gaussian_epsilon(math.sqrt(plan.rounds) / hidden) == pytest.approx(4.0, abs=5e-3)
    assert epsilon(plan) == pytest.approx(4.0, abs=5e-3)
    card = report_text(plan, privacy_statements(plan, over_rounds=False))
    if joint.get("own_noise_only"):
        assert "own noise is counted" in card and "every noisy step of every silo" in card
    else:
        assert f"the noise of {counted} silos stays secret" in card and "added before they are divided" in card
        assert "the sum over the silos of each round" in card


def test_uldp_fls_trust_is_its_own() -> None:
    assert mechanism_of(load_run(ULDP_FL)).trust is SECURE
    with pytest.raises(ConfigError, match="subject.trust .*'secure_aggregation'"):
        load_run({**ULDP_FL, "subject": {"trust": "secure_aggregation"}})


@pytest.mark.parametrize(("trust", "printed"), [(LOCAL, 1.83), (SECURE, 0.40)])
def test_an_item_under_fixed_weights_moves_its_own_silos_part(trust: TrustModel, printed: float) -> None:
    """Brute force: what the observer sees, with and without one item at one of 16 silos; the worst case is reached."""
    rng, silos = np.random.default_rng(0), 16
    weight = 1 / math.sqrt(silos) if trust is LOCAL else 1 / silos
    most = 0.0
    for trial in range(300):
        parts = [rng.normal(size=(2, 3)) * 10.0 ** rng.integers(-3, 4) for _ in range(silos)]
        if trial == 0:  # the item that turns its silo's mean around
            parts[5] = np.array([[1e6, 0.0, 0.0], [-3e6, 0.0, 0.0]])
        seen = []
        for items in (parts[5], parts[5][:1]):
            means = [part.mean(axis=0) for part in (*parts[:5], items, *parts[6:])]
            clipped = np.array([weight * mean / max(1.0, float(np.linalg.norm(mean))) for mean in means])
            seen.append(clipped if trust is LOCAL else clipped.sum(axis=0))
        most = max(most, float(np.linalg.norm(seen[0] - seen[1])))
    assert most == pytest.approx(2 * weight)
    plan = release(trust, weights=BudgetWeights.FIXED)
    found = unit_epsilon(plan, plans.ITEM, every_silo=False)
    assert found == pytest.approx(gaussian_epsilon(most * MU), rel=1e-3)
    assert found == pytest.approx(printed, abs=0.01)


@pytest.mark.parametrize("weights", [BudgetWeights.UNIFORM, BudgetWeights.PROPORTIONAL])
def test_an_item_may_turn_its_subject_around(weights: BudgetWeights) -> None:
    plan = release(weights=weights)
    assert unit_epsilon(plan, plans.ITEM, False) == pytest.approx(gaussian_epsilon(2 * MU), rel=1e-3)
    uniform = release()
    assert unit_epsilon(uniform, plans.SUBJECT, every_silo=False) == pytest.approx(epsilon(uniform))


@pytest.mark.parametrize("clipping", [Clipping.PER_ITEM, Clipping.PER_ITEM_SUBJECT_MEAN, Clipping.PER_BATCH])
def test_what_has_no_bound_has_no_shift(clipping: Clipping) -> None:
    """A drawn subject's items add up unless its whole part is clipped, and so do a silo's items."""
    with pytest.raises(PrivacyError, match="that of a subject's whole part"):
        unit_shift(clipping, plans.SUBJECT, SUBJECTS, 0.1, 8, 100)
    if clipping is not Clipping.PER_BATCH:
        with pytest.raises(PrivacyError, match="Silo-level privacy"):
            unit_shift(clipping, plans.SILO, plans.POISSON, 0.1, 8, 100)
    with pytest.raises(PrivacyError, match="a rule that bounds"):
        unit_shift(Clipping.NONE, plans.SUBJECT, plans.POISSON, 0.1, 8, 100)


# --- predicted noise -------------------------------------------------------------------------------------------------


def test_predicted_noise_is_that_of_the_average_of_more_subjects() -> None:
    """180 subjects with the noise of 3,500: the same noise on the average; ε of the run itself is the larger one."""
    mechanism = plans.sound(plans.RELEASE)
    few = replace(facts(total=180), subjects=(180,) * 16)
    plan = make_plan(mechanism, few, settings(predicted_subjects=3500))
    more = make_plan(mechanism, facts(), settings())
    for mine, theirs in zip(plan.silos, more.silos, strict=True):
        assert mine.noise_multiplier / mine.divisor == pytest.approx(theirs.noise_multiplier / theirs.divisor)
    assert epsilon(plan) == pytest.approx(gaussian_epsilon(MU * 3500 / 180), rel=1e-3)
    statements = privacy_statements(plan)
    assert statements["sound"]["subject"]["epsilon"] == pytest.approx(epsilon(plan))
    predicted = statements["predicted"]
    assert (predicted["subjects"], predicted["present"], predicted["guarantee"]) == (3500, 180, False)
    assert predicted["epsilon"] == pytest.approx(4.0, rel=1e-3)
    first = report_text(plan, statements).splitlines()[0]
    assert first == "PREDICTED NOISE: AN EXPERIMENT, NO GUARANTEE OF EPSILON 4 FOR THIS RUN"
    assert f"epsilon {epsilon(plan):.4g}" in report_text(plan, statements)


def test_a_federation_of_unknown_size_is_refused() -> None:
    with pytest.raises(PrivacyError, match="subjects of the federation"):
        make_plan(plans.sound(plans.RELEASE), facts(total=None), settings())
    with pytest.raises(PrivacyError, match="poisson or fixed_batch_size"):
        make_plan(plans.sound(plans.HIGRAD_V1), plans.facts(), settings())
    with pytest.raises(PrivacyError, match="unless privacy.mode is sound"):
        make_plan(plans.HIGRAD_V1, replace(plans.facts(), total_subjects=9), plans.settings(predicted_subjects=10))


def test_assumptions_are_those_of_the_plan() -> None:
    """Coins, counts that silos exchange, and no cap that nothing rests on."""

    def assumed(**changes: Any) -> str:
        return " | ".join(privacy_statements(release(**changes))["sound"]["subject"]["assumptions"])

    plain, coins, fixed = assumed(), assumed(sampling_probability=0.5), assumed(weights=BudgetWeights.FIXED)
    assert "one coin that the silos alone know" in coins and "coin" not in plain
    assert "silos tell one another" in plain and "silos tell one another" not in fixed
    for text in (plain, coins, fixed):
        assert "number of subjects of the federation that the plan" in text
        assert "one common budget" in text
        assert "cap" not in text and "largest number of a subject's items" not in text
        assert "number of items at each silo" not in text


def test_weights_read_from_data_move_more_at_one_silo_than_at_all() -> None:
    """16 silos, a secure sum, ε = 4 over all: the code's own weights move the sum by up to 2.000 C at one."""
    plan = release(SECURE, weights=BudgetWeights.PROPORTIONAL)
    assert sound_statement(plan, plans.SUBJECT, every_silo=True)["epsilon"] <= 4.0
    assert sound_statement(plan, plans.SUBJECT, every_silo=False)["epsilon"] >= 8.172
