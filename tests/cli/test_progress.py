"""``run``: the line of progress, the command behind it, and what stops it before Snakemake starts."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.commands import ROOT, SMOKE, Captured, refused
from subjectdp.cli import run as run_command
from subjectdp.cli.main import main
from subjectdp.cli.run import _refuse_stale_lock
from subjectdp.errors import ConfigError


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
        ("name: [1, 2\nrun: {}\n", ["plain YAML", "line 2"]),
        ("name: x\nrun: {data: {source: leaf_json, path: /nowhere}}\n", ["data.path", "mine.yaml:2"]),
    ],
    ids=["syntax", "no data"],
)
def test_a_wrong_scenario_never_reaches_snakemake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, content: str, fragments: list[str]
) -> None:
    """Snakemake reads scenario files before any rule, and answers such files with tracebacks."""
    monkeypatch.setattr(subprocess, "Popen", None)
    file = tmp_path / "mine.yaml"
    file.write_text(content)
    message = refused(capsys, "run", file)
    assert message.count("\n") == 1 and all(fragment in message for fragment in fragments), message


def test_the_line_and_the_log_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> None:
    """Snakemake is replaced by a script that prints as it does and fails."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    said = "4 of 19 steps (21%) done\\nError in rule train:\\n    log: results/logs/train/a.log (check)\\n"
    command = [sys.executable, "-c", f"import sys; print('{said}'); sys.exit(1)"]
    monkeypatch.setattr(run_command, "_command", lambda *_: command)
    monkeypatch.setattr(run_command, "_EVERY_SECONDS", 0.01)
    assert main(["run", SMOKE]) == 1
    seen = capfd.readouterr()
    assert "smoke: 6 runs; log: results/logs/workflow/smoke.log" in seen.err
    assert "0 of 6 runs · 4 of 19 steps" in seen.err and "Error in rule" not in seen.err
    assert "error: Rule train failed: see results/logs/train/a.log." in seen.err
    assert "Error in rule train" in (tmp_path / "results/logs/workflow/smoke.log").read_text()


def test_a_lock_without_a_snakemake_is_refused_with_the_remedy(tmp_path: Path) -> None:
    _refuse_stale_lock(tmp_path)
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    _refuse_stale_lock(tmp_path)
    (locks / "0.input.lock").touch()
    with pytest.raises(ConfigError, match="snakemake --unlock, then the same command goes on"):
        _refuse_stale_lock(tmp_path)
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    job = _started([*waiting, f"{tmp_path}/.snakemake/scripts/tmp1.train.py"], tmp_path)  # outlives a killed Snakemake
    with job, pytest.raises(ConfigError, match="snakemake --unlock"):
        _refuse_stale_lock(tmp_path)
    with _started([*waiting, "-m", "snakemake"], tmp_path):
        _refuse_stale_lock(tmp_path)


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator[None]:
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate("\n")
