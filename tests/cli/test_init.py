"""``init``: from a table to a scenario that trains, with an ε for each person."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli.commands import Captured, run, said
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import load_scenario
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.forecast.before_start import check_before_start
from subjectdp.training.run import train_run


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    generator, count = np.random.default_rng(0), 1500
    patient = generator.integers(0, 150, count)
    age, sex = generator.integers(20, 90, count), generator.choice(["f", "m"], count)
    cost = (2.0 * age + 30.0 * (sex == "f") + generator.normal(0, 8, count)).clip(0, 300).round(2)
    ill = cost > 130
    frame = pd.DataFrame(
        {"patient": patient, "site": patient % 3, "age": age, "sex": sex, "cost": cost, "ill": ill, "note": "x"}
    )
    frame.loc[::40, "age"] = np.nan
    frame.to_csv(tmp_path / "Visits 2026.csv", sep=";", decimal=",")
    return tmp_path / "Visits 2026.csv"


def _trained(folder: Path, run: RunConfig) -> dict[str, Any]:
    fetch_sources(run.data, folder / "source")
    prepare_dataset(run.data, folder / "source", folder / "prepared")
    make_partition(folder / "prepared", folder / "partition", run)
    train_run(run.model_dump(mode="json"), folder / "prepared", folder / "partition", folder / "out", print)
    return dict(json.loads((folder / "out" / "manifest.json").read_text()))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_table_becomes_a_scenario_that_learns(tmp_path: Path, visits: Path, task: str, capsys: Captured) -> None:
    label, left_out = ("ill", "cost,note") if task == "classification" else ("cost", "ill,note")
    out = tmp_path / "made.yaml"
    columns = f"--label {label} --subject patient --silo site --drop {left_out} --task {task} --epsilon 8".split()
    ranges = ["--range", "cost=0:300"] if task == "regression" else []
    printed = said(capsys, "init", visits, *columns, *ranges, "--out", out, "--force")
    assert "1,500 rows of 150 people at 3 silos, ε 8 for each" in printed
    assert "put numbers there that anybody may know" in printed
    assert "# data.ranges was read from the table, and is itself private" in out.read_text()
    scenario = load_scenario([out])
    check_before_start(scenario, str(tmp_path), [out])
    plain, private = (
        next(run for run in scenario.runs if run.algorithm.name == name) for name in ("fed_avg", "subject_release")
    )
    assert (private.partition.distribution, private.partition.silos) == ("inherent", 3)
    assert private.data.missing == "indicator"
    assert _trained(tmp_path / "plain", plain)["final"]["test_accuracy"] > 0.85
    manifest = _trained(tmp_path / "private", private)
    assert manifest["privacy"]["sound"]["subject"]["epsilon"] <= 8.0
    assert manifest["final"]["test_accuracy"] > 0.8


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "Expected --label to be given"),
        ("--label cost --out there.yaml --force", "Expected --subject to be given"),
        ("--label cost --subject patient --range age=80:20", "the least value before the largest, got 'age=80:20'"),
        ("--label cost --subject patient --range age=0:9 --range age=0:99", "--range to be one of each column"),
        ("--label cost --subject patient --range age=old", "--range to be COLUMN=LEAST:LARGEST"),
        ("--label cost --subject patient --drop note", "classification or regression"),
        ("--label sex --subject patient", "empty.csv holds no row below its header"),
        ("--label sex --subject patient --drop note --delta 0.5", "privacy.delta to be a finite number"),
    ],
)
def test_init_refuses_what_it_cannot_know(tables: Path, capsys: Captured, arguments: str, told: str) -> None:
    """After it has said what is in the table."""
    (tables / "empty.csv").write_text("patient,age,sex\n")
    before, table = sorted(tables.iterdir()), "empty.csv" if told.startswith("empty") else "visits.csv"
    code, _, err = run(capsys, "init", table, *arguments.split())
    assert code == 2 and told in err and sorted(tables.iterdir()) == before


@pytest.mark.parametrize("name", ['a "b" \\ c: #ä.csv', "data.csv", "_x.csv", f"{'long' * 20}.csv", "${HOME}.csv"])
def test_a_table_of_any_name_becomes_a_scenario_that_is_read(tables: Path, capsys: Captured, name: str) -> None:
    command = ("init", (tables / "visits.csv").rename(tables / name), "--label", "sex", "--subject", "patient")
    if "$" in name:
        assert "data.path" in run(capsys, *command, "--drop", "note")[2] and not (tables / "${HOME}.yaml").exists()
        return
    said(capsys, *command, "--drop", "note")
    scenario = load_scenario([f"{name.removesuffix('.csv')}.yaml"])
    assert name in scenario.description and scenario.runs[0].data.path == str(tables / name)


@pytest.mark.parametrize("number", [5, 1e20])
def test_a_column_of_one_number_has_a_range(tmp_path: Path, capsys: Captured, number: float) -> None:
    rows = {"patient": [0, 0, 1, 1], "ill": [0, 1, 0, 1], "age": [20, 30, 40, 50], "wave": [number] * 4}
    pd.DataFrame(rows).to_csv(tmp_path / "visits.csv", index=False)
    said(
        capsys, "init", tmp_path / "visits.csv", "--label", "ill", "--subject", "patient", "--out", tmp_path / "v.yaml"
    )
    least, largest = load_scenario([tmp_path / "v.yaml"]).runs[0].data.ranges["wave"]
    assert least <= number < largest


def test_people_whose_names_differ_in_capitals_are_told_before_it_is_written(tmp_path: Path, capsys: Captured) -> None:
    rows = {"patient": ["Ann", "ann", "ben", "ben"], "ill": [0, 1, 0, 1], "age": [20, 30, 40, 50]}
    pd.DataFrame(rows).to_csv(tmp_path / "visits.csv", index=False)
    code, _, error = run(capsys, "init", tmp_path / "visits.csv", "--label", "ill", "--subject", "patient")
    assert code == 2 and "differ in capitals alone" in error
