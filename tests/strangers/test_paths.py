"""Five people who have never seen the project, each from what they have to what they want to know.

They use what the README and the docs name: the command line, ``import subjectdp``, scenario files, the front page.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from cli.commands import SCENARIOS, run, run_json
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.training.run import train_run

TARGETS = SCENARIOS.parent / "targets.csv"


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


def test_my_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of one's own: looked at, prepared, trained, with the ε of the people in it."""
    rng = np.random.default_rng(0)
    people = rng.integers(0, 40, 600)
    x = rng.normal(size=600)
    table = tmp_path / "mine.csv"
    pd.DataFrame({"who": people, "site": people % 3, "ill": (x > 0).astype(int), "x": x}).to_csv(table, index=False)
    options = ["--path", str(table), "--label", "ill", "--subject", "who", "--silo", "site"]
    code, out, _ = run(capsys, "inspect", "table", *options)
    assert code == 0 and "40" in out
    config = {
        "data": {"source": "table", "path": str(table), "label": "ill", "subject": "who", "silo": "site"},
        "partition": {"silos": 3, "distribution": "inherent", "max_items_per_subject": 4},
        "algorithm": "capped_item_dp",
        "privacy": {"mode": "sound", "epsilon": 8, "delta": 1e-5},
        "training": {"rounds": 2, "local_steps": 2, "batch_size": 20, "optimizer": {"learning_rate": 0.5}},
        "model": {"name": "linear"},
    }
    described = RunConfig.model_validate(config)
    fetch_sources(described.data, tmp_path / "source")
    prepare_dataset(described.data, tmp_path / "source", tmp_path / "prepared")
    make_partition(tmp_path / "prepared", tmp_path / "partition", described)
    train_run(config, tmp_path / "prepared", tmp_path / "partition", tmp_path / "run")
    sound = json.loads((tmp_path / "run" / "manifest.json").read_text())["privacy"]["sound"]
    assert 7.9 < sound["subject"]["epsilon"] <= 8
