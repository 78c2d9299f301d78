"""``subjectdp schema``: prints, checks and writes."""

import json
from pathlib import Path

import pytest

from cli.commands import ROOT, run


def test_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "schema")
    assert code == 0
    assert json.loads(out)["$defs"]["RunConfig"]
    assert run(capsys, "schema", "--check", "--folder", str(tmp_path))[0] == 1
    assert run(capsys, "schema", "--write", "--folder", str(tmp_path))[0] == 0
    assert run(capsys, "schema", "--check", "--folder", str(tmp_path)) == (0, "", "")
    assert run(capsys, "schema", "--check", "--folder", str(ROOT / "config"))[0] == 0
