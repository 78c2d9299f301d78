"""A short form of the fault suite with every change (all of it: ``make faults``), and the suite's own judgement."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults import kills
from faults.catalogue import FAULTS, TRIALS, Fault
from faults.run import judge, may_mount, prepare, trial
from faults.workspace import Workspace

pytestmark = pytest.mark.faults
SHORT = (  # name and trial: one each of processes, disks, files and downloads
    ("an orphan beside its replacement", 0),
    ("disk full", 1),
    ("corrupt prepared data", 0),
    ("truncated download", 1),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the undisturbed workspace and what its run ended with."""
    folder = tmp_path_factory.mktemp("faults")
    prepare(folder)
    return folder


def test_the_catalogue_has_twelve_faults() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(set(names)) == len(names) == 12 and TRIALS == 3
    assert {name for name, _ in SHORT} < set(names)


@pytest.mark.parametrize(("name", "number"), SHORT, ids=[name for name, _ in SHORT])
def test_nothing_is_lost_or_silently_wrong(folder: Path, name: str, number: int) -> None:
    fault = next(fault for fault in FAULTS if fault.name == name)
    if fault.mounts and not may_mount():
        pytest.skip("this user may not mount anything here: no disk that is full")
    assert trial(fault, number, folder)


def test_a_training_killed_at_random_ends_bit_identical(tmp_path: Path) -> None:
    done = list(kills.kills(tmp_path, 1, seed=3))
    assert [kill.signum.name for kill in done] == ["SIGTERM", "SIGKILL"]


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


@pytest.mark.parametrize("inject_", [silently_wrong, crash])
def test_what_is_wrong_counts_as_lost(
    folder: Path, capsys: pytest.CaptureFixture[str], inject_: Callable[..., str]
) -> None:
    assert judge(Fault("planted", inject_), 1, folder) is False
    words = "silently wrong: model" if inject_ is silently_wrong else "not the fault that was meant"
    printed = capsys.readouterr().out
    assert printed.startswith("LOST") and words in printed
