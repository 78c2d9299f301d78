"""Breaks things around a training and a download, and checks that nothing is lost and nothing silently wrong.

    PYTHONPATH=tests:workflow/lib python -m faults.run [--only TEXT] [--trials N] [--kills N] [--folder FOLDER]

One line a trial; the last line is ``N faults, M recovered``, with the kills of a training as one more fault. Exit
status 1 if one is not recovered from. Faults that need a mount (disk full, read-only) are skipped, with a line that
says so, where the system does not let this user mount anything.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faults.catalogue import FAULTS, TRIALS, Fault
from faults.workspace import NotRecovered, Workspace, new_workspace
from training.outcomes import outcome

TESTS = Path(__file__).resolve().parents[1]
LIBRARY = TESTS.parent / "workflow" / "lib"
UNSHARE = ("unshare", "--map-root-user", "--mount")
KILLS = 20


def prepare(folder: Path) -> tuple[Workspace, dict[str, Any]]:
    """A workspace with data and partition but no run, and what the undisturbed run ends with; it lies in ``run``."""
    space = new_workspace(folder / "undisturbed")
    space.train_again()
    reference = outcome(space.run)
    (folder / "reference.json").write_text(json.dumps(reference))
    shutil.move(space.run, folder / "run")
    return space, reference


def trial(fault: Fault, number: int, folder: Path) -> str:
    """One trial in a copy of the workspace, in a mount namespace where the fault needs one. Returns its words."""
    if not fault.mounts:
        return inject(fault, number, folder)
    arguments = [
        *UNSHARE,
        sys.executable,
        "-m",
        "faults.run",
        "--inside",
        fault.name,
        str(number),
        str(folder),
    ]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{LIBRARY}"}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=3600, check=False
    )
    if done.returncode != 0:
        raise NotRecovered(done.stdout + done.stderr)
    return done.stdout.strip()


def inject(fault: Fault, number: int, folder: Path) -> str:
    """One trial, here and now."""
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


def judge(fault: Fault, trials: int, folder: Path) -> bool | None:
    """Prints a line for each trial; whether all were recovered from, None if the fault is skipped."""
    if fault.mounts and not may_mount():
        print(f"skipped           {fault.name}: this user may not mount anything here", flush=True)
        return None
    good = True
    for number in range(trials):
        start = time.monotonic()
        try:
            verdict, words = "recovered", trial(fault, number, folder)
        except NotRecovered as problem:
            verdict, words, good = "LOST     ", str(problem), False
        except Exception:
            verdict, words, good = "LOST     ", traceback.format_exc(), False
        print(f"{verdict} {time.monotonic() - start:6.1f} s {fault.name}, {number + 1}: {words}", flush=True)
    return good


def judge_kills(count: int, folder: Path) -> bool:
    """Prints a line for each killed training; whether all ended as the undisturbed one."""
    from faults.kills import kills

    done = 0
    try:
        for kill in kills(folder, count, seed=20250):
            done += 1
            print(
                f"recovered {kill.signum.name} {kill.delay:.3f} s after round {kill.round}, "
                f"resumed after {kill.resumed}",
                flush=True,
            )
    except NotRecovered as problem:
        print(f"LOST      kill {done + 1} of {2 * count}: {problem}", flush=True)
        return False
    print(f"{done} killed trainings, {done} bit-identical to the undisturbed one")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="faults.run", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="faults whose name contains this")
    parser.add_argument("--trials", type=int, default=TRIALS, choices=range(1, TRIALS + 1))
    parser.add_argument(
        "--kills", type=int, default=KILLS, help="random moments, each with two signals; 0: none"
    )
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--inside", nargs=3, metavar=("FAULT", "TRIAL", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.inside is not None:
        return _inside(*options.inside)
    chosen = [fault for fault in FAULTS if options.only in fault.name]
    if not chosen and options.kills == 0:
        parser.error("no such fault")
    with tempfile.TemporaryDirectory(prefix="faults-", dir=options.folder) as name:
        folder = Path(name).resolve()
        verdicts = []
        if chosen:
            prepare(folder)
            verdicts = [judge(fault, options.trials, folder) for fault in chosen]
        if options.kills > 0:
            verdicts.append(judge_kills(options.kills, folder))
    counted = [verdict for verdict in verdicts if verdict is not None]
    print(f"{len(counted)} faults, {sum(counted)} recovered")
    return 0 if all(counted) else 1


def _inside(name: str, number: str, folder: str) -> int:
    fault = next(fault for fault in FAULTS if fault.name == name)
    try:
        print(inject(fault, int(number), Path(folder)))
    except NotRecovered as problem:
        print(problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
