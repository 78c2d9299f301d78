"""A search of hyperparameters, from its scenario to the file with the best settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy import stats

from forecast import small_runs
from subjectdp.config import load_scenario, load_scenario_from_layers, load_scenario_from_mapping
from subjectdp.config.scenario import Scenario
from subjectdp.data.splits import split_items
from subjectdp.data.store import load_prepared
from subjectdp.errors import ConfigError, DataError
from subjectdp.training.record.manifest import MANIFEST
from subjectdp.utility import tuning as module
from subjectdp.utility.tuning import tune
from training import small_world

RATE, CLIP = "training.optimizer.learning_rate", "privacy.clip_norm"
SEARCH = {RATE: {"low": 0.01, "high": 100.0}, CLIP: [0.1, 0.2, 0.5]}


def scenario_of(block: dict[str, Any] | None = None, **more: Any) -> Scenario:
    return load_scenario_from_mapping(content(block, **more))


def content(block: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    base = {
        "name": "search",
        "run": small_world.config(),
        "sweep": [{"training.rounds": [2, 3], RATE: [0.1, 0.2], "seed": [4, 5]}],
        "tuning": {"trials": 6, "search": SEARCH, **(block or {})},
    }
    return {**base, **more}


def test_a_point_is_what_differs_in_neither_seed_nor_searched_keys() -> None:
    scenario = scenario_of()
    assert len(scenario.runs) == 8
    assert [point.settings for point in scenario.tuning_points] == [
        {"training.rounds": 2},
        {"training.rounds": 3},
    ]
    for point in scenario.tuning_points:
        assert point.seeds == (4, 5) and {run.seed for run in point.trials} == {4}
        assert {run.data.validation_fraction for run in point.trials} == {0.3}
        for given, run in zip(point.drawn, point.trials, strict=True):
            assert run.training.optimizer.learning_rate == given[RATE]
            assert run.privacy.clip_norm == given[CLIP]
    first, second = (point.drawn for point in scenario.tuning_points)
    assert first != second
    assert not set(scenario.trials) & set(scenario.runs_by_id)


def test_a_longer_search_keeps_its_trials_and_the_seed_draws_others() -> None:
    drawn = [
        scenario_of(block).tuning_points[0].drawn
        for block in ({"trials": 3}, {"trials": 6}, {"trials": 6, "seed": 1})
    ]
    assert drawn[1][:3] == drawn[0] and drawn[2] != drawn[1]


def test_rates_are_uniform_on_a_logarithmic_scale() -> None:
    drawn = scenario_of({"trials": 400}, sweep=[]).tuning_points[0].drawn
    logs = np.log([each[RATE] for each in drawn])
    low, high = math.log(0.01), math.log(100)
    assert stats.kstest(logs, stats.uniform(low, high - low).cdf).pvalue > 0.01
    assert stats.kstest([each[RATE] for each in drawn], stats.uniform(0.01, 100).cdf).pvalue < 1e-6
    assert {each[CLIP] for each in drawn} == {0.1, 0.2, 0.5}


@pytest.mark.parametrize(
    "search", [{RATE: SEARCH[RATE]}, {RATE: SEARCH[RATE], CLIP: {"low": 0.1, "high": 1.0}}]
)
def test_a_short_search_leaves_no_wide_gap(search: dict[str, Any]) -> None:
    """Eight independent draws have a mean largest gap of 2.7 eighths of the range, with the gaps at the ends."""
    for seed in range(20):
        drawn = scenario_of({"trials": 8, "search": search, "seed": seed}, sweep=[]).tuning_points[0].drawn
        shares = np.sort([math.log(each[RATE] / 0.01) / math.log(100 / 0.01) for each in drawn])
        assert np.diff(shares, prepend=0.0, append=1.0).max() < 2.6 / 8


def test_two_keys_are_searched_together_and_evenly() -> None:
    """No empty quarter of the square, as the rates of all trials with small clip norms would be."""
    search = {RATE: SEARCH[RATE], CLIP: {"low": 0.1, "high": 1.0}}
    for seed in range(20):
        drawn = scenario_of({"trials": 16, "search": search, "seed": seed}, sweep=[]).tuning_points[0].drawn
        quarters = [(each[RATE] > 1.0, each[CLIP] > math.sqrt(0.1)) for each in drawn]
        assert min(quarters.count((rate, clip)) for rate in (False, True) for clip in (False, True)) >= 2


def test_trials_leave_the_test_items_of_their_point_alone(tmp_path: Path) -> None:
    """Neither trained on nor judged by: the test part does not depend on the validation fraction."""
    scenario = scenario_of(sweep=[])
    trial = scenario.tuning_points[0].trials[0]
    run = scenario.runs[0]
    small_runs.prepare(run, tmp_path)
    prepared = load_prepared(small_runs.folders(run, tmp_path)[0], verify=True)
    parts = [split_items(prepared, one.seed, 0.2, one.data.validation_fraction) for one in (run, trial)]
    assert np.array_equal(parts[0].test_items, parts[1].test_items)
    assert len(parts[1].validation_items) > len(parts[0].validation_items)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"search": {}}, "at least one key where tuning.trials is above 0"),
        ({"search": {"partition.silos": [2, 3]}}, "Unknown key 'tuning.search.partition.silos'"),
        ({"search": {"training.rate": [2, 3]}}, "Unknown key 'tuning.search.training.rate'"),
        ({"search": {CLIP: []}}, "a list with at least one value"),
        ({"search": {RATE: {"low": 2.0, "high": 1.0}}}, "high to be larger than low"),
        ({"search": {RATE: {"low": 0.0, "high": 1.0}}}, "low"),
        ({"search": {RATE: [-1.0]}}, "learning_rate"),
        ({"trials": -1}, "tuning.trials"),
        ({"objective": "test_accuracy"}, "validation_loss"),
    ],
)
def test_wrong_searches_are_refused(block: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scenario_of(block)


def test_a_search_and_a_private_selection_do_not_go_together() -> None:
    selection = {"candidates": {CLIP: [0.1, 0.2]}}
    run = small_world.config(algorithm="subject_release", privacy={"mode": "sound"})
    run["partition"].pop("max_items_per_subject")
    run["training"] = {"rounds": 2, "local_steps": None}
    with pytest.raises(ConfigError, match="0 in a scenario with private_selection"):
        scenario_of(run=run, sweep=[], private_selection=selection)


def with_results(scenario: Scenario, results: Path, values: list[float | None]) -> None:
    """Finished trials without a training, with the losses given."""
    for run, loss in zip(scenario.trials.values(), values, strict=True):
        folder = results / "runs" / run.run_id
        folder.mkdir(parents=True)
        final = {"validation_loss": loss, "validation_accuracy": 0.5}
        (folder / MANIFEST).write_text(json.dumps({"identity": run.run_id, "final": final}))


def test_the_best_finite_trial_of_each_point_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_complete", lambda folder, identity: True)
    figures = {"figures": ["figure1"], "selections": {"figure1": {RATE: 0.1, "training.rounds": 2}}}
    base = content({"trials": 3}, **figures)
    scenario = load_scenario_from_mapping(base)
    with_results(scenario, tmp_path, [2.0, 1.0, None, math.nan, 3.0, 3.5])
    table, text = tune(scenario, str(tmp_path))
    assert table.loc[table["chosen"] == "yes", ["point", "trial"]].to_numpy().tolist() == [[0, 1], [1, 1]]
    assert "does not include this search" in text

    over = yaml.safe_load(text)
    tuned = load_scenario_from_layers([base, over])
    best = [point.drawn[1] for point in scenario.tuning_points]
    assert tuned.name == "search-tuned" and not tuned.trials
    assert over["selections"] == {"figure1": {"training.rounds": 2}}
    assert [(run.training.rounds, run.seed) for run in tuned.runs] == [(2, 4), (2, 5), (3, 4), (3, 5)]
    for number, run in enumerate(tuned.runs):
        assert run.training.optimizer.learning_rate == best[number // 2][RATE]
        assert run.privacy.clip_norm == best[number // 2][CLIP]


def test_a_point_where_everything_diverged_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_complete", lambda folder, identity: True)
    scenario = scenario_of({"trials": 2}, sweep=[])
    with_results(scenario, tmp_path, [None, math.inf])
    with pytest.raises(DataError, match="search smaller rates"):
        tune(scenario, str(tmp_path))


@pytest.mark.slow
def test_trained_trials_are_judged_by_their_validation_items(tmp_path: Path) -> None:
    folder, results = tmp_path / "data", tmp_path / "results"
    folder.mkdir()
    data = {"source": "leaf_json", "path": str(folder)}
    run = small_world.config(algorithm="fed_avg", data=data, privacy={})
    run["partition"].pop("max_items_per_subject")
    del run["privacy"]
    block = {"trials": 2, "search": {RATE: [0.001, 0.5]}, "objective": "validation_accuracy"}
    file = tmp_path / "search.yaml"
    file.write_text(yaml.safe_dump({"name": "search", "run": run, "tuning": block}))
    scenario = load_scenario(file)
    small_runs.prepare(scenario.runs[0], results)
    with pytest.raises(DataError, match="to be finished"):
        tune(scenario, str(results))
    finals = [small_runs.train(trial, results)["final"] for trial in scenario.trials.values()]
    table, _ = tune(scenario, str(results))
    assert set(table["validation_accuracy"]) == {final["validation_accuracy"] for final in finals}
    chosen = table.loc[table["chosen"] == "yes", "validation_accuracy"].item()
    assert chosen == max(final["validation_accuracy"] for final in finals)
