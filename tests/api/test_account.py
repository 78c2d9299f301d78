"""``account`` and ``calibrate`` against dp-accounting's own accountants, and their errors."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import subjectdp
from accounting.reference import by_dp_accounting, items_of_a_subject
from accounting.reference import sampled_gaussian_event as sampled
from subjectdp.errors import ConfigError, PrivacyError

LIBRARY = Path(__file__).parents[2] / "workflow" / "lib"
COUNTS = [("ann", "north", 3), ("ben", "north", 57), ("ann", "south", 5), ("cara", "south", 75)]
CAPPED = subjectdp.Schedule(rounds=5, steps=4, batch_size=6, max_items_per_subject=2)
FEW = [(f"s{n}", silo, 2) for silo, size in (("north", 30), ("south", 40)) for n in range(size)]


@pytest.mark.slow
def test_unequal_silos_and_noise_against_dp_accounting() -> None:
    """60 and 80 items, B = 6: q = 0.1 and 0.075. Both noise levels and all units."""
    report = subjectdp.account("local_item_dp", FEW, CAPPED, {"south": 6.0, "north": 8.0})
    steps = 20
    north, south = (0.1, 8.0), (0.075, 6.0)
    one_item = max(by_dp_accounting((sampled(*silo), steps)) for silo in (north, south))
    assert report.item.epsilon == pytest.approx(one_item, rel=2e-3)
    at_one = [by_dp_accounting((items_of_a_subject(q, 2, sigma), steps)) for q, sigma in (north, south)]
    assert report.subject_at_one_silo.epsilon == pytest.approx(max(at_one), rel=1e-2)
    both = by_dp_accounting(*((items_of_a_subject(q, 2, sigma), steps) for q, sigma in (north, south)))
    assert report.subject.epsilon == pytest.approx(both, rel=1e-2)
    assert report.subject.epsilon > report.subject_at_one_silo.epsilon > report.item.epsilon
    assert report.silo.epsilon is None and "whole mini-batch" in str(report.silo.reason)
    assert report.noise_multipliers == {"north": 8.0, "south": 6.0}
    with pytest.raises(PrivacyError, match="from 6 to 8"):
        _ = report.noise_multiplier


def test_noise_of_silos_is_named_as_the_counts_are() -> None:
    rows, schedule = [(f"p{n}", f"0{n % 2 + 1}", 1) for n in range(20)], subjectdp.Schedule(5, 1, batch_size=2)
    for noise in ({1: 6.0, 2: 8.0}, {"01": 6.0, "2": 8.0}):
        assert subjectdp.account("local_item_dp", rows, schedule, noise).noise_multipliers == {"1": 6.0, "2": 8.0}
    for noise in ({1: 6.0, "1": 6.0, 2: 8.0}, {1: 6.0}):
        with pytest.raises(ConfigError, match=r"silos of noise_multiplier to be those of the counts, \['1', '2'\]"):
            subjectdp.account("local_item_dp", rows, schedule, noise)


def test_calibration_for_another_unit_than_the_algorithms() -> None:
    own = subjectdp.calibrate("capped_item_dp", FEW, CAPPED, epsilon=3.0).noise_multiplier
    asked = subjectdp.calibrate("local_item_dp", FEW, CAPPED, epsilon=3.0, unit="subject")
    assert asked.noise_multiplier == pytest.approx(own)
    item = subjectdp.calibrate("local_item_dp", FEW, CAPPED, epsilon=3.0, unit="item")
    assert max(item.noise_multipliers.values()) < own


def test_the_noise_for_an_item_where_silos_take_part_in_some_of_the_rounds() -> None:
    """Known to all, m of 30 rounds have an item's silo: δ is the mean of Gaussian mechanisms' of μ = √m/σ."""
    schedule = subjectdp.Schedule(30, 1, sampling_probability=1.0, silos_per_round=1)
    sigma = subjectdp.calibrate("local_item_dp", COUNTS, schedule, 2.0).noise_multiplier
    rounds = np.arange(1, 31)
    mu = np.sqrt(rounds) / sigma
    deltas = stats.norm.cdf(mu / 2 - 2 / mu) - np.exp(2) * stats.norm.cdf(-mu / 2 - 2 / mu)
    assert 0.97e-5 < stats.binom.pmf(rounds, 30, 0.5) @ deltas <= 1e-5
    turns = replace(schedule, steps=None, sampling_probability=0.5, silo_choice="in_turn")
    assert subjectdp.calibrate("subject_release", COUNTS, turns, 2.0, unit="item").item.epsilon <= 2.0


def test_one_epoch_is_the_default() -> None:
    schedule = subjectdp.Schedule(rounds=2, batch_size=30)
    plan = subjectdp.account("local_item_dp", COUNTS, schedule, 1.0).plan
    assert [silo.steps_per_round for silo in plan.silos] == [2, 3]
    by_q = replace(schedule, batch_size=None, sampling_probability=0.3)
    plan = subjectdp.account("local_item_dp", COUNTS, by_q, 1.0).plan
    assert [silo.steps_per_round for silo in plan.silos] == [4, 4]
    assert [silo.divisor for silo in plan.silos] == [18.0, 24.0]


@pytest.mark.slow
def test_what_was_read_from_the_data_is_said() -> None:
    schedule = replace(CAPPED, max_items_per_subject=None)
    report = subjectdp.account("local_item_dp", COUNTS, schedule, 4.0)
    assert any("read from the data" in line for line in report.subject.assumptions)
    assert report.subject.conditional and not report.item.conditional
    capped = subjectdp.account("local_item_dp", FEW, CAPPED, 4.0)
    assert any("cap" in line and "enforced" in line for line in capped.subject.assumptions)
    assert "one subject, at all its silos" in str(capped)
    assert set(capped.to_dict()["guarantees"]) == {"item", "subject_one_silo", "subject"}
    assert [each.unit for each in capped.guarantees] == ["item", "subject_at_one_silo", "subject", "silo"]


@pytest.mark.parametrize(
    ("algorithm", "changes", "noise", "message", "error"),
    [
        ("local_item", {}, 1.0, "Unknown algorithm .*Did you mean 'local_item_dp'", ConfigError),
        ("fed_avg", {}, 1.0, "adds no noise", PrivacyError),
        ("capped_item_dp", {"max_items_per_subject": None}, 1.0, "max_items_per_subject.*cap", ConfigError),
        ("local_item_dp", {"batch_size": 61}, 1.0, "Expected batch_size.* 60 items", ConfigError),
        ("local_item_dp", {"batch_size": None}, 1.0, "batch_size and sampling_prob.* got 'neither'", ConfigError),
        ("local_item_dp", {"sampling_probability": 0.1}, 1.0, "got 'both'", ConfigError),
        ("subject_release", {}, 1.0, "Expected sampling_probability.* subject", ConfigError),
        ("local_item_dp", {"sampling": "shuffled"}, 1.0, "poisson or fixed_batch_size", ConfigError),
        ("local_item_dp", {"rounds": 0}, 1.0, "Expected rounds", ConfigError),
        ("local_item_dp", {"epochs": 2}, 1.0, "Expected epochs to be left out where steps are given", ConfigError),
        ("local_item_dp", {"silos_per_round": 3}, 1.0, "Expected silos_per_round", ConfigError),
        ("local_item_dp", {}, 1e-6, "Expected noise_multiplier.* at least 1e-05", ConfigError),
        ("local_item_dp", {}, 1e12, "Expected noise_multiplier.* at most 1e\\+09", ConfigError),
        ("local_item_dp", {"silo_choice": None}, 1.0, "Unknown silo_choice None", ConfigError),
        ("local_item_dp", {}, {"north": 1.0, "south": 1e12}, "noise_multiplier.* at most 1e\\+09", ConfigError),
        ("local_item_dp", {}, {"north": 1.0}, "those of the counts", ConfigError),
        ("joint_noise", {}, 1.0, "steps to be 1 .*count steps as rounds", PrivacyError),
        ("central_sub_dp", {}, 1.0, "Expected steps to be left out with central_sub_dp", ConfigError),
        ("central_sub_dp", {"steps": None, "epochs": 2}, 1.0, "Expected epochs to be left out with", ConfigError),
    ],
)
def test_what_is_refused(algorithm: str, changes: dict[str, Any], noise: Any, message: str, error: Any) -> None:
    with pytest.raises(error, match=message) as refused:
        subjectdp.account(algorithm, FEW, replace(CAPPED, **changes), noise)
    keys = ("training.", "partition.", "privacy.noise", ".name", "own_noise")
    assert not any(key in str(refused.value) for key in keys)


def test_other_kinds_are_refused() -> None:
    for function in (subjectdp.account, subjectdp.calibrate):
        with pytest.raises(ConfigError, match="schedule to be a Schedule, got 'dict'"):
            function("local_item_dp", FEW, {"rounds": 3}, 1.0)  # type: ignore[arg-type]
    rare = subjectdp.Schedule(rounds=3, steps=1, sampling_probability=1e-9)
    for noise in (1.0, {"north": 1.0, "south": 1.0}):  # dp-accounting has no end there
        with pytest.raises(PrivacyError, match="the sampling probability to be at least 1e-07, got 1e-09"):
            subjectdp.account("local_item_dp", FEW, rare, noise)
    with pytest.raises(ConfigError, match="max_items_per_subject to be left out"):
        subjectdp.caps("local_item_dp", FEW, CAPPED, 1.0)
    with pytest.raises(ConfigError, match="seed to be a whole number"):
        subjectdp.SubjectPrivacyEngine("abc")  # type: ignore[arg-type]


def test_trust_changes_the_observer_and_epsilon() -> None:
    schedule = subjectdp.Schedule(rounds=20, sampling_probability=1.0)
    local = subjectdp.account("subject_release", COUNTS, schedule, 8.0)
    shared = subjectdp.mechanism("subject_release", trust="secure_aggregation")
    summed = subjectdp.account(shared, COUNTS, schedule, 8.0)
    assert summed.subject.epsilon == local.subject.epsilon, "8 of what is seen"
    assert list(summed.noise_multipliers.values()) == pytest.approx([8.0 / 2**0.5] * 2)
    assert "multiplier 8 of the sum over silos (5.65685 at each of 2)" in str(summed)
    each = subjectdp.account(shared, COUNTS, schedule, summed.noise_multipliers)
    assert each.noise_multiplier == pytest.approx(8.0) and each.subject.epsilon == summed.subject.epsilon
    assert "sum over the silos" in summed.subject.observer


def test_importing_is_light_and_names_are_whole() -> None:
    code = (
        "import sys, subjectdp\n"
        "heavy = {'numpy', 'scipy', 'torch', 'pandas', 'pydantic', 'dp_accounting', 'yaml', 'grimp'}\n"
        "print(sorted(heavy & set(sys.modules)), sorted(set(subjectdp.__all__) - set(dir(subjectdp))))\n"
    )
    done = subprocess.check_output([sys.executable, "-c", code], env={"PYTHONPATH": str(LIBRARY)}, text=True)
    assert done == "[] []\n"
    for name in subjectdp.__all__:
        assert getattr(subjectdp, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'acount'"):
        _ = subjectdp.acount


def test_caps_that_an_algorithm_does_not_read_are_refused() -> None:
    schedule = subjectdp.Schedule(rounds=3, sampling_probability=0.5)
    with pytest.raises(ConfigError, match="one whose noise a cap changes"):
        subjectdp.caps("subject_release", [("a", "x", 3), ("b", "x", 1)], schedule, epsilon=4.0)
