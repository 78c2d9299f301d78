"""Runs commands of the command line in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from subjectdp.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "config" / "scenarios"
SMOKE = str(SCENARIOS / "smoke.yaml")
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def said(capsys: Captured, *arguments: object, code: int = 0) -> str:
    """What a command that ends with ``code`` prints."""
    found, out, err = run(capsys, *arguments)
    assert found == code, err
    return out


def run_json(capsys: Captured, *arguments: object) -> Any:
    return json.loads(said(capsys, *arguments, "--json"))


def refused(capsys: Captured, *arguments: object) -> str:
    """The message of a command that is refused, which comes alone: no output, no usage, no traceback."""
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "") and err.startswith("error: "), err
    assert "usage:" not in err and "Traceback" not in err
    return err
