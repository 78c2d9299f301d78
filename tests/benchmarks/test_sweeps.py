"""The local twin of Slurm, and the sweep that is sent through it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.local_slurm import START, Job, LocalSlurm
from benchmarks.sweeps import scenario_file
from subjectdp.config import load_scenario
from subjectdp.forecast.cluster import cluster_settings


def submit(slurm: LocalSlurm, command: str) -> str:
    """The number of a job of the group ``trainings`` that asks for five minutes."""
    logs = slurm.folder / ".snakemake/slurm_logs/trainings"
    logs.mkdir(parents=True, exist_ok=True)
    options = [
        "--parsable",
        "--output",
        f"{logs}/%j.log",
        "--export=ALL",
        "-p",
        "cpu",
        "-t",
        "5",
        "--ntasks=1",
    ]
    return call(slurm, "sbatch", *options, "-D", str(slurm.folder), f"--wrap={command}").strip()


def call(slurm: LocalSlurm, name: str, *arguments: str) -> str:
    program = slurm.folder / "bin" / name
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout


def states(slurm: LocalSlurm) -> dict[str, str]:
    """State by number, once no job is pending or running."""
    while True:
        lines = call(slurm, "squeue", "--format=%i|%T", "--noheader").splitlines()
        found = dict(line.split("|") for line in lines)
        if not {"PENDING", "RUNNING", ""} & set(found.values()):
            return found
        time.sleep(0.1)


def test_jobs_are_run_in_order_and_what_they_used_is_known(tmp_path: Path) -> None:
    burn = "python3 -c 'sum(range(3_000_000))'"
    with LocalSlurm(tmp_path / "slurm", stub=lambda command: "stubbed" in command) as slurm:
        numbers = [submit(slurm, text) for text in (f"echo {START}; {burn}", "exit 3", "echo stubbed; exit 1")]
        assert numbers == ["1", "2", "3"]
        assert states(slurm) == {"1": "COMPLETED", "2": "FAILED", "3": "COMPLETED"}
        good, failed, stubbed = slurm.jobs
    assert (good.name, good.minutes, good.starts, good.status) == ("trainings", 5, 1, 0)
    assert 0 < good.cpu_seconds <= good.wall_seconds + 0.1, "of the job's children too"
    assert failed.status != 0 and not failed.stubbed
    assert stubbed == Job("trainings", 5, True)
    assert slurm.calls()["sbatch"] == 3 and slurm.calls()["squeue"] >= 1


def test_two_jobs_run_side_by_side_and_each_once(tmp_path: Path) -> None:
    with LocalSlurm(tmp_path / "slurm", stub=lambda command: False, at_once=2) as slurm:
        meet = "touch {0}/at.{1}; for _ in $(seq 100); do [ -e {0}/at.{2} ] && exit 0; sleep 0.1; done; exit 1"
        for own, other in ((1, 2), (2, 1)):
            submit(slurm, meet.format(tmp_path, own, other))
        assert states(slurm) == {"1": "COMPLETED", "2": "COMPLETED"}, "each waits until the other has begun"
        assert len(slurm.jobs) == 2


def test_a_step_runs_its_command_without_the_options_of_srun(tmp_path: Path) -> None:
    with LocalSlurm(tmp_path / "slurm", stub=lambda command: False) as slurm:
        assert call(slurm, "srun", "-n1", "--cpu-bind=q", "--nodes=1", "echo", "-n", "a b") == "a b"
        assert "MinJobAge = 600" in call(slurm, "scontrol", "show", "config")
        assert call(slurm, "sacct", "-nu", "root", "-o", "Account%256") == "", "no account is known"


@pytest.mark.parametrize("runs", [100, 400])
def test_the_sweep_has_so_many_tiny_runs(tmp_path: Path, runs: int) -> None:
    scenario = load_scenario([scenario_file(tmp_path, runs)])
    site = cluster_settings({"SUBJECTDP_SLURM_RUNS_PER_JOB": "8"})
    assert len(scenario.runs) == runs
    assert {site.group_of(run) for run in scenario.runs} == {"short_runs"}
