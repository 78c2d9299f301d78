"""One round of every algorithm against a float64 loop that was written from the papers' pseudo-code.

Noise is zero there. How much of it an algorithm adds, and where, is in auditing/test_conformance.py; the noise of what
depends on the mini-batch is here.
"""

import math
from dataclasses import replace

import pytest
import torch

from algorithms import tiny
from algorithms.reference import PapersRules
from subjectdp.plan.plan import AccountingMode

PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND
NOISE = 2.0
CASES = [
    ("fed_avg", None, PUBLISHED, "fed_avg"),
    ("local_item_dp", None, PUBLISHED, "local_item_dp"),
    ("local_item_dp", None, SOUND, "local_item_dp"),
    ("user_ldp", None, PUBLISHED, "user_ldp"),
    ("user_ldp", "v1_sampled", PUBLISHED, "user_ldp"),
    ("user_ldp", "v3", PUBLISHED, "user_ldp"),
    ("user_ldp", None, SOUND, "user_ldp"),
    ("local_group_dp", None, PUBLISHED, "local_group_dp"),
    ("local_group_dp", None, SOUND, "local_group_dp"),
    ("higrad_avg_dp", "v1", PUBLISHED, "higrad_v1"),
    ("higrad_avg_dp", "v1", SOUND, "higrad_v1"),
    ("higrad_avg_dp", "v3", PUBLISHED, "higrad_v3"),
    ("higrad_avg_dp", "v3", SOUND, "higrad_v3_sound"),
    ("joint_noise", None, PUBLISHED, "joint_noise"),
    ("joint_noise", None, SOUND, "joint_noise"),
    ("capped_item_dp", None, SOUND, "capped_item_dp"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant", "mode", "rule"), CASES)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_round_is_the_papers_round(
    name: str, variant: str | None, mode: AccountingMode, rule: str, steps: int
) -> None:
    found = tiny.after_a_round(tiny.tiny_plan(name, variant, mode, steps))
    reference = PapersRules()
    expected = reference.averaged(rule, steps)
    assert torch.allclose(found, expected, atol=3e-6)
    assert float((expected - reference.start).norm()) > 0.01, "the reference must move, or the comparison is empty"


@pytest.mark.parametrize("mode", [PUBLISHED, SOUND])
def test_a_central_round_is_one_descent_on_the_mean_of_the_silos(mode: AccountingMode) -> None:
    """With one step it is the mean of the silos' models."""
    found = tiny.after_a_round(tiny.tiny_plan("central_sub_dp", "v0", mode))
    assert torch.allclose(found, PapersRules().averaged("central", 1), atol=3e-6)


def test_the_rules_differ_where_they_should() -> None:
    """Guards the comparison itself: every rule of the reference gives a result of its own."""
    rules = ["fed_avg", "user_ldp", "local_item_dp", "higrad_v1", "higrad_v3", "higrad_v3_sound"]
    results = torch.stack([PapersRules().averaged(rule, 2) for rule in rules])
    assert float(torch.pdist(results).min()) > 1e-3


@pytest.mark.parametrize(("name", "variant"), [("local_group_dp", None), ("central_sub_dp", "v0")])
def test_published_group_noise_grows_with_the_largest_group(name: str, variant: str | None) -> None:
    """σ_Z = Z σ_1 in the hand-made plan; CentralSubDP's noise stands outside the 1/B."""
    plan = tiny.tiny_plan(name, variant, PUBLISHED, steps=1, noise=NOISE)
    run = tiny.tiny_run(plan, model=tiny.WIDE)
    run.run_round(tiny.ROUND)
    groups = [row.largest_group for row in run.rows]
    used = [row.noise_multiplier for row in run.rows]
    assert used == [NOISE * z for z in groups] and max(groups) > 1
    divisor = 1 if name == "central_sub_dp" else tiny.BATCH
    std = tiny.RATE * tiny.CLIP * math.sqrt(sum(u * u for u in used)) / (3 * divisor)
    assert tiny.fits(tiny.noise_of_a_round(plan), std)


def test_an_empty_batch_is_still_a_step_with_noise() -> None:
    plan = tiny.tiny_plan("local_item_dp", None, PUBLISHED, steps=1, noise=NOISE)
    plan = replace(plan, silos=tuple(replace(s, sampling_probability=1e-12) for s in plan.silos))
    run = tiny.tiny_run(plan, model=tiny.WIDE)
    start = run.theta.clone()
    run.run_round(tiny.ROUND)
    assert [row.items for row in run.rows] == [0, 0, 0]
    assert all(math.isnan(row.clipped_fraction) for row in run.rows)
    assert tiny.fits(run.theta - start, tiny.RATE * NOISE * tiny.CLIP / math.sqrt(3) / tiny.BATCH)
