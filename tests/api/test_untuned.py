"""The schedule without tuning: the scenarios follow the rule, and its equations hold for any numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import subjectdp
from accounting.test_subject_plans import gaussian_epsilon
from subjectdp.config import load_scenario
from subjectdp.errors import ConfigError

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
        ({"silos": 0}, "silos to be at least 1"),
        ({"silos": 4, "silos_per_subject": 5}, "silos_per_subject to be 1 to 4, the number of silos"),
        ({"subjects": 0}, "subjects to be at least 1"),
        ({"weights": -5}, "weights to be at least 1"),
        ({"epsilon": 0}, "epsilon to be above 0"),
        ({"epsilon": math.nan}, "epsilon to be above 0"),
        ({"delta": 1}, "delta to be above 0 and below 1"),
    ],
)
def test_numbers_out_of_range_are_refused(wrong: dict[str, float], named: str) -> None:
    good: dict[str, Any] = {"subjects": 180, "weights": 5, "epsilon": 4.0}
    with pytest.raises(ConfigError, match=named):
        subjectdp.untuned_schedule(**{**good, **wrong})
