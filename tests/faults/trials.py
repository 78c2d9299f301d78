"""One trial of a fault in a copy of the workspace, in a mount namespace of its own where the fault needs one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from faults.catalogue import FAULTS, Fault
from faults.workspace import NotRecovered, Workspace, new_workspace
from training.outcomes import outcome

TESTS = Path(__file__).resolve().parents[1]
LIBRARY = TESTS.parent / "workflow" / "lib"
UNSHARE = ("unshare", "--map-root-user", "--mount")


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
