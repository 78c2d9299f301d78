"""The command and a small run of the suite in real worker processes; rounds, calibrations and simulators."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest
import torch
from PIL import Image

from benchmarks import __main__ as command
from benchmarks import goals, processes, rounds, scale, simulators, suite
from benchmarks.__main__ import main
from benchmarks.calibrations import CALIBRATIONS, epsilon_of, time_calibration
from benchmarks.methods import Case
from benchmarks.processes import growth, in_worker, peak_bytes, unmeasurable
from benchmarks.simulators import time_simulators
from benchmarks.tables import Table
from benchmarks.timing import Outcome
from subjectdp.errors import WorkerError

MB = 1 << 20


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
        look, number = divmod(len(asked) - 1, len(suite.QUICK))
        yield quick_tables(items[look])[number]

    monkeypatch.setattr(command, "measure", measure)
    assert main(["--quick", "--output", str(tmp_path)]) == code
    assert asked[-1].rounds == (1 if looks == 1 else 3) * suite.QUICK[-1].rounds
    assert len(asked) == looks * len(suite.QUICK)
    written = pd.read_csv(tmp_path / "quick" / "goals.csv")
    assert len(written) == len(goals.read_goals("quick")) - (unmeasurable() is not None)
    assert (written["verdict"] == goals.MET).all() == (code == 0)
    assert ("missed by" in capsys.readouterr().out) == (code == 1)


def test_a_floor_that_nothing_tells_of_is_missed_but_for_memory_that_cannot_be_measured(
    monkeypatch, tmp_path, table, quick_tables
):
    def exit_code(tables):
        monkeypatch.setattr(command, "_measure", lambda asked, folder: tables)
        return main(["--quick", "--output", str(tmp_path)])

    tables = quick_tables(1.5)
    tables[0].outcomes.pop("opacus_ghost")
    assert exit_code(tables) == 1
    silent = [table("cnn", 64, memory=None, subjectdp_item=1.5, subjectdp_higrad=1.5, opacus_ghost=4.0)]
    silent += quick_tables(1.5)[1:]
    for reason, code in ((None, 1), ("no such file", 0)):
        monkeypatch.setattr(command, "unmeasurable", lambda reason=reason: reason)
        assert exit_code(silent) == code


def test_a_wrong_step_of_our_own_ends_in_1_and_its_table_is_written(monkeypatch, tmp_path, capsys):
    for name, code in (("subjectdp_item", 1), ("opacus_ghost", 0)):
        outcomes = {"sgd": Outcome(cpu=[1.0], wall=[1.0]), name: Outcome("FAIL", "error of the sum 3.0e-01")}
        monkeypatch.setattr(command, "measure", lambda options, found=outcomes: [Table("cnn", 64, "sgd", found)])
        assert main(["--workload", "cnn", "--output", str(tmp_path)]) == code
        printed = capsys.readouterr().out
        assert (f"FAIL: {name} does not" in printed) == (code == 1) and "FAIL: error of the sum 3.0e-01" in printed
        assert pd.isna(pd.read_csv(tmp_path / "cnn.csv").set_index("method")["ratio"][name])


@pytest.mark.long
def test_a_table_from_workers(monkeypatch):
    case = Case("cnn", "leaf_cnn", 4, 2, (("hidden", 8),))
    monkeypatch.setattr(suite, "Case", lambda *_: case)
    (found,) = suite.measure(replace(suite.QUICK[0], rounds=2, batches=(64,)))
    rows = {row["method"]: row for row in found.rows()}
    assert list(rows) == ["sgd", "subjectdp_item", "subjectdp_higrad", "opacus_ghost"]
    for row in rows.values():
        assert (row["status"], row["clock"], row["rounds"]) == ("ok", "cpu", 2)
        assert row["note"].startswith("error of the sum")
        assert row["ratio"] > 0 and row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert unmeasurable() is not None or row["peak_memory_mb"] >= 0


# --- processes ----------------------------------------------------------------------------------------------


def settings() -> tuple[str, str, int]:
    return os.environ["MALLOC_TRIM_THRESHOLD_"], os.environ["OMP_NUM_THREADS"], torch.get_num_threads()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def growth_of_ones(size: int) -> int:
    held = torch.ones(128 * MB, dtype=torch.uint8)  # does not count
    return growth(lambda: torch.ones(size, dtype=torch.uint8)) + 0 * len(held)  # freed at once


@pytest.mark.long
def test_workers_get_threads_and_malloc_from_the_start_and_a_killed_one_is_named(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    before = dict(os.environ)
    assert in_worker(settings) == (str(8 << 30), "1", 1)
    assert dict(os.environ) == before
    with pytest.raises(WorkerError, match="worker of die was killed, perhaps for lack of memory"):
        in_worker(die)


@pytest.mark.long
@pytest.mark.skipif(unmeasurable() is not None, reason=str(unmeasurable()))
@pytest.mark.parametrize("megabytes", [64, 192])
def test_growth_is_what_a_step_holds_at_its_peak(monkeypatch, megabytes: int) -> None:
    monkeypatch.setattr(processes, "_ENVIRONMENT", {})  # tuned malloc keeps a freed block beside the next one
    found = in_worker(peak_bytes, growth_of_ones, megabytes * MB)
    assert (megabytes - 8) * MB < found < (megabytes + 8) * MB


def test_where_the_kernel_does_not_let_us_it_says_so(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(processes, "_CLEAR", tmp_path / "missing" / "clear_refs")
    assert "peak memory needs" in str(unmeasurable())


# --- rounds, calibrations, simulators -----------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch):
    """Two steps of a light round on few items."""
    monkeypatch.setattr(rounds, "LIGHT_STEPS", 2)
    monkeypatch.setattr(rounds, "LIGHT_ITEMS", 20)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("measured", "methods"),
    [
        (lambda: rounds.time_round("small_cnn", 8, 2), ["bare_steps", "subjectdp_round"]),
        (lambda: rounds.time_light_round(64, 2), ["subjectdp_round", "opacus_round", "opacus_ghost_round"]),
    ],
)
def test_rounds_and_their_peers(measured, methods):
    outcomes = measured()
    assert list(outcomes) == methods
    assert all(outcome.status == "ok" and len(outcome.cpu) == 2 for outcome in outcomes.values())


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_silos_opacus_steps_start_at_the_global_model_and_move_it(tmp_path):
    federation = rounds.federation_of(tmp_path, rounds.LIGHT_MODEL, 32, 2, 20)
    silos = list(rounds.opacus_silos(federation, 32, "ghost"))
    start = torch.randn_like(federation.engine.flat.vector)
    assert len(silos) == rounds.SILOS
    assert torch.equal(rounds.opacus_steps(silos[0], start, 0).flatten(), start)
    trained = rounds.opacus_steps(silos[0], start, 2).flatten()
    assert 0 < float((trained - start).norm()) < 0.1 * float(start.norm())
    assert not torch.equal(federation.engine.flat.vector, start), "the project's own weights are left alone"


@pytest.mark.slow
def test_calibrations_reach_their_target_and_a_careless_one_fails(monkeypatch):
    found = time_calibration(4.0, 1)
    assert [outcome.status for outcome in found.values()] == ["ok", "ok"]
    ours, renyi = (float(outcome.note[4:10]) for outcome in found.values())
    assert ours < renyi, "privacy loss distributions need less noise"
    assert 0.995 * 4.0 < epsilon_of(ours) <= 4.001
    monkeypatch.setitem(CALIBRATIONS, "careless", lambda epsilon: 0.97 * ours)
    assert time_calibration(4.0, 1, ["careless"])["careless"].status == "FAIL"


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_without_the_packages_simulators_are_skipped(monkeypatch):
    monkeypatch.setattr(simulators, "find_spec", lambda package: None)
    outcomes = time_simulators(32, 3)
    skipped = [name for name, outcome in outcomes.items() if outcome.status == "skipped"]
    assert skipped == ["flower_opacus", "pfl_opacus"]
    ours = outcomes["subjectdp_round"]
    assert (ours.status, len(ours.wall), ours.cpu) == ("ok", 3, [])


def test_a_block_is_its_rounds_median_and_a_peer_that_fails_has_no_times(monkeypatch):
    tried = []

    def fails_once_timed(federation: None, batch: int) -> list[float]:
        tried.append(batch)
        if len(tried) == 2:
            raise RuntimeError("2 of 4 clients answered")
        return [0.0, 1.0]

    ends = [0.0, 100.0, *range(101, 101 + simulators.ROUNDS)]  # what lies before is the warm-up
    monkeypatch.setattr(simulators, "federation_of", lambda *_: None)
    methods = {"base": (lambda federation, batch: ends, ()), "fails": (fails_once_timed, ())}
    monkeypatch.setattr(simulators, "SIMULATORS", methods)
    outcomes = time_simulators(32, 4)
    assert outcomes["base"].wall == [1.0] * 4 and tried == [32, 32]
    assert (outcomes["fails"].status, outcomes["fails"].wall) == ("skipped", [])
    assert outcomes["fails"].note == "RuntimeError: 2 of 4 clients answered"


@pytest.mark.long
@pytest.mark.usefixtures("small")
def test_the_simulators_themselves_where_they_are_installed(monkeypatch):
    pytest.importorskip("flwr")
    pytest.importorskip("pfl")
    monkeypatch.setattr(simulators, "ROUNDS", 2)
    outcomes = time_simulators(32, 1)
    assert {outcome.status for outcome in outcomes.values()} == {"ok"}, outcomes


def test_the_workload_scale_leaves_a_picture_of_all_its_tables(monkeypatch, tmp_path):
    def measured(people, offset):
        outcomes = {f"{silos} silos": Outcome(cpu=[offset + silos], wall=[1.0], memory=MB) for silos in scale.SILOS}
        return Table("scale", people, "10 silos", outcomes)

    monkeypatch.setattr(command, "measure", lambda options: iter([measured(1_000, 1.0), measured(10_000, 2.0)]))
    drawn = []
    monkeypatch.setattr(command, "draw_scale", lambda rows, path: drawn.append(rows) or scale.draw_scale(rows, path))
    main(["--workload", "scale", "--output", str(tmp_path)])
    assert drawn[0]["cpu_ms"].tolist() == [1e3 * (offset + silos) for offset in (1, 2) for silos in scale.SILOS]
    with Image.open(tmp_path / "scale.png") as picture:
        assert picture.info["Source"] == scale.drawn_by() and picture.width > picture.height
