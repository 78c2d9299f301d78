"""A local twin of Slurm: the few commands that Snakemake's plugin calls, and a scheduler that runs or stubs the jobs.

Called as a program it is one of the commands; ``LocalSlurm`` puts them on the search path and works off the queue. It
measures what a workflow asks of a scheduler, without root and daemons. ``make slurm-test`` has a real Slurm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "srun", "squeue", "scontrol", "scancel", "sacct")
"""The last is asked for an account and knows none; where it is missing the plugin waits forever."""

START = "Building DAG of jobs"
"""What each Snakemake prints once; the plugin deletes the log of a job that ended well."""


@dataclass(frozen=True)
class Job:
    """A job that has ended: its group or rule, and what it used; a stubbed job used nothing."""

    name: str
    minutes: int
    stubbed: bool
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    starts: int = 0
    status: int = 0


@dataclass
class LocalSlurm:
    """The scheduler: jobs in the order of submission, some at a time.

    Attributes:
        folder: where commands, queue and logs are.
        stub: makes a job's outputs without running it, given its command; False if the job has to run.
        at_once: how many jobs run side by side; most of a tiny run's time is waiting.
    """

    folder: Path
    stub: Callable[[str], bool]
    at_once: int = 1
    jobs: list[Job] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> LocalSlurm:
        for name in ("bin", "queue", "state"):
            (self.folder / name).mkdir(parents=True)
        for name in COMMANDS:
            program = self.folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {self.folder} {name} "$@"\n')
            program.chmod(0o755)
        self._threads = [threading.Thread(target=self._work_off) for _ in range(self.at_once)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def calls(self) -> Counter[str]:
        """How often each command was called."""
        log = self.folder / "calls.log"
        return Counter(log.read_text().split()) if log.exists() else Counter()

    def _work_off(self) -> None:
        while not self._done.is_set():
            asked = self._next()
            if asked is None:
                time.sleep(0.2)
                continue
            job = self._run(asked)
            self.jobs.append(job)
            print(job, file=sys.stderr)  # thousands of runs take an hour: a line for each job

    def _next(self) -> dict[str, Any] | None:
        """The job that waits longest, taken from the queue; None: none waits."""
        for file in sorted((self.folder / "queue").glob("*.json"), key=lambda file: int(file.stem)):
            with suppress(FileNotFoundError):  # another thread has it
                taken = file.rename(file.with_suffix(".taken"))
                asked: dict[str, Any] = json.loads(taken.read_text())
                return asked
        return None

    def _run(self, asked: dict[str, Any]) -> Job:
        minutes, state = int(asked["time"]), self.folder / "state" / asked["id"]
        if self.stub(asked["wrap"]):
            state.write_text("COMPLETED")
            return Job(_name(asked), minutes, True)
        state.write_text("RUNNING")
        output, begun = Path(asked["output"].replace("%j", asked["id"])), time.monotonic()
        with output.open("w") as log:
            environment = {**asked["environment"], "SLURM_JOB_ID": asked["id"]}
            process = subprocess.Popen(
                ["sh", "-c", asked["wrap"]], stdout=log, stderr=log, cwd=asked["chdir"], env=environment
            )
            _, status, used = os.wait4(process.pid, 0)
        starts = output.read_text().count(START)
        state.write_text("FAILED" if status else "COMPLETED")
        cpu, wall = used.ru_utime + used.ru_stime, time.monotonic() - begun
        return Job(_name(asked), minutes, False, cpu, wall, starts, status)


def _name(asked: dict[str, Any]) -> str:
    """The group or rule: the folder of its logs."""
    return Path(asked["output"]).relative_to(Path(asked["chdir"]) / ".snakemake/slurm_logs").parts[0]


def main(arguments: Sequence[str]) -> None:
    """One of the commands: ``FOLDER NAME ARGUMENTS``."""
    folder, name, given = Path(arguments[0]), arguments[1], list(arguments[2:])
    with (folder / "calls.log").open("a") as log:
        log.write(f"{name}\n")
    if name == "sbatch":
        print(_submit(folder, given))
    elif name == "srun":
        command = next(index for index, word in enumerate(given) if not word.startswith("-"))
        os.execvp(given[command], given[command:])
    elif name == "squeue":
        for state in (folder / "state").iterdir():
            print(f"{state.name}|{state.read_text()}")
    elif name == "scontrol":
        print("MinJobAge = 600 sec")


def _submit(folder: Path, given: Sequence[str]) -> str:
    """Queues a job and returns its number."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for names in (("--output",), ("--wrap",), ("-D", "--chdir"), ("-t", "--time")):
        parser.add_argument(*names)
    asked = vars(parser.parse_known_args(given)[0])
    number = _new_number(folder / "state")
    file = folder / "queue" / f"{number}.tmp"
    file.write_text(json.dumps({**asked, "id": str(number), "environment": dict(os.environ)}))
    file.rename(file.with_suffix(".json"))
    return str(number)


def _new_number(states: Path) -> int:
    for number in itertools.count(1):
        with suppress(FileExistsError), (states / str(number)).open("x") as state:
            state.write("PENDING")
            return number
    raise AssertionError("unreachable")


if __name__ == "__main__":
    main(sys.argv[1:])
