"""The table of runs and the comparison of sampling with the papers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from figures.fake_runs import grid, write_runs
from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import MixtureSteps, recorded, sampled_gaussian
from subjectdp.data.statistics import paper_settings
from subjectdp.errors import DataError
from subjectdp.plan.plan import NoiseDistribution
from subjectdp.report.make_table import TABLES
from subjectdp.report.tables import runs_summary, statistics_comparison
from subjectdp.results.collect import collect_scenario

RULES = Path(__file__).resolve().parents[2] / "workflow" / "rules"


def test_the_runs_table_has_a_row_a_setting(tmp_path: Path) -> None:
    fakes = grid(["fed_avg", "local_group_dp", "higrad_avg_dp:v1"], ["femnist"], [0, 1, 2], rounds=8)
    runs = collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path)
    table = runs_summary(runs).set_index("label")
    order = list(table.columns)
    assert order.index("test_accuracy_percent") < order.index("epsilon_sound_subject") < order.index("batch_size")
    assert order[-1] == "run_ids" and len(order) == len(set(order))
    assert table.index.tolist() == ["FedAvg", "LocalGroupDP", "HiGradAvgDP (v1)"]
    own = runs[runs["label"] == "FedAvg"]["final_test_accuracy"]
    assert table.loc["FedAvg", "test_accuracy_percent"] == pytest.approx(100 * own.sum() / 3, abs=1e-3)
    assert table["seeds"].tolist() == [3, 3, 3]
    assert table["published_guarantee"].fillna("").tolist() == ["", "no", "no"]
    assert np.isnan(table.loc["LocalGroupDP", "epsilon_sound_subject"])
    assert table.loc["HiGradAvgDP (v1)", "epsilon_sound_subject"] == pytest.approx(144.6)
    assert len(table.loc["FedAvg", "run_ids"].split()) == 3


@pytest.mark.parametrize("probability", [1.0, 0.1])
def test_all_seeds_together_are_as_many_steps(tmp_path: Path, probability: float) -> None:
    """Three runs of one setting, each with 20 sampled Gaussian releases, are one with 60."""
    fakes = grid(["fed_avg", "higrad_avg_dp:v1"], ["femnist"], [0, 1, 2], rounds=8)
    runs = collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path)
    part = MixtureSteps(5.0, sampled_gaussian(probability), 20)
    event = json.dumps([recorded((part,), NoiseDistribution.GAUSSIAN)])
    table = runs_summary(runs.assign(subject_event=event)).set_index("label")
    expected = epsilon_of((replace(part, steps=60),), 1e-5, resolution=SEARCH)
    assert table.loc["HiGradAvgDP (v1)", "epsilon_sound_subject_all_seeds"] == pytest.approx(expected)
    assert np.isnan(table.loc["FedAvg", "epsilon_sound_subject_all_seeds"])
    unknown = runs_summary(runs.assign(subject_event="null")).set_index("label")
    assert np.isnan(unknown.loc["HiGradAvgDP (v1)", "epsilon_sound_subject_all_seeds"])


def test_sampling_is_compared_with_the_papers() -> None:
    rows = [(s.name, 0, step, 512, 470 + step, 3) for s in paper_settings()[:3] for step in range(3)]
    frame = pd.DataFrame(rows, columns=["setting", "silo", "step", "items", "subjects", "largest_group"])
    table = statistics_comparison(frame).set_index("setting")
    assert table.loc["femnist", "subjects_difference_percent"] == pytest.approx(100 * (471 / 475 - 1))
    assert np.isnan(table.loc["small_femnist", "subjects_difference_percent"])
    with pytest.raises(DataError, match="settings"):
        statistics_comparison(frame.assign(setting="mine"))


def test_every_table_of_the_rules_is_known() -> None:
    named = (RULES / "tables.smk").read_text().partition("TABLES = {")[2].partition("\n}\n")[0]
    assert [line[5:-4] for line in named.splitlines() if line.startswith('    "')] == list(TABLES)
