"""The forecast of a scenario against what its runs then are: ε, rounds, steps, time, memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pandas as pd
import pytest

from forecast.small_runs import folders, prepare, run_of, train
from subjectdp.accounting.calibration import forget
from subjectdp.config import load_scenario_from_mapping
from subjectdp.forecast import run_time
from subjectdp.forecast.run_time import forecast
from training import small_world


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", ["fed_avg", "local_item_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3", "local_group_dp"]
)
def test_the_plan_says_what_the_run_will_state(tmp_path, algorithm):
    run = run_of(algorithm=algorithm)
    prepare(run, tmp_path)
    scenario = load_scenario_from_mapping({"name": "x", "run": small_world.config(algorithm=algorithm)})
    (row,) = forecast(scenario, str(tmp_path))
    manifest = train(run, tmp_path)
    stated = manifest["privacy"]
    published = stated["as_published"]["epsilon"]
    assert row.epsilon_as_published == (None if published is None else pytest.approx(published, rel=2e-3))
    for name, statement in stated["sound"].items():
        assert getattr(row, f"epsilon_sound_{name}") == statement["epsilon"], name
    steps = pd.read_parquet(folders(run, tmp_path)[2] / "steps.parquet")
    assert row.rounds == manifest["plan"]["rounds"]
    assert row.local_steps == len(steps)
    assert (row.runs, row.finished) == (1, 0)


def test_a_second_forecast_computes_no_epsilon_again_but_another_plan_or_code_does(tmp_path, monkeypatch):
    def planned(epsilon: float):
        run = small_world.config(algorithm="local_item_dp", privacy={"epsilon": epsilon, "delta": 1e-5})
        return forecast(load_scenario_from_mapping({"name": "x", "run": run}), str(tmp_path))

    first, other = planned(4), planned(2)
    assert first[0].epsilon_sound_item != other[0].epsilon_sound_item
    forget()
    monkeypatch.setattr(run_time, "stated_epsilons", None)
    assert (planned(4), planned(2)) == (first, other)
    with pytest.raises(TypeError):
        planned(3)
    forget()
    monkeypatch.setattr(run_time, "fingerprint", lambda *stages: "edited")
    with pytest.raises(TypeError):
        planned(4)


def test_finished_runs_are_counted_and_not_left(tmp_path):
    run = run_of(algorithm="fed_avg")
    prepare(run, tmp_path)
    train(run, tmp_path)
    content = {"name": "x", "run": small_world.config(algorithm="fed_avg"), "sweep": [{"seed": [0, 1]}]}
    (row,) = forecast(load_scenario_from_mapping(content), str(tmp_path))
    assert (row.runs, row.finished) == (2, 1)
    assert row.hours == row.hours_a_run > 0, "one of two is left"


AFTER_TWO_THREADS = """
import sys

import torch

from subjectdp.config import load_scenario_from_mapping
from subjectdp.forecast.run_time import forecast

torch.set_num_threads(2)
torch.ones(2000, 2000).sum()
run = {
    "model": "scattering_head",
    "partition": {"silos": 2},
    "data": {"embedded": {"subjects": 8, "items_per_subject": 30}},
    "training": {"rounds": 2, "batch_size": 16},
}
runs = [{"algorithm": ["fed_avg", "local_item_dp"]}]
scenario = load_scenario_from_mapping({"name": "x", "run": run, "sweep": runs})
print(len(forecast(scenario, sys.argv[1], processes=2)), torch.get_num_threads())
"""


@pytest.mark.slow
def test_processes_do_not_wait_for_the_threads_of_their_parent(tmp_path):
    """A forked process has its parent's record of torch's threads, but not the threads."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", AFTER_TWO_THREADS, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.split() == ["2", "2"]
