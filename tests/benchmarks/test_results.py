"""Columns, goals and floors, on made-up times."""

from __future__ import annotations

import csv
import io
import json

import pandas as pd
import pytest

from subjectdp.benchmarks import command, goals
from subjectdp.benchmarks.harness import Ratio, Samples
from subjectdp.benchmarks.results import (
    COLUMNS,
    Measured,
    Table,
    csv_text,
    measured,
    print_measured,
    write_tables,
)
from subjectdp.benchmarks.steps import Outcome
from subjectdp.cli.main import main

ASKED = {
    *("workload", "method", "batch", "threads", "malloc", "ratio", "ratio_low", "ratio_high"),
    "peak_memory_ratio",
}


def part(
    workload: str = "cnn", batch: int = 64, malloc: str = "tuned", memory: int | None = 300, **factors: float
) -> Measured:
    """A table whose methods take these multiples of plain SGD, which varies from round to round."""
    base = [1.0, 2.0, 4.0, 3.0, 1.5]
    outcomes = {
        name: Outcome("ok", "fine", Samples([f * b for b in base], [2 * f * b for b in base]), memory)
        for name, f in {"sgd": 1.0, **factors}.items()
    }
    outcomes["sgd"].memory = 200
    return measured(Table(workload, batch, 1, malloc, "sgd", "cpu"), outcomes, 0.5)


def test_rows_have_the_columns_that_were_asked_for():
    assert set(COLUMNS) >= ASKED
    text = csv_text(part(subjectdp_item=1.25).rows)
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(text))}
    assert tuple(rows["sgd"]) == COLUMNS
    item = rows["subjectdp_item"]
    assert float(item["ratio"]) == float(item["wall_ratio"]) == 1.25
    assert (item["workload"], item["malloc"], item["threads"], item["rounds"]) == ("cnn", "tuned", "1", "5")
    assert float(item["peak_memory_ratio"]) == 1.5
    assert (float(item["cpu_ms"]), float(item["wall_ms"])) == (2500.0, 5000.0)


def test_methods_without_times_keep_their_reason(capsys):
    outcomes = {
        "sgd": Outcome("ok", samples=Samples([1.0], [1.0])),
        "vmap": Outcome("FAIL", "error of the sum 3.0e-01"),
        "jax": Outcome("skipped", "jax is not installed"),
    }
    found = measured(Table("cnn", 32, 1, "default", "sgd", "cpu"), outcomes, 0.0)
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(csv_text(found.rows)))}
    assert rows["vmap"]["ratio"] == "" and rows["vmap"]["status"] == "FAIL"
    print_measured(found)
    printed = capsys.readouterr().out
    assert "FAIL: error of the sum 3.0e-01" in printed and "skipped: jax is not installed" in printed


def test_noisy_rows_are_shown_and_marked(capsys):
    times = Samples([1.0, 1.5, 2.0, 3.0], [1.0] * 4)
    outcomes = {
        "sgd": Outcome("ok", samples=Samples([1.0] * 4, [1.0] * 4)),
        "vmap": Outcome("ok", samples=times),
    }
    found = measured(Table("cnn", 32, 1, "tuned", "sgd", "cpu"), outcomes, 0.0)
    assert [row.noisy for row in found.rows] == [False, True]
    print_measured(found)
    assert "noisy" in capsys.readouterr().out.splitlines()[-1]


def test_files_by_workload(tmp_path):
    parts = [part(batch=32), part(batch=64, malloc="default"), part("lstm", 100)]
    write_tables(tmp_path, parts)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cnn.csv",
        "cnn.json",
        "lstm.csv",
        "lstm.json",
    ]
    frame = pd.read_csv(tmp_path / "cnn.csv")
    assert frame["batch"].tolist() == [32, 64] and set(frame["malloc"]) == {"tuned", "default"}
    seconds = json.loads((tmp_path / "lstm.json").read_text())[0]["seconds"]
    assert seconds["sgd"]["cpu"] == [1.0, 2.0, 4.0, 3.0, 1.5]


def verdict_of(limit: float, at_least: bool, reached: float) -> goals.Verdict:
    goal = goals.Goal("g", limit, lambda _: Ratio(reached, reached, reached), at_least)
    (verdict,) = goals.judge([goal], [part()])
    return verdict


@pytest.mark.parametrize(
    ("limit", "at_least", "reached", "missed"),
    [
        (1.2, False, 1.2, 0.0),
        (1.2, False, 1.5, 0.25),
        (2.0, True, 2.0, 0.0),
        (2.0, True, 1.5, 0.25),
        (2, True, 9, 0),
    ],
)
def test_goals_are_missed_by_a_part_of_their_limit(limit, at_least, reached, missed):
    found = verdict_of(limit, at_least, reached)
    assert found.missed_by == pytest.approx(missed)
    assert found.met is (missed == 0.0)


def test_goals_read_the_tuned_tables_and_the_best_opacus_mode():
    parts = [
        part("cnn", 64, "default", subjectdp_item=1.0, opacus_hooks=20.0),
        part(
            "cnn", 64, "tuned", subjectdp_item=1.5, opacus_hooks=7.5, opacus_ghost=3.0, subjectdp_higrad=1.8
        ),
    ]
    found = {v.goal: v for v in goals.judge(goals.GOALS, parts)}
    assert found["CNN, B=64: private step over plain SGD"].reached == pytest.approx(1.5)
    assert found["CNN, B=64: times faster than Opacus' best"].reached == pytest.approx(2.0)
    assert found["CNN, B=64: HiGradAvgDP over item clipping"].reached == pytest.approx(1.2)
    assert found["CNN, B=64: peak memory over plain SGD"].reached == pytest.approx(1.5)
    lstm = found["LSTM, B=100: private step over plain SGD"]
    assert lstm.reached is None and not lstm.met


def test_the_issues_limits_are_the_goals():
    limits = {goal.name: (goal.limit, goal.at_least) for goal in goals.GOALS}
    for batch, limit in ((512, 1.15), (256, 1.20), (64, 1.35)):
        assert limits[f"CNN, B={batch}: private step over plain SGD"] == (limit, False)
    assert limits["LSTM, B=100: private step over plain SGD"] == (1.3, False)
    assert limits["LSTM, B=100: times faster than Opacus' best"] == (7.0, True)
    assert all(
        limits[f"CNN, B={b}: times faster than Opacus' best"] == (2.0, True) for b in (32, 64, 256, 512)
    )
    assert limits["CNN, B=64: round loop over bare steps"] == (1.05, False)


def quick_parts(item: float) -> list[Measured]:
    """Tables of a quick run whose private step takes ``item`` times plain SGD."""
    return [
        part("cnn", 64, subjectdp_item=item, subjectdp_higrad=item, opacus_ghost=4.0),
        part("small_lstm", 32, subjectdp_item=1.5, opacus_hooks=9.0),
        part("calibration", 4, subjectdp_pld=0.1),
    ]


@pytest.mark.parametrize(("items", "code", "looks"), [([1.5], 0, 1), ([3.5, 1.5], 0, 2), ([3.5, 3.5], 1, 2)])
def test_quick_exits_1_where_a_floor_is_broken_twice(monkeypatch, tmp_path, capsys, items, code, looks):
    asked = []

    def suite(options, found):
        asked.append(options)
        look = (len(asked) - 1) // len(command.QUICK)
        return [quick_parts(items[look])[(len(asked) - 1) % len(command.QUICK)]]

    monkeypatch.setattr(command, "run_suite", suite)
    assert main(["bench", "--quick", "--output", str(tmp_path)]) == code
    assert len(asked) == looks * len(command.QUICK)
    assert asked[-1].rounds == (1 if looks == 1 else 3) * command.QUICK[-1].rounds
    written = pd.read_csv(tmp_path / "quick" / "goals.csv")
    assert len(written) == len(goals.FLOORS) and written["met"].all() == (code == 0)
    assert ("missed by" in capsys.readouterr().out) == (code == 1)


def test_a_floor_that_nothing_tells_of_is_missed_but_for_memory_that_cannot_be_measured(
    monkeypatch, tmp_path
):
    def without(method):
        parts = quick_parts(1.5)
        parts[0].samples.pop(method, None)
        return parts

    def exit_code(parts):
        monkeypatch.setattr(command, "_quick_parts", lambda times, quiet: parts)
        return main(["bench", "--quick", "--output", str(tmp_path)])

    assert exit_code(without("nothing")) == 0
    assert exit_code(without("opacus_ghost")) == 1
    silent = [part("cnn", 64, memory=None, subjectdp_item=1.5, subjectdp_higrad=1.5, opacus_ghost=4.0)]
    silent += quick_parts(1.5)[1:]
    monkeypatch.setattr(command, "unmeasurable", lambda: None)
    assert exit_code(silent) == 1
    monkeypatch.setattr(command, "unmeasurable", lambda: "no such file")
    assert exit_code(silent) == 0


def test_a_wrong_step_of_our_own_ends_in_1(monkeypatch, tmp_path, capsys):
    outcomes = {
        "sgd": Outcome("ok", samples=Samples([1.0], [1.0])),
        "subjectdp_item": Outcome("FAIL", "error"),
    }
    wrong = measured(Table("cnn", 64, 1, "tuned", "sgd", "cpu"), outcomes, 0.0)
    peer = measured(
        Table("cnn", 64, 1, "tuned", "sgd", "cpu"),
        {"sgd": outcomes["sgd"], "vmap": Outcome("FAIL", "error")},
        0.0,
    )
    for found, code in ((wrong, 1), (peer, 0)):
        monkeypatch.setattr(command, "run_suite", lambda options, report, found=found: [found])
        assert main(["bench", "--workload", "cnn", "--output", str(tmp_path)]) == code
    assert "FAIL: subjectdp_item" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--workload", "cmn"], ["--workload", "cmn", "cnn"]),
        (["--methods", "opacus_gost"], ["--methods", "opacus_gost", "opacus_ghost"]),
        (["--batch", "0"], ["--batch", "0", "at least 1"]),
        (["--rounds", "-1"], ["--rounds", "-1", "at least 1"]),
        (["--threads", "0"], ["--threads", "0"]),
    ],
)
def test_bad_options_end_in_one_message(capsys, arguments, told):
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and all(word in error for word in told)
