"""The command line: output for people and machines, exit codes, errors without tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from subjectdp import __version__
from subjectdp.cli.main import build_parser, main
from subjectdp.cli.run_folders import clock, read_run_folder
from subjectdp.cli.show import sparkline
from subjectdp.config import load_run, load_scenario
from subjectdp.io.checksummed_json import sealed
from subjectdp.io.locks import owned
from subjectdp.io.printing import flattened, print_json, print_table
from subjectdp.training.evaluation import Score
from subjectdp.training.record.records import Recorder, also_to

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "config" / "scenarios"
SMOKE = str(SCENARIOS / "smoke.yaml")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    return json.loads(out)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two finished runs of the smoke scenario, one that was started, and one from elsewhere."""
    runs = load_scenario(SMOKE).runs
    for number, config in enumerate((runs[0], runs[1])):
        folder = tmp_path / "runs" / config.run_id
        folder.mkdir(parents=True)
        manifest = {
            "run_id": config.run_id,
            "algorithm": config.algorithm.label,
            "config": config.model_dump(mode="json"),
            "synthetic": True,
            "privacy": {
                "as_published": {"guarantee": False, "epsilon": 4.0, "delta": 1e-5, "unit": "subject"},
                "sound": {
                    "item": {"epsilon": 3.25, "delta": 1e-5, "assumptions": ["silos are honest"]},
                    "subject": {"epsilon": None, "reason": "no cap"},
                },
                "excluded": ["choice of hyperparameters"],
            },
            "final": {"round": 2, "test_accuracy": 0.1234 + number, "test_loss": 4.1},
            "rounds_executed": 2,
            "wall_seconds": 1.5,
            "peak_memory_mb": 300.0,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "runs" / runs[2].run_id).mkdir()
    return tmp_path


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"subjectdp {__version__}\n"
    text = build_parser().format_help()
    for command in ("inspect", "scenario", "runs", "show", "compare", "doctor", "schema"):
        assert f"\n    {command} " in text
    assert max(len(line) for line in text.split("\n")) <= 100


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("inspect", "scenario", "runs", "show", "compare", "doctor", "schema"):
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0
        assert "usage: subjectdp" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["inspec"],
        ["scenario"],
        ["inspect", "mnist"],
        ["schema", "--write", "--check"],
        ["runs", "--see", "1"],
    ],
)
def test_wrong_arguments_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: subjectdp" in capsys.readouterr().err


def test_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "scenario", SMOKE)
    assert (code, err) == (0, "")
    for config in load_scenario(SMOKE).runs:
        assert config.run_id in out
    content = run_json(capsys, "scenario", SMOKE)
    assert [each["run_id"] for each in content["runs"]] == [each.run_id for each in load_scenario(SMOKE).runs]
    for each in content["runs"]:
        assert load_run(each["config"]).run_id == each["run_id"]
        assert each["data_key"] in content["data"]
        assert each["partition_id"] in content["partitions"]


def test_scenario_overlay_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("sweep: [{seed: [0, 1], training.rounds: 3}]\nselections: {figure1: {seed: 1}}\n")
    content = run_json(capsys, "scenario", SMOKE, str(overlay))
    assert [each["config"]["training"]["rounds"] for each in content["runs"]] == [3, 3]
    content = run_json(capsys, "scenario", SMOKE, str(overlay), "--figure", "figure1")
    assert [each["config"]["seed"] for each in content["runs"]] == [1]
    code, _, err = run(capsys, "scenario", SMOKE, "--figure", "figure7")
    assert code == 2
    assert err.startswith("error: Unknown figure of this scenario 'figure7'.")


def test_user_errors_exit_2_with_a_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("name: bad\nrun: {privacy: {epsilon: -1, delta: 3}}\n")
    code, out, err = run(capsys, "scenario", str(file))
    assert (code, out) == (2, "")
    assert [line.split()[:3] for line in err.splitlines()] == [
        ["error:", "Expected", "privacy.epsilon"],
        ["error:", "Expected", "privacy.delta"],
    ]


def test_runs(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = run_json(capsys, "runs", "--results", str(results))
    assert [each["state"] for each in listed].count("done") == 2
    assert [each["state"] for each in listed].count("stopped") == 1
    assert [each["epsilon_published"] for each in listed if each["state"] == "done"] == [4.0, 4.0]
    code, out, _ = run(capsys, "runs", "--results", str(results))
    assert code == 0
    assert "12.34" in out
    assert "3 runs: 2 done, 1 stopped" in out
    only = run_json(capsys, "runs", "--results", str(results), "--state", "stopped")
    assert [each["test_accuracy"] for each in only] == [None]


def test_runs_of_a_scenario(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ("runs", "--results", str(results), "--scenario", SMOKE)
    listed = run_json(capsys, *common)
    assert [each["state"] for each in listed] == ["done", "done", "stopped", "open", "open", "open"]
    assert len(run_json(capsys, *common, "--dataset", "shakespeare")) == 3
    only = run_json(capsys, *common, "--algorithm", "higrad_avg_dp:v1")
    assert [each["label"] for each in only] == ["HiGradAvgDP (v1)"] * 2
    assert run_json(capsys, *common, "--seed", "7") == []


def test_a_run_under_way_tells_how_far_it_is_and_who_trains_it(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_scenario(SMOKE).runs[2]
    folder = results / "runs" / config.run_id
    (folder / "config.json").write_text(config.model_dump_json())
    recorder = Recorder(config.run_id, 9, also_to(folder / "progress.log", lambda line: None))
    for round_ in (1, 2):
        recorder.round(round_, Score(0.25, 1.5), Score(0.5, 1.5), 0.1)
    with (folder / "progress.log").open("a") as log:
        log.write("a line that is no round\nhalf a li")
    with owned(folder / ".lock", 0.0):
        (training,) = run_json(capsys, "runs", "--results", str(results), "--state", "training")
    assert (training["rounds_done"], training["rounds"], training["test_accuracy"]) == (2, 9, 0.25)
    assert training["seconds_left"] == 0
    assert training["label"] == "HiGradAvgDP (v1)"
    assert f"process {os.getpid()} on " in training["note"]
    (stopped,) = run_json(capsys, "runs", "--results", str(results), "--state", "stopped")
    assert (stopped["rounds_done"], stopped["seconds_left"], stopped["note"]) == (2, None, None)


@pytest.mark.parametrize(("left", "seconds"), [("0:07", 7), ("12:34", 754), ("1:02:03", 3723)])
def test_the_time_left_is_read_as_it_was_written(results: Path, left: str, seconds: int) -> None:
    folder = results / "runs" / "femnist-fed_avg-s9-0123456789"
    folder.mkdir()
    line = (
        f"x round 3/8 test accuracy 0.5000 loss 1 validation 0.5 | 2.00 s a round, 0:06 done, {left} left\n"
    )
    (folder / "progress.log").write_text(line)
    with owned(folder / ".lock", 0.0):
        found = read_run_folder(folder)
    assert (found.progress, found.seconds_left, clock(seconds)) == ("3/8", seconds, left)


def test_compare(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (config.run_id for config in load_scenario(SMOKE).runs[:2])
    path = results / "runs" / second / "manifest.json"
    manifest = json.loads(path.read_text()) | {"code_fingerprint": "abc"}
    manifest["privacy"]["sound"]["item"]["epsilon"] = 7.5
    path.write_text(json.dumps(manifest))
    common = (first, second, "--results", str(results))
    comparison = run_json(capsys, "compare", *common)
    assert comparison["settings"] == {"algorithm.name": ["fed_avg", "local_item_dp"]}
    assert comparison["metrics"]["test_accuracy"] == [0.1234, 1.1234]
    assert comparison["epsilon"]["sound, one item"] == [3.25, 7.5]
    assert comparison["epsilon"]["sound, one subject at all its silos"] == [None, None]
    assert comparison["made_with"] == {"code": [None, "abc"]}
    code, out, _ = run(capsys, "compare", *common)
    assert code == 0
    assert "algorithm.name  fed_avg  local_item_dp" in out
    code, out, _ = run(capsys, "compare", first, first, "--results", str(results))
    assert "the settings are the same" in out and "code and machine are the same" in out
    code, _, err = run(capsys, "compare", first, "femnist-higrad", "--results", str(results))
    assert code == 2 and "to be finished" in err


def test_show(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = load_scenario(SMOKE).runs[0].run_id
    code, out, _ = run(capsys, "show", wanted, "--results", str(results))
    assert code == 0
    for text in (
        wanted,
        "FedAvg",
        "synthetic",
        "12.34 %",
        "as published (no guarantee)           epsilon 4 at delta 1e-05, subject level",
        "sound, one item                       epsilon 3.25 at delta 1e-05",
        "sound, one subject, at all its silos  none: no cap",
        "- silos are honest",
        "- choice of hyperparameters",
        "training.batch_size",
    ):
        assert text in out
    assert "Rounds" not in out
    assert "privacy.epsilon" not in out  # a default
    assert run_json(capsys, "show", "femnist-fed_avg", "--results", str(results))["run_id"] == wanted


@pytest.mark.parametrize(
    ("text", "fragment"),
    [("nothing", "'nothing'"), ("femnist-", "fits 3"), ("femnist-higrad", "to be finished")],
)
def test_show_refuses(results: Path, capsys: pytest.CaptureFixture[str], text: str, fragment: str) -> None:
    code, out, err = run(capsys, "show", text, "--results", str(results))
    assert (code, out) == (2, "")
    assert err.startswith("error: Expected ")
    assert fragment in err


def test_show_draws_the_curve(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = load_scenario(SMOKE).runs[0].run_id
    accuracy = [0.0, 0.25, 0.5, 0.75]
    frame = pd.DataFrame(
        {"round": [1, 2, 3, 4], "test_accuracy": accuracy, "validation_accuracy": [np.nan] * 4}
    )
    frame.to_parquet(results / "runs" / wanted / "rounds.parquet")
    _, out, _ = run(capsys, "show", wanted, "--results", str(results))
    assert "test accuracy  ▁▃▆█  0.0 to 75.0 %, best 75.0 %" in out
    assert "validation accuracy" not in out
    path = results / "runs" / wanted / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    code, _, err = run(capsys, "show", wanted, "--results", str(results))
    assert code == 2 and "rounds.parquet" in err and "cannot be read" in err


def test_sparkline() -> None:
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([2.0, 2.0, 2.0]) == "▁▁▁"
    long = sparkline([float(i) for i in range(1000)], width=10)
    assert (len(long), long[0], long[-1]) == (10, "▁", "█")
    assert list(long) == sorted(long)


def test_damaged_manifest_and_no_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "runs", "--results", str(tmp_path))
    assert code == 2
    assert "has anything been run" in err
    folder = tmp_path / "runs" / "a"
    folder.mkdir(parents=True)
    changed = sealed({"algorithm": "FedAvg", "rounds_executed": 2}) | {"rounds_executed": 3}
    for text in ("{", "[]", '"x"', json.dumps(changed), '{"final": 3}'):
        (folder / "manifest.json").write_text(text)
        code, out, _ = run(capsys, "runs", "--results", str(tmp_path))
        assert code == 1
        assert "1 run: 1 broken" in out
    for text in ("{", "[]", json.dumps(changed)):
        (folder / "manifest.json").write_text(text)
        code, _, err = run(capsys, "show", "a", "--results", str(tmp_path))
        assert code == 2
        assert str(folder / "manifest.json") in err


def test_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "schema")
    assert code == 0
    assert json.loads(out)["$defs"]["RunConfig"]
    assert run(capsys, "schema", "--check", "--folder", str(tmp_path))[0] == 1
    assert run(capsys, "schema", "--write", "--folder", str(tmp_path))[0] == 0
    assert run(capsys, "schema", "--check", "--folder", str(tmp_path)) == (0, "", "")
    assert run(capsys, "schema", "--check", "--folder", str(ROOT / "config"))[0] == 0


def test_inspect_of_generated_data(capsys: pytest.CaptureFixture[str]) -> None:
    content = run_json(capsys, "inspect", "shakespeare", "--source", "embedded")
    assert content["dataset"] == "shakespeare"
    assert content["synthetic"] is True
    assert content["users"] == 60


def test_inspect_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.zip")
    code, _, err = run(capsys, "inspect", "femnist", "--source", "leaf_json", "--path", missing)
    assert code == 2
    assert err.startswith("error: ")
    assert missing in err
    assert "Traceback" not in err


@pytest.mark.skipif("SUBJECTDP_REAL_DATA" not in os.environ, reason="SUBJECTDP_REAL_DATA names no folder")
def test_inspect_of_real_data(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.environ["SUBJECTDP_REAL_DATA"])
    zipped = str(folder / "femnist_leaf_180_writers.zip")
    content = run_json(capsys, "inspect", "femnist", "--source", "leaf_json", "--path", zipped)
    assert (content["users"], content["items"], content["classes"]) == (180, 27696, 62)


def test_as_a_module_and_into_a_closed_pipe() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib")}
    command = f"{sys.executable} -m subjectdp scenario {SCENARIOS / 'paper.yaml'} --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_a_terminal_without_greek_letters(results: Path) -> None:
    command = [sys.executable, "-m", "subjectdp", "runs", "--results", str(results)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT / "workflow/lib")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "? published*" in done.stdout


def test_output_helpers(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "x"), [("a", 1), ("bbbb", None), ("c", 22.5)])
    assert capsys.readouterr().out == "name     x\na        1\nbbbb     -\nc     22.5\n"
    print_table(("name",), [])
    assert capsys.readouterr().out == "name\n"
    print_json({"a": float("nan"), "b": (float("inf"), 1.5), "c": Path("x")})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5], "c": "x"}
    assert flattened({"a": {"b": 1, "c": {}}, "d": [1]}) == [("a.b", 1), ("a.c", "{}"), ("d", [1])]
