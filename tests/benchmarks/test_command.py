"""The command: exit codes of floors and wrong steps, options that are refused."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest

from benchmarks import command, goals
from benchmarks.__main__ import main
from benchmarks.memory import unmeasurable
from benchmarks.tables import Table
from benchmarks.timing import Outcome


@pytest.fixture
def quick_tables(table) -> Callable[[float], list[Table]]:
    """Tables of a quick run whose private step takes some multiple of plain SGD."""

    def make(item: float) -> list[Table]:
        return [
            table("cnn", 64, subjectdp_item=item, subjectdp_higrad=item, opacus_ghost=4.0),
            table("small_lstm", 32, subjectdp_item=1.5, opacus_hooks=9.0),
            table("calibration", 4, subjectdp_pld=0.1),
        ]

    return make


@pytest.mark.parametrize(("items", "code", "looks"), [([1.5], 0, 1), ([3.5, 1.5], 0, 2), ([3.5, 3.5], 1, 2)])
def test_quick_exits_1_where_a_floor_is_broken_twice(monkeypatch, tmp_path, capsys, quick_tables, items, code, looks):
    asked = []

    def measure(options):
        asked.append(options)
        look, number = divmod(len(asked) - 1, len(command.QUICK))
        yield quick_tables(items[look])[number]

    monkeypatch.setattr(command, "measure", measure)
    assert main(["--quick", "--output", str(tmp_path)]) == code
    assert len(asked) == looks * len(command.QUICK)
    assert asked[-1].rounds == (1 if looks == 1 else 3) * command.QUICK[-1].rounds
    written = pd.read_csv(tmp_path / "quick" / "goals.csv")
    assert len(written) == len(goals.read_goals("quick")) - (unmeasurable() is not None)
    assert written["met"].all() == (code == 0)
    assert ("missed by" in capsys.readouterr().out) == (code == 1)


def test_a_floor_that_nothing_tells_of_is_missed_but_for_memory_that_cannot_be_measured(
    monkeypatch, tmp_path, table, quick_tables
):
    def exit_code(tables):
        monkeypatch.setattr(command, "_measure", lambda asked, folder, quiet: tables)
        return main(["--quick", "--output", str(tmp_path)])

    tables = quick_tables(1.5)
    assert exit_code(tables) == 0
    tables[0].outcomes.pop("opacus_ghost")
    assert exit_code(tables) == 1
    silent = [table("cnn", 64, memory=None, subjectdp_item=1.5, subjectdp_higrad=1.5, opacus_ghost=4.0)]
    silent += quick_tables(1.5)[1:]
    monkeypatch.setattr(command, "unmeasurable", lambda: None)
    assert exit_code(silent) == 1
    monkeypatch.setattr(command, "unmeasurable", lambda: "no such file")
    assert exit_code(silent) == 0


def test_a_wrong_step_of_our_own_ends_in_1(monkeypatch, tmp_path, capsys):
    for name, code in (("subjectdp_item", 1), ("opacus_ghost", 0)):
        outcomes = {"sgd": Outcome(cpu=[1.0], wall=[1.0]), name: Outcome("FAIL", "error")}
        found = [Table("cnn", 64, "sgd", outcomes)]
        monkeypatch.setattr(command, "measure", lambda options, found=found: found)
        assert main(["--workload", "cnn", "--output", str(tmp_path)]) == code
        assert (f"FAIL: {name} does not" in capsys.readouterr().out) == (code == 1)


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
    assert main([*arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and all(word in error for word in told)
