"""The line of progress, and the command that runs a scenario behind it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from subjectdp.cli import run as run_command
from subjectdp.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SMOKE = ROOT / "config/scenarios/smoke.yaml"


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
