"""What commands print: ``runs`` (finished, under way, damaged), ``scenario``, ``inspect``, ``schema``."""

import json
import math
import os
import time
from pathlib import Path

import pytest

from cli.commands import ROOT, SMOKE, run, run_json
from subjectdp.cli.run_folders import read_run_folder
from subjectdp.config import load_run, load_scenario
from subjectdp.io.atomic import sealed
from subjectdp.io.locks import owned
from subjectdp.io.printing import clock
from subjectdp.training.records import Recorder
from subjectdp.training.rounds import Score


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
    best, second, *_ = run_json(capsys, *common, "--sort", "accuracy")
    assert (best["test_accuracy"], second["test_accuracy"]) == (1.1234, 0.1234)


def test_a_run_under_way_tells_how_far_it_is_and_who_trains_it(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = load_scenario(SMOKE).runs[2]
    folder = results / "runs" / config.run_id
    (folder / "config.json").write_text(config.model_dump_json())
    recorder = Recorder(config.run_id, 9)
    for round_ in (1, 2):
        recorder.add_round(round_, Score(0.25, 1.5), Score(0.5, 1.5), 0.1)
        recorder.report(folder)
    with owned(folder / ".lock", 0.0):
        (training,) = run_json(capsys, "runs", "--results", str(results), "--state", "training")
    assert (training["rounds_done"], training["rounds"], training["test_accuracy"]) == (2, 9, 0.25)
    assert training["seconds_left"] == 0
    assert training["label"] == "HiGradAvgDP (v1)"
    assert f"process {os.getpid()} on " in training["note"]
    (stopped,) = run_json(capsys, "runs", "--results", str(results), "--state", "stopped")
    assert (stopped["rounds_done"], stopped["seconds_left"], stopped["note"]) == (2, None, None)


@pytest.mark.parametrize(("seconds", "left"), [(7.2, "0:07"), (754.0, "12:34"), (3723.0, "1:02:03")])
def test_the_time_left_is_read_as_it_was_written(results: Path, seconds: float, left: str) -> None:
    folder = results / "runs" / "femnist-fed_avg-s9-0123456789"
    folder.mkdir()
    recorder = Recorder("x", 8)
    recorder.add_round(3, Score(0.5, 1.0), Score(math.nan, math.nan), 2.0)
    recorder._started = time.perf_counter() - 0.6 * seconds  # three rounds of eight
    line = recorder.report(folder)
    with owned(folder / ".lock", 0.0):
        found = read_run_folder(folder)
    assert (found.progress, found.seconds_left) == ("3/8", round(seconds))
    assert clock(round(seconds)) == left and line.endswith(f"{left} left")


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


def test_inspect_of_generated_data(capsys: pytest.CaptureFixture[str]) -> None:
    content = run_json(capsys, "inspect", "shakespeare", "--source", "embedded")
    assert content["dataset"] == "shakespeare"
    assert content["synthetic"] is True
    assert content["users"] == 60


@pytest.mark.skipif("SUBJECTDP_REAL_DATA" not in os.environ, reason="SUBJECTDP_REAL_DATA names no folder")
def test_inspect_of_real_data(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.environ["SUBJECTDP_REAL_DATA"])
    zipped = str(folder / "femnist_leaf_180_writers.zip")
    content = run_json(capsys, "inspect", "femnist", "--source", "leaf_json", "--path", zipped)
    assert (content["users"], content["items"], content["classes"]) == (180, 27696, 62)


def test_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "schema")
    assert code == 0
    assert json.loads(out)["$defs"]["RunConfig"]
    assert run(capsys, "schema", "--check", "--folder", str(tmp_path))[0] == 1
    assert run(capsys, "schema", "--write", "--folder", str(tmp_path))[0] == 0
    assert run(capsys, "schema", "--check", "--folder", str(tmp_path)) == (0, "", "")
    assert run(capsys, "schema", "--check", "--folder", str(ROOT / "config"))[0] == 0
