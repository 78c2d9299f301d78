"""What commands print, help, exit codes, closed pipes and plain terminals; the progress of ``run``."""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli.commands import ROOT, SCENARIOS, SMOKE, Captured, refused, run_json, said
from subjectdp import __version__
from subjectdp.cli import run as run_command
from subjectdp.cli.doctor import generated_files
from subjectdp.cli.main import build_parser, main
from subjectdp.cli.run import _refuse_stale_lock
from subjectdp.cli.runs import read_run_folder
from subjectdp.config.run import load_run, settings_apart
from subjectdp.config.scenario import load_scenario
from subjectdp.errors import ConfigError
from subjectdp.io.atomic import sealed
from subjectdp.io.locks import owned
from subjectdp.io.printing import clock
from subjectdp.places import PROGRESS
from subjectdp.training.records import Recorder
from subjectdp.training.rounds import Score

pytestmark = pytest.mark.slow


def test_another_checkouts_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    (tmp_path / "workflow/lib").mkdir(parents=True)
    for folder, told in ((ROOT, ""), (tmp_path, f"warning: the library of {ROOT}")):
        monkeypatch.chdir(folder)
        assert main(["runs", "--scenario", str(SMOKE)]) == 0
        assert capsys.readouterr().err.partition("/workflow")[0] == told


def test_runs(results: Path, capsys: Captured) -> None:
    listed = run_json(capsys, "runs", "--results", results)
    assert sorted(each["state"] for each in listed) == ["done", "done", "stopped"]
    assert [each["epsilon_published"] for each in listed if each["state"] == "done"] == [4.0, 4.0]
    out = said(capsys, "runs", "--results", results)
    assert "12.34" in out and "3 runs: 2 done, 1 stopped" in out
    assert [each["test_accuracy"] for each in listed if each["state"] == "stopped"] == [None]


def test_runs_of_a_scenario(results: Path, capsys: Captured) -> None:
    common = ("runs", "--results", results, "--scenario", SMOKE)
    listed = run_json(capsys, *common)
    assert [each["state"] for each in listed] == ["done", "done", "stopped", "open", "open", "open"]
    assert len(run_json(capsys, *common, "--dataset", "shakespeare")) == 3
    only = run_json(capsys, *common, "--algorithm", "higrad_avg_dp:v1")
    assert [each["label"] for each in only] == ["HiGradAvgDP (v1)"] * 2
    assert run_json(capsys, *common, "--algorithm", "user_ldp") == []


def test_a_run_under_way_tells_how_far_it_is_and_who_trains_it(results: Path, capsys: Captured) -> None:
    config, command = load_scenario(SMOKE).runs[2], ("runs", "--results", results)
    folder = results / "runs" / config.run_id
    (folder / "config.json").write_text(config.model_dump_json())
    recorder = Recorder(config.run_id, 9)
    for round_ in (1, 2):
        recorder.add_round(round_, Score(0.25, 1.5), Score(0.5, 1.5), 0.1)
        recorder.report(folder)
    with owned(folder / ".lock", 0.0):
        (training,) = (each for each in run_json(capsys, *command) if each["state"] == "training")
    assert (training["rounds_done"], training["rounds"], training["test_accuracy"]) == (2, 9, 0.25)
    assert (training["seconds_left"], training["label"]) == (0, "HiGradAvgDP (v1)")
    assert f"process {os.getpid()} on " in training["note"]
    (stopped,) = (each for each in run_json(capsys, *command) if each["state"] == "stopped")
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
    assert (found.rounds_done, found.rounds, found.seconds_left) == (3, 8, round(seconds))
    assert clock(round(seconds)) == left and line.endswith(f"{left} left")


def test_damaged_manifest_and_no_results(tmp_path: Path, capsys: Captured) -> None:
    assert "has anything been run" in refused(capsys, "runs", "--results", tmp_path)
    manifest = tmp_path / "runs" / "a" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    changed = sealed({"algorithm": "FedAvg", "rounds_executed": 2}) | {"rounds_executed": 3}
    for text in ("{", "[]", '"x"', json.dumps(changed), '{"final": 3}'):
        manifest.write_text(text)
        assert "1 run: 1 broken" in said(capsys, "runs", "--results", tmp_path, code=1)
    manifest.unlink()
    for config, score in (({"data": 3}, 0.5), ({"algorithm": "x"}, 0.5), ({}, "x")):
        for name, content in (("config.json", config), (PROGRESS, {"test_accuracy": score})):
            (manifest.parent / name).write_text(json.dumps(content))
        assert "Remove it and run the workflow again" in said(capsys, "runs", "--results", tmp_path, code=1)
    for text in ("{", "[]", json.dumps(changed)):
        manifest.write_text(text)
        assert str(manifest) in refused(capsys, "show", "a", "--results", tmp_path)


@pytest.fixture
def alike(tmp_path: Path) -> dict[str, str]:
    """Begun runs below ``tmp_path``: three of UserLDP whose ids differ in the hash alone, one of FedAvg.

    What is said of each to tell them apart.
    """
    power = {"partition": {"distribution": "power", "alpha": 4, "silos": 5}}  # 5 of 5 silos a round
    sound = {"privacy": {"mode": "sound"}, "partition": {"max_items_per_subject": 8}}
    configs = {}
    for config in map(load_run, [*({"algorithm": "user_ldp", **more} for more in ({}, power, sound)), {}]):
        (tmp_path / "runs" / config.run_id).mkdir(parents=True)
        (tmp_path / "runs" / config.run_id / "config.json").write_text(config.model_dump_json())
        configs[config.run_id] = config.model_dump(mode="json")
    return {run_id: text for run_id, text in settings_apart(configs).items() if "user_ldp" in run_id}


def test_runs_that_are_alike_are_told_apart_by_settings_that_differ(
    tmp_path: Path, alike: dict[str, str], capsys: Captured
) -> None:
    assert sorted(alike.values()) == ["", "max_items_per_subject=8, mode=sound", "silos=5, distribution=power, alpha=4"]
    lines = said(capsys, "runs", "--results", tmp_path, "--algorithm", "user_ldp").splitlines()
    assert lines[0].endswith("settings") and "3 runs: 3 stopped" in lines
    assert sum(line.endswith("distribution=power, alpha=4") for line in lines) == 1
    lines = refused(capsys, "show", "femnist-user_ldp-s0", "--results", tmp_path).splitlines()
    assert lines[0].endswith("got 'femnist-user_ldp-s0', which fits 3:")
    assert [line.split()[1] for line in lines[1:]] == sorted(alike)
    assert sum("alpha=4" in line for line in lines) == 1


def test_inspect_of_generated_data(capsys: Captured) -> None:
    content = run_json(capsys, "inspect", "shakespeare", "--source", "embedded")
    assert (content["dataset"], content["synthetic"], content["users"]) == ("shakespeare", True, 60)


def test_schema(tmp_path: Path, capsys: Captured) -> None:
    assert json.loads(said(capsys, "schema"))["$defs"]["RunConfig"]
    said(capsys, "schema", "--check", "--folder", tmp_path, code=1)
    written = said(capsys, "schema", "--write", "--folder", tmp_path)
    assert {Path(line).name for line in written.splitlines()} == set(generated_files(tmp_path))
    assert said(capsys, "schema", "--write", "--folder", tmp_path) == ""
    assert said(capsys, "schema", "--check", "--folder", tmp_path) == ""
    (tmp_path / "config.schema.json").write_text("{}")
    (line,) = said(capsys, "schema", "--check", "--folder", tmp_path, code=1).splitlines()
    assert "config.schema.json is not up to date" in line
    said(capsys, "schema", "--check", "--folder", ROOT / "config")


def test_an_audit_refutes_v1_and_no_sound_plan(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", time.process_time)  # of a core that other processes do not share
    lines = said(capsys, "audit", "higrad_avg_dp:v1", "--seconds", "4").splitlines()
    assert lines[0] == "1 attack on higrad_avg_dp:v1, about 4 s" and lines[2].endswith("refuted")
    assert float(lines[2].split()[-3]) > 4.0
    (found,) = run_json(capsys, "audit", "capped_item_dp", "--seconds", "0.5")
    assert 0.0 <= found["lower_bound"] < 4.0


def python(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process of Python on this library says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib"), **environment}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_version_and_help(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"subjectdp {__version__}\n"
    lines = build_parser(()).format_help().splitlines()
    assert max(map(len, lines)) <= 100
    start = lines.index("commands:") + 1
    commands = lines[start : lines.index("", start)]
    assert all(line.startswith("    ") and len(line.split(maxsplit=1)) == 2 for line in commands), "a line each"
    assert {"inspect", "plan", "runs", "show", "doctor", "schema"} <= {line.split()[0] for line in commands}
    assert "COMMAND" not in "".join(commands)


def test_as_a_module_and_into_a_closed_pipe() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib")}
    command = f"'{sys.executable}' -m subjectdp runs --scenario '{SCENARIOS / 'paper.yaml'}' --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_a_terminal_without_greek_letters(results: Path) -> None:
    done = python("-m", "subjectdp", "runs", "--results", results, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "") and "? published*" in done.stdout


WITHOUT = """
import sys
for name in ('yaml', 'pandas', 'grimp', 'pyarrow', 'opacus'): sys.modules[name] = None
from subjectdp.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_commands_without_the_pipelines_packages_say_what_to_install() -> None:
    """As after ``pip install subjectdp``: no YAML, no pandas, no grimp."""
    plan = "--rounds 2 --steps-per-round 2 --sampling-probability 0.1 --noise-multiplier 2"
    done = python("-c", WITHOUT, "account", "--algorithm", "local_item_dp", *plan.split())
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("epsilon ")
    for arguments in (["plan", "--json", "x.yaml"], ["account", "--run", "some"]):
        refused = python("-c", WITHOUT, *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "pip install 'subjectdp[pipeline]'" in refused.stderr and "Traceback" not in refused.stderr


# --- run: the line of progress, the command behind it, and what stops it before Snakemake starts ---


def test_failures_name_rule_and_log() -> None:
    text = "x\nError in rule train:\n    message: None\n    log: results/logs/train/a.log (check)\n"
    text += "Error in rule collect:\n    b\n"
    found = list(run_command._failures(text))
    assert found == ["Rule train failed: see results/logs/train/a.log.", "Rule collect failed."]
    traced = 'SyntaxError in a.py:\n  File "b.py", line 1, in c\n' * 9
    assert list(run_command._failures(f"one\n\n{traced}")) == ["SyntaxError in a.py:"] * 8


@pytest.mark.parametrize(
    ("log", "told"),
    [("error: full.\nx\n", "full."), ("error: full.\nTraceback (x):\n  a\nKeyError: 'b'\n", "KeyError: 'b'")],
)
def test_the_last_reason_in_a_log_is_told(tmp_path: Path, log: str, told: str) -> None:
    (tmp_path / "a.log").write_text(log)
    assert run_command._reason(tmp_path / "a.log") == f"{told} ({tmp_path / 'a.log'})"


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
    _refuse_stale_lock(tmp_path, ["a.yaml"])
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    _refuse_stale_lock(tmp_path, ["a.yaml"])
    (locks / "0.input.lock").touch()
    with pytest.raises(ConfigError, match="snakemake --unlock, then the same command goes on"):
        _refuse_stale_lock(tmp_path, ["a.yaml"])
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    job = _started([*waiting, f"{tmp_path}/.snakemake/scripts/tmp1.train.py"], tmp_path)  # outlives a killed Snakemake
    with job, pytest.raises(ConfigError, match="snakemake --unlock"):
        _refuse_stale_lock(tmp_path, ["a.yaml"])
    with _started([*waiting, "-m", "snakemake", "--configfile", "b.yaml"], tmp_path):
        _refuse_stale_lock(tmp_path, ["a.yaml"])
    same = _started([*waiting, "-m", "snakemake", "--configfile", "a.yaml"], tmp_path)
    with same, pytest.raises(ConfigError, match=r"wait, or kill it, got 'process \d+ with these files'"):
        _refuse_stale_lock(tmp_path, ["a.yaml"])


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator[None]:
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate("\n")
