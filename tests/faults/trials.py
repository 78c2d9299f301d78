"""Faults of processes and disks around a training, and one trial of each in a copy of the workspace.

A fault takes a workspace with prepared data and no run, the number of the trial (which varies the fault) and the
outcome of the undisturbed run; it returns what it saw in a few words, or raises ``NotRecovered``. Recovery is by the
commands of docs/running.md and by nothing else.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.workspace import NotRecovered, Workspace, ended, wait_until
from project_copy import copy_parts
from training.small_world import outcome, resumed_after

ROUNDS = (3, 10, 18)
"""How far the training is when the fault comes, by trial."""

Outcome = dict[str, Any]


def snakemake_killed(space: Workspace, trial: int, reference: Outcome) -> str:
    """SIGKILL of Snakemake; its job goes on without it. Recovery: wait for the job, unlock, start again."""
    running = space.train()
    space.wait_for_round(ROUNDS[trial], running)
    job = space.job()
    running.kill()
    if trial == 1:
        os.kill(job, signal.SIGKILL)
    wait_until(lambda: ended(job))
    space.nothing_wrong(reference)
    _unlock(space)
    space.train_again(reference)
    return f"the job went on to round {'its end' if trial != 1 else ROUNDS[trial]}, resumed {_resumes(space)}"


def job_killed(space: Workspace, trial: int, reference: Outcome) -> str:
    """SIGKILL of the training (out of memory, a node that goes down). Recovery: start again."""
    running = space.train()
    space.wait_for_round(ROUNDS[trial], running)
    os.kill(space.job(), signal.SIGKILL)
    space.must_fail(running.wait(), "Error in rule train")
    space.nothing_wrong(reference)
    space.train_again(reference)
    if _resumes(space) != 1:
        raise NotRecovered(f"resumed {_resumes(space)} times instead of once")
    return f"resumed after round {resumed_after(space.run)[0]}"


def orphan_and_replacement(space: Workspace, trial: int, reference: Outcome) -> str:
    """Snakemake is killed and started again while its job still trains. Recovery: none needed but the unlocking.

    The orphan finishes (0, 2), or dies while it is waited for (1).
    """
    first = space.train()
    space.wait_for_round(ROUNDS[0], first)
    orphan = space.job()
    os.kill(orphan, signal.SIGSTOP)  # so that both are there at the same time
    first.kill()
    _unlock(space)
    second = space.train()
    wait_until(lambda: any("waiting for process" in line for line in space.progress()), second)
    os.kill(orphan, signal.SIGKILL if trial == 1 else signal.SIGCONT)
    space.must_succeed(second.wait())
    space.must_equal(reference)
    if _resumes(space) != (1 if trial == 1 else 0):
        raise NotRecovered(f"resumed {_resumes(space)} times")
    return "the second waited " + ("and took over" if trial == 1 else "and trained nothing")


def disk_full(space: Workspace, trial: int, reference: Outcome) -> str:
    """The disk of the runs is full, from a training's start (0), in its middle (1), at its end (2). Recovery: room."""
    space.run.mkdir(parents=True)
    size = (16, 120, 200)[trial]
    mount("-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(space.run))
    space.must_fail(space.train().wait(), "the disk is full")
    space.nothing_wrong(reference)
    left = sum(path.stat().st_size for path in space.run.rglob("*") if path.is_file())
    mount("-o", "remount,size=64m", str(space.run))
    space.train_again(reference)
    return f"{size} kB of room, {left // 1024} kB used when it ended, resumed {_resumes(space)}"


def read_only_results(space: Workspace, trial: int, reference: Outcome) -> str:
    """A folder that cannot be written: the run's (0), all runs' (1), all results (2). Recovery: make it writable."""
    folder = (space.run, space.run.parent, space.root / "results")[trial]
    folder.mkdir(parents=True, exist_ok=True)
    mount("--bind", str(folder), str(folder))
    mount("-o", "remount,ro,bind", str(folder))
    result = space.train().wait()
    said = ("Read-only file system", "read-only")
    if result.status == 0 or not any(word in result.output for word in said):
        raise NotRecovered(f"status {result.status}: {result.output[-1500:]}")
    mount("-o", "remount,rw,bind", str(folder))
    if list(space.run.glob("*")):
        raise NotRecovered("something was written to a read-only folder")
    space.train_again(reference)
    return f"{folder.name} was read-only"


def mount(*arguments: str) -> None:
    """mount(8), in this process's own mount namespace."""
    subprocess.run(["mount", *arguments], check=True, capture_output=True, timeout=60)


def _unlock(space: Workspace) -> None:
    space.must_succeed(space.start("--unlock").wait())


def _resumes(space: Workspace) -> int:
    return len(resumed_after(space.run))


TESTS = Path(__file__).resolve().parents[1]
LIBRARY = TESTS.parent / "workflow" / "lib"
UNSHARE = ("unshare", "--map-root-user", "--mount")
TRIALS = 3


@dataclass(frozen=True)
class Fault:
    """One thing that breaks; ``inject`` breaks it, recovers, and says what it saw."""

    name: str
    inject: Callable[[Workspace, int, dict[str, Any]], str]
    mounts: bool = False  # needs a mount namespace of its own


FAULTS = (
    Fault("SIGKILL of Snakemake", snakemake_killed),
    Fault("SIGKILL of a job", job_killed),
    Fault("an orphan beside its replacement", orphan_and_replacement),
    Fault("disk full", disk_full, mounts=True),
    Fault("read-only results", read_only_results, mounts=True),
)


def prepare(folder: Path) -> None:
    """A workspace with data and partition but no run, and what the undisturbed run ends with; it lies in ``run``."""
    space = Workspace(copy_parts(folder / "undisturbed"))
    space.train_again()
    (folder / "reference.json").write_text(json.dumps(outcome(space.run)))
    shutil.move(space.run, folder / "run")


def trial(fault: Fault, number: int, folder: Path) -> str:
    """What one trial saw, in a few words; NotRecovered if something was lost or silently wrong."""
    if not fault.mounts:
        return inject(fault, number, folder)
    command = [*UNSHARE, sys.executable, "-m", "faults.trials", fault.name, str(number), str(folder)]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{LIBRARY}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode != 0:
        raise NotRecovered(done.stdout + done.stderr)
    return done.stdout.strip()


def inject(fault: Fault, number: int, folder: Path) -> str:
    """One trial, in this process."""
    reference = json.loads((folder / "reference.json").read_text())
    target = folder / f"{fault.name.replace(' ', '-')}-{number}"
    space = Workspace(folder / "undisturbed").copy(target)
    try:
        return fault.inject(space, number, reference)
    finally:
        space.end_all()
        shutil.rmtree(target, ignore_errors=True)


def may_mount() -> bool:
    """Whether this user can make a mount namespace and mount in it."""
    command = [*UNSHARE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":  # inside the mount namespace
    name, number, folder = sys.argv[1:]
    print(inject(next(fault for fault in FAULTS if fault.name == name), int(number), Path(folder)))
