"""``init``: from a table to a scenario that trains, with an ε for each person; tables of ``account`` for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectdp.cli.main import main
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
    train_run(run.model_dump(mode="json"), folder / "prepared", folder / "partition", folder / "out", None, print)
    return dict(json.loads((folder / "out" / "manifest.json").read_text()))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_table_becomes_a_scenario_that_learns_in_private(
    tmp_path: Path, visits: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    label, left_out = ("ill", "cost,note") if task == "classification" else ("cost", "ill,note")
    out = tmp_path / "made.yaml"
    columns = ["--label", label, "--subject", "patient", "--silo", "site", "--drop", left_out, "--task", task]
    ranges = ["--range", "cost=0:300"] if task == "regression" else []
    assert main(["init", str(visits), *columns, *ranges, "--epsilon", "8", "--out", str(out), "--force"]) == 0
    said = capsys.readouterr().out
    assert "1,500 rows of 150 people at 3 silos, ε 8 for each" in said
    assert "put numbers there that anybody may know" in said
    assert "# data.ranges was read from the table, and is itself private" in out.read_text()
    scenario = load_scenario([out])
    check_before_start(scenario, str(tmp_path), [out])
    plain, private = (next(run for run in scenario.runs if run.algorithm.name == name) for name in NAMES)
    assert (private.partition.distribution, private.partition.silos) == ("inherent", 3)
    assert private.data.missing == "indicator"
    scores = {}
    for name, run in zip(NAMES, (plain, private), strict=True):
        manifest = _trained(tmp_path / name, run)
        scores[name] = manifest["final"]["test_accuracy"]
    assert manifest["privacy"]["sound"]["subject"]["epsilon"] <= 8.0
    assert scores["fed_avg"] > 0.85 and scores["subject_release"] > 0.8, scores


NAMES = ("fed_avg", "subject_release")


def test_init_refuses_what_it_cannot_know(visits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (there := visits.parent / "there.yaml").touch()
    for arguments, problem in (
        ([], "Expected --label to be given"),
        (["--label", "cost", "--out", str(visits)], "--out to be a file that ends in .yaml"),
        (["--label", "cost", "--out", str(there)], "a file that is not there yet, or --force"),
        (["--label", "cost", "--out", str(there), "--force"], "Expected --subject to be given"),
        (
            ["--label", "cost", "--subject", "patient", "--range", "age=80:20"],
            "the least value before the largest, got 'age=80:20'",
        ),
        (
            ["--label", "cost", "--subject", "patient", "--range", "age=0:9", "--range", "age=0:99"],
            "--range to be one of each column",
        ),
        (["--label", "cost", "--subject", "patient", "--range", "age=old"], "--range to be COLUMN=LEAST:LARGEST"),
        (["--label", "cost", "--subject", "patient", "--drop", "ill,note"], "classification or regression"),
    ):
        assert main(["init", str(visits), *arguments]) == 2
        assert problem in capsys.readouterr().err
    assert not Path("visits-2026.yaml").exists()


ROWS = "subject,silo,items\nann,n,6\nann,s,2\nbob,n,3\ncleo,s,9\n"
PLAN = ["--algorithm", "local_item_dp", "--rounds", "5", "--epochs", "2", "--batch-size", "2"]


def test_account_answers_for_people_and_caps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "counts.csv").write_text(ROWS)
    counts = ["--counts", str(tmp_path / "counts.csv")]
    assert main(["account", *PLAN, *counts, "--noise-multiplier", "5", "--by-person"]) == 0
    printed = capsys.readouterr().out
    assert "items a silo  1 silo  2 silos" in printed and "Largest for cleo (9 at s)" in printed
    capped = ["--algorithm", "capped_item_dp", *PLAN[2:]]
    assert main(["account", *capped, *counts, "--caps", "1,4", "--figure", str(tmp_path / "caps.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["1", "4"], ["4", "13"]]
    assert (tmp_path / "caps.png").stat().st_size > 5000
    (tmp_path / "sizes.csv").write_text("silo,items\nn,9\ns,11\n")
    sizes = ["--silo-sizes", str(tmp_path / "sizes.csv")]
    assert main(["account", *capped, *sizes, "--max-items-per-subject", "3", "--json"]) == 0
    planned = capsys.readouterr().out
    assert json.loads(planned)["epsilon"] <= 4.0
    own = ["--algorithm", "local_item_dp", *PLAN[2:], *counts, "--unit", "subject", "--epsilon", "4", "--by-person"]
    assert main(["account", *own, "--max-items-per-subject", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert 3.9 < record["epsilon"] <= 4.0, "the noise is made for the unit that is asked for"
    assert record["by_person"]["epsilon"][-1]["epsilon"][-1] == pytest.approx(record["epsilon"], rel=1e-6)
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    for file in files:
        file.write_text(planned)
    assert main(["ledger", *map(str, files), "--json"]) == 0
    (together,) = [
        row["together"] for row in json.loads(capsys.readouterr().out) if row["unit"] == "one subject, at all its silos"
    ]
    assert 4.0 < together < 8.0
    for wrong, problem in (
        (["--noise-multiplier", "5", *counts, *sizes], "one of --counts and --silo-sizes"),
        (
            [*counts, "--noise-multiplier", "5", "--steps-per-round", "2"],
            "--epochs to be left out where --steps-per-round is given",
        ),
        ([*counts, "--caps", "few"], "--caps to be whole numbers with commas"),
        ([*counts, "--caps", "2", "--statement", "a.md"], "--statement to be left out with --caps"),
        ([*counts, "--caps", "2", "--noise-multiplier", "5"], "--noise-multiplier to be left out with --caps"),
        ([*counts, "--caps", "2", "--by-person"], "--by-person to be left out with --caps"),
        ([*counts, "--caps", "2", "--accountant", "rdp"], "--accountant to be left out with --caps"),
        ([*counts, "--caps", "2", "--own-noise-only"], "--own-noise-only to be left out with --caps"),
        ([*counts, "--figure", "a.png"], "--figure to be left out with all but --caps"),
        ([*counts, "--epsilon", "4", "--noise-multiplier", "5"], "--epsilon to be left out with --noise-multiplier"),
        ([*counts, "--horizontal", "none"], "--horizontal to be left out with --mode sound"),
    ):
        assert main(["account", *PLAN, *wrong]) == 2
        assert problem in capsys.readouterr().err
    for key, value in (("delta", "1e-5"), ("noise-multiplier", "5"), ("colluding-silos", "0"), ("counts", "c.csv")):
        assert main(["account", "--run", "any", f"--{key}", value]) == 2
        assert f"--{key} to be left out with --run and --config" in capsys.readouterr().err
