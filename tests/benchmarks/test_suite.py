"""A small run of the suite in real worker processes."""

from __future__ import annotations

import json

import pytest

from benchmarks import light_round, machine, memory, suite
from benchmarks.__main__ import main
from benchmarks.calibrations import CALIBRATIONS, epsilon_of, time_calibration
from benchmarks.problem import Case
from benchmarks.round_loop import time_round
from benchmarks.timing import Outcome

TINY = Case("cnn", "leaf_cnn", 4, 2, (("hidden", 8),))


@pytest.mark.long
def test_a_table_from_workers(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(suite, "_cases", lambda workload, batches: [TINY])
    monkeypatch.setattr(machine, "glibc", lambda: True)
    arguments = ["--workload", "cnn", "--rounds", "2", "--malloc", "tuned"]
    arguments += ["--methods", "subjectdp_item", "opacus_ghost"]
    assert main([*arguments, "--output", str(tmp_path), "--json"]) == 0
    printed = json.loads(capfd.readouterr().out)
    rows = {row["method"]: row for row in printed["rows"]}
    assert list(rows) == ["sgd", "subjectdp_item", "opacus_ghost"]
    for row in rows.values():
        assert (row["malloc"], row["status"], row["clock"]) == ("tuned", "ok", "cpu")
        assert (row["rounds"], row["threads"], row["subjects"]) == (2, 1, 2)
        assert row["note"].startswith("error of the sum")
        assert row["ratio"] > 0 and row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        if memory.unmeasurable() is None:
            assert row["peak_memory_mb"] > 0 and row["peak_memory_ratio"] > 0
    assert printed["machine"]["versions"]["torch"]
    assert {path.name for path in tmp_path.iterdir()} == {"cnn.csv", "cnn.json", "goals.csv", "machine.json"}


def test_methods_that_fail_are_not_tried_with_the_other_malloc(monkeypatch):
    calls = []

    def in_worker(malloc, threads, task, case, names, rounds, gated):
        calls.append((malloc, names, gated))
        return {name: Outcome("FAIL" if name == "opacus_ghost" else "ok", "x") for name in names}

    monkeypatch.setattr(suite, "in_worker", in_worker)
    options = suite.Options(("cnn",), (64,), methods=("opacus_ghost", "subjectdp_item"), memory=())
    list(suite.measure(options))
    assert calls == [
        ("tuned", ["sgd", "subjectdp_item", "opacus_ghost"], True),
        ("default", ["sgd", "subjectdp_item"], False),
    ]


def test_tables_are_written_as_they_are_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "_cases", lambda workload, batches: [TINY, TINY])
    answers = iter([{"sgd": Outcome("ok")}])
    monkeypatch.setattr(suite, "in_worker", lambda *_: next(answers))
    arguments = ["--workload", "cnn", "--malloc", "default", "--methods", "sgd", "--no-memory"]
    with pytest.raises((RuntimeError, StopIteration)):
        main([*arguments, "--output", str(tmp_path), "--json"])
    assert "cnn.csv" in {path.name for path in tmp_path.iterdir()}


@pytest.mark.slow
def test_the_round_and_its_bare_steps_are_the_same_work():
    outcomes = time_round("small_cnn", 8, 2)
    assert list(outcomes) == ["bare_steps", "subjectdp_round"]
    assert all(outcome.status == "ok" and len(outcome.cpu) == 2 for outcome in outcomes.values())


@pytest.mark.slow
def test_a_light_round_has_its_parts_and_peers(monkeypatch):
    monkeypatch.setattr(light_round, "STEPS", 2)
    monkeypatch.setattr(light_round, "ITEMS", 20)
    outcomes = light_round.time_light_round(64, 2)
    assert list(outcomes)[0] == "subjectdp_round"
    assert {"part_clipped_sums", "opacus_round", "opacus_ghost_round"} < set(outcomes)
    assert all(outcome.status == "ok" and len(outcome.cpu) == 2 for outcome in outcomes.values())


@pytest.mark.slow
def test_calibrations_reach_their_target_and_a_careless_one_fails(monkeypatch):
    names = list(CALIBRATIONS)[:2]
    found = time_calibration(4.0, names, 1)
    ours, renyi = (found[name] for name in names)
    assert ours.status == renyi.status == "ok"
    assert ours.value < renyi.value, "privacy loss distributions need less noise"
    assert 0.995 * 4.0 < epsilon_of(ours.value) <= 4.0
    careless = {"careless": lambda epsilon: 0.97 * ours.value}
    monkeypatch.setattr("benchmarks.calibrations.CALIBRATIONS", careless)
    found = time_calibration(4.0, ["careless"], 1)
    assert found["careless"].status == "FAIL"
