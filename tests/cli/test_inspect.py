"""``subjectdp inspect``: sources of data."""

import os
from pathlib import Path

import pytest

from cli.commands import run_json


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
