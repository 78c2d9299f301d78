"""The command: exit codes of floors and wrong steps, options that are refused."""

from __future__ import annotations

import pandas as pd
import pytest

from benchmarks import command, goals
from benchmarks.results import Measured, Table, measured
from benchmarks.steps import Outcome
from benchmarks.timing import Samples
from subjectdp.cli import bench
from subjectdp.cli.main import main


def part(workload: str, batch: int, memory: int | None = 300, **factors: float) -> Measured:
    """A table whose methods take these multiples of plain SGD."""
    outcomes = {
        name: Outcome("ok", "fine", Samples([f, 2 * f], [f, 2 * f]), memory)
        for name, f in {"sgd": 1.0, **factors}.items()
    }
    outcomes["sgd"].memory = 200
    return measured(Table(workload, batch, 1, "tuned", "sgd", "cpu"), outcomes)


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
    assert len(written) == len(goals.read_goals("quick")) and written["met"].all() == (code == 0)
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
    wrong = measured(Table("cnn", 64, 1, "tuned", "sgd", "cpu"), outcomes)
    peer = measured(
        Table("cnn", 64, 1, "tuned", "sgd", "cpu"),
        {"sgd": outcomes["sgd"], "vmap": Outcome("FAIL", "error")},
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


def test_without_a_checkout_the_command_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "CHECKOUT", tmp_path)
    assert main(["bench", "--quick"]) == 2
    assert "checkout" in capsys.readouterr().err
