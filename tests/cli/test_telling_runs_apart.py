"""Runs whose ids differ in the hash alone: what the command line says to tell them apart."""

import json
from pathlib import Path

import pytest

from subjectdp.cli.main import build_parser, main
from subjectdp.config import load_run
from subjectdp.config.run import settings_apart

CHANGES = (
    {},
    {"partition": {"distribution": "power", "alpha": 4}},
    {"privacy": {"mode": "sound"}, "partition": {"max_items_per_subject": 8}},
)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three begun runs of UserLDP with one seed, and one of FedAvg."""
    configs = [load_run({"algorithm": "user_ldp", **change}) for change in CHANGES]
    for config in (*configs, load_run({"algorithm": "fed_avg"})):
        folder = tmp_path / "runs" / config.run_id
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config.model_dump_json())
    return tmp_path


def told(results: Path) -> dict[str, str]:
    texts = {path.parent.name: json.loads(path.read_text()) for path in results.glob("runs/*/config.json")}
    return settings_apart(texts)


def test_settings_that_differ_are_told_and_defaults_are_not(results: Path) -> None:
    found = {run_id: text for run_id, text in told(results).items() if "user_ldp" in run_id}
    assert sorted(found.values()) == ["", "distribution=power, alpha=4", "max_items_per_subject=8, mode=sound"]


def test_runs_lists_what_tells_them_apart(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "--results", str(results), "--algorithm", "user_ldp"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("settings")
    assert sum(line.endswith("distribution=power, alpha=4") for line in lines) == 1
    assert "3 runs: 3 stopped" in lines


def test_an_algorithm_that_there_is_not_is_a_mistake(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, near in (("userldp", "user_ldp"), ("higrad_avg_dp:v2", "higrad_avg_dp:v")):
        assert main(["runs", "--results", str(results), "--algorithm", wrong]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and f"Did you mean '{near}" in captured.err
    assert main(["runs", "--results", str(results), "--algorithm", "higrad_avg_dp:v3"]) == 0, "none was run"


def test_an_id_that_fits_several_runs_lists_them(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "femnist-user_ldp-s0", "--results", str(results)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("got 'femnist-user_ldp-s0', which fits 3:")
    ids = sorted(run_id for run_id in told(results) if "user_ldp" in run_id)
    assert [line.split()[1] for line in lines[1:]] == ids
    assert sum("alpha=4" in line for line in lines) == 1


def test_each_command_stands_on_one_line_of_the_help() -> None:
    lines = build_parser(()).format_help().splitlines()
    start = lines.index("commands:") + 1
    commands = lines[start : lines.index("", start)]
    assert len(commands) > 10
    assert all(len(line.split(maxsplit=1)) == 2 and line.startswith("    ") for line in commands)
    assert "COMMAND" not in "".join(commands)
