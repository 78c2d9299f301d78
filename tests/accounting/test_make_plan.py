"""Plans: what make_plan chooses for every algorithm, what it refuses, and what it caches."""

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from opacus.accountants.utils import get_noise_multiplier

from accounting import plans
from accounting.plans import facts, plan, settings, sound
from subjectdp.accounting import calibration as cache
from subjectdp.accounting.calibration import kept_in
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.published import group_noise, group_table, group_target, published_epsilon
from subjectdp.accounting.sound import averaged_noise, typical_group_size, unit_epsilon
from subjectdp.accounting.statements import privacy_statements
from subjectdp.config.scenario import load_scenario
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Accountant, Clipping, Horizontal, Mechanism, PrivacyPlan, SamplingMethod, SiloChoice
from subjectdp.plan.rules import executed_rounds

approx = pytest.approx
SCENARIOS = Path(__file__).resolve().parents[2] / "config" / "scenarios"


@pytest.mark.parametrize(
    ("mechanism", "noise", "rounds"),
    [
        (plans.LOCAL_ITEM, 1.7091, 100),
        (plans.USER_LDP, 76.45, 25),
        (plans.USER_LDP_SAMPLED, 1.7091, 25),
        (plans.USER_LDP_V3, 182.67, 25),  # 1/(√(2π)·4·1e-5·e^4)
        (plans.HIGRAD_V1, 1.7091, 25),
        (plans.HIGRAD_V3, 12.376, 25),
        (plans.JOINT, 1.7091 / 4, 100),
    ],
)
def test_published_noise(mechanism: Mechanism, noise: float, rounds: int) -> None:
    made = make_plan(mechanism, facts(), settings())
    assert made.silos[0].noise_multiplier == approx(noise, rel=1e-3)
    assert len({silo.noise_multiplier for silo in made.silos}) == 1
    assert made.rounds == rounds
    assert made.silos[0].steps_per_round == 50
    assert made.silos[0].sampling_probability == approx(512 / 25_375)


def test_theorem_3_11_keeps_larger_noise_and_claims_what_its_bound_says() -> None:
    """At δ = 1e-4 the bound is a tenth, below Theorem 3.10's noise; at more noise the claim is the bound's ε."""
    loose, wide = settings(delta=1e-4), replace(facts(), silos_per_subject=1)
    chosen = [make_plan(each, wide, loose).silos[0].noise_multiplier for each in (plans.USER_LDP, plans.USER_LDP_V3)]
    assert chosen[0] == chosen[1] > 18.267
    made = make_plan(plans.USER_LDP_V3, facts(), settings())
    assert published_epsilon(made) == approx(4.0, rel=1e-9)
    larger = replace(made, silos=tuple(replace(s, noise_multiplier=1000.0) for s in made.silos))
    claimed = published_epsilon(larger)
    assert 1 / (math.sqrt(2 * math.pi) * claimed * plans.DELTA * math.exp(claimed)) == approx(1000.0)


def test_v0_pays_nothing_for_further_silos() -> None:
    free = settings(horizontal=Horizontal.NONE)
    assert executed_rounds(plans.LOCAL_GROUP, free, 16) == 100
    composed = make_plan(plans.LOCAL_GROUP, facts(), settings()).group_noise_multipliers
    assert make_plan(plans.LOCAL_GROUP, facts(), free).group_noise_multipliers == composed


def test_published_group_noise() -> None:
    made = make_plan(plans.LOCAL_GROUP, facts(), settings())
    assert len(made.group_noise_multipliers[0]) == 8
    expected = (1.7091, 1.7091, 3.3390, 5.0061, 6.6838, 8.3661, 10.0507, 11.7370, 13.4244)
    assert [made.noise_multiplier(3, size) for size in range(9)] == approx(expected, rel=2e-3)
    with pytest.raises(PrivacyError, match="group size"):
        made.noise_multiplier(0, 9)


@pytest.mark.slow
def test_published_central_noise() -> None:
    """One batch a user and round, s·R steps at B over the federation's items."""
    made = make_plan(plans.CENTRAL, facts(), settings())
    assert made.silos[0].steps_per_round == 1
    assert made.rounds == 100
    assert made.group_noise_multipliers[0][:3] == approx((0.50, 0.65, 0.73), abs=0.006)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "noise"),
    [
        (plans.LOCAL_ITEM, 1.7091),
        (plans.USER_LDP, 92.05),
        (plans.LOCAL_GROUP, 49.38),
        (plans.HIGRAD_V1, 46.03),
        (plans.HIGRAD_V3, 46.03),
    ],
)
def test_sound_noise(mechanism: Mechanism, noise: float) -> None:
    made = make_plan(sound(mechanism), facts(), settings(mode=plans.SOUND))
    assert made.silos[0].noise_multiplier == approx(noise, rel=1e-3)
    assert made.rounds == 100
    unit = made.mechanism.claimed_unit
    assert unit is not None
    assert 3.96 < unit_epsilon(made, unit, every_silo=True) <= 4.0


def test_joint_noise_over_several_steps() -> None:
    """Refused, unless each silo's own noise has to carry the guarantee."""
    with pytest.raises(PrivacyError, match="one local step"):
        make_plan(sound(plans.JOINT), facts(), settings(mode=plans.SOUND))
    alone = make_plan(sound(plans.JOINT), facts(), settings(mode=plans.SOUND, own_noise_only=True))
    assert alone.silos[0].noise_multiplier == approx(1.7091, rel=1e-3)
    published = make_plan(plans.JOINT, facts(), settings())
    assert unit_epsilon(published, plans.ITEM, False) > 50  # 0.427 is all the noise that counts


@pytest.mark.parametrize(
    ("rounds", "silos", "horizontal", "executed"),
    [
        (100, 16, Horizontal.ROUNDS_OVER_SQRT_S, 25),
        (200, 16, Horizontal.ROUNDS_OVER_SQRT_S, 50),
        (100, 2, Horizontal.ROUNDS_OVER_SQRT_S, 70),
        (1, 16, Horizontal.ROUNDS_OVER_SQRT_S, 1),
        (100, 16, Horizontal.STEPS_TIMES_S, 100),
        (100, 16, Horizontal.SOUND, 100),
    ],
)
def test_horizontal_rounds(rounds: int, silos: int, horizontal: Horizontal, executed: int) -> None:
    chosen = settings(rounds=rounds, horizontal=horizontal)
    assert executed_rounds(plans.HIGRAD_V1, chosen, silos) == executed
    assert executed_rounds(plans.LOCAL_ITEM, chosen, silos) == rounds
    assert executed_rounds(sound(plans.HIGRAD_V1), replace(chosen, mode=plans.SOUND), silos) == rounds


def test_steps_times_s_composes_over_the_silos() -> None:
    made = make_plan(plans.HIGRAD_V3, facts(), settings(horizontal=Horizontal.STEPS_TIMES_S))
    assert unit_epsilon(made, plans.SUBJECT, every_silo=True) < 4.0  # union bound of q: sound, 7 % too much noise
    assert published_epsilon(made) == approx(4.0, rel=2e-3)
    few = make_plan(plans.HIGRAD_V3, facts(held=4), settings(horizontal=Horizontal.SOUND))
    assert few.silos[0].noise_multiplier < made.silos[0].noise_multiplier


@pytest.mark.slow
def test_unequal_silos_have_their_own_noise() -> None:
    items = tuple(3000 + 1000 * silo for silo in range(3))
    uneven = replace(facts(silos=3), items=items)
    published = make_plan(plans.LOCAL_ITEM, uneven, settings(rounds=10))
    noise = [silo.noise_multiplier for silo in published.silos]
    assert noise[0] > noise[1] > noise[2]
    assert [silo.steps_per_round for silo in published.silos] == [6, 8, 10]
    made = make_plan(sound(plans.HIGRAD_V1), uneven, settings(mode=plans.SOUND, rounds=10))
    assert len({silo.noise_multiplier for silo in made.silos}) == 1
    assert 3.96 < unit_epsilon(made, plans.SUBJECT, every_silo=True) <= 4.0


def test_divisors() -> None:
    assert make_plan(plans.LOCAL_ITEM, facts(), settings()).silos[0].divisor == 512
    assert make_plan(plans.USER_LDP, facts(), settings()).silos[0].divisor == 1
    noisy = settings(mode=plans.SOUND, noise_multiplier=46.0)
    assert make_plan(sound(plans.HIGRAD_V3), facts(), noisy).silos[0].divisor == approx(480.8, abs=0.5)


def test_typical_group_size() -> None:
    """Fixed-size simulation at the papers' scale: Z = 2, 3, 4 in 19.5, 76 and 4.5 % of the batches."""
    assert typical_group_size(plan(plans.LOCAL_GROUP, 1.0).silos[0]) == 3
    pair = replace(plan(plans.LOCAL_GROUP, 1.0).silos[0], items=4, subjects=2, sampling_probability=0.5)
    assert typical_group_size(pair) == 1, "0, 1, 2 items in 1, 8 and 7 of 16 batches"


# --- refusals -----------------------------------------------------------------------------------------------------


def test_sound_needs_a_cap() -> None:
    with pytest.raises(PrivacyError, match=r"partition\.max_items_per_subject"):
        make_plan(sound(plans.HIGRAD_V1), facts(enforced=False), settings(mode=plans.SOUND))
    make_plan(sound(plans.LOCAL_ITEM), facts(enforced=False), settings(mode=plans.SOUND, noise_multiplier=1.0))


def test_sound_refuses_data_dependent_noise_and_divisor() -> None:
    with pytest.raises(PrivacyError, match="noise level depends"):
        make_plan(plans.LOCAL_GROUP, facts(), settings(mode=plans.SOUND))
    with pytest.raises(PrivacyError, match="divisor"):
        make_plan(plans.HIGRAD_V3, facts(), settings(mode=plans.SOUND))


@pytest.mark.parametrize("choice", [None, *SiloChoice])
def test_a_plan_without_noise_states_no_epsilon(choice: SiloChoice | None) -> None:
    """At silos none of which is the worst in every respect, which are compared by their noise where there is some."""
    some = {} if choice is None else {"silos_per_round": 4, "silo_choice": choice}
    unlike = replace(facts(cap=2, held=4), items=tuple(range(3_000, 27_000, 1_500)))
    made = make_plan(sound(plans.LOCAL_ITEM), unlike, settings(mode=plans.SOUND, noise_multiplier=0, **some))
    for record in privacy_statements(made)["sound"].values():
        assert (record["epsilon"], record["reason"]) == (None, "the run adds no noise")


@pytest.mark.parametrize(("epsilon", "delta"), [(1000.0, 1e-5), (0.1, 1e-15)])
def test_v3s_bound_on_noise_at_its_ends(epsilon: float, delta: float) -> None:
    """It asks for nothing at a large ε, and for more noise than any other rule at a small δ."""
    made = make_plan(plans.USER_LDP_V3, facts(), settings(epsilon=epsilon, delta=delta))
    plain = make_plan(plans.USER_LDP, facts(), settings(epsilon=epsilon, delta=delta))
    printed = 0.0 if epsilon > 700 else 1 / (math.sqrt(2 * math.pi) * epsilon * delta * math.exp(epsilon))
    assert made.silos[0].noise_multiplier == approx(max(printed, plain.silos[0].noise_multiplier))
    stated = privacy_statements(made)
    assert stated["as_published"]["epsilon"] <= epsilon * (1 + 1e-9)
    mu, silo = 2 * math.sqrt(25 * 50) / made.silos[0].noise_multiplier, stated["sound"]["silo"]
    assert silo["mu_gdp"] == approx(mu, rel=1e-6)


# --- cache and serialisation --------------------------------------------------------------------------------------


def test_calibrations_are_kept_and_a_broken_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.forget()
    make = partial(make_plan, plans.HIGRAD_V3, facts(), settings(rounds=7))
    with kept_in(tmp_path):
        first = make()
        (file,) = tmp_path.glob("*.json")
        whole, noise = file.read_text(), first.silos[0].noise_multiplier
        assert repr(noise) in whole
        for damaged in ("{", "", "[]", whole.replace(repr(noise), repr(noise / 2)), whole.replace('"sha256"', '"sha"')):
            file.write_text(damaged)
            cache.forget()
            assert make() == first
            assert json.loads(file.read_text())["value"] == noise
    cache.forget()
    file.unlink()
    assert make() == first and not [*tmp_path.iterdir()], "kept for as long as it is asked for"
    with kept_in(tmp_path):
        assert make() == first, "what the process remembers is kept as well"
        cache.forget()
        monkeypatch.setattr("subjectdp.accounting.published.calibrate_noise_multiplier", pytest.fail)  # if asked
        assert make() == first


def test_delta_that_underflows_in_the_group_rule() -> None:
    """ε = 800, Z = 3: δ e^{-533} is below the smallest float; the Rényi route takes its logarithm."""
    made = make_plan(plans.LOCAL_GROUP, facts(silos=1, cap=3), settings(epsilon=2500.0, rounds=2))
    table = made.group_noise_multipliers[0]
    assert all(0 < a <= b < math.inf for a, b in zip(table, table[1:], strict=False))


LOSS = (MixtureSteps(1.0, sampled_gaussian(0.02), 200),)


@pytest.mark.slow
def test_unlikely_groups_cost_more_noise_never_less() -> None:
    exact, coarse = group_table(LOSS, settings(), 8), group_table(LOSS, settings(), 8, exact=3)
    assert coarse[:3] == exact[:3]
    assert all(a <= b < 1.4 * a for a, b in zip(exact, coarse, strict=True))
    table = group_noise(LOSS, settings(), 60)
    share, log_delta = group_target(4.0, plans.DELTA, 50)
    reached = epsilon_of((replace(LOSS[0], noise_multiplier=table[49]),), math.exp(log_delta))
    assert 0.7 * share < reached <= share
    huge = group_noise((replace(LOSS[0], steps=5),), settings(), 400, 8)
    for each in (table, huge):
        assert list(each) == sorted(each) and each[-1] < math.inf


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.998, 0.9995, 0.9, 1.002, 1.5])
def test_a_guess_on_the_unsafe_side_is_not_taken(factor: float) -> None:
    """A guess whose ε is a little above the target, by the accountant that evaluates it at full accuracy at once."""
    enough = cache.calibrate_noise_multiplier(LOSS, 2.0, plans.DELTA, "rdp")
    sigma = cache.calibrate_noise_multiplier(LOSS, 2.0, plans.DELTA, "rdp", guess=enough * factor)
    reached = epsilon_of((replace(LOSS[0], noise_multiplier=sigma),), plans.DELTA, "rdp")
    assert 0.99 * 2.0 <= reached <= 2.0


def test_training_without_noise_may_be_as_long_as_wanted() -> None:
    """No accountant composes it."""
    assert make_plan(plans.FED_AVG, facts(), settings(rounds=10**8)).rounds == 10**8
    with pytest.raises(PrivacyError, match="local steps of a silo in all rounds"):
        make_plan(plans.LOCAL_ITEM, facts(), settings(rounds=10**8))


def test_items_that_move_more_have_more_noise_in_silos_of_one_size() -> None:
    """Whole silos in a batch, people clipped: an item moves the sum by 1 alone, by 2 beside another of its person."""
    sizes, most = (10, 10, 20, 30, 40, 50), (1, 2, 1, 1, 1, 1)
    clipped = replace(sound(plans.LOCAL_ITEM), clipping=Clipping.PER_SUBJECT)
    chosen = settings(mode=plans.SOUND, epsilon=2.0, rounds=5, local_steps=2, batch_size=10)
    made = make_plan(clipped, plans.FederationFacts(sizes, sizes, most, True, None, 1), chosen)
    assert made.silos[1].noise_multiplier == pytest.approx(2 * made.silos[0].noise_multiplier)
    assert unit_epsilon(made, plans.ITEM, False) <= 2.0


def test_silos_of_nearly_one_size_share_the_noise_of_the_worst_of_them() -> None:
    """A smaller silo, whose items are drawn more often, needs more."""
    sizes = (10_000, 9_990, 9_980, 9_972, 9_900, 9_000)
    uneven = replace(facts(6), items=sizes)
    made = make_plan(plans.LOCAL_ITEM, uneven, settings(local_steps=50))
    alone = [make_plan(plans.LOCAL_ITEM, replace(uneven, items=(n,) * 6), settings(local_steps=50)) for n in sizes]
    needed, given = ([silo.noise_multiplier for silo in each] for each in ([m.silos[0] for m in alone], made.silos))
    assert all(enough * 0.99999 <= own <= enough * 1.003 for own, enough in zip(given, needed, strict=True))
    assert len(set(given)) == 3


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_group_privacy_of_the_groups_target_is_the_target(size: int) -> None:
    """Z times (ε/Z, δ') is (ε, Z e^((Z-1)ε/Z) δ')."""
    share, log_delta = group_target(4.0, plans.DELTA, size)
    assert size * share == pytest.approx(4.0, rel=1e-12)
    assert size * math.exp((size - 1) * share) * math.exp(log_delta) == pytest.approx(plans.DELTA, rel=1e-9)


# --- as published, the noise is that of the papers' accountant: Opacus', asked here without this project ------------


def test_the_noise_is_opacus_own() -> None:
    made = make_plan(plans.LOCAL_ITEM, facts(), settings(accountant=Accountant.OPACUS))
    theirs = get_noise_multiplier(
        target_epsilon=4.0, target_delta=plans.DELTA, sample_rate=512 / 25_375, steps=5000, accountant="rdp"
    )
    ours = made.silos[0].noise_multiplier
    assert ours == pytest.approx(theirs, rel=5e-3)
    tight = make_plan(plans.LOCAL_ITEM, facts(), settings()).silos[0].noise_multiplier
    assert 1.05 * tight < ours < 1.08 * tight


@pytest.mark.parametrize(
    ("accountant", "mechanism"), [(Accountant.OPACUS, plans.LOCAL_ITEM), (Accountant.MIRONOV, plans.JOINT)]
)
def test_it_certifies_nothing_in_sound_mode(accountant: Accountant, mechanism: Mechanism) -> None:
    with pytest.raises(PrivacyError, match="privacy.accountant"):
        make_plan(sound(mechanism), facts(), settings(mode=plans.SOUND, accountant=accountant, local_steps=1))


@pytest.mark.parametrize("name", ["paper", "femnist", "shakespeare", "alpha-sweep", "small-femnist"])
def test_scenarios_at_the_papers_scale_account_as_the_papers_did(name: str) -> None:
    runs = load_scenario([str(SCENARIOS / f"{name}.yaml")]).runs
    published = [run for run in runs if run.algorithm.name in ("local_item_dp", "higrad_avg_dp", "user_ldp")]
    assert published and {run.privacy.accountant for run in published} == {"opacus"}


# --- noise on the averaged gradient -----------------------------------------------------------------------------------


def with_noise(mechanism: Mechanism, noise: float, **changes: object) -> PrivacyPlan:
    """16 silos at the papers' scale, 100 rounds of one epoch, with a given noise multiplier."""
    sampling = SamplingMethod.POISSON_SUBJECTS if mechanism.samples_subjects else SamplingMethod.POISSON
    chosen = settings(mode=plans.SOUND, noise_multiplier=noise, sampling=sampling, **changes)
    return make_plan(sound(mechanism), replace(facts(), total_subjects=3500), chosen)


@pytest.mark.parametrize(
    ("mechanism", "noise", "expected"),
    [
        (plans.LOCAL_ITEM, 1.709, 0.000834),
        (plans.HIGRAD_V3, 46.03, 0.02393),
        (plans.CAPPED, 49.38, 0.02411),
        (plans.USER_LDP, 92.05, 23.01),
        (plans.RELEASE, 10.81, 0.003089),
        (replace(plans.JOINT, clipping=Clipping.PER_UPDATE), 16.0, 1.0),  # noised after the divisor
    ],
)
def test_noise_on_the_average_at_the_papers_scale(mechanism: Mechanism, noise: float, expected: float) -> None:
    """σ over the divisor, over √16: 512; HiGradAvgDP 3,500 (1 - (1-q)^7.25) = 480.8; 3,500 with a shared budget."""
    assert averaged_noise(with_noise(mechanism, noise)) == pytest.approx(expected, rel=2e-3)


def test_noise_of_unequal_silos_adds_up_in_squares() -> None:
    made = with_noise(plans.LOCAL_ITEM, 1.0)
    silos = tuple(replace(silo, noise_multiplier=float(i)) for i, silo in enumerate(made.silos))
    squares = sum(i**2 for i in range(16))
    assert averaged_noise(replace(made, silos=silos)) == pytest.approx(math.sqrt(squares) / 512 / 16)


def test_what_depends_on_data_or_on_the_rounds_silos_is_refused() -> None:
    for mechanism in (plans.LOCAL_GROUP, plans.HIGRAD_V3):
        with pytest.raises(PrivacyError, match="public constants"):
            averaged_noise(plan(mechanism, 3.0))
    with pytest.raises(PrivacyError, match="all 16"):
        averaged_noise(with_noise(plans.LOCAL_ITEM, 1.0, silos_per_round=4))
