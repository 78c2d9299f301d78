"""Breaks things around a training: nothing is lost and nothing silently wrong.

Three trials run with ``make test-long``, all of them with ``make faults``; its last line is ``N faults, N recovered``.
Faults that need a mount (disk full, read-only) are skipped where this user may not mount anything.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from faults import kills
from faults.trials import FAULTS, TRIALS, Fault, may_mount, prepare, trial

KILLS = 20  # random moments, each with two signals
SHORT = (  # name and trial: of processes and of a disk
    ("an orphan beside its replacement", 0),
    ("disk full", 1),
    ("SIGKILL of a job", 0),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the undisturbed workspace and what its run ended with."""
    folder = tmp_path_factory.mktemp("faults")
    prepare(folder)
    return folder


def case(fault: Fault, number: int) -> object:
    marks = [pytest.mark.faults, *([pytest.mark.long] if (fault.name, number) in SHORT else [])]
    return pytest.param(fault, number, marks=marks, id=f"{fault.name}-{number}".replace(" ", "-"))


@pytest.mark.parametrize(("fault", "number"), [case(fault, number) for fault in FAULTS for number in range(TRIALS)])
def test_nothing_is_lost_or_silently_wrong(folder: Path, fault: Fault, number: int, tally: Callable[..., None]) -> None:
    if fault.mounts and not may_mount():
        pytest.skip("this user may not mount anything here")
    tally(faults=1, recovered=0)
    print(f"recovered: {fault.name}, {number + 1}: {trial(fault, number, folder)}", flush=True)
    tally(faults=0, recovered=1)


@pytest.mark.parametrize(
    ("count", "seed"),
    [pytest.param(1, 3, marks=pytest.mark.long), pytest.param(KILLS, 20250, marks=pytest.mark.faults)],
)
def test_a_training_killed_at_random_ends_bit_identical(
    tmp_path: Path, count: int, seed: int, tally: Callable[..., None]
) -> None:
    tally(faults=1, recovered=0)
    done = list(kills.kills(tmp_path, count, seed))
    assert done == ["SIGTERM", "SIGKILL"] * count
    tally(faults=0, recovered=1)
