"""The plan of a scenario as text and files, and the command that prints it."""

from __future__ import annotations

import json

import pandas as pd
import pytest
import yaml

from subjectdp.cli.main import main
from subjectdp.config import load_scenario_from_mapping
from subjectdp.forecast.plan_report import _span, plan_scenario
from training import small_world


def test_a_run_that_will_refuse_to_start_is_told_with_its_reason(tmp_path):
    run = small_world.config(
        training={"batch_size": 5000}, data={"embedded": {"subjects": 9, "items_per_subject": 60}}
    )
    frame, text = plan_scenario(load_scenario_from_mapping({"name": "refused", "run": run}), str(tmp_path))
    assert "training.batch_size" in frame["problem"][0]
    assert (
        "1 of 1 runs will not start (LocalItemDP on femnist): Expected training.batch_size"
        in text.replace("\n", " ")
    )
    assert frame["epsilon_sound_subject"].isna().all()


@pytest.mark.slow
def test_the_command_prints_the_plan_and_writes_it(tmp_path, capsys):
    content = {
        "name": "small",
        "run": small_world.config(data={"embedded": {"subjects": 9, "items_per_subject": 60}}),
        "sweep": [
            {"algorithm": ["fed_avg", "local_item_dp"], "privacy.clip_norm": [1, 2], "seed": [0, 1, 2]}
        ],
    }
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(content))
    assert main(["plan", str(file), "--results", str(tmp_path / "results")]) == 0
    printed = capsys.readouterr().out
    folder = tmp_path / "results/small"
    assert (folder / "plan.txt").read_text() == printed
    table = pd.read_csv(folder / "plan.csv")
    runs = load_scenario_from_mapping(content).runs
    assert table["runs"].sum() == len(runs) == 9, "clipping means nothing to FedAvg"
    assert printed.startswith("Plan of the scenario small: 9 runs, 0 of them done")
    words = " ".join(printed.split())
    assert "taken from: expected counts" in words and "pace of one CPU core" in words
    assert set(table.loc[table["label"] == "LocalItemDP", "settings"].fillna("")) == {"", "clip_norm=2"}
    assert not (tmp_path / "results/data").exists(), "nothing is fetched or prepared"
    assert main(["plan", str(file), "--results", str(tmp_path / "results"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["runs"] for row in rows] == table["runs"].tolist()
    assert [row["epsilon_sound_item"] for row in rows][0] is None, "FedAvg states none: null, and no NaN"


def test_all_runs_that_will_not_start_are_told_and_the_command_says_so(tmp_path, capsys):
    run = small_world.config(
        training={"batch_size": 5000}, data={"embedded": {"subjects": 9, "items_per_subject": 60}}
    )
    file = tmp_path / "refused.yaml"
    content = {"name": "refused", "run": run, "sweep": [{"algorithm": ["fed_avg", "user_ldp"]}]}
    file.write_text(yaml.safe_dump(content))
    assert main(["plan", str(file), "--results", str(tmp_path / "results")]) == 1
    told = capsys.readouterr().out.replace("\n", " ")
    assert "2 of 2 runs will not start (FedAvg on femnist, UserLDP on femnist): Expected" in told


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0, "0 s"),
        (2.5 / 3600, "2.5 s"),
        (14 / 3600, "14 s"),
        (0.05, "3.0 min"),
        (1.5, "90 min"),
        (5.12, "5.1 h"),
        (1239.6, "1,240 h"),
    ],
)
def test_times_are_in_units_that_people_can_picture(hours, words):
    assert _span(hours) == words
