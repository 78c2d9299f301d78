"""``subjectdp show``: a finished run, its curve, and what differs between two."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.commands import SMOKE, refused, run, run_json, said
from subjectdp.cli.show import sparkline
from subjectdp.config import load_scenario

Captured = pytest.CaptureFixture[str]
FIRST, SECOND = (config.run_id for config in load_scenario(SMOKE).runs[:2])
SAID = """FedAvg
synthetic
12.34 %
as published (no guarantee)           epsilon 4 at delta 1e-05, subject level
sound, one item                       epsilon 3.25 at delta 1e-05
sound, one subject, at all its silos  none: no cap
- silos are honest
- choice of hyperparameters
training.batch_size"""


def test_show(results: Path, capsys: Captured) -> None:
    out = said(capsys, "show", FIRST, "--results", results)
    assert [text for text in (FIRST, *SAID.splitlines()) if text not in out] == []
    assert "Rounds" not in out
    assert "privacy.epsilon" not in out  # a default
    assert run_json(capsys, "show", "femnist-fed_avg", "--results", results)["run_id"] == FIRST


@pytest.mark.parametrize(
    ("text", "told"), [("nothing", "'nothing'"), ("femnist-", "fits 3"), ("femnist-higrad", "to be finished")]
)
def test_show_refuses(results: Path, capsys: Captured, text: str, told: str) -> None:
    assert told in refused(capsys, "show", text, "--results", results)


def test_show_draws_the_curve(results: Path, capsys: Captured) -> None:
    path = results / "runs" / FIRST / "rounds.parquet"
    accuracy = [0.0, 0.25, 0.5, 0.75]
    frame = pd.DataFrame({"round": [1, 2, 3, 4], "test_accuracy": accuracy, "validation_accuracy": [np.nan] * 4})
    frame.to_parquet(path)
    out = said(capsys, "show", FIRST, "--results", results)
    assert "test accuracy  ▁▃▆█  0.0 to 75.0 %, best 75.0 %" in out
    assert "validation accuracy" not in out
    path.write_bytes(path.read_bytes()[:-30])
    code, _, message = run(capsys, "show", FIRST, "--results", results)
    assert code == 2 and "rounds.parquet" in message and "parquet file" in message


def test_sparkline() -> None:
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([2.0, 2.0, 2.0]) == "▁▁▁"
    long = sparkline([float(i) for i in range(1000)], width=10)
    assert (len(long), long[0], long[-1]) == (10, "▁", "█") and list(long) == sorted(long)


def test_compare(results: Path, capsys: Captured) -> None:
    path = results / "runs" / SECOND / "manifest.json"
    manifest = json.loads(path.read_text()) | {"code_fingerprint": "abc"}
    manifest["privacy"]["sound"]["item"]["epsilon"] = 7.5
    path.write_text(json.dumps(manifest))
    comparison = run_json(capsys, "show", FIRST, SECOND, "--results", results)
    assert comparison["settings"] == {"algorithm.name": ["fed_avg", "local_item_dp"]}
    assert comparison["metrics"]["test_accuracy"] == [0.1234, 1.1234]
    assert comparison["epsilon"]["sound, one item"] == [3.25, 7.5]
    assert comparison["epsilon"]["sound, one subject, at all its silos"] == [None, None]
    assert comparison["made_with"] == {"code_fingerprint": [None, "abc"]}
    assert "algorithm.name  fed_avg  local_item_dp" in said(capsys, "show", FIRST, SECOND, "--results", results)
    out = said(capsys, "show", FIRST, FIRST, "--results", results)
    assert "the settings are the same" in out and "code and machine are the same" in out
    assert "to be finished" in refused(capsys, "show", FIRST, "femnist-higrad", "--results", results)
