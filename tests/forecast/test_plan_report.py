"""The plan of a scenario against what its runs then are: ε, rounds, steps; its text, its files, its federation."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from cli.commands import run_json, said
from forecast.runs import folders, prepare, small_run, train
from subjectdp.accounting.calibration import forget
from subjectdp.accounting.make_plan import draft_run
from subjectdp.config.scenario import load_scenario, load_scenario_from_mapping
from subjectdp.data.content import part_sizes
from subjectdp.data.partition import make_partition
from subjectdp.errors import DataError
from subjectdp.forecast import plan_report
from subjectdp.forecast.plan_report import COUNTS, PARTITION, PREPARED, _span, federation_of, forecast
from training import small_world

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("algorithm", ["fed_avg", "local_item_dp", "higrad_avg_dp:v1", "local_group_dp"])
def test_the_plan_says_what_the_run_will_state(tmp_path, algorithm):
    run = small_run(algorithm=algorithm)
    prepare(run, tmp_path)
    scenario = load_scenario_from_mapping({"name": "x", "run": small_world.config(algorithm=algorithm)})
    (row,) = forecast(scenario, str(tmp_path))
    manifest = train(run, tmp_path)
    stated = manifest["privacy"]
    published = stated["as_published"]["epsilon"]
    assert row.epsilon_as_published == (None if published is None else pytest.approx(published, rel=2e-3))
    for name, statement in stated["sound"].items():
        assert getattr(row, f"epsilon_sound_{name}") == statement["epsilon"], name
        assert (f"epsilon_sound_{name}" in row.conditional) == (statement["guarantee"] == "conditional"), name
    steps = pd.read_parquet(folders(run, tmp_path)[2] / "steps.parquet")
    assert row.rounds == manifest["plan"]["rounds"]
    assert row.local_steps == len(steps)
    assert (row.runs, row.finished) == (1, 0)


def test_a_second_forecast_computes_no_epsilon_again_but_another_plan_or_code_does(tmp_path, monkeypatch):
    def planned(epsilon: float):
        run = small_world.config(algorithm="local_item_dp", privacy={"epsilon": epsilon, "delta": 1e-5})
        return forecast(load_scenario_from_mapping({"name": "x", "run": run}), str(tmp_path))

    first, other = planned(4), planned(2)
    assert first[0].epsilon_sound_item != other[0].epsilon_sound_item
    forget()
    monkeypatch.setattr(plan_report, "stated_epsilons", None)
    assert (planned(4), planned(2)) == (first, other)
    with pytest.raises(TypeError):
        planned(3)
    forget()
    monkeypatch.setattr(plan_report, "fingerprint", lambda *stages: "edited")
    with pytest.raises(TypeError):
        planned(4)


def test_finished_runs_are_counted_and_not_left(tmp_path):
    run = small_run(algorithm="fed_avg")
    prepare(run, tmp_path)
    train(run, tmp_path)
    content = {"name": "x", "run": small_world.config(algorithm="fed_avg"), "sweep": [{"seed": [0, 1]}]}
    (row,) = forecast(load_scenario_from_mapping(content), str(tmp_path))
    assert (row.runs, row.finished) == (2, 1)
    assert row.hours == row.hours_a_run > 0, "one of two is left"


def test_the_command_prints_the_plan_and_writes_it(tmp_path, capsys):
    content = {
        "name": "small",
        "run": small_world.config(data={"embedded": {"subjects": 9, "items_per_subject": 60}}),
        "sweep": [{"algorithm": ["fed_avg", "local_item_dp"], "privacy.clip_norm": [1, 2], "seed": [0, 1, 2]}],
    }
    content["run"]["partition"]["max_items_per_subject"] = None
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(content))
    command = ("plan", tmp_path / "small.yaml", "--results", tmp_path / "results")
    printed = said(capsys, *command)
    folder = tmp_path / "results/small"
    assert (folder / "plan.txt").read_text() == printed
    table = pd.read_csv(folder / "plan.csv")
    runs = load_scenario_from_mapping(content).runs
    assert table["runs"].sum() == len(runs) == 9, "clipping means nothing to FedAvg"
    assert printed.startswith("Plan of the scenario small: 9 runs, 0 of them done")
    words = " ".join(printed.split())
    assert "† conditional: " in words and "taken from: expected counts" in words and "pace of one CPU core" in words
    assert set(table.loc[table["label"] == "LocalItemDP", "settings"].fillna("")) == {"", "clip_norm=2"}
    assert not (tmp_path / "results/data").exists(), "nothing is fetched or prepared"
    rows = run_json(capsys, *command)
    assert [row["runs"] for row in rows] == table["runs"].tolist()
    assert [row["epsilon_sound_item"] for row in rows][0] is None, "FedAvg states none: null, and no NaN"


def test_all_runs_that_will_not_start_are_told_and_the_command_says_so(tmp_path, capsys):
    run = small_world.config(training={"batch_size": 5000}, data={"embedded": {"subjects": 9, "items_per_subject": 60}})
    content = {"name": "refused", "run": run, "sweep": [{"algorithm": ["fed_avg", "user_ldp"]}]}
    (tmp_path / "refused.yaml").write_text(yaml.safe_dump(content))
    command = ("plan", tmp_path / "refused.yaml", "--results", tmp_path / "results")
    told = said(capsys, *command, code=1).replace("\n", " ")
    assert pd.read_csv(tmp_path / "results/refused/plan.csv")["epsilon_sound_subject"].isna().all()
    assert "2 of 2 runs will not start (FedAvg on femnist, UserLDP on femnist): Expected" in told
    gone = {"source": "table", "path": "gone.csv", "label": "y", "subject": "who"}
    (tmp_path / "refused.yaml").write_text(yaml.safe_dump({"name": "gone", "run": {"data": gone}, "figures": ["cost"]}))
    assert "Expected data.path to be a file or folder that exists" in said(capsys, *command, code=1).replace("\n", " ")


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0, "0 s"), (2.5 / 3600, "2.5 s"), (0.05, "3.0 min"), (1.5, "90 min"), (5.12, "5.1 h"), (1239.6, "1,240 h")],
)
def test_times_are_in_units_that_people_can_picture(hours, words):
    assert _span(hours) == words


ROOT = Path(__file__).resolve().parents[2]
FACTS = ("silo_items", "silo_subjects", "silo_largest_subject", "counts")


def test_a_federation_is_the_partition_before_and_after_it_has_been_made(tmp_path):
    run = small_run()
    prepare(run, tmp_path)
    foreseen, source = federation_of(run, str(tmp_path))
    assert source == PREPARED
    prepared, folder, _ = folders(run, tmp_path)
    made = make_partition(prepared, folder, run)
    assert {key: foreseen.facts[key] for key in FACTS} == {key: made.facts[key] for key in FACTS}
    again, source = federation_of(run, str(tmp_path))
    assert source == PARTITION
    assert np.array_equal(again.train_items, made.train_items)
    (folder / "train_items.npy").write_bytes(b"")
    with pytest.raises(DataError):  # and no prediction
        federation_of(run, str(tmp_path))


@pytest.mark.parametrize("cap", [None, 6])
def test_without_data_the_papers_federation_is_foreseen(tmp_path, cap):
    data, partition = {"source": "upstream", "subjects": 3500}, {"silos": 16, "max_items_per_subject": cap}
    run = small_run(data=data, partition=partition, training={"batch_size": 512})
    partition, source = federation_of(run, str(tmp_path))
    assert source == COUNTS
    assert partition.facts["counts"]["subjects"] == 3500
    if cap is None:
        assert partition.facts["counts"]["train_items"] == pytest.approx(3500 * 145, rel=0.01)
    assert (max(partition.facts["silo_largest_subject"]) == 6) == (cap == 6)


def test_the_windows_between_the_parts_of_a_text_are_foreseen(tmp_path):
    data, partition = {"dataset": "shakespeare", "source": "upstream", "subjects": 100}, {"max_items_per_subject": None}
    run = small_run(data=data, partition=partition, model={"name": "small_lstm", "parameters": {}})
    (train, rest), items = part_sizes(np.array([6193]), 0.1), federation_of(run, str(tmp_path))[0].facts["counts"]
    assert items["test_items"] == 100 * (rest[0] - 79)
    assert items["train_items"] + items["validation_items"] == 100 * (train[0] - 79)


@pytest.mark.parametrize(("page", "below"), [("README.md", ["embedded"]), ("config/README.md", [])])
def test_the_sweeps_in_the_docs_would_start(page, below, tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (block,) = [text for text in blocks if "sweep:" in text]
    (tmp_path / "mine.yaml").write_text(block)
    files = [ROOT / f"config/scenarios/{name}.yaml" for name in below]
    runs = load_scenario([*files, tmp_path / "mine.yaml"]).runs
    assert len(runs) > 5
    for run in runs:
        partition, _ = federation_of(run, str(tmp_path))
        draft_run(run, partition)  # refuses what cannot be trained


def test_runs_of_one_partition_share_its_prediction(tmp_path):
    first, again = (small_run(algorithm=name) for name in ("fed_avg", "user_ldp"))
    predicted, source = federation_of(first, str(tmp_path))
    assert source == COUNTS
    assert federation_of(again, str(tmp_path))[0] is predicted
    other, _ = federation_of(small_run(algorithm="fed_avg", seed=1), str(tmp_path))
    assert other is not predicted
    assert not np.array_equal(other.train_items, predicted.train_items)
