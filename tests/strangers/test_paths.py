"""Somebody who has never seen the project: from a paper's claim to its verdict on the front page."""

import re
from pathlib import Path

import pandas as pd

from cli.commands import SCENARIOS
from figures.fake_runs import grid, write_runs
from subjectdp.report.paper_accounting import write_paper_accounting
from subjectdp.report.results_page import ResultSources, write_results_page
from subjectdp.report.scorecard import Evidence, scorecard
from subjectdp.report.tables import runs_summary
from subjectdp.report.targets import read_targets
from subjectdp.results.collect import collect_scenario

TARGETS = SCENARIOS.parent / "targets.csv"


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
