"""What the Slurm tests do: submit from a copy of the project, look into the queue, plant faults in jobs."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from subjectdp.config.scenario import load_scenario_from_mapping, merge

SNAKEMAKE = Path(__file__).with_name("watchful_snakemake.py")
LIMIT = 1800  # seconds that one submission may take on a machine with much else to do
_SUBMITTED = re.compile(r"^Job (\d+) has been submitted with SLURM jobid (\d+)", re.MULTILINE)

# Runs at the head of the training script: a file named after the run makes its next attempt go wrong, once.
_FAULT = """
import time as _time
_fault = Path("faults") / Path(snakemake.output[0]).parent.name
if _fault.exists():
    _kind = _fault.read_text()
    _fault.unlink()
    if _kind == "memory":
        _held = bytearray(b"1") * 2_500_000_000
    if _kind == "fail":
        raise SystemExit("a planted failure")
    _time.sleep(600)
"""


@dataclass
class World:
    """A copy of the project on a Slurm."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        script = self.root / "workflow/scripts/train.py"
        head, mark, body = script.read_text().partition("with job_log")
        assert mark, "the faults stand before the training"
        script.write_text(head + _FAULT.lstrip() + "\n" + mark + body)
        (self.root / "faults").mkdir()
        binaries = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "XDG_CACHE_HOME": str(self.root / ".cache"),
            "SUBJECTDP_SLURM_POLL_SECONDS": "5",
            "SUBJECTDP_SLURM_RUNS_PER_JOB": "1",
            "SUBJECTDP_SLURM_CPU_PARTITION": "cpu",
            "SUBJECTDP_SLURM_GPU_PARTITION": "gpu",
            "SUBJECTDP_ANY_DEVICE": "1",  # the node's GPUs are fakes
        }

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """``snakemake --profile slurm`` in the background, in a session of its own; its output goes to a pipe."""
        return subprocess.Popen(
            [sys.executable, SNAKEMAKE, "--profile", "slurm", "--nocolor", *arguments],
            cwd=self.root,
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **environment: str) -> str:
        """``snakemake --profile slurm`` to its end, which has to be good; what it printed."""
        return self.end(self.start(*arguments, **environment))

    def end(self, process: subprocess.Popen[str]) -> str:
        """What a started Snakemake printed once it has ended well."""
        try:
            printed = process.communicate(timeout=LIMIT)[0]
        finally:
            process.kill()
        assert process.returncode == 0, printed[-4000:] + slurm("squeue") + self._last_log()
        return printed

    def _last_log(self) -> str:
        logs = sorted(self.root.glob("results/logs/*/*.log"), key=lambda path: path.stat().st_mtime)
        return f"{logs[-1]}:\n{logs[-1].read_text()[-2000:]}" if logs else ""

    def scenario(self, name: str, **run: Any) -> tuple[str, str]:
        """A scenario file of one small run with these settings, and the run's id."""
        small = {
            "partition": {"silos": 2},
            "data": {"embedded": {"subjects": 8, "items_per_subject": 30}},
            "training": {"rounds": 2, "batch_size": 16},
            "model": {"name": "small_cnn", "parameters": {"width": 8}},
        }
        content = {"name": name, "run": merge(small, run)}
        path = self.root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return str(path), load_scenario_from_mapping(content).runs[0].run_id

    def sweep(self, name: str, axes: dict[str, list[Any]]) -> tuple[str, list[str]]:
        """A scenario file of small runs over these axes, and the runs' ids."""
        path, _ = self.scenario(name)
        content = {**yaml.safe_load(Path(path).read_text()), "sweep": [axes]}
        Path(path).write_text(yaml.safe_dump(content))
        return path, [run.run_id for run in load_scenario_from_mapping(content).runs]

    def plant(self, run_id: str, kind: str) -> None:
        """The next attempt of a run sleeps, takes 2.5 GB (``memory``) or fails (``fail``)."""
        (self.root / "faults" / run_id).write_text(kind)

    def planted(self, run_id: str) -> bool:
        """Whether a planted fault has not struck yet."""
        return (self.root / "faults" / run_id).exists()

    def manifest(self, run_id: str) -> dict[str, Any]:
        """The manifest of a finished run."""
        found: dict[str, Any] = json.loads((self.root / f"results/runs/{run_id}/manifest.json").read_text())
        return found

    def job_of(self, run_id: str, states: str = "PENDING,RUNNING") -> str | None:
        """The Slurm job that trains a run and is in one of these states, if there is one."""
        listed = slurm("squeue", "-h", "-t", states, "-o", "%i %k")
        found = [line.split()[0] for line in listed.splitlines() if line.endswith(run_id)]
        return found[-1] if found else None


def slurm(*command: str) -> str:
    """The output of a Slurm client; bounded, since clients wait for minutes where the controller is down."""
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout


def job(number: str) -> dict[str, str]:
    """What the controller knows of a job: ``scontrol show job``."""
    words = slurm("scontrol", "show", "job", number).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def jobs_of(printed: str) -> dict[str, list[str]]:
    """Run id -> the Slurm jobs that Snakemake's output says were submitted for it, in order (jobs of one run)."""
    found: dict[str, list[str]] = {}
    for match in _SUBMITTED.finditer(printed):
        comment = job(match[2]).get("Comment", "")
        found.setdefault(comment.rpartition("wildcards_")[2], []).append(match[2])
    return found


def wait_for(condition: Callable[[], Any], seconds: float = 300.0) -> Any:
    """What ``condition`` gives once it is true; fails where it never is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.3)
    raise AssertionError(f"not within {seconds:g} s: {slurm('squeue')}")
