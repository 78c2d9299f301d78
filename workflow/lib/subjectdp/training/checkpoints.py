"""Checkpoints: a run's last snapshots on disk, read only by a run with the same identity.

A checkpoint is two files. ``round-N.safetensors`` holds the tensors and the table of mini-batches. ``round-N.json``,
written after it, holds the run's identity, the evaluated rounds, the sha256 of the other file, and its own hash; a
checkpoint without its JSON does not count. Both are written under a temporary name, synced and renamed, so that a kill
at any moment leaves earlier checkpoints intact.

Beside them lies the secret of a run with ``privacy.noise_source: secure``: 256 bits that its sampling and noise are
drawn from, so that a stopped run can go on with the same draws. Its owner alone may read the file. It is deleted, not
overwritten, when the run ends: what a disk or a snapshot keeps of deleted files is outside this program's reach.
"""

import json
import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor

from subjectdp.errors import DataError, StorageError
from subjectdp.io.atomic import is_intact, sealed, sha256_of, write_bytes, write_json
from subjectdp.training.records import STEP_COLUMNS, Snapshot, StepRow

log = logging.getLogger(__name__)

SECRET = "noise.secret"
"""Name of the file with the secret, in the folder of the checkpoints."""

BYTES = 32
_OWNER_ALONE = 0o600
KEEP = 2
"""Checkpoints that are kept: if the last one is damaged, the one before it is used."""

_NAME = re.compile(r"round-(\d{7,})\.json")
_TENSOR, _STEPS = "tensor.", "steps."


class Checkpoints:
    """The checkpoints of one run; only those with the same ``identity`` are read. One is due after so many minutes."""

    def __init__(
        self, folder: Path, identity: Mapping[str, str], minutes: float = 0.0, report: Callable[[str], None] = log.info
    ) -> None:
        self.folder, self.identity, self._report = folder, dict(identity), report
        self._seconds, self._last_time, self._last_round = 60.0 * minutes, time.monotonic(), 0
        self._good: list[int] = []  # rounds of those that were written or read by this process

    def due(self) -> bool:
        """Whether the last one is old enough for another."""
        return time.monotonic() - self._last_time >= self._seconds

    def save(self, snapshot: Snapshot) -> bool:
        """Writes a checkpoint and removes all but the last ``KEEP`` that are known to be good.

        If the disk cannot take it, reports that, keeps the earlier ones, and returns False.
        """
        self._last_time = time.monotonic()
        if snapshot.round == self._last_round:
            return True
        try:
            self._write(snapshot)
        except (StorageError, OSError) as problem:
            self._report(f"no checkpoint after round {snapshot.round}: {problem}")
            return False
        self._last_round = snapshot.round
        return True

    def _write(self, snapshot: Snapshot) -> None:
        tensors = {_TENSOR + name: value.cpu().contiguous() for name, value in snapshot.tensors.items()}
        tensors |= {_STEPS + name: column for name, column in _columns(snapshot.steps).items()}
        file = self._file(snapshot.round, "safetensors")
        write_bytes(file, save(tensors))
        record = {
            "identity": self.identity,
            "round": snapshot.round,
            "rounds": [list(row.items()) for row in snapshot.rounds],  # keeps the order of the columns
            "train_seconds": snapshot.train_seconds,
            "wall_seconds": snapshot.wall_seconds,
            "resumed_after": list(snapshot.resumed_after),
            "sha256": sha256_of(file),
        }
        write_json(self._file(snapshot.round, "json"), sealed(record))
        self._good = [*(known for known in self._good if known != snapshot.round), snapshot.round][-KEEP:]
        self._remove_others()

    def latest(self) -> Snapshot | None:
        """The last intact checkpoint of this run; reports why each later one is refused."""
        for round_ in sorted(self._rounds(), reverse=True):
            try:
                snapshot = self._read(round_)
            except DataError as problem:
                self._report(f"checkpoint refused: {problem}")
                continue
            self._good, self._last_round = [round_], round_
            return snapshot
        return None

    def _file(self, round_: int, suffix: str) -> Path:
        return self.folder / f"round-{round_:07d}.{suffix}"

    def _rounds(self) -> list[int]:
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return [int(match[1]) for match in map(_NAME.fullmatch, names) if match is not None]

    def _remove_others(self) -> None:
        kept = {self._file(round_, suffix) for round_ in self._good for suffix in ("json", "safetensors")}
        # the JSON of a pair first: the rest does not count as a checkpoint if this is interrupted
        for path in sorted(self.folder.iterdir(), key=lambda path: path.suffix != ".json"):
            if path not in kept and path.name != SECRET:
                path.unlink(missing_ok=True)

    def _read(self, round_: int) -> Snapshot:
        description, file = self._file(round_, "json"), self._file(round_, "safetensors")
        record = self._record(description, round_)
        try:
            content = file.read_bytes()
        except OSError as error:
            raise DataError(f"{file} cannot be read ({error.strerror}).") from None
        if sha256_of(file) != record["sha256"]:
            raise DataError(f"{file} is truncated or was changed (its sha256 differs).")
        tensors = load(content)
        steps = _rows({name: tensors.pop(_STEPS + name) for name in STEP_COLUMNS})
        state = {name.removeprefix(_TENSOR): tensor for name, tensor in tensors.items()}
        rounds, resumed = [dict(row) for row in record["rounds"]], tuple(record["resumed_after"])
        seconds = record["train_seconds"], record["wall_seconds"]
        return Snapshot(round_, state, steps, rounds, *seconds, resumed)

    def _record(self, path: Path, round_: int) -> dict[str, Any]:
        try:
            record = json.loads(path.read_text())
            identity = dict(record["identity"])
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError(f"{path} is not the whole description of a checkpoint.") from None
        if not is_intact(record) or record["round"] != round_:
            raise DataError(f"{path} was changed after it was written.")
        differ = [key for key, value in self.identity.items() if identity.get(key) != value]
        if differ or identity.keys() != self.identity.keys():
            what = ", ".join(f"{key} {identity.get(key)!r} instead of {self.identity[key]!r}" for key in differ)
            raise DataError(f"{path} belongs to another run: {what or 'other facts are recorded'}.")
        return dict(record)


def _columns(rows: list[StepRow]) -> dict[str, Tensor]:
    columns = zip(*rows, strict=True) if rows else ((),) * len(STEP_COLUMNS)
    tensors = {}
    for name, column in zip(STEP_COLUMNS, columns, strict=True):
        whole = all(isinstance(value, int) for value in column)
        tensors[name] = torch.from_numpy(np.asarray(column, np.int64 if whole else np.float64))
    return tensors


def _rows(columns: Mapping[str, Tensor]) -> list[StepRow]:
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))


def run_secret(checkpoints: Path) -> int:
    """The secret of the run that was stopped here, else a new one; no checkpoint survives without its secret.

    Raises:
        StorageError: the file cannot be written, or others may read it.
    """
    secret = _read_secret(checkpoints / SECRET)
    if secret is None:
        shutil.rmtree(checkpoints, ignore_errors=True)
        secret = secrets.token_bytes(BYTES)
        _write_secret(checkpoints / SECRET, secret)
    return int.from_bytes(secret, "little")


def forget_secret(checkpoints: Path) -> None:
    """Deletes the secret, if there is one. Raises StorageError where that fails."""
    try:
        (checkpoints / SECRET).unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{checkpoints / SECRET} cannot be deleted ({error.strerror}): delete it.") from None


def _read_secret(path: Path) -> bytes | None:
    try:
        status, content = path.lstat(), path.read_bytes()
    except OSError:
        return None
    own = status.st_uid == os.getuid() and stat.S_ISREG(status.st_mode)
    private = stat.S_IMODE(status.st_mode) == _OWNER_ALONE
    return content if own and private and len(content) == BYTES else None


def _write_secret(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ALONE), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}.") from error
    if _read_secret(path) != content:
        path.unlink(missing_ok=True)
        raise StorageError(f"{path} would be readable by others: this disk keeps no file modes.")
