"""How many more rounds one local step needs for equal accuracy, on made-up runs of a known answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from figures.fake_runs import Fake, write_runs
from subjectdp.results.collect import collect_scenario
from subjectdp.scorecard.run_measures import measure_rounds
from subjectdp.scorecard.targets import read_targets
from subjectdp.scorecard.verdicts import Verdict, judge

TARGET = next(
    target
    for target in read_targets(Path(__file__).resolve().parents[2] / "config" / "targets.csv")
    if target.metric == "rounds_to_equal_accuracy"
)
MARKS = (10, 20, 40, 80, 160)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    root = tmp_path_factory.mktemp("marks")
    fakes = [
        Fake("joint_noise", dataset="cifar10", seed=seed, rounds=rounds, local_steps=steps)
        for seed in (0, 1)
        for rounds in MARKS
        for steps in (1, None)
    ]
    collect_scenario(write_runs(root / "runs", fakes), root)
    return pd.read_parquet(root / "runs.parquet"), pd.read_parquet(root / "rounds.parquet")


def with_accuracies(
    tables: tuple[pd.DataFrame, pd.DataFrame], accuracy: Callable[[bool, int, int], float]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The runs with a best accuracy of (is an epoch, rounds, seed), and a worse last round."""
    runs, _ = tables
    rows = []
    for run in runs.itertuples():
        best = accuracy(run.local_steps == 0, int(run.rounds), int(run.seed))
        rows += [{"run_id": run.run_id, "round": 1, "test_accuracy": best}]
        rows += [{"run_id": run.run_id, "round": 2, "test_accuracy": best - 0.1}]
    return runs, pd.DataFrame(rows)


def test_ten_times_the_rounds_are_one_order(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Accuracy a log10 R + b for one step, and the same at ten times the rounds for an epoch."""
    runs, rounds = with_accuracies(tables, lambda epoch, R, seed: 0.1 * math.log10(R * (10 if epoch else 1)))
    found = measure_rounds(TARGET, runs, rounds)
    assert found is not None and found.mean == pytest.approx(1.0) and found.seeds == 2
    assert judge(TARGET, found)[0] is Verdict.NOT_AT_THIS_SCALE  # generated data


def test_marks_that_one_step_does_not_reach_are_left_out(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Only the epoch's first mark is within one step's reach here, twice its rounds in seed 0, four times in 1."""

    def accuracy(epoch: bool, rounds: int, seed: int) -> float:
        if epoch:
            return (0.3 if seed == 0 else 0.4) if rounds == 10 else 0.9
        return 0.1 + 0.1 * (1 + MARKS.index(rounds))

    found = measure_rounds(TARGET, *with_accuracies(tables, accuracy))
    assert found is not None and found.mean == pytest.approx((math.log10(2) + math.log10(4)) / 2)


def test_nothing_is_said_where_one_step_reaches_no_mark(tables: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    runs, rounds = with_accuracies(tables, lambda epoch, R, seed: 0.9 if epoch else 0.5)
    assert measure_rounds(TARGET, runs, rounds) is None
    one_mark = runs[(runs["rounds"] == 10)]
    assert measure_rounds(TARGET, one_mark, rounds) is None
