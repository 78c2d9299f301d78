"""Somebody who has never seen the project, from what they have to what they want to know."""

from __future__ import annotations

from pathlib import Path

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from cli.commands import run_json


def by_dp_accounting(sigma: float, probability: float, steps: int, delta: float) -> float:
    """ε of DP-SGD for one item, by dp-accounting alone."""
    step = dp_event.PoissonSampledDpEvent(probability, dp_event.GaussianDpEvent(sigma))
    return float(PLDAccountant().compose(step, steps).get_epsilon(delta))


def test_audit_my_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A practitioner: which ε do my people have? Three hospitals of unequal size, some people at two."""
    rows = [f"w{i},west,1" for i in range(356)]
    rows += [f"p{i},north,{1 + i % 3}" for i in range(300)] + [f"p{i},south,2" for i in range(200, 500)]
    (tmp_path / "counts.csv").write_text("\n".join(["subject,silo,items", *rows, "p0,west,4"]))
    arguments = "--algorithm local_item_dp --rounds 10 --steps-per-round 5 --batch-size 60 --noise-multiplier 1.1"
    found = run_json(capsys, "account", "--counts", str(tmp_path / "counts.csv"), *arguments.split())
    assert "your software" in found["card"] and "the seed" not in found["card"]  # nothing is trained here
    found = found["privacy"]["sound"]
    # The smallest silo samples most: 60 of its 360 items.
    assert found["item"]["epsilon"] == pytest.approx(by_dp_accounting(1.1, 60 / 360, 50, 1e-5), rel=0.01)
    assert found["item"]["epsilon"] < found["subject_one_silo"]["epsilon"] <= found["subject"]["epsilon"]
