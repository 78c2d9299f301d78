"""Columns, ratios and files of the result tables, on made-up times."""

from __future__ import annotations

import json

import pandas as pd

from benchmarks import machine
from benchmarks.results import COLUMNS, Measured, Table, measured, print_measured, write_tables
from benchmarks.steps import Outcome
from benchmarks.timing import Samples

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
    return measured(Table(workload, batch, 1, malloc, "sgd", "cpu", load=0.5), outcomes)


def test_rows_have_the_columns_that_were_asked_for():
    assert set(COLUMNS) >= ASKED
    base, item = part(subjectdp_item=1.25).rows
    assert tuple(base) == tuple(item) == COLUMNS
    assert (base["method"], item["method"]) == ("sgd", "subjectdp_item")
    assert item["ratio"] == item["wall_ratio"] == 1.25
    assert (item["workload"], item["malloc"], item["threads"], item["rounds"]) == ("cnn", "tuned", 1, 5)
    assert item["peak_memory_ratio"] == 1.5
    assert (item["cpu_ms"], item["wall_ms"], item["load"]) == (2500.0, 5000.0, 0.5)
    assert item["processor"]


def test_methods_without_times_keep_their_reason(tmp_path, capsys):
    outcomes = {
        "sgd": Outcome("ok", samples=Samples([1.0], [1.0])),
        "vmap": Outcome("FAIL", "error of the sum 3.0e-01"),
        "opacus_hooks": Outcome("skipped", "not enough memory"),
    }
    found = measured(Table("cnn", 32, 1, "default", "sgd", "cpu"), outcomes)
    write_tables(tmp_path, [found])
    rows = pd.read_csv(tmp_path / "cnn.csv").set_index("method")
    assert pd.isna(rows["ratio"]["vmap"]) and rows["status"]["vmap"] == "FAIL"
    print_measured(found)
    printed = capsys.readouterr().out
    assert "FAIL: error of the sum 3.0e-01" in printed and "skipped: not enough memory" in printed


def test_noisy_rows_are_shown_and_marked(capsys):
    times = Samples([1.0, 1.5, 2.0, 3.0], [1.0] * 4)
    outcomes = {
        "sgd": Outcome("ok", samples=Samples([1.0] * 4, [1.0] * 4)),
        "vmap": Outcome("ok", samples=times),
    }
    found = measured(Table("cnn", 32, 1, "tuned", "sgd", "cpu"), outcomes)
    assert [row["noisy"] for row in found.rows] == [False, True]
    print_measured(found)
    printed = capsys.readouterr().out.splitlines()
    assert "noisy" in printed[-1] and printed[1].endswith(f"by cpu time on {machine.processor()}")


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
