"""Two people who have never seen the project: from a table of one's own to its ε, and from a claim to its verdict."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.commands import SCENARIOS, run
from figures.fake_runs import grid, write_runs
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.report.paper_accounting import write_paper_accounting
from subjectdp.report.results_page import ResultSources, write_results_page
from subjectdp.report.scorecard import Evidence, scorecard
from subjectdp.report.tables import runs_summary
from subjectdp.report.targets import read_targets
from subjectdp.results.collect import collect_scenario
from subjectdp.training.run import train_run

TARGETS = SCENARIOS.parent / "targets.csv"


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


def test_does_the_claim_of_higrad_avg_dp_v1_hold(tmp_path: Path) -> None:
    """A reviewer opens the front page: printed and ours of the claim stand in one row, with its verdict."""
    targets = [target for target in read_targets(TARGETS) if target.id == "v1-claim-higrad"]
    accounting = write_paper_accounting(targets, tmp_path / "accounting.parquet")
    collect_scenario(write_runs(tmp_path / "runs", grid(["higrad_avg_dp:v1"], ["femnist"], [0])), tmp_path)
    runs, rounds = (pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("runs", "rounds"))
    scores = scorecard(targets, Evidence(runs, rounds, pd.DataFrame(), accounting=accounting))
    scores.to_csv(tmp_path / "scorecard.csv", index=False)
    runs_summary(runs).to_csv(tmp_path / "runs.csv", index=False)
    sources = ResultSources(tmp_path / "runs.csv", tmp_path / "scorecard.csv", (), tmp_path, tmp_path)
    write_results_page(sources, {}, {}, {}, tmp_path / "index.html")
    text = re.sub(r"<(style|script)>.*?</\1>", "", (tmp_path / "index.html").read_text(), flags=re.DOTALL)
    text = " ".join(re.sub(r"<[^>]+>", " ", text).split())
    (row,) = re.findall(r"refuted HiGradAvgDP is \(4, 1e-5\)-differentially private.*?accounting", text)
    assert " 4 " in row and f"{scores['ours'][0]:.4g}"[:3] in row
