"""A private selection from its scenario to what is released."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from cli.commands import run as command
from cli.commands import run_json
from forecast import small_runs
from subjectdp.accounting.plan_run import plan_run
from subjectdp.accounting.private_selection import selection_curve
from subjectdp.accounting.selection_promise import check_promise, group_plans, promise
from subjectdp.config import load_scenario
from subjectdp.config.scenario import Scenario
from subjectdp.data.partition import load_partition
from subjectdp.errors import PrivacyError
from subjectdp.forecast.federations import federation_of
from subjectdp.plan.plan import PrivacyUnit
from subjectdp.training.selection_score import subject_sum
from subjectdp.utility.private_selection import select
from training import small_world

SUBJECT = PrivacyUnit.SUBJECT


def scenario_file(folder: Path, epsilon: float, target: float = 4.0) -> Path:
    run = small_world.config(
        algorithm="subject_release",
        data={"source": "leaf_json", "path": str(folder), "validation_fraction": 0.2},
        partition={"silos": 3, "max_items_per_subject": None},
        privacy={"mode": "sound", "epsilon": epsilon, "delta": 1e-3, "clip_norm": 0.1},
        training={"rounds": 2, "local_steps": None, "optimizer": {"name": "momentum", "learning_rate": 0.2}},
    )
    block = {
        "candidates": {"training.optimizer.learning_rate": [0.01, 0.3]},
        "epsilon": target,
        "seed": 3,
        "repetitions": {"distribution": "geometric", "mean": 3},
    }
    file = folder / "selection.yaml"
    file.write_text(yaml.safe_dump({"name": "choose", "run": run, "private_selection": block}))
    return file


def trained(file: Path, results: Path) -> Scenario:
    scenario = load_scenario(file)
    small_runs.prepare(scenario.runs[0], results)
    for run in scenario.runs:
        small_runs.train(run, results)
    return scenario


@pytest.mark.slow
def test_the_best_noisy_score_is_released(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, file = tmp_path / "results", scenario_file(tmp_path, epsilon=1.5)
    scenario = trained(file, results)
    assert len(scenario.runs) > 1
    table, (statement,) = select(scenario, str(results), None)
    best = table.loc[table["noisy_score"].idxmax()]
    assert table["released"].tolist().count("yes") == 1
    assert best["released"] == "yes" and best["run_id"] == statement["released"]
    assert table["training.optimizer.learning_rate"].tolist() == [
        run.training.optimizer.learning_rate for run in scenario.runs
    ]

    group = scenario.selection_groups[0]
    _, partition, _ = small_runs.folders(group.runs[0], results)
    plans = [plan_run(run, load_partition(partition)) for run in group.runs]
    expected = selection_curve(plans, scenario.private_selection, SUBJECT, True).epsilon(1e-3)
    assert statement["epsilon"]["subject"] == pytest.approx(expected, rel=1e-6)
    assert table["epsilon_of_this_run"].max() <= 1.5 < statement["epsilon"]["subject"] <= 4
    assert "seed" not in statement["private_selection"], "it stays secret"
    assert statement["guarantee"] is True and "whoever sees the released run alone" in statement["seen_by"]
    assert select(scenario, str(results), None)[0].equals(table)  # a score is drawn once

    shown = run_json(capsys, "select", str(file), "--results", str(results))[0]
    assert shown["epsilon"]["subject"] == pytest.approx(expected, rel=1e-6)
    ledger = run_json(capsys, "ledger", "--scenario", str(file), "--results", str(results))
    assert [row["runs"] for row in ledger] == [1, 1, 1]
    assert ledger[2]["together"] == pytest.approx(expected, rel=1e-6)
    file_of_table = results / "choose/tables/private_selection.csv"
    file_of_table.parent.mkdir(parents=True)
    table.to_csv(file_of_table)
    _, text, _ = command(capsys, "select", str(file), "--results", str(results))
    assert best["run_id"] in text and "privacy.epsilon of each run may be at most" in text


def test_a_selection_above_its_target_is_refused_with_the_way_out(tmp_path: Path) -> None:
    scenario = load_scenario(scenario_file(tmp_path, epsilon=3.0, target=3.5))
    small_runs.prepare(scenario.runs[0], tmp_path)
    group = scenario.selection_groups[0]
    partition, _ = federation_of(group.candidates[0], str(tmp_path))
    plans = group_plans(group, partition)
    found = promise(plans, scenario.private_selection)
    with pytest.raises(
        PrivacyError, match=r"at most private_selection.epsilon \(3.5\): set privacy.epsilon to"
    ):
        check_promise(found, plans, scenario.private_selection)


@pytest.mark.parametrize("seed", range(5))
def test_a_subject_moves_the_score_by_at_most_one(seed: int) -> None:
    """However many validation items it has, and whatever the model knows of them."""
    generator = np.random.default_rng(seed)
    sizes = generator.integers(0, 9, 12)
    right = generator.random(sizes.sum()) < generator.random()
    starts = np.cumsum(sizes) - sizes
    whole = subject_sum(right, sizes)
    shares = [right[start : start + size].mean() for start, size in zip(starts, sizes, strict=True) if size]
    assert whole == pytest.approx(sum(shares))
    for subject, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        without = subject_sum(np.delete(right, np.s_[start : start + size]), np.delete(sizes, subject))
        assert -1e-9 <= whole - without <= 1 + 1e-9
        turned = right.copy()
        turned[start : start + size] = True
        assert abs(subject_sum(turned, sizes) - whole) <= 1 + 1e-9
