"""A small run of the suite in real worker processes, and what those are started with."""

from __future__ import annotations

import json
import signal
import subprocess
from dataclasses import replace

import pytest

from subjectdp.benchmarks import machine, memory, suite, worker
from subjectdp.benchmarks.calibrations import epsilon_of, time_calibration
from subjectdp.benchmarks.cases import Case
from subjectdp.benchmarks.methods import CALIBRATION_METHODS
from subjectdp.benchmarks.rounds import time_round
from subjectdp.cli.main import main

TINY = Case("cnn", "leaf_cnn", 4, 2, (("hidden", 8),))


def test_a_table_from_workers(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(suite, "_cases", lambda workload, batches: [TINY])
    monkeypatch.setattr(machine, "glibc", lambda: True)
    arguments = ["--workload", "cnn", "--rounds", "2", "--malloc", "tuned"]
    arguments += ["--methods", "subjectdp_item", "opacus_ghost"]
    assert main(["bench", *arguments, "--output", str(tmp_path), "--json"]) == 0
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
    tasks = []

    def run_task(task, malloc, threads):
        tasks.append((malloc, task["methods"], task["gate"]))
        return {name: worker.Outcome("FAIL" if name == "vmap" else "ok", "x") for name in task["methods"]}

    monkeypatch.setattr(suite, "run_task", run_task)
    options = suite.Options(("cnn",), (64,), methods=("vmap", "subjectdp_item"), memory=False)
    suite.run_suite(options, lambda _: None)
    assert tasks == [
        ("tuned", ["sgd", "subjectdp_item", "vmap"], True),
        ("default", ["sgd", "subjectdp_item"], False),
    ]


def test_workers_get_threads_and_malloc_from_the_start(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    tuned, default = worker.environment("tuned", 2), worker.environment("default", 2)
    assert tuned["OMP_NUM_THREADS"] == default["OMP_NUM_THREADS"] == "2"
    assert {name: value for name, value in tuned.items() if name.startswith("MALLOC_")} == worker.TUNED
    assert not [name for name in default if name.startswith("MALLOC_")]


def test_a_worker_that_fails_says_so(capfd):
    with pytest.raises(worker.WorkerError, match="'steps' ended with code 1"):
        worker.run_task({"task": "steps", "case": {}, "methods": []}, "default", 1)
    assert "Traceback" in capfd.readouterr().err


def test_a_killed_worker_costs_only_the_methods_that_hold_per_item_gradients(monkeypatch):
    asked = []

    def run_task(task, malloc, threads):
        asked.append(task["methods"])
        if "vmap" in task["methods"]:
            raise worker.WorkerKilled("killed")
        return {name: worker.Outcome("ok") for name in task["methods"]}

    monkeypatch.setattr(suite, "run_task", run_task)
    options = suite.Options(
        ("cnn",), (64,), methods=("vmap", "subjectdp_item"), mallocs=("tuned",), memory=False
    )
    (part,) = suite.run_suite(options, lambda _: None)
    assert asked == [["sgd", "subjectdp_item", "vmap"], ["sgd", "subjectdp_item"]]
    assert {row.method: row.status for row in part.rows} == {
        "sgd": "ok",
        "subjectdp_item": "ok",
        "vmap": "skipped",
    }
    with pytest.raises(worker.WorkerKilled):
        monkeypatch.setattr(suite, "run_task", lambda *_: (_ for _ in ()).throw(worker.WorkerKilled("again")))
        suite.run_suite(replace(options, methods=("subjectdp_item",)), lambda _: None)


def test_a_kill_is_told_from_a_failure(monkeypatch):
    killed = subprocess.CompletedProcess([], -signal.SIGKILL, stdout="")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: killed)
    with pytest.raises(worker.WorkerKilled, match="perhaps for want of memory"):
        worker.run_task({"task": "steps"}, "default", 1)


def test_tables_are_written_as_they_are_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "_cases", lambda workload, batches: [TINY, TINY])
    answers = iter([{"sgd": worker.Outcome("ok")}])
    monkeypatch.setattr(suite, "run_task", lambda *_: next(answers))
    arguments = ["--workload", "cnn", "--malloc", "default", "--methods", "sgd", "--no-memory"]
    with pytest.raises((RuntimeError, StopIteration)):
        main(["bench", *arguments, "--output", str(tmp_path), "--json"])
    assert "cnn.csv" in {path.name for path in tmp_path.iterdir()}


def test_the_round_and_its_bare_steps_are_the_same_work():
    outcomes = time_round({"model": "small_cnn", "batch": 8, "rounds": 2})
    assert list(outcomes) == ["bare_steps", "subjectdp_round"]
    assert all(outcome.status == "ok" and len(outcome.samples.cpu) == 2 for outcome in outcomes.values())


def test_calibrations_reach_their_target_and_a_careless_one_fails(monkeypatch):
    names = list(CALIBRATION_METHODS[:2])
    found = time_calibration({"epsilon": 4.0, "rounds": 1, "methods": names})
    ours, renyi = (found[name] for name in names)
    assert ours.status == renyi.status == "ok"
    assert ours.value < renyi.value, "privacy loss distributions need less noise"
    assert 0.995 * 4.0 < epsilon_of(ours.value) <= 4.0
    careless = {"careless": lambda epsilon: 0.97 * ours.value}
    monkeypatch.setattr("subjectdp.benchmarks.calibrations.CALIBRATIONS", careless)
    found = time_calibration({"epsilon": 4.0, "rounds": 1, "methods": ["careless"]})
    assert found["careless"].status == "FAIL"
