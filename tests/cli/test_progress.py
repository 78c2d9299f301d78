"""The line of progress, and the command that runs a scenario behind it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from subjectdp.cli import run as run_command
from subjectdp.cli.main import main
from subjectdp.cli.run import progress, seconds_left, span
from subjectdp.cli.run_folders import RunFolder, State
from subjectdp.config import load_scenario

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "config/scenarios/smoke.yaml"


def folder(name: str, state: State, label: str = "FedAvg", **known: object) -> RunFolder:
    config = {"data": {"dataset": "femnist"}}
    return RunFolder(name, state, label=label, config=config, **known)  # type: ignore[arg-type]


def test_the_time_left_by_hand() -> None:
    runs = [
        folder("a", State.DONE, wall_seconds=10.0),
        folder("b", State.DONE, "UserLDP", wall_seconds=30.0),
        folder("c", State.TRAINING, "UserLDP", rounds_done=5, rounds=10, seconds_left=20),  # 40 s in all
        folder("d", State.OPEN),  # as the other FedAvg: 10 s
        folder("e", State.OPEN, "UserLDP"),  # as the other two: 35 s
        folder("f", State.OPEN, "LocalItemDP"),  # as the mean of 10, 30 and 40 s
    ]
    assert seconds_left(runs, 1) == pytest.approx(20 + 10 + 35 + 80 / 3)
    assert seconds_left(runs, 2) == pytest.approx((20 + 10 + 35 + 80 / 3) / 2)
    assert seconds_left([folder("d", State.OPEN)], 1) is None
    assert seconds_left(runs[:2], 1) == 0


def test_the_line_of_progress_is_read_from_the_folders(tmp_path: Path) -> None:
    runs, finished = load_scenario(SMOKE).runs, dict[str, RunFolder]()
    assert progress(runs, tmp_path, finished, 1) == "0 of 6 runs"
    done = tmp_path / "runs" / runs[0].run_id
    done.mkdir(parents=True)
    manifest = {"algorithm": "FedAvg", "wall_seconds": 80.0, "final": {"test_accuracy": 0.5}, "rounds_executed": 2}
    (done / "manifest.json").write_text(json.dumps(manifest | {"config": runs[0].model_dump(mode="json")}))
    assert progress(runs, tmp_path, finished, 1) == "1 of 6 runs, about 7 min left · newest: FedAvg 50.0 %"
    assert list(finished) == [runs[0].run_id]
    assert [span(seconds) for seconds in (40, 300, 11_520)] == ["40 s", "5 min", "3.2 h"]


def test_failures_name_rule_and_log() -> None:
    text = "x\nError in rule train:\n    message: None\n    log: results/logs/train/a.log (check)\n"
    text += "Error in rule collect:\n    b\n"
    assert list(run_command._failures(text)) == [
        "Rule train failed: see results/logs/train/a.log.",
        "Rule collect failed.",
    ]
    assert list(run_command._failures("one\n\ntwo\n")) == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        (b"name: [1, 2\nrun: {}\n", ["plain YAML", "line 2"]),
        (b"name: x\n# caf\xe9\n", ["UTF-8", "0xe9 in line 2"]),
        (None, ["a readable file", "No such file"]),
        (b"name: x\nrun: {data: {source: leaf_json, path: /nowhere}}\n", ["data.path", "mine.yaml:2"]),
    ],
    ids=["syntax", "Latin-1", "missing", "no data"],
)
def test_a_wrong_scenario_never_reaches_snakemake(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: bytes | None,
    fragments: list[str],
) -> None:
    """Snakemake reads scenario files before any rule, and answers such files with tracebacks."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(subprocess, "Popen", None)
    file = tmp_path / "mine.yaml"
    if content is not None:
        file.write_bytes(content)
    assert main(["run", str(file)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and all(fragment in err for fragment in fragments), err


def test_the_line_and_the_log_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Snakemake is replaced by a script that prints as it does and fails."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    said = "4 of 19 steps (21%) done\\nError in rule train:\\n    log: results/logs/train/a.log (check)\\n"
    command = [sys.executable, "-c", f"import sys; print('{said}'); sys.exit(1)"]
    monkeypatch.setattr(run_command, "_command", lambda *_: command)
    monkeypatch.setattr(run_command, "_EVERY_SECONDS", 0.01)
    assert main(["run", str(SMOKE)]) == 1
    seen = capfd.readouterr()
    assert "smoke: 6 runs; log: results/logs/workflow/smoke.log" in seen.err
    assert "0 of 6 runs · 4 of 19 steps" in seen.err and "Error in rule" not in seen.err
    assert "error: Rule train failed: see results/logs/train/a.log." in seen.err
    assert "Error in rule train" in (tmp_path / "results/logs/workflow/smoke.log").read_text()
