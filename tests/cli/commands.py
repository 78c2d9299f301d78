"""Runs commands of the command line in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from subjectdp.cli.main import main

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
