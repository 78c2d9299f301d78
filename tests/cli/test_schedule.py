"""``subjectdp schedule``: the scenarios follow the rule, and its equations hold for any numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml

from accounting.test_subject_plans import gaussian_epsilon
from subjectdp.accounting.averaged_noise import untuned_schedule
from subjectdp.cli.main import main
from subjectdp.config import load_scenario

SCENARIOS = Path(__file__).resolve().parents[2] / "config" / "scenarios"
UNTUNED = {  # subjects, inputs times classes, ε among the runs'
    "beyond-180": (180, 128 * 62, {1.0, 4.0}),
    "beyond-660": (660, 129 * 80, {1.0, 4.0}),
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
        few = math.sqrt(held / run.partition.silos)  # local trust: the noise of so many fewer subjects
        subjects = round((run.privacy.predicted_subjects or present) * few)
        found = untuned_schedule(subjects, weights, run.privacy.epsilon, run.privacy.delta)
        assert run.training.rounds == found.rounds and run.privacy.clip_norm == found.clip_norm
        assert run.training.optimizer.learning_rate == pytest.approx(found.learning_rate, rel=2e-3)


@pytest.mark.parametrize(
    ("n", "p", "epsilon", "delta"),
    [(1, 1, 0.1, 1e-3), (45, 7936, 8.0, 1e-5), (100_000, 10_000_000, 0.5, 1e-9), (3500, 246_078, 4.0, 1e-6)],
)
def test_the_noise_of_all_rounds_on_a_weight_is_as_told(n: int, p: int, epsilon: float, delta: float) -> None:
    """Rate times C times noise of a round over C, √R/(μ N), in √R independent rounds; μ by its own equation."""
    found = untuned_schedule(n, p, epsilon, delta)
    mu = found.learning_rate * found.clip_norm * found.rounds / (n * found.weight_noise)
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-4)
    assert found.weight_noise == pytest.approx(min(1.0, 4 * math.sqrt(n * mu / p)), rel=1e-6)
    assert found.rounds >= 40
    assert found.rounds == 40 or found.learning_rate * found.clip_norm == pytest.approx(20, rel=0.06)


def test_what_is_printed_is_a_block_of_a_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = ["schedule", "--subjects", "180", "--weights", "7936", "--epsilon", "4", "--delta", "1e-5"]
    assert main(numbers) == 0
    block = yaml.safe_load(capsys.readouterr().out)
    assert block["privacy"] == {"epsilon": 4, "delta": 1e-5, "clip_norm": 0.05}
    assert block["training"]["rounds"] == 40
    assert block["training"]["optimizer"] == {"name": "sgd", "learning_rate": 48.2}
    assert main([*numbers, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["learning_rate"] == pytest.approx(48.2, abs=0.05)


@pytest.mark.parametrize(("held", "subjects", "rate"), [(16, 180, 48.2), (4, 90, 17.1), (1, 45, 6.03)])
def test_subjects_at_few_silos_have_the_noise_of_fewer(
    held: int, subjects: int, rate: float, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = ["--weights", "7936", "--epsilon", "4", "--delta", "1e-5"]
    assert (
        main(["schedule", "--subjects", "180", "--silos", "16", "--silos-per-subject", str(held), *weights])
        == 0
    )
    printed = capsys.readouterr().out
    assert main(["schedule", "--subjects", str(subjects), *weights]) == 0
    assert capsys.readouterr().out == printed
    assert yaml.safe_load(printed)["training"]["optimizer"]["learning_rate"] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (("--silos", "0"), "--silos to be at least 1"),
        (
            ("--silos", "4", "--silos-per-subject", "5"),
            "--silos-per-subject to be 1 to 4, the number of --silos",
        ),
        (("--subjects", "0"), "--subjects to be at least 1"),
        (("--weights", "-5"), "--weights to be at least 1"),
        (("--epsilon", "0"), "--epsilon to be above 0"),
        (("--epsilon", "nan"), "--epsilon to be above 0"),
        (("--delta", "1"), "--delta to be above 0 and below 1"),
    ],
)
def test_numbers_out_of_range_are_refused(
    wrong: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", "--subjects", "180", "--weights", "5", *wrong]) == 2
    assert told in capsys.readouterr().err
