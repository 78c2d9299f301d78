"""`snakemake --profile slurm` on a real Slurm: the whole smoke scenario, and what goes wrong on clusters."""

import os
import re
import signal
import socket

import pandas as pd
import pytest

from slurm.world import World, job, jobs_of, slurm, wait_for
from subjectdp.config.scenario import load_scenario

NODE = socket.gethostname().split(".")[0]
SMOKE = ("--configfile", "config/scenarios/smoke.yaml")


@pytest.fixture(scope="session")
def smoke(world: World) -> str:
    """What Snakemake printed when it ran the smoke scenario, every job but the download through sbatch."""
    return world.run(*SMOKE)


def test_the_whole_smoke_scenario_runs_through_sbatch(world, smoke):
    runs = load_scenario(world.root / "config/scenarios/smoke.yaml").runs
    table = pd.read_parquet(world.root / "results/smoke/runs.parquet")
    assert sorted(table["run_id"]) == sorted(run.run_id for run in runs)
    jobs = [job(number) for number in re.findall(r"SLURM jobid (\d+)", smoke)]
    trainings = [found for found in jobs if found["Comment"].startswith("rule_train")]
    assert len(trainings) == len(runs)
    assert {found["Partition"] for found in trainings} == {"gpu"}
    assert {found["Partition"] for found in jobs if found not in trainings} == {"cpu"}
    assert all("fetch" not in found["Comment"] for found in jobs), "downloads stay on the login node"
    assert all(found["JobState"] == "COMPLETED" for found in jobs)
    assert all("gpu" not in found.get("TresPerJob", "") for found in jobs if found not in trainings)


def test_each_training_sees_exactly_the_one_device_that_it_was_given(world, smoke):
    for run in load_scenario(world.root / "config/scenarios/smoke.yaml").runs:
        environment = world.manifest(run.run_id)["environment"]
        assert environment["cuda_visible_devices"] in ("0", "1"), run.run_id
        found = job(environment["slurm_job"])
        assert found["Comment"].endswith(run.run_id)
        assert found["TresPerJob"] in ("gres:gpu:1", "gres/gpu:1")


def test_nothing_is_left_to_do_after_the_cluster(world, smoke):
    assert "Nothing to be done" in world.run("--dry-run", *SMOKE)


def test_tables_and_figures_may_stay_on_the_login_node(world, smoke):
    printed = world.run(*SMOKE, "--forcerun", "collect", SUBJECTDP_SLURM_LIGHT_JOBS="local")
    assert "rule collect" in printed and "rule figure1" in printed
    assert "SLURM jobid" not in printed


def test_jobs_out_of_time_out_of_memory_or_cancelled_are_tried_again_with_more(world, smoke):
    path, runs = world.sweep("faulty", {"training.rounds": [3, 4, 5]})
    late, large, cancelled = runs
    for run_id, kind in ((late, "sleep"), (large, "memory"), (cancelled, "sleep")):
        world.plant(run_id, kind)
    started = world.start(
        *(*targets(runs), "--configfile", path),
        SUBJECTDP_SLURM_MINUTES="1,1,1",
        SUBJECTDP_SLURM_MEMORY_MB="1500,1500,1500",
    )
    wait_for(lambda: not world.planted(cancelled))
    slurm("scancel", world.job_of(cancelled, "RUNNING"))
    submitted = jobs_of(world.end(started))
    ends = {late: {"TIMEOUT"}, large: {"FAILED", "OUT_OF_MEMORY"}, cancelled: {"CANCELLED"}}
    for run_id in runs:
        attempts = [job(number) for number in submitted[run_id]]
        states = [found["JobState"] for found in attempts]
        assert states[-1] == "COMPLETED" and len(attempts) > 1
        # Under much other load a job may reach its limit of a minute before its fault strikes.
        assert ends[run_id] & set(states[:-1]), states
        assert set(states[:-1]) <= ends[run_id] | {"TIMEOUT"}, states
        for number, found in enumerate(attempts, start=1):
            assert found["TimeLimit"] == f"00:0{number}:00"
            assert found["MinMemoryNode"] == f"{number * 1500}M"
        assert world.manifest(run_id)["environment"]["slurm_job"] == submitted[run_id][-1]


def test_a_drained_node_is_waited_for(world, smoke):
    path, run_id = world.scenario("drained", training={"rounds": 6})
    slurm("scontrol", "update", f"nodename={NODE}", "state=drain", "reason=test")
    try:
        started = world.start(*targets([run_id]), "--configfile", path)
        number = wait_for(lambda: world.job_of(run_id, "PENDING"))
        wait_for(lambda: job(number)["Reason"] not in ("None", "Priority"))
    finally:
        slurm("scontrol", "update", f"nodename={NODE}", "state=resume")
    assert jobs_of(world.end(started))[run_id] == [number], "the same job, no second one"
    assert world.manifest(run_id)["run_id"] == run_id


def test_a_killed_submission_is_taken_up_again_as_documented(world, smoke):
    path, run_id = world.scenario("killed", training={"rounds": 150})
    arguments = (*targets([run_id]), "--configfile", path)
    progress = world.root / f"results/runs/{run_id}/progress.log"
    started = world.start(*arguments)
    wait_for(lambda: progress.is_file() and "round 2/150" in progress.read_text())
    os.killpg(started.pid, signal.SIGKILL)
    started.communicate()
    orphan = world.job_of(run_id, "RUNNING")
    assert orphan is not None, "Slurm's jobs outlive the process that submitted them"
    name = job(orphan)["JobName"]
    assert name.startswith("subjectdp_"), "by which a user finds the jobs"
    slurm("scancel", f"--name={name}")
    wait_for(lambda: job(orphan)["JobState"] == "CANCELLED")
    world.run("--unlock", "--configfile", path)
    submitted = jobs_of(world.run(*arguments))
    manifest = world.manifest(run_id)
    assert [manifest["environment"]["slurm_job"]] == submitted[run_id] != [orphan]
    assert len(manifest["resumed_after_rounds"]) == 1, "the cancelled job wrote a checkpoint, the next one went on"
    assert manifest["resumed_after_rounds"][0] >= 2


def test_what_a_shared_job_has_finished_is_kept_when_it_fails(world, smoke, long_form):
    path, runs = world.sweep("shared", {"training.rounds": [8, 9, 10]})
    world.plant(runs[2], "fail")
    printed = world.run(*targets(runs), "--configfile", path, SUBJECTDP_SLURM_RUNS_PER_JOB="3")
    numbers = re.findall(r"SLURM jobid (\d+)", printed)
    assert len(numbers) == 2, "one job for all three, and its second attempt"
    failed = re.findall(r"\(log: (\S+)\)", printed)[0]  # the log of a good job is removed
    assert (world.root / failed).read_text().count("Building DAG of jobs") == 2, "not once more for each run"
    assert [job(number)["TimeLimit"] for number in numbers] == ["00:06:00", "00:12:00"], "the sum of three"
    assert job(numbers[0])["NumCPUs"] == "1"
    assert job(numbers[0])["TresPerJob"] in ("gres:gpu:1", "gres/gpu:1")
    trained_in = [world.manifest(run_id)["environment"]["slurm_job"] for run_id in runs]
    assert trained_in[2] == numbers[1]
    again = [run_id for run_id in runs if "an earlier attempt of this job" in log_of(world, run_id)]
    assert {run_id for run_id, number in zip(runs, trained_in, strict=True) if number == numbers[0]} == set(again)


def targets(runs: list[str]) -> list[str]:
    """The files that stand for these runs."""
    return [f"results/runs/{run_id}/manifest.json" for run_id in runs]


def log_of(world: World, run_id: str) -> str:
    """What the last attempt to train a run has logged."""
    return (world.root / f"results/runs/{run_id}/progress.log").read_text()
