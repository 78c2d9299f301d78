"""Secure noise: a secret of the operating system for each run, kept nowhere, private while the run lasts."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from subjectdp.errors import PrivacyError, StorageError
from subjectdp.training import federation, records
from subjectdp.training.records import BYTES, SECRET, forget_secret, run_secret
from training import small_world
from training.small_world import resumed_after

CHANGES: dict[str, Any] = {
    "privacy": {"noise_source": "secure", "epsilon": 4.0, "noise_multiplier": 1.0},
    "training": {"rounds": 3, "batch_size": 8, "local_steps": 1},
    "performance": {"device": "cpu", "checkpoint_minutes": 0},
}
pytestmark = pytest.mark.usefixtures("quick_statements")


def train(folder: Path, name: str, report: Callable[[str], None] = lambda line: None) -> Path:
    return small_world.train(folder, name, small_world.config(**CHANGES), report)


def killed(folder: Path, name: str) -> Path:
    small_world.killed(2, lambda report: train(folder, name, report))
    return folder / name


@pytest.mark.slow
def test_two_runs_of_one_configuration_share_no_noise(tmp_path: Path) -> None:
    one, other = (load_file(train(tmp_path, name) / "model.safetensors") for name in ("one", "other"))
    noisy = [name for name in one if (one[name] != other[name]).any()]
    assert noisy, "with the seed's noise the models would be equal"


def test_no_file_of_a_finished_run_holds_the_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = bytes(range(7, 7 + BYTES))
    monkeypatch.setattr(records.secrets, "token_bytes", lambda size: known[:size])
    seen: list[int] = []

    def look(line: str) -> None:
        seen.append(stat.S_IMODE((tmp_path / "run/checkpoints" / SECRET).stat().st_mode))

    folder = train(tmp_path, "run", look)
    assert set(seen) == {0o600}, "it was there, for its owner alone"
    number = int.from_bytes(known, "little")
    shown = (known, known.hex().encode(), str(number).encode(), f"{number:x}".encode())
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        content = path.read_bytes()
        assert not any(form in content for form in shown), path
    assert not (folder / "checkpoints").exists()


@pytest.mark.slow
def test_a_checkpoint_without_its_secret_is_not_continued(tmp_path: Path) -> None:
    damages: dict[str, Callable[[Path], object]] = {
        "gone": Path.unlink,
        "shown": lambda path: path.chmod(0o644),
        "short": lambda path: path.write_bytes(b"short"),
    }
    stopped = killed(tmp_path, "stopped")
    assert list((stopped / "checkpoints").glob("*.json"))
    for name, damage in damages.items():
        damage(shutil.copytree(stopped, tmp_path / name) / "checkpoints" / SECRET)
        assert resumed_after(train(tmp_path, name)) == []


def test_a_stopped_run_goes_on_with_its_secret(tmp_path: Path) -> None:
    folder = killed(tmp_path, "run")
    kept = (folder / "checkpoints" / SECRET).read_bytes()
    assert len(kept) == BYTES and run_secret(folder / "checkpoints") == int.from_bytes(kept, "little")
    assert resumed_after(train(tmp_path, "run")) == [1]


def test_secrets_are_new_and_whole(tmp_path: Path) -> None:
    found = [run_secret(tmp_path / str(number)) for number in range(20)]
    assert len(set(found)) == 20 and max(found).bit_length() > 240
    forget_secret(tmp_path / "0")
    assert run_secret(tmp_path / "0") not in found
    forget_secret(tmp_path / "nothing")


def test_a_secret_that_the_disk_shows_to_others_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    monkeypatch.setattr(records.os, "open", lambda path, flags, *_, **more: opened(path, flags, 0o644, **more))
    before = os.umask(0o022)  # whatever the process has
    try:
        with pytest.raises(StorageError, match="readable by others"):
            run_secret(tmp_path)
    finally:
        os.umask(before)
    assert not (tmp_path / SECRET).exists()


def test_no_federation_with_secure_noise_is_made_without_a_secret(tmp_path: Path) -> None:
    config = small_world.config(**CHANGES)
    inputs = federation.read_inputs(config, *small_world.build(tmp_path, config))
    with pytest.raises(PrivacyError, match="requires a run secret"):
        federation.make_federation(inputs, federation.torch.device("cpu"))
