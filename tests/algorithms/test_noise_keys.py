"""No two releases share their noise, and a run repeats its own."""

from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms import tiny
from subjectdp.config.sections import PerformanceConfig
from subjectdp.plan.plan import AccountingMode
from subjectdp.training.federation import noise_name

PUBLISHED = AccountingMode.AS_PUBLISHED


@pytest.mark.slow
def test_a_round_is_reproducible_and_seeds_differ() -> None:
    plan = tiny.tiny_plan("local_item_dp", None, PUBLISHED, noise=1.0)
    assert torch.equal(tiny.after_a_round(plan), tiny.after_a_round(plan))
    other = tiny.tiny_run(plan, seed=0)
    other.run_round(tiny.ROUND)
    assert not torch.equal(other.theta.double(), tiny.after_a_round(plan))


def first_noise(run_id: str = "one", noise: float = 1.0, speed: dict[str, int] | None = None, **facts: Any) -> Tensor:
    """The noise of the first step, of a run that differs in so much from others."""
    plan, partition = tiny.tiny_plan("local_item_dp", None, PUBLISHED, noise=noise), tiny.tiny_partition()
    partition.facts.update(facts)
    run = tiny.tiny_run(plan, partition)
    run.change(noise_name=noise_name(plan, run_id, partition, None, PerformanceConfig(**(speed or {}))))
    return run.step(1, 0, 0).add_noise(torch.zeros_like(run.theta), 1.0)


CHANGES: dict[str, dict[str, Any]] = {
    "run": {"run_id": "other"},
    "noise multiplier": {"noise": 1.01},
    "a subject": {"data": {"sha256": {"features": "less"}}},
    "partition": {"dropped": 1},
    "code": {},
    "items in a pass": {"speed": {"physical_batch_size": 7}},
    "threads": {"speed": {"threads": 2}},
}


@pytest.mark.parametrize("what", CHANGES)
def test_releases_that_differ_in_anything_share_no_noise(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference of their sums would be free of noise; where the rounding differs, it would be the rounding."""
    one = first_noise()
    assert torch.equal(one, first_noise())
    if what == "code":
        monkeypatch.setattr("subjectdp.training.federation.fingerprint", lambda *stages: "changed")
    other = first_noise(**CHANGES[what])
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 5 / len(one) ** 0.5


def test_rounds_steps_and_silos_never_share_noise() -> None:
    """All noise vectors of three rounds of two algorithms are different draws."""
    seen = set()
    for name, variant in (("local_item_dp", None), ("higrad_avg_dp", "v1")):
        run = tiny.tiny_run(tiny.tiny_plan(name, variant, PUBLISHED, steps=2, noise=1.0))
        for round_, silo, step in torch.cartesian_prod(*map(torch.arange, (3, 3, 2))).tolist():
            draw = run.step(round_ + 1, silo, step).add_noise(torch.zeros_like(run.theta), 1.0)
            seen.update(float(v) for v in draw[:3])
    assert len(seen) == 2 * 3 * 3 * 2 * 3
