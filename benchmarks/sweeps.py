"""A sweep of thousands of tiny runs through the Slurm profile, with faked training: what the workflow itself costs.

    python -m benchmarks.sweeps --runs 2000                   every job is executed
    python -m benchmarks.sweeps --runs 10000 --minutes 10     jobs are executed for so long, the others stubbed

One run of each algorithm is trained, and its results stand for all runs of the algorithm. A faked training moves them
to where the run's belong, so that tables and figures are made as ever. A stub makes all outputs of a job at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.local_slurm import Job, LocalSlurm
from subjectdp.config import load_scenario
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import Scenario
from subjectdp.errors import DataError
from subjectdp.io.atomic import SEAL, sealed, sha256_of
from subjectdp.places import CHECKOUT

ALGORITHMS = ["user_ldp", "local_item_dp", "local_group_dp", "higrad_avg_dp:v1"]
EPSILONS = [number / 2 for number in range(1, 26)]
PARTS = ("Snakefile", "workflow", "config", "envs", "requirements.lock", "slurm", "profiles")
FAKED = "faked"
SCRIPT = f'''"""Faked training: the run's results lie ready."""

from pathlib import Path

from subjectdp.io.job_log import job_log

with job_log(snakemake.log[0], mode="a"):
    folder = Path(snakemake.output[0]).parent
    for file in sorted(Path("{FAKED}", folder.name).iterdir(), key=lambda file: file.name == "manifest.json"):
        file.rename(folder / file.name)
'''
_TARGETS = re.compile(r"\b(train|partition):(?:run_id|partition_id)=([\w.+-]+)")


def scenario_file(folder: Path, runs: int) -> Path:
    """The scenario of a sweep over four algorithms, 25 values of ε and a hundredth as many seeds."""
    run = {
        "partition": {"silos": 2},
        "data": {"embedded": {"subjects": 8, "items_per_subject": 30}},
        "training": {"rounds": 2, "batch_size": 16},
        "model": {"name": "small_cnn", "parameters": {"width": 8}},
    }
    seeds = list(range(runs // (len(ALGORITHMS) * len(EPSILONS))))
    axes = {"seed": seeds, "algorithm": ALGORITHMS, "privacy.epsilon": EPSILONS}
    path = folder / f"sweep-{runs}.json"
    path.write_text(json.dumps({"name": "sweep", "run": run, "sweep": [axes], "figures": ["accuracy_privacy"]}))
    return path


class Sweep:
    """A copy of the project, and Snakemake in it."""

    def __init__(self, folder: Path, runs: int) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        for part in PARTS:
            if (CHECKOUT / part).is_dir() and not (CHECKOUT / part).is_symlink():
                shutil.copytree(CHECKOUT / part, self.folder / part)
            else:
                shutil.copy2(CHECKOUT / part, self.folder / part, follow_symlinks=False)
        self.file = scenario_file(self.folder, runs)
        self.scenario: Scenario = load_scenario([self.file])
        self.environment = {
            **os.environ,
            "XDG_CACHE_HOME": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
            "SUBJECTDP_SLURM_CPU_PARTITION": "local",
            "SUBJECTDP_SLURM_GPU": "none",
        }

    def snakemake(self, *arguments: str) -> float:
        """Runs Snakemake to its end; CPU seconds of it and of what it started itself. DataError if it fails."""
        command = [sys.executable, "-m", "snakemake", *arguments, "--nocolor", "--configfile", str(self.file)]
        with (self.folder / "snakemake.log").open("w") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
            _, status, used = os.wait4(process.pid, 0)
        if status:
            raise DataError(f"Snakemake failed: {(self.folder / 'snakemake.log').read_text()[-3000:]}")
        self.memory_mb = used.ru_maxrss / 1024
        return used.ru_utime + used.ru_stime


def fake_trainings(sweep: Sweep) -> None:
    """Trains the first run of each algorithm; its results, renamed, are those of every run of the algorithm."""
    runs = sweep.scenario.runs
    firsts = {run.algorithm: run.run_id for run in reversed(runs)}
    targets = [f"results/runs/{run_id}/manifest.json" for run_id in firsts.values()]
    sweep.snakemake("--cores", "1", *targets)
    trained = {key: sweep.folder / "results/runs" / run_id for key, run_id in firsts.items()}
    for run in runs:
        _fake(run, trained[run.algorithm], sweep.folder / FAKED / run.run_id)
    for folder in trained.values():
        shutil.rmtree(folder)
    (sweep.folder / "workflow/scripts/train.py").write_text(SCRIPT)


def _fake(run: RunConfig, trained: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    config = run.model_dump(mode="json")
    manifest: dict[str, Any] = json.loads((trained / "manifest.json").read_text())
    del manifest[SEAL]
    shutil.copy2(trained / "model.safetensors", folder)
    for name in ("rounds.parquet", "steps.parquet"):
        pd.read_parquet(trained / name).assign(run_id=run.run_id).to_parquet(folder / name)
        manifest["files"][name] = {
            "bytes": (folder / name).stat().st_size,
            "sha256": sha256_of(folder / name),
        }
    content = json.dumps(sealed({**manifest, "run_id": run.run_id, "config": config}))
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("manifest.json", "finished.json"):
        (folder / name).write_text(content)


class Stub:
    """Makes the outputs of a job at once when the minutes are over, unless it is the first of its kind."""

    def __init__(self, sweep: Sweep, minutes: float) -> None:
        self.sweep, self.end = sweep, time.monotonic() + 60 * minutes
        self.seen: set[str] = set()

    def __call__(self, command: str) -> bool:
        made = _TARGETS.findall(command)
        if not made or made[0][0] not in self.seen or time.monotonic() < self.end:
            self.seen |= {rule for rule, _ in made}
            return False
        rule = made[0][0]
        results = self.sweep.folder / "results"
        for _, key in made:
            folder = results / ("runs" if rule == "train" else "partitions") / key
            folder.mkdir(parents=True, exist_ok=True)
            if rule == "train":
                shutil.copytree(self.sweep.folder / FAKED / key, folder, dirs_exist_ok=True)
                (folder / "progress.log").touch()
            else:
                shutil.copy(self.partition(results), folder / "partition.json")
        return True

    def partition(self, results: Path) -> Path:
        """The partition that the trained runs used."""
        return results / "partitions" / self.sweep.scenario.runs[0].partition_id / "partition.json"


def files_in(folder: Path) -> int:
    """Files in a folder and below."""
    return sum(file.is_file() for file in folder.rglob("*"))


def measure(runs: int, minutes: float, at_once: int, folder: Path) -> dict[str, Any]:
    """What the sweep takes; DataError if something of it fails."""
    sweep = Sweep(folder, runs)
    fake_trainings(sweep)
    with LocalSlurm(folder / "slurm", Stub(sweep, minutes), at_once) as slurm:
        sweep.environment["PATH"] = f"{folder}/slurm/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        submitting = sweep.snakemake("--profile", "slurm")
        calls = slurm.calls()
    kinds = {name: _kind([job for job in slurm.jobs if job.name == name]) for name in _names(slurm.jobs)}
    results = sweep.folder / "results"
    return {
        "runs": runs,
        "jobs": kinds,
        "calls": dict(calls),
        "cpu_hours_of_jobs": round(sum(kind["cpu_seconds"] for kind in kinds.values()) / 3600, 2),
        "cpu_seconds_of_submission": round(submitting),
        "memory_mb_of_submission": round(sweep.memory_mb),
        "files_of_a_run": max(files_in(run) for run in (results / "runs").iterdir()),
        "files": {name: files_in(sweep.folder / name) for name in ("results", ".snakemake")},
    }


def _names(jobs: Sequence[Job]) -> list[str]:
    return sorted({job.name for job in jobs})


def _kind(jobs: Sequence[Job]) -> dict[str, Any]:
    """Jobs of one kind; a stubbed job counts in proportion to its runs, and so to the minutes that it asks for."""
    executed = [job for job in jobs if not job.stubbed]
    scale = sum(job.minutes for job in jobs) / sum(job.minutes for job in executed)
    return {
        "jobs": len(jobs),
        "executed": len(executed),
        "failed": sum(job.status != 0 for job in executed),
        "starts_of_snakemake_in_a_job": max(job.starts for job in executed),
        "cpu_seconds": round(scale * sum(job.cpu_seconds for job in executed)),
        "minutes_asked": sum(job.minutes for job in jobs),
    }


def main() -> None:
    """Measures a sweep and prints what it took as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000, help="a multiple of 100 (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="see above (default: to the end)")
    parser.add_argument("--at-once", type=int, default=1, help="jobs side by side (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(options.runs, options.minutes, options.at_once, Path(folder)), indent=1))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU time of everything: {(used.ru_utime + used.ru_stime) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
