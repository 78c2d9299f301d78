"""What is read from counts: who the worst person is, and what is conditional on it."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

import subjectdp
from accounting.reference import by_dp_accounting, sampled_gaussian_event
from accounting.test_subject_plans import gaussian_epsilon
from subjectdp.api.counts import as_counts
from subjectdp.api.schedule import _people
from subjectdp.errors import ConfigError

pytestmark = pytest.mark.slow

SCHEDULE = subjectdp.Schedule(rounds=3, batch_size=20)


def spread(people: int = 30, silos: int = 4) -> dict[tuple[str, str], int]:
    """Each person's 20 items, spread unevenly."""
    random = np.random.default_rng(0)
    table = {}
    for person in range(people):
        for silo, items in enumerate(random.multinomial(20, random.dirichlet(np.ones(silos)))):
            if items:
                table[f"p{person}", f"h{silo}"] = int(items)
    return table


def test_without_a_cap_the_worst_person_counts_and_no_invented_one() -> None:
    table = spread()
    found = subjectdp.account("local_item_dp", table, SCHEDULE, 4.0).subject
    assert found.epsilon is not None and found.conditional
    worst = 0.0
    for person in sorted({name for name, _ in table}):  # the others hold one item each, as many as before
        own = {key: items for key, items in table.items() if key[0] == person}
        rest = [(*key, n) for key, items in table.items() if key[0] != person for n in range(items)]
        others = {(f"{name}-{silo}-{n}", silo): 1 for name, silo, n in rest}
        alone = subjectdp.account("local_item_dp", own | others, SCHEDULE, 4.0).subject.epsilon
        worst = max(worst, alone or 0.0)
    assert found.epsilon == pytest.approx(worst, rel=1e-3)


def test_a_silo_of_billions_of_items_without_a_cap_has_an_epsilon_for_an_item_alone() -> None:
    sizes = subjectdp.SiloSizes(("h",), (2 * 10**9,))
    found = subjectdp.account("local_item_dp", sizes, subjectdp.Schedule(rounds=3, steps=1, batch_size=1000), 2.0)
    assert found.item.epsilon is not None
    assert found.subject.epsilon is None and "at most 1,000,000, by a cap" in str(found)


def test_a_number_of_silos_that_was_read_is_conditional_and_a_stated_one_is_not() -> None:
    table = {(f"p{n}", f"h{(n + j) % 4}"): 2 for n in range(40) for j in range(2)}
    capped = replace(SCHEDULE, max_items_per_subject=2)
    read = subjectdp.account("capped_item_dp", table, capped, 4.0)
    assert read.subject.conditional and "conditional" in str(read.subject) and "no bound on silos" in str(read)
    assert not read.subject_at_one_silo.conditional and not read.item.conditional
    stated = subjectdp.account("capped_item_dp", table, replace(capped, silos_per_subject=3), 4.0)
    assert not stated.subject.conditional and (stated.subject.epsilon or 0) > (read.subject.epsilon or 0)
    everywhere = {**table, **{("x", f"h{silo}"): 1 for silo in range(4)}}
    assert not subjectdp.account("capped_item_dp", everywhere, capped, 4.0).subject.conditional
    with pytest.raises(ConfigError, match="silos_per_subject.*from 2.*to 4"):
        subjectdp.account("capped_item_dp", table, replace(capped, silos_per_subject=1), 4.0)


def test_a_delta_of_one_over_the_number_of_people_is_warned_of() -> None:
    rows = [(f"p{n}", "h", 2) for n in range(50)]
    with pytest.warns(UserWarning, match="delta 0.02 is not below 1/50"):
        report = subjectdp.account("local_item_dp", rows, SCHEDULE, 4.0, delta=0.02)
    assert "WARNING: delta 0.02" in str(report)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        subjectdp.account("local_item_dp", rows, SCHEDULE, 4.0, delta=0.019)


def test_silos_in_turn_and_silos_drawn() -> None:
    rows = [(f"p{n}", f"h{n % 4}", 1) for n in range(400)]
    schedule = subjectdp.Schedule(16, 1, batch_size=10, silos_per_round=1)

    def found(**changes: object) -> float:
        return subjectdp.account("local_item_dp", rows, replace(schedule, **changes), 1.0).item.epsilon or 0.0

    drawn = found(silo_choice="random")
    assert found() == drawn and found(silo_choice="in_turn") < drawn < found(silos_per_round=None)
    with pytest.raises(ConfigError, match="silo_choice"):
        found(silo_choice="drawn")
    both = subjectdp.account("local_item_dp", [*rows, ("p0", "h1", 1)], schedule, 1.0)
    assert both.statements["sound"]["subject"]["silos"] == 2, "of which one takes part in a round"
    assert "drawn from the seed" not in str(both), "of software that we do not know"


@pytest.mark.parametrize("algorithm", ["subject_sampling", "higrad_avg_dp:v3"])
def test_a_secure_sum_is_divided_by_one_constant(algorithm: str) -> None:
    rows = [(f"p{n}", f"h{n % 3}", 2) for n in range(60)] + [(f"x{n}", "h0", 1) for n in range(100)]
    shared = subjectdp.mechanism(algorithm, "secure_aggregation")
    schedule = subjectdp.Schedule(5, 1, sampling_probability=0.3, max_items_per_subject=2)
    report = subjectdp.account(shared, rows, schedule, 4.0)
    assert len({silo.divisor for silo in report.plan.silos}) == 1
    assert any("one public constant for all" in line for line in report.subject.assumptions)


def test_unequal_noise_of_a_secure_sum_adds_up_in_squares() -> None:
    """3² + 4² + 12² = 13², and of two silos a round at least 3² + 4² = 5²."""
    shared = subjectdp.mechanism("local_item_dp", "secure_aggregation")
    rows, noise = [(name, name, 1) for name in "abc"], {"a": 12.0, "b": 3.0, "c": 4.0}
    schedule = subjectdp.Schedule(9, 1, sampling_probability=1.0)
    report = subjectdp.account(shared, rows, schedule, noise)
    assert report.item.epsilon == pytest.approx(gaussian_epsilon(3 / 13), rel=1e-6)
    assert "multiplier 13 of the sum over silos (3 to 12 at each of 3)" in str(report)
    turns = replace(schedule, silos_per_round=2, silo_choice="in_turn")  # six rounds each
    found = subjectdp.account(shared, rows, turns, noise).item.epsilon
    assert found == pytest.approx(gaussian_epsilon(6**0.5 / 5), rel=1e-6)


@pytest.mark.parametrize(("q", "noise", "steps"), [(1e-5, 0.5, 300_000), (1e-6, 0.5, 1_000_000)])
def test_rare_items_under_little_noise(q: float, noise: float, steps: int) -> None:
    """As dp-accounting has it on its grid of 1e-4, in a moment, and more for more steps."""
    rows = [(f"s{n}", "x", 1) for n in range(100)]

    def found(times: int) -> float:
        schedule = subjectdp.Schedule(times, 1, sampling_probability=q)
        return subjectdp.account("local_item_dp", rows, schedule, noise).item.epsilon or 0.0

    one = pld.from_gaussian_mechanism(noise, sampling_prob=q, value_discretization_interval=1e-4)
    assert found(steps) == pytest.approx(one.self_compose(steps).get_epsilon_for_delta(1e-5), rel=1e-2)
    assert found(steps // 10) < found(steps) < found(steps * 10)


@pytest.mark.parametrize(("silos", "q", "expected"), [(4, 1.0, 11.480), (4, 0.1, 2.354)])
def test_the_noise_of_uldp_fls_own_tests_is_that_of_the_sum(silos: int, q: float, expected: float) -> None:
    """Its σ 1, 5 rounds (12.30 and 2.90 by Rényi divergences there)."""
    rows = [(f"p{n}", f"h{h}", 1) for n in range(50) for h in range(silos)]
    schedule = subjectdp.Schedule(5, sampling_probability=q)
    report = subjectdp.account("uldp_fl", rows, schedule, 1.0)
    assert report.subject.epsilon == pytest.approx(expected, abs=1e-3)
    assert report.noise_multiplier == 1.0 and report.noise_multipliers["h0"] == 0.5
    again = subjectdp.calibrate("uldp_fl", rows, schedule, epsilon=expected)
    assert again.noise_multiplier == pytest.approx(1.0, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.01, 3.0, 1e6, 1e11])
def test_what_calibrate_gives_account_takes(epsilon: float) -> None:
    rows = [(f"p{n}", f"h{h}", 1) for n in range(50) for h in range(2)]
    schedule = replace(SCHEDULE, max_items_per_subject=1)
    made = subjectdp.calibrate("capped_item_dp", rows, schedule, epsilon)
    again = subjectdp.account("capped_item_dp", rows, schedule, made.noise_multiplier)
    assert again.subject.epsilon == made.subject.epsilon <= epsilon


def test_people_whom_another_exceeds_everywhere_are_left_out_and_no_others() -> None:
    random = np.random.default_rng(2)
    held = random.integers(0, 3, (60, 5)) * (random.random((60, 5)) < 0.6)
    held = held[held.sum(axis=1) > 0]
    rows = [(f"p{i}", f"h{j}", int(n)) for i, own in enumerate(held) for j, n in enumerate(own) if n]
    counts = as_counts(rows)
    column = [int(name[1:]) for name in counts.silos]
    kinds = {tuple(own[column]) for own in held}

    def exceeds(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return one != other and all(a >= b for a, b in zip(one, other, strict=True))

    worst = {own for own in kinds if not any(exceeds(other, own) for other in kinds)}
    found = _people(counts)
    assert {tuple(dict(person).get(silo, 0) for silo in range(5)) for person in found} == worst
    assert len(found) == len(worst)


def test_each_of_many_silos_has_the_noise_that_its_own_size_needs() -> None:
    """More than 64 silos, the largest first: their noise is found together, and ε of each alone is the target."""
    sizes = [40 + 45 * silo for silo in range(70)][::-1]
    rows = [(f"p{silo}", f"h{silo:02}", size) for silo, size in enumerate(sizes)]
    made = subjectdp.calibrate("local_item_dp", rows, SCHEDULE, 2.0)
    for silo in (0, 35, 69):
        step = sampled_gaussian_event(20 / sizes[silo], made.noise_multipliers[f"h{silo:02}"])
        alone = by_dp_accounting((step, 3 * math.ceil(sizes[silo] / 20)), grid=1e-4)
        assert 0.994 * 2.0 <= alone <= 2.0, f"silo of {sizes[silo]} items"
