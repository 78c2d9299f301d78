"""Dry runs: ``snakemake -n -q`` for a sweep in an empty folder, Snakemake's start included."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import Outcome, interleave
from subjectdp.errors import DataError
from subjectdp.places import CHECKOUT

_ALGORITHMS = ["fed_avg", "local_item_dp", "local_group_dp", "higrad_avg_dp:v1"]


def time_dry_runs(runs: int, rounds: int) -> Outcome:
    """Times of dry runs of so many runs (a multiple of 4); DataError if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        method = {"dry_run": lambda: _dry_run(Path(folder), runs)}
        return interleave(method, rounds, warm_up=0, cpu_clock=_children_seconds)["dry_run"]


def _dry_run(folder: Path, runs: int) -> None:
    scenario = folder / f"sweep-{runs}.json"
    sweep = {"seed": list(range(runs // len(_ALGORITHMS))), "algorithm": _ALGORITHMS}
    run = {"training": {"batch_size": 64}}  # a silo holds 288 items
    scenario.write_text(json.dumps({"name": "sweep", "run": run, "sweep": [sweep], "figures": ["figure1"]}))
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--quiet", "rules", "--cores", "1"]
    command += ["--snakefile", str(CHECKOUT / "Snakefile"), "--directory", str(folder)]
    done = subprocess.run(
        [*command, "--configfile", str(scenario)],
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0 or f"{runs}" not in done.stdout:
        raise DataError(f"The dry run of {runs} runs ended with {done.returncode}: {done.stdout[-2000:]}")


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
