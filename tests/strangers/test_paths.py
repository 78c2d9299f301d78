"""Five people who have never seen the project, each from what they have to what they want to know.

They use what the README and the docs name: the command line, ``import subjectdp``, scenario files, the front page.
"""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import subjectdp
from cli.commands import SCENARIOS, run, run_json
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

pytestmark = pytest.mark.slow

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


def test_subject_privacy_engine_on_my_model() -> None:
    """An engineer with a module, an optimiser and a loop: it still learns, and ε is there at any time."""
    torch.manual_seed(0)
    inputs = torch.randn(600, 6)
    data = TensorDataset(inputs, (inputs[:, 0] > 0).long())
    network = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
    engine = subjectdp.SubjectPrivacyEngine()
    model, optimizer, loss, loader = engine.make_private(
        network,
        torch.optim.Adam(network.parameters(), lr=0.02),
        nn.CrossEntropyLoss(),
        DataLoader(data, batch_size=120),
        [item // 2 for item in range(600)],  # whose item it is
        subjectdp.PrivacySettings(clip="subject", noise_multiplier=1.5, max_items_per_subject=2),
    )
    for features, labels in loader.take(25):
        optimizer.zero_grad()
        loss(model(features), labels).backward()
        optimizer.step()
    model.eval()
    assert float((model(inputs).argmax(1) == data.tensors[1]).float().mean()) > 0.85
    expected = by_dp_accounting(1.5, 1 - (1 - 120 / 600) ** 2, 25, 1e-5)  # any of two items drawn
    assert engine.get_epsilon(delta=1e-5) == pytest.approx(expected, rel=0.01)
    # An item more turns the mean of its subject's others, so that it moves the sum by up to 2 C.
    assert engine.get_epsilon(delta=1e-5, unit="item") > engine.get_epsilon(delta=1e-5)


def test_an_overlay_with_adam_and_mini_batches_of_128(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A researcher changes three values for all runs; each run has them, whatever the file below says."""
    overlay = tmp_path / "mine.yaml"
    overlay.write_text("run: {training: {batch_size: 128, optimizer: {name: adam, learning_rate: 0.001}}}\n")
    before = run_json(capsys, "scenario", str(SCENARIOS / "embedded.yaml"))["runs"]
    after = run_json(capsys, "scenario", str(SCENARIOS / "embedded.yaml"), str(overlay))["runs"]
    assert len(before) == len(after)
    assert {run["config"]["algorithm"]["name"] for run in after} >= {"fed_avg", "local_item_dp", "user_ldp"}
    for each in after:
        training = each["config"]["training"]
        if each["config"]["algorithm"]["name"].startswith("subject_"):  # they have no mini-batches of items
            continue
        changed = (training["batch_size"], training["optimizer"]["name"], training["optimizer"]["learning_rate"])
        assert changed == (128, "adam", 0.001), each["config"]["algorithm"]


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
