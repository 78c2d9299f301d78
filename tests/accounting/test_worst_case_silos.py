"""What the silos of one subject cost, against every choice of silos and every round written out.

Last, one noise for silos of very different sizes: enough for every choice of a subject's silos, and hardly more.
"""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from accounting import plans
from accounting.plans import HIGRAD_V1, JOINT, LOCAL_ITEM, RELEASE, SOUND, SUBJECT, facts, plan, settings, sound
from subjectdp.accounting import worst_case_silos
from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import Joined, MixtureSteps, Shift, merged, sampled_gaussian
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.sound import silo_loss, unit_epsilon, unit_losses
from subjectdp.accounting.worst_case_silos import SiloRun
from subjectdp.algorithms.registry import mechanism
from subjectdp.plan.plan import NoiseDistribution, PrivacyPlan, SamplingMethod, SiloChoice, SiloSchedule
from subjectdp.sampling import silos_of_round

pytestmark = pytest.mark.slow


def unequal(kinds: list[tuple[float, int, float]], held: int, **changes: object) -> PrivacyPlan:
    """A plan whose silos have these sampling probabilities, steps a round and noise multipliers."""
    base = plan(sound(HIGRAD_V1), 8.0, silos=len(kinds), rounds=12, held=held, **changes)
    silos = tuple(
        replace(base.silos[0], sampling_probability=q, steps_per_round=steps, noise_multiplier=sigma)
        for q, steps, sigma in kinds
    )
    return replace(base, silos=silos)


def brute_force(whole: PrivacyPlan, held: int, accountant: str = "pld") -> float:
    """The largest ε over all choices of ``held`` silos, each choice composed silo by silo."""
    losses = [silo_loss(whole, silo, SUBJECT) for silo in range(len(whole.silos))]
    choices = [merged(part for loss in some for part in loss) for some in combinations(losses, held)]
    return max(epsilon_of(choice, whole.settings.delta, accountant) for choice in choices)


def hospitals(seed: int, silos: int, held: int) -> PrivacyPlan:
    """One epoch a round of 50 items at hospitals of log-normal size: none is worse than another in all respects."""
    sizes = np.maximum(100, (500 * np.exp(0.9 * np.random.default_rng(seed).normal(size=silos))).astype(int))
    return unequal([(50 / size, -(-size // 50), 4.0) for size in sizes.tolist()], held)


SOME = plan(sound(HIGRAD_V1), 8.0).silos[0]
FEW = [(0.04, 20, 8.0), (0.02, 40, 8.0), (0.02, 50, 9.0), (0.01, 90, 8.0)]


def test_silos_are_not_looked_at_once_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 silos of an epoch a round, of which none is worse than another in all respects, took 43 s, now 11."""
    looked, badness = list[SiloRun](), worst_case_silos._badness
    monkeypatch.setattr(worst_case_silos, "_badness", lambda silo: (looked.append(silo), badness(silo))[1])
    silos = [SiloRun(silo, 12) for silo in unequal([(1 / n, n, 4.0) for n in range(10, 50)], 1).silos]
    better = [silo._replace(rounds=11) for silo in silos]
    assert worst_case_silos.maximal([*better, *silos, *silos]) == silos
    assert len(looked) == 3 * len(silos)


@pytest.mark.parametrize(
    "whole", [unequal(FEW[:3], 2), *(unequal(FEW, n) for n in (1, 2, 3)), *(hospitals(n, 8, 2) for n in range(3))]
)
def test_a_subject_suffers_the_worst_choice_of_silos_and_no_worse(whole: PrivacyPlan) -> None:
    """Large silos sample less and take more steps, as one epoch a round makes them: none is worse in all respects."""
    worst, tolerance = brute_force(whole, whole.silos_per_subject), 5e-3 if len(whole.silos) > 4 else 1e-6
    assert unit_epsilon(whole, SUBJECT, every_silo=True) == pytest.approx(worst, rel=tolerance)


def test_silos_are_compared_without_moves_that_hardly_ever_happen() -> None:
    """200 items of a subject may be in a mini-batch: the central limit has no number for that, ε no loss."""
    whole = unequal([(2e-3 / 1.3**n, 1 + 3 * n, 4.0) for n in range(8)], 2)
    silos = tuple(replace(silo, max_items_per_subject=200) for silo in whole.silos)
    whole = replace(whole, mechanism=sound(LOCAL_ITEM), silos=silos)
    worst = brute_force(whole, 2)
    assert worst * (1 - 1e-6) <= unit_epsilon(whole, SUBJECT, every_silo=True) <= 1.01 * worst


def test_a_place_in_a_sum_is_as_likely_to_move_it_as_far_as_every_silo_that_may_take_it() -> None:
    """Every choice's silos, by how far they move the sum on average, against the places."""
    random = np.random.default_rng(0)

    def chances(shift: Shift) -> np.ndarray:
        """Of moving the sum by each number of clip norms up to 9, or more."""
        return np.array([sum(shift.probabilities[np.searchsorted(shift.sensitivities, far) :]) for far in range(10)])

    for _ in range(60):
        silos, held = int(random.integers(2, 9)), int(random.integers(1, 5))
        kinds = [SiloRun(replace(SOME, sampling_probability=q), 1) for q in random.choice([0.01, 0.3, 0.5, 1.0], silos)]
        runs = [SiloRun(replace(s, max_items_per_subject=int(random.choice([1, 3, 9]))), r) for s, r in kinds]
        held = min(held, silos)

        def shift(run: SiloRun) -> Shift:
            own = run.schedule
            masses = stats.binom.pmf(range(10), own.max_items_per_subject, own.sampling_probability)
            return Shift.of(range(10), masses)

        places = list(map(chances, worst_case_silos.shifts_by_place(runs, held, shift)))
        for choice in combinations(sorted((chances(shift(run)) for run in runs), key=sum, reverse=True), held):
            assert all(bool(np.all(a >= b - 1e-12)) for a, b in zip(places, choice, strict=True))


@pytest.mark.parametrize("changes", [{}, {"mechanism": sound(JOINT)}])
@pytest.mark.parametrize("together", [3, 7])
def test_drawn_silos_cost_what_the_worst_choice_does(together: int, changes: dict[str, object]) -> None:
    """Against every choice, as the silos of a person who is known."""
    chosen = {"silos_per_round": together, "silo_choice": SiloChoice.RANDOM}
    base = plan(sound(HIGRAD_V1), 4.0, silos=8, rounds=12, held=3, steps=1, **chosen)
    kinds = [(0.001 * 1.6**n, 1 + n % 3) for n in range(8)]
    silos = tuple(replace(base.silos[0], sampling_probability=q, max_items_per_subject=k) for q, k in kinds)
    whole = replace(base, silos=silos, **changes)

    def of(held: tuple[int, ...]) -> float:
        person = tuple((silo, silos[silo].max_items_per_subject) for silo in held)
        return unit_epsilon(replace(whole, people=(person,)), SUBJECT, every_silo=True)

    worst = max(map(of, combinations(range(8), 3)))
    assert worst * (1 - 1e-6) <= unit_epsilon(whole, SUBJECT, every_silo=True) <= 1.02 * worst


def test_drawn_silos_are_compared_for_all_rounds() -> None:
    kinds = [*((1.0, 1, 4000.0 + n) for n in range(4)), (1e-8, 1, 0.15), (8e-9, 2, 0.15)]
    whole = replace(unequal(kinds, 2, delta=1e-3, silos_per_round=5, silo_choice=SiloChoice.RANDOM), rounds=100_000)
    worst = unit_epsilon(replace(whole, people=(((4, 8), (5, 8)),)), SUBJECT, every_silo=True)
    assert unit_epsilon(whole, SUBJECT, every_silo=True) >= worst > 15


def test_too_many_outcomes_of_a_draw_are_bounded_by_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"silos_per_round": 4, "silo_choice": SiloChoice.RANDOM}
    whole = unequal([(0.02 * 1.1**n, 5, 8.0) for n in range(8)], 8, **chosen)
    one = replace(whole, settings=replace(whole.settings, silos_per_round=1))  # has nine outcomes
    chosen["silos_per_round"] = 45
    alike = unequal([(0.02, 5, 8.0)] * 50, 50, **chosen)  # has 46, which nothing merges
    exact, exact_one, exact_alike = (unit_epsilon(each, SUBJECT, every_silo=True) for each in (whole, one, alike))
    certain = unit_epsilon(unequal([(0.02, 5, 8.0)] * 45, 45), SUBJECT, every_silo=True)  # 45 releases in each round
    assert exact_alike == pytest.approx(certain, rel=1e-3)
    monkeypatch.setattr(worst_case_silos, "_MOST_OUTCOMES", 40)
    assert exact * 1.001 < unit_epsilon(whole, SUBJECT, every_silo=True) < 1.2 * exact
    assert unit_epsilon(one, SUBJECT, every_silo=True) == exact_one
    assert unit_epsilon(alike, SUBJECT, every_silo=True) == exact_alike


def test_a_worst_silo_is_as_bad_as_each() -> None:
    whole = unequal([(0.04, 20, 8.0), (0.02, 40, 7.0), (0.02, 50, 9.0)], 1)
    runs = [SiloRun(silo, rounds) for silo, rounds in zip(whole.silos, (3, 2, 4), strict=True)]
    assert all(worst_case_silos._dominates(worst_case_silos.worst_of(runs), silo) for silo in runs)


@pytest.mark.parametrize("silos", [1, 2, 5, 6, 16])
def test_silos_in_turn_take_part_as_often_as_they_are_charged(silos: int) -> None:
    for chosen in range(1, silos + 1):
        for rounds in (1, 7, 25):
            made = plan(LOCAL_ITEM, 1.0, silos=silos, rounds=rounds, silos_per_round=chosen)
            counts = np.zeros(silos, int)
            for round_ in range(1, rounds + 1):
                now = silos_of_round(silos, made.settings, 0, round_)
                assert len(np.unique(now)) == chosen
                counts[now] += 1
            charged = np.array([made.rounds_of(silo) for silo in range(silos)])
            assert np.array_equal(charged, np.maximum(counts, 1)) and np.ptp(counts) <= 1


@pytest.mark.parametrize(("silos", "together", "rounds"), [(4, 2, 3), (6, 4, 4), (5, 3, 7), (5, 2, 1)])
def test_meetings_in_turn(monkeypatch: pytest.MonkeyPatch, silos: int, together: int, rounds: int) -> None:
    """Meetings in every round, the most first: of the choices that no other exceeds; of many, no less than of any."""
    turns = [{(turn * together + i) % silos for i in range(together)} for turn in range(rounds)]
    for count in range(1, silos + 1):
        choices = [set(some) for some in combinations(range(silos), count)]
        every = {tuple(sorted((len(now & some) for now in turns), reverse=True)) for some in choices}
        worst = {one for one in every if sum(bool(np.all(np.less_equal(one, other))) for other in every) == 1}
        for most in (20_000, 0):
            monkeypatch.setattr(worst_case_silos, "_MOST_ENUMERATED", most)
            found = worst_case_silos.meetings_in_turn(silos, together, rounds, count)
            rows = {tuple(n for n, m in [(0, rounds), *each][::-1] for _ in range(m))[:rounds] for each in found}
            assert rows == worst if most else all(np.all(np.less_equal(one, *rows)) for one in every)


def test_silos_in_turn_need_less_noise_than_silos_drawn_at_random() -> None:
    """4 of 16 silos, 100 rounds: an item is in 25 rounds, or about so many, of which everybody knows which."""
    some = {"mode": SOUND, "silos_per_round": 4}
    found = [
        make_plan(sound(LOCAL_ITEM), facts(), settings(**some, silo_choice=choice)).silos[0].noise_multiplier
        for choice in SiloChoice
    ]
    quarter = make_plan(sound(LOCAL_ITEM), facts(), settings(mode=SOUND, rounds=25)).silos[0].noise_multiplier
    whole = make_plan(sound(LOCAL_ITEM), facts(), settings(mode=SOUND)).silos[0].noise_multiplier
    assert found[0] == pytest.approx(quarter, rel=1e-9) and quarter < found[1] < 0.65 * whole


def test_a_budget_is_spent_in_the_rounds_of_its_silos() -> None:
    """SubjectRelease, everybody in every round: parts c_i of the clip norm at the silos, Σ c_i² = 1."""
    release = sound(RELEASE)
    half = plan(release, 8.0, silos=4, rounds=41, q=1.0, sampling=SamplingMethod.POISSON_SUBJECTS, silos_per_round=2)
    fewer = plan(release, 8.0, silos=4, rounds=21, q=1.0, sampling=SamplingMethod.POISSON_SUBJECTS)
    for parts in ((0.25,) * 4, (0.7, 0.1, 0.1, 0.1), (1.0, 0.0, 0.0, 0.0)):
        moved = sum(parts[silo] for round_ in range(1, 42) for silo in silos_of_round(4, half.settings, 0, round_))
        assert moved <= 21 + 1e-9, "Σ over rounds of the squares"
    assert unit_epsilon(half, SUBJECT, True) == pytest.approx(unit_epsilon(fewer, SUBJECT, True), rel=1e-9)
    coins = replace(half, silos=tuple(replace(silo, sampling_probability=0.5) for silo in half.silos))
    drawn = replace(half, settings=replace(half.settings, silo_choice=SiloChoice.RANDOM))
    for each in (coins, drawn):
        assert unit_losses(each, SUBJECT, True)[0][0].steps == 41, "no proof under coins, or for drawn silos"


def test_a_place_is_as_bad_as_every_silo_that_may_take_it() -> None:
    """Twelve silos whose losses vary more, and two whose rare losses are larger: each pair is bounded by the places."""
    usual = [(1.0, 1, 40.0 + n) for n in range(12)]
    whole = unequal([*usual, (1e-4, 3, 0.35), (8e-5, 4, 0.35)], 2)
    whole = replace(whole, silos=tuple(replace(silo, max_items_per_subject=1) for silo in whole.silos))
    worst = brute_force(whole, 2)
    for accountant, loose in (("pld", 1.3), ("rdp", 2.1)):
        assert worst * (1 - 1e-4) <= unit_epsilon(whole, SUBJECT, True, accountant) <= loose * worst


def test_a_silo_dominates_another_in_both_directions_or_not_at_all() -> None:
    """Where the unit is there, sampling under less noise is worse. Where it is not, whole batches leave more (8e-5)."""
    often, always = (SiloRun(silo, 1) for silo in unequal([(0.6, 50, 1.0), (1.0, 30, 1.5)], 2).silos)

    def run(silo: SiloRun) -> MixtureSteps:
        each = silo.schedule
        return MixtureSteps(each.noise_multiplier, sampled_gaussian(each.sampling_probability), each.steps_per_round)

    losses = worst_case_silos._Losses(run, [often, always], 1e-3)
    assert not losses.dominates(often, always)
    assert not losses.dominates(always, often)


INTEGERS = {"noise_distribution": NoiseDistribution.SKELLAM, "accountant": "rdp_integer"}


def test_a_place_is_as_bad_for_integer_noise() -> None:
    """Silos whose own noise alone counts, some with few large mini-batches and some with many small ones."""
    whole = hospitals(3, 9, 3)
    settings = replace(whole.settings, own_noise_only=True, **INTEGERS)
    whole = replace(whole, mechanism=sound(JOINT), settings=settings)
    assert all(isinstance(part.shift, Joined) for part in unit_losses(whole, SUBJECT, True)[0])
    worst = brute_force(whole, 3, "rdp_integer")
    assert worst <= unit_epsilon(whole, SUBJECT, every_silo=True) <= 1.3 * worst


def test_integer_noise_of_drawn_silos_counts_every_round() -> None:
    """Two of five silos are drawn for the sum of a round: they may hold all of a subject's items in each of them."""
    chosen = {"silos_per_round": 2, "silo_choice": SiloChoice.RANDOM, **INTEGERS}
    made = plan(sound(JOINT), 3.0, silos=5, held=3, rounds=40, steps=1, q=0.02, k=3, **chosen)
    shift = Shift.of(range(7), stats.binom.pmf(range(7), 6, 0.02))
    expected = epsilon_of((MixtureSteps(3.0 * 2**0.5, shift, 40),), made.settings.delta, "rdp_integer")
    assert unit_epsilon(made, SUBJECT, every_silo=True) == pytest.approx(expected, rel=1e-6)


OF_SUBJECTS = replace(mechanism("local_item_dp", None, SOUND), claimed_unit=SUBJECT)
SETTINGS = settings(mode=SOUND, rounds=50, batch_size=32)

# silos, silos of a subject, cap, ε, rounds, spread of the sizes' logarithms
CASES = [(3, 2, 3, 2.0, 5, 1.2), (16, 4, 7, 8.0, 50, 1.2), (40, 2, 6, 0.5, 5, 1.2), (120, 3, 4, 8.0, 50, 0.5)]


@pytest.mark.parametrize(("silos", "held", "cap", "epsilon", "rounds", "spread"), CASES)
def test_noise_is_just_enough(silos: int, held: int, cap: int, epsilon: float, rounds: int, spread: float) -> None:
    sizes = 100 + 300 * np.exp(np.random.default_rng(silos).normal(size=silos) * spread)
    facts = federation(sizes, np.full(silos, cap), held)
    plan = make_plan(OF_SUBJECTS, facts, replace(SETTINGS, epsilon=epsilon, rounds=rounds))
    reached = unit_epsilon(plan, SUBJECT, every_silo=True)
    assert 0.99 * epsilon <= reached <= epsilon


def test_a_sum_is_accounted_for_its_worst_pair_of_silos() -> None:
    draws = np.random.default_rng(4)
    facts = federation(100 + 300 * np.exp(draws.normal(size=30)), draws.choice([1, 2, 3, 4, 6, 8, 12, 16], 30), 2)
    joint = replace(mechanism("joint_noise", None, SOUND), claimed_unit=SUBJECT)
    plan = make_plan(joint, facts, replace(SETTINGS, local_steps=1, noise_multiplier=14.0))
    own = 14.0 / math.sqrt(2)  # of two silos that have the noise of all between them

    def of_pair(pair: tuple[SiloSchedule, SiloSchedule]) -> float:
        silos = tuple(replace(silo, noise_multiplier=own) for silo in pair)
        return unit_epsilon(replace(plan, silos=silos), SUBJECT, every_silo=True, resolution=SEARCH)

    far = sorted(plan.silos, key=lambda silo: silo.sampling_probability * silo.max_items_per_subject**2)[-12:]
    worst = max(map(of_pair, combinations(far, 2)))
    stated = unit_epsilon(plan, SUBJECT, every_silo=True, resolution=SEARCH)
    assert worst * (1 - 1e-9) <= stated <= 1.02 * worst


def federation(sizes: np.ndarray, caps: np.ndarray, held: int) -> plans.FederationFacts:
    items, subjects = tuple(map(int, sizes)), tuple(int(size) // 5 for size in sizes)
    return plans.FederationFacts(items, subjects, tuple(map(int, caps)), True, None, held, sum(subjects))
