"""Columns, ratios and files of the result tables, on made-up times."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from benchmarks import machine
from benchmarks.tables import NOISY, Table, print_table, write_tables
from benchmarks.timing import Outcome

COLUMNS = [
    "workload",
    "method",
    "batch",
    "subjects",
    "threads",
    "malloc",
    "clock",
    "rounds",
    "ratio",
    "ratio_low",
    "ratio_high",
    "noisy",
    "cpu_ratio",
    "wall_ratio",
    "cpu_ms",
    "wall_ms",
    "peak_memory_mb",
    "peak_memory_ratio",
    "value",
    "status",
    "note",
    "load",
    "processor",
]


def test_rows_have_the_columns_that_were_asked_for(table):
    base, item = table("cnn", 64, subjectdp_item=1.25).rows()
    assert list(base) == list(item) == COLUMNS
    assert (base["method"], item["method"]) == ("sgd", "subjectdp_item")
    assert item["ratio"] == item["wall_ratio"] == 1.25
    assert (item["workload"], item["malloc"], item["threads"], item["rounds"]) == ("cnn", "tuned", 1, 5)
    assert item["peak_memory_ratio"] == 1.5
    assert (item["cpu_ms"], item["wall_ms"], item["load"]) == (2500.0, 5000.0, 0.5)
    assert item["processor"]


def test_methods_without_times_keep_their_reason(tmp_path, capsys):
    outcomes = {
        "sgd": Outcome(cpu=[1.0], wall=[1.0]),
        "vmap": Outcome("FAIL", "error of the sum 3.0e-01"),
        "opacus_hooks": Outcome("skipped", "not enough memory"),
    }
    found = Table("cnn", 32, "sgd", outcomes)
    write_tables(tmp_path, [found])
    rows = pd.read_csv(tmp_path / "cnn.csv").set_index("method")
    assert pd.isna(rows["ratio"]["vmap"]) and rows["status"]["vmap"] == "FAIL"
    print_table(found)
    printed = capsys.readouterr().out
    assert "FAIL: error of the sum 3.0e-01" in printed and "skipped: not enough memory" in printed


@pytest.mark.parametrize(("spread", "noisy"), [(NOISY * 0.99, False), (NOISY * 1.01, True)])
def test_noisy_rows_are_shown_and_marked(capsys, spread, noisy):
    times = [2.0 - 2 * spread, 2.0 - spread, 2.0, 2.0 + spread, 2.0 + 2 * spread]  # quartiles 2 ± spread
    ones = [1.0] * 5
    found = Table("cnn", 32, "sgd", {"sgd": Outcome(cpu=ones, wall=ones), "vmap": Outcome(cpu=times, wall=ones)})
    assert [row["noisy"] for row in found.rows()] == [False, noisy]
    print_table(found)
    printed = capsys.readouterr().out.splitlines()
    assert ("noisy" in printed[-1]) == noisy
    assert printed[1].endswith(f"by cpu time on {machine.processor()}")


def test_files_by_workload(table, tmp_path):
    write_tables(tmp_path, [table("cnn", 32), table("cnn", 64, "default"), table("lstm", 100)])
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["cnn.csv", "cnn.json", "lstm.csv", "lstm.json"]
    frame = pd.read_csv(tmp_path / "cnn.csv")
    assert frame["batch"].tolist() == [32, 64] and set(frame["malloc"]) == {"tuned", "default"}
    (lstm,) = json.loads((tmp_path / "lstm.json").read_text())
    assert lstm["seconds"]["sgd"]["cpu"] == [1.0, 2.0, 4.0, 3.0, 1.5] and lstm["clock"] == "cpu"
