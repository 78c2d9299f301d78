"""All faults, and one trial of each in a copy of the workspace, in a mount namespace of its own where it needs one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults import training_faults as training
from faults.workspace import NotRecovered, Workspace, new_workspace
from training.outcomes import outcome

TESTS = Path(__file__).resolve().parents[1]
LIBRARY = TESTS.parent / "workflow" / "lib"
UNSHARE = ("unshare", "--map-root-user", "--mount")
TRIALS = 3


@dataclass(frozen=True)
class Fault:
    """One thing that breaks; ``inject`` breaks it, recovers, and says what it saw (see ``training_faults``)."""

    name: str
    inject: Callable[[Workspace, int, dict[str, Any]], str]
    mounts: bool = False  # needs a mount namespace of its own


FAULTS = (
    Fault("SIGKILL of Snakemake", training.snakemake_killed),
    Fault("SIGKILL of a job", training.job_killed),
    Fault("an orphan beside its replacement", training.orphan_and_replacement),
    Fault("disk full", training.disk_full, mounts=True),
    Fault("read-only results", training.read_only_results, mounts=True),
    Fault("corrupt checkpoint", training.corrupt_checkpoint),
    Fault("corrupt prepared data", training.corrupt_prepared_data),
)


def prepare(folder: Path) -> tuple[Workspace, dict[str, Any]]:
    """A workspace with data and partition but no run, and what the undisturbed run ends with; it lies in ``run``."""
    space = new_workspace(folder / "undisturbed")
    space.train_again()
    reference = outcome(space.run)
    (folder / "reference.json").write_text(json.dumps(reference))
    shutil.move(space.run, folder / "run")
    return space, reference


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
