"""Degenerate federations collapse to known algorithms."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from algorithms import tiny
from subjectdp.config.sections import PerformanceConfig
from subjectdp.data.partition import Partition
from subjectdp.plan.plan import AccountingMode, PrivacyPlan
from subjectdp.training.federation import noise_name

PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND


def after_a_round(plan: PrivacyPlan, partition: Partition | None = None) -> Tensor:
    run = tiny.tiny_run(plan, partition)
    run.run_round(1)
    return run.theta


@pytest.mark.parametrize("name", ["local_item_dp", "local_group_dp", "joint_noise"])
def test_without_noise_and_clipping_it_is_federated_averaging(name: str) -> None:
    private = after_a_round(tiny.without_clipping(tiny.tiny_plan(name, None, PUBLISHED)))
    assert torch.allclose(private, after_a_round(tiny.tiny_plan("fed_avg", None, PUBLISHED)), atol=1e-6)


def test_with_one_item_a_subject_higrad_v1_is_local_item_dp() -> None:
    partition = tiny.tiny_partition(one_item_a_subject=True)
    higrad = after_a_round(tiny.tiny_plan("higrad_avg_dp", "v1", PUBLISHED), partition)
    assert torch.equal(higrad, after_a_round(tiny.tiny_plan("local_item_dp", None, PUBLISHED), partition))
    several = tiny.tiny_partition()
    assert not torch.allclose(
        after_a_round(tiny.tiny_plan("higrad_avg_dp", "v1", PUBLISHED), several),
        after_a_round(tiny.tiny_plan("local_item_dp", None, PUBLISHED), several),
        atol=1e-4,
    )


def test_with_one_silo_local_item_dp_is_dp_sgd() -> None:
    """One silo, one step: θ − η/B · (clipped sum + noise), the noise read off a run with θ unchanged."""
    plan = tiny.tiny_plan("local_item_dp", None, PUBLISHED, steps=1, noise=1.3)
    one = replace(plan, silos=plan.silos[:1])
    whole = tiny.tiny_partition()
    stop = int(whole.train_offsets[1])
    silo = replace(
        whole,
        train_items=whole.train_items[:stop],
        train_subjects=whole.train_subjects[:stop],
        train_offsets=whole.train_offsets[:2],
    )
    noisy = after_a_round(one, silo)
    quiet = after_a_round(replace(one, silos=tuple(replace(s, noise_multiplier=0.0) for s in one.silos)), silo)
    standard = (quiet - noisy) * tiny.BATCH / (tiny.RATE * 1.3 * tiny.CLIP)
    assert float(standard.std()) == pytest.approx(1.0, abs=0.25)
    assert float(standard.mean()) == pytest.approx(0.0, abs=0.35)


def test_a_round_is_reproducible_and_seeds_differ() -> None:
    plan = tiny.tiny_plan("local_item_dp", None, PUBLISHED, noise=1.0)
    assert torch.equal(after_a_round(plan), after_a_round(plan))
    other = tiny.tiny_run(plan, seed=0)
    other.run_round(1)
    assert not torch.equal(other.theta, after_a_round(plan))


def test_runs_of_one_seed_never_share_noise() -> None:
    """Two runs that differ in σ alone, or by a subject: a difference of their sums would be free of noise."""
    draws = []
    for run_id, data in (("one", "some"), ("other", "some"), ("one", "less"), ("one", "some")):
        partition = tiny.tiny_partition()
        partition.facts["data"] = {"sha256": {"features": data}}
        run = tiny.tiny_run(tiny.tiny_plan("local_item_dp", None, PUBLISHED), partition, run_id=run_id)
        draws.append(run.step(1, 0, 0).add_noise(torch.zeros_like(run.theta), 1.0))
    correlations = torch.corrcoef(torch.stack(draws))[-1, :-1]
    assert float(correlations[0]) == pytest.approx(1.0)
    assert float(correlations[1:].abs().max()) < 5 / len(draws[0]) ** 0.5


@pytest.mark.parametrize("what", ["plan", "partition", "code"])
def test_releases_of_different_mechanisms_never_share_noise(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run id, but another σ, as another version of an accountant gives it; another partition; other code."""
    draws = []
    for changed in (False, True):
        plan = tiny.tiny_plan("local_item_dp", None, PUBLISHED, noise=1.01 if changed and what == "plan" else 1.0)
        partition = tiny.tiny_partition()
        if changed and what == "partition":
            partition.facts["dropped"] = 1
        if changed and what == "code":
            monkeypatch.setattr("subjectdp.training.federation.fingerprint", lambda *stages: "changed")
        run = tiny.tiny_run(plan, partition)
        draws.append(run.step(1, 0, 0).add_noise(torch.zeros_like(run.theta), 1.0))
    assert abs(float(torch.corrcoef(torch.stack(draws))[0, 1])) < 5 / len(draws[0]) ** 0.5


@pytest.mark.parametrize("speed", [{"physical_batch_size": 7}, {"threads": 2}])
def test_sums_that_are_rounded_in_another_way_share_no_noise(speed: dict[str, int]) -> None:
    """Under one noise the difference of two models would be their rounding, which depends on the data."""
    plan, partition = tiny.tiny_plan("local_item_dp", None, PUBLISHED, noise=1.0), tiny.tiny_partition()
    other = noise_name(plan, "a", partition, None, PerformanceConfig(**speed))
    assert other != noise_name(plan, "a", partition, None, PerformanceConfig())


def test_the_place_of_a_cache_changes_no_noise() -> None:
    plans = [tiny.tiny_plan("local_item_dp", None, PUBLISHED, noise=1.0) for _ in range(2)]
    moved = replace(plans[1], settings=replace(plans[1].settings, cache_dir="elsewhere"))
    partition = tiny.tiny_partition()
    assert noise_name(plans[0], "same", partition) == noise_name(moved, "same", partition)


def test_rounds_steps_and_silos_never_share_noise() -> None:
    """All noise vectors of three rounds of two algorithms are different draws."""
    seen = set()
    for name, variant in (("local_item_dp", None), ("higrad_avg_dp", "v1")):
        plan = tiny.tiny_plan(name, variant, PUBLISHED, steps=2, noise=1.0)
        run = tiny.tiny_run(plan)
        for round_ in (1, 2, 3):
            for silo in range(3):
                for step in range(2):
                    zero = torch.zeros_like(run.theta)
                    draw = run.step(round_, silo, step).add_noise(zero, 1.0)
                    seen.update(float(v) for v in draw[:3])
    assert len(seen) == 2 * 3 * 3 * 2 * 3
