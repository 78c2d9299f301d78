"""Breaks things around a training: nothing is lost and nothing silently wrong.

Three trials run with ``make test-long``, all of them with ``make faults``; its last line is ``N faults, N recovered``.
Faults that need a mount (disk full, read-only) are skipped where this user may not mount anything.
"""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults import kills
from faults.trials import FAULTS, TRIALS, Fault, may_mount, prepare, trial
from faults.workspace import NotRecovered, Workspace

KILLS = 20  # random moments, each with two signals
SHORT = (  # name and trial: one each of processes, disks and files
    ("an orphan beside its replacement", 0),
    ("disk full", 1),
    ("corrupt prepared data", 0),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the undisturbed workspace and what its run ended with."""
    folder = tmp_path_factory.mktemp("faults")
    prepare(folder)
    return folder


def recovers(fault: Fault, number: int, folder: Path) -> bool:
    """Runs one trial and prints a line about it."""
    start = time.monotonic()
    try:
        verdict, words = "recovered", trial(fault, number, folder)
    except NotRecovered as problem:
        verdict, words = "LOST     ", str(problem)
    except Exception:
        verdict, words = "LOST     ", traceback.format_exc()
    print(f"{verdict} {time.monotonic() - start:6.1f} s {fault.name}, {number + 1}: {words}", flush=True)
    return verdict == "recovered"


def need_mounts(fault: Fault) -> None:
    if fault.mounts and not may_mount():
        pytest.skip("this user may not mount anything here")


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), SHORT, ids=[name for name, _ in SHORT])
def test_nothing_is_lost_or_silently_wrong(folder: Path, name: str, number: int) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    need_mounts(fault)
    assert recovers(fault, number, folder)


@pytest.mark.faults
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name.replace(" ", "-") for fault in FAULTS])
def test_every_trial_of_a_fault_is_recovered_from(
    folder: Path, fault: Fault, tally: Callable[..., None]
) -> None:
    need_mounts(fault)
    recovered = [recovers(fault, number, folder) for number in range(TRIALS)]
    tally(faults=1, recovered=int(all(recovered)))
    assert all(recovered)


@pytest.mark.long
def test_a_training_killed_at_random_ends_bit_identical(tmp_path: Path) -> None:
    done = list(kills.kills(tmp_path, 1, seed=3))
    assert [kill.signum.name for kill in done] == ["SIGTERM", "SIGKILL"]


@pytest.mark.faults
def test_many_trainings_killed_at_random_end_bit_identical(
    tmp_path: Path, tally: Callable[..., None]
) -> None:
    done = 0
    try:
        for kill in kills.kills(tmp_path, KILLS, seed=20250):
            done += 1
            print(
                f"recovered {kill.signum.name} {kill.delay:.3f} s after round {kill.round}, "
                f"resumed after {kill.resumed}",
                flush=True,
            )
    finally:
        tally(faults=1, recovered=int(done == 2 * KILLS))


def silently_wrong(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """One other bit in the model than that of the undisturbed run."""
    shutil.copytree(space.root.parent / "run", space.run)
    space.must_equal(reference)
    content = bytearray((space.run / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (space.run / "model.safetensors").write_bytes(content)
    space.nothing_wrong(reference)
    return "equal"


def crash(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """The fault suite itself breaks."""
    raise RuntimeError("not the fault that was meant")


@pytest.mark.long
@pytest.mark.parametrize(
    ("inject", "words"), [(silently_wrong, "silently wrong: model"), (crash, "not the fault that was meant")]
)
def test_what_is_wrong_counts_as_lost(
    folder: Path, capsys: pytest.CaptureFixture[str], inject: Callable[..., str], words: str
) -> None:
    assert not recovers(Fault("planted", inject), 0, folder)
    printed = capsys.readouterr().out
    assert printed.startswith("LOST") and words in printed
