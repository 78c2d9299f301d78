"""``subjectdp show``: a finished run, its curve, runs that cannot be shown, and what differs between two."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.commands import SMOKE, run, run_json
from subjectdp.cli.show import sparkline
from subjectdp.config import load_scenario


def test_show(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = load_scenario(SMOKE).runs[0].run_id
    code, out, _ = run(capsys, "show", wanted, "--results", str(results))
    assert code == 0
    for text in (
        wanted,
        "FedAvg",
        "synthetic",
        "12.34 %",
        "as published (no guarantee)           epsilon 4 at delta 1e-05, subject level",
        "sound, one item                       epsilon 3.25 at delta 1e-05",
        "sound, one subject, at all its silos  none: no cap",
        "- silos are honest",
        "- choice of hyperparameters",
        "training.batch_size",
    ):
        assert text in out
    assert "Rounds" not in out
    assert "privacy.epsilon" not in out  # a default
    assert run_json(capsys, "show", "femnist-fed_avg", "--results", str(results))["run_id"] == wanted


@pytest.mark.parametrize(
    ("text", "fragment"), [("nothing", "'nothing'"), ("femnist-", "fits 3"), ("femnist-higrad", "to be finished")]
)
def test_show_refuses(results: Path, capsys: pytest.CaptureFixture[str], text: str, fragment: str) -> None:
    code, out, err = run(capsys, "show", text, "--results", str(results))
    assert (code, out) == (2, "")
    assert err.startswith("error: Expected ")
    assert fragment in err


def test_show_draws_the_curve(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = load_scenario(SMOKE).runs[0].run_id
    accuracy = [0.0, 0.25, 0.5, 0.75]
    frame = pd.DataFrame({"round": [1, 2, 3, 4], "test_accuracy": accuracy, "validation_accuracy": [np.nan] * 4})
    frame.to_parquet(results / "runs" / wanted / "rounds.parquet")
    _, out, _ = run(capsys, "show", wanted, "--results", str(results))
    assert "test accuracy  ▁▃▆█  0.0 to 75.0 %, best 75.0 %" in out
    assert "validation accuracy" not in out
    path = results / "runs" / wanted / "rounds.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    code, _, err = run(capsys, "show", wanted, "--results", str(results))
    assert code == 2 and "rounds.parquet" in err and "parquet file" in err


def test_sparkline() -> None:
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([2.0, 2.0, 2.0]) == "▁▁▁"
    long = sparkline([float(i) for i in range(1000)], width=10)
    assert (len(long), long[0], long[-1]) == (10, "▁", "█")
    assert list(long) == sorted(long)


def test_compare(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (config.run_id for config in load_scenario(SMOKE).runs[:2])
    path = results / "runs" / second / "manifest.json"
    manifest = json.loads(path.read_text()) | {"code_fingerprint": "abc"}
    manifest["privacy"]["sound"]["item"]["epsilon"] = 7.5
    path.write_text(json.dumps(manifest))
    common = (first, second, "--results", str(results))
    comparison = run_json(capsys, "show", *common)
    assert comparison["settings"] == {"algorithm.name": ["fed_avg", "local_item_dp"]}
    assert comparison["metrics"]["test_accuracy"] == [0.1234, 1.1234]
    assert comparison["epsilon"]["sound, one item"] == [3.25, 7.5]
    assert comparison["epsilon"]["sound, one subject, at all its silos"] == [None, None]
    assert comparison["made_with"] == {"code_fingerprint": [None, "abc"]}
    code, out, _ = run(capsys, "show", *common)
    assert code == 0
    assert "algorithm.name  fed_avg  local_item_dp" in out
    code, out, _ = run(capsys, "show", first, first, "--results", str(results))
    assert "the settings are the same" in out and "code and machine are the same" in out
    code, _, err = run(capsys, "show", first, "femnist-higrad", "--results", str(results))
    assert code == 2 and "to be finished" in err
