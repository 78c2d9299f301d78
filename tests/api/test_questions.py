"""What caps cost, the ε of a person by what they have, silos by size, epochs; the schedule without tuning."""

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import subjectdp
from accounting.test_subject_plans import gaussian_epsilon
from subjectdp.api.accounting import person_table, worst_person
from subjectdp.api.counts import Counts, as_counts
from subjectdp.config.scenario import load_scenario
from subjectdp.errors import ConfigError, DataError, PrivacyError
from subjectdp.plan.plan import DivisorRule

COUNTS = {("ann", "n"): 6, ("ann", "s"): 2, ("bob", "n"): 3, ("cleo", "s"): 9, ("dan", "n"): 1, ("eve", "s"): 1}
SCHEDULE = subjectdp.Schedule(rounds=5, steps=2, sampling_probability=0.2)
CAPPED = dataclasses.replace(SCHEDULE, max_items_per_subject=3)


def test_each_cap_is_calibrated_and_counted() -> None:
    rows = subjectdp.caps("capped_item_dp", COUNTS, SCHEDULE, 4.0)
    assert [row.cap for row in rows] == [1, 2, 4, 8] and "np." not in repr(rows)
    assert [row.items_kept for row in rows] == [6, 10, 15, 21]
    assert rows[2].items_lost == pytest.approx(7 / 22) and rows[2].people_touched == 2 / 5
    for row in rows:
        capped = dataclasses.replace(SCHEDULE, max_items_per_subject=row.cap)
        report = subjectdp.account("capped_item_dp", COUNTS, capped, row.noise_multiplier)
        assert 3.9 < report.subject.epsilon <= 4.0
        assert row.noise_per_item == pytest.approx(2 * row.noise_multiplier / row.items_kept)
    assert [row.cap for row in subjectdp.caps("capped_item_dp", COUNTS, SCHEDULE, 4.0, tried=[3])] == [3]
    with pytest.raises(DataError, match="sizes of silos do not say whom a cap touches"):
        subjectdp.caps("capped_item_dp", subjectdp.SiloSizes(("n",), (9,)), SCHEDULE, 4.0)


def test_a_person_has_the_epsilon_of_a_federation_of_such_people() -> None:
    capped = dataclasses.replace(SCHEDULE, max_items_per_subject=8)
    plan = subjectdp.account("capped_item_dp", COUNTS, capped, 5.0).plan
    for items, silos in ((1, 1), (4, 1), (4, 2)):
        alike = {("p", silo): items for silo in ("n", "s")[:silos]} | {("q", silo): 1 for silo in ("n", "s")}
        one = dataclasses.replace(capped, max_items_per_subject=items, silos_per_subject=2)
        wanted = subjectdp.account("capped_item_dp", alike, one, 5.0)
        found = subjectdp.epsilon_of_a_person(plan, items, silos)
        guarantee = wanted.subject if silos == 2 else wanted.subject_at_one_silo
        assert found == pytest.approx(guarantee.epsilon, rel=1e-6)
    table = dict(person_table(plan))
    assert list(table) == [1, 2, 4, 8] and all(one < two for one, two in table.values())
    with pytest.raises(ConfigError, match=r"plan to be a plan, such as report\.plan, got 'PrivacyReport'"):
        subjectdp.epsilon_of_a_person(wanted, 1, 1)
    with pytest.raises(ConfigError, match="items to be from 1 to 8, the cap"):
        subjectdp.epsilon_of_a_person(plan, 9, 1)
    uncapped = subjectdp.account("local_item_dp", COUNTS, SCHEDULE, 5.0).plan
    assert subjectdp.epsilon_of_a_person(uncapped, 80, 1) > 1.5 * subjectdp.epsilon_of_a_person(uncapped, 40, 1)
    with pytest.raises(ConfigError, match="items to be a whole number from 1 on"):
        subjectdp.epsilon_of_a_person(uncapped, 0, 1)
    with pytest.raises(ConfigError, match="silos to be from 1 to 2"):
        subjectdp.epsilon_of_a_person(plan, 1, 3)
    with pytest.raises(ConfigError, match="silos to be from 1 to 1"):  # its part at a silo is made for so many
        subjectdp.epsilon_of_a_person(dataclasses.replace(plan, silos_per_subject=1), 1, 2)
    leaks = dataclasses.replace(plan.mechanism, divisor_rule=DivisorRule.REALISED_SUBJECTS)
    with pytest.raises(PrivacyError, match="can be stated: the divisor is the number of distinct subjects"):
        subjectdp.epsilon_of_a_person(dataclasses.replace(plan, mechanism=leaks), 1, 1)


def test_numbers_of_any_kind_are_plain_ones_afterwards() -> None:
    settings = subjectdp.PrivacySettings(noise_multiplier=Fraction(3, 2), max_items_per_subject=np.int64(3))  # type: ignore[arg-type]
    settings.check()
    assert repr((settings.noise_multiplier, settings.max_items_per_subject)) == "(1.5, 3)"


def test_the_worst_real_person_is_named() -> None:
    counts = as_counts(COUNTS)
    assert isinstance(counts, Counts)
    report = subjectdp.account("local_item_dp", counts, SCHEDULE, 5.0)
    found = worst_person(report.plan, counts)
    assert found is not None
    name, held, epsilon = found
    assert (name, held) == ("cleo", {"s": 9}) and epsilon == pytest.approx(report.subject.epsilon, rel=1e-6)


@pytest.mark.slow
def test_the_worst_of_many_people_is_named_by_noise_and_steps() -> None:
    """Not by items and sampling alone: of 100 kinds, whose epsilon are too many to compute, the last one is worst."""
    held = {(f"p{i}", silo): n for i in range(100) for silo, n in (("x", 30 + i), ("y", 300 - 2 * i))}
    counts = as_counts(held | {(f"q{i}", "y"): 60 for i in range(200)})
    assert isinstance(counts, Counts)
    schedule = subjectdp.Schedule(rounds=1, batch_size=64)
    report = subjectdp.account("local_item_dp", counts, schedule, {"x": 400.0, "y": 40.0})
    found = worst_person(report.plan, counts)
    assert found is not None and found[0] == "p0" and found[2] == report.subject.epsilon


def test_silos_by_size_are_those_of_counts_of_such_sizes(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text("silo,items,people\nn,40,10\ns,60,15\n")
    sizes = subjectdp.read_sizes(path)
    assert (sizes.silos, sizes.items, sizes.people) == (("n", "s"), (40, 60), (10, 15))
    schedule = subjectdp.Schedule(rounds=5, epochs=3, batch_size=10, max_items_per_subject=4)
    counts = {(f"n{who}", "n"): 4 for who in range(10)} | {(f"s{who}", "s"): 4 for who in range(15)}
    by_size = subjectdp.account("capped_item_dp", sizes, schedule, 5.0, 1e-3)
    at_two = dataclasses.replace(schedule, silos_per_subject=2)
    by_people = subjectdp.account("capped_item_dp", counts, at_two, 5.0, 1e-3)
    assert by_size.subject.epsilon == pytest.approx(by_people.subject.epsilon)
    assert [silo.steps_per_round for silo in by_size.plan.silos] == [12, 18]  # three epochs each
    at_one = subjectdp.account("capped_item_dp", sizes, dataclasses.replace(schedule, silos_per_subject=1), 5.0, 1e-3)
    assert at_one.subject.epsilon < by_size.subject.epsilon and not at_one.subject.conditional
    with pytest.raises(ConfigError, match="max_items_per_subject"):
        subjectdp.account("capped_item_dp", sizes, dataclasses.replace(schedule, max_items_per_subject=None), 5.0)
    path.write_text("silo,items,cap\nn,40,4\ns,3,2\n")
    own = subjectdp.account("capped_item_dp", subjectdp.read_sizes(path), subjectdp.Schedule(5, 2, 3), 5.0)
    assert [silo.max_items_per_subject for silo in own.plan.silos] == [4, 2] and not own.subject.conditional
    assert [items for items, _ in person_table(own.plan)] == [1, 2, 4]
    wrong = {"silo,items\nn,0": 2, "silo,items\nn,1,000": 2, "silo,items\nn,1\nn,2": 3}
    for rows, n in (wrong | {"a,b\n1,2": 1, "silo,items,kap\nn,1,1": 1}).items():
        path.write_text(rows)
        with pytest.raises(DataError, match=f"line {n}"):
            subjectdp.read_sizes(path)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"items": (60,)}, r"items of SiloSizes to be 3 numbers, one for each silo, got \(60,\)"),
        ({"silos": ("n", "m", "n")}, "different names"),
        ({"silos": ("n", "m", "N")}, "silos 'n' and 'N' differ in capitals alone"),
        ({"silos": {"n": 60, "m": 60, "k": 60}}, "a list, one value for each silo"),
        ({"people": (20,)}, "people of SiloSizes to be 3 numbers"),
        ({"people": (0, -3, 20)}, "people of silo 'n' to be a whole number from 1 on, got 0"),
        ({"caps": (3, 0, 3)}, "caps of silo 'm'"),
        ({"items": (60, 60.5, 60)}, "items of silo 'm' to be a whole number"),
        ({"people": (2, 20, 20), "caps": (3, 3, 3)}, "items of silo 'n' after the cap to be at most 6"),
    ],
)
def test_sizes_that_do_not_fit_one_another(wrong: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"silos": ("n", "m", "k"), "items": (60, 60, 60)} | wrong
    with pytest.raises((ConfigError, DataError), match=told):
        subjectdp.SiloSizes(**given)


def test_the_schedules_cap_bounds_the_items_of_a_silos_people() -> None:
    sizes = subjectdp.SiloSizes(("n", "m"), (60, 61), people=(20, 20))
    with pytest.raises(ConfigError, match="items of silo 'm' after the cap to be at most 60, those of 20 people"):
        subjectdp.account("capped_item_dp", sizes, dataclasses.replace(SCHEDULE, max_items_per_subject=3), 5.0)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: subjectdp.Schedule(rounds="20"), "rounds to be a whole number from 1 on, got '20'"),
        (lambda: subjectdp.Schedule(rounds=2, epochs=0, batch_size=2), "epochs to be a whole number"),
        (lambda: subjectdp.Schedule(rounds=2, max_items_per_subject=True), "max_items_per_subject"),
        (lambda: subjectdp.Schedule(rounds=2, max_items_per_subject=3.5), "max_items_per_subject"),
        (lambda: subjectdp.account("capped_item_dp", COUNTS, CAPPED, None), "noise_multiplier to be above 0, got None"),
        (lambda: subjectdp.account("capped_item_dp", COUNTS, CAPPED, "2"), "noise_multiplier to be above 0"),
        (lambda: subjectdp.account("capped_item_dp", COUNTS, CAPPED, 2.0, delta="1e-5"), "delta to be above 0"),
        (lambda: subjectdp.calibrate("capped_item_dp", COUNTS, CAPPED, "4"), "epsilon to be above 0, got '4'"),
        (lambda: subjectdp.calibrate("capped_item_dp", COUNTS, CAPPED, math.inf), "epsilon"),
        (lambda: subjectdp.PrivacySettings(noise_multiplier=1, max_items_per_subject=3.5).check(), "max_items"),
        (lambda: subjectdp.PrivacySettings(epsilon=1, steps=0).check(), "steps to be a whole number from 1 on, got 0"),
        (lambda: subjectdp.ReleaseSettings(rounds=2, epsilon=1, delta="1e-5").check(), "delta to be above 0"),
        (lambda: subjectdp.account("capped_item_dp", COUNTS, CAPPED, 2.0, delta=0.5), "delta"),
        (lambda: subjectdp.calibrate("capped_item_dp", COUNTS, CAPPED, -1.0), "epsilon"),
        (lambda: subjectdp.calibrate("capped_item_dp", COUNTS, CAPPED, 1.0, unit="person"), "Unknown unit 'person'"),
        (lambda: subjectdp.mechanism("joint_noise", trust="nobody"), "Unknown trust"),
        (lambda: subjectdp.account(None, COUNTS, CAPPED, 2.0), "algorithm to be a name or a mechanism, got None"),
        (lambda: subjectdp.caps("local_item_dp", COUNTS, SCHEDULE, 4.0, tried=3), "tried to be a list of caps, got 3"),
        (lambda: subjectdp.SubjectPrivacyEngine().get_epsilon(), "make_private to be called first"),
    ],
)
def test_what_is_out_of_range_or_unknown(ask: Callable[[], Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ask()


# --- the schedule without tuning ---


SCENARIOS = Path(__file__).resolve().parents[2] / "config" / "scenarios"
UNTUNED = {  # subjects, inputs times classes, ε among the runs'
    "beyond-180": (180, 128 * 62, {1.0, 4.0}),
    "beyond-660": (660, 129 * 80, {4.0}),
    "uldp-180-local": (180, 128 * 62, {4.0}),
}


@pytest.mark.parametrize("name", UNTUNED)
def test_the_untuned_scenarios_follow_the_rule(name: str) -> None:
    present, weights, targets = UNTUNED[name]
    runs = load_scenario([str(SCENARIOS / f"{name}.yaml")]).runs_by_id.values()
    ours = [run for run in runs if run.algorithm.name == "subject_release"]
    assert targets <= {run.privacy.epsilon for run in ours}
    for run in ours:
        held = run.partition.silos_per_subject or run.partition.silos
        subjects = run.privacy.predicted_subjects or present
        target = (run.privacy.epsilon, run.privacy.delta)
        found = subjectdp.untuned_schedule(subjects, weights, *target, run.partition.silos, held)
        assert run.training.rounds == found.rounds and run.privacy.clip_norm == found.clip_norm
        assert run.training.optimizer.learning_rate == pytest.approx(found.learning_rate, rel=2e-3)


@pytest.mark.parametrize(
    ("n", "p", "epsilon", "delta"),
    [(1, 1, 0.1, 1e-3), (45, 7936, 8.0, 1e-5), (100_000, 10_000_000, 0.5, 1e-9), (3500, 246_078, 4.0, 1e-6)],
)
def test_the_noise_of_all_rounds_on_a_weight_is_as_told(n: int, p: int, epsilon: float, delta: float) -> None:
    """Rate times C times noise of a round over C, √R/(μ N), in √R independent rounds; μ by its own equation."""
    found = subjectdp.untuned_schedule(n, p, epsilon, delta)
    mu = found.learning_rate * found.clip_norm * found.rounds / (n * found.weight_noise)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-4)
    assert found.weight_noise == pytest.approx(min(1.0, 4 * math.sqrt(n * mu / p)), rel=1e-6)
    assert found.rounds >= 40
    assert found.rounds == 40 or found.learning_rate * found.clip_norm == pytest.approx(20, rel=0.06)


@pytest.mark.parametrize(("held", "rate"), [(16, 48.2), (4, 17.05), (1, 6.03)])
def test_subjects_at_few_silos_have_the_noise_of_fewer(held: int, rate: float) -> None:
    """180 subjects at m of 16 silos: 180, 90 and 45 at all of them."""
    found = subjectdp.untuned_schedule(180, 7936, 4.0, 1e-5, silos=16, silos_per_subject=held)
    assert found == subjectdp.untuned_schedule(round(180 * math.sqrt(held / 16)), 7936, 4.0)
    assert (found.rounds, found.clip_norm) == (40, 0.05)
    assert found.learning_rate == pytest.approx(rate, rel=2e-3)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"silos": 0}, "silos to be a whole number from 1 on"),
        ({"silos": 4, "silos_per_subject": 5}, "silos_per_subject to be 1 to 4, the number of silos"),
        ({"subjects": 0.5}, "subjects to be a whole number from 1 on"),
        ({"weights": -5}, "weights to be a whole number"),
        ({"epsilon": 0}, "epsilon to be above 0"),
        ({"epsilon": math.nan}, "epsilon to be above 0"),
        ({"delta": 1}, "delta to be above 0 and below 1"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float], named: str) -> None:
    good: dict[str, Any] = {"subjects": 180, "weights": 5, "epsilon": 4.0}
    with pytest.raises(ConfigError, match=named):
        subjectdp.untuned_schedule(**{**good, **wrong})
