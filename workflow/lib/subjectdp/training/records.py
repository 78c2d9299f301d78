"""What a run records: local steps, evaluated rounds, its progress, and the state that later rounds start from.

The last states are kept on disk, as checkpoints that only a run with the same identity reads. ``round-N.safetensors``
holds the tensors and the table of mini-batches. ``round-N.json``, written after it, holds the run's identity, the
evaluated rounds, the sha256 of the other file, and its own hash; without it there is no checkpoint. Both are synced and
renamed, so that a kill at any moment leaves earlier checkpoints intact.

Beside them lies the secret of a run with ``privacy.noise_source: secure``: 256 bits that its sampling and noise are
drawn from, so that a stopped run can go on. Its owner alone may read it. It is deleted, not overwritten, when the run
ends: what a disk keeps of deleted files is outside this program's reach.
"""

import logging
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load, save
from torch import Tensor

from subjectdp.errors import DataError, StorageError
from subjectdp.io.atomic import read_sealed, sealed, sha256_of, write_bytes, write_frame, write_json
from subjectdp.io.printing import clock, strict
from subjectdp.places import PROGRESS

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Score:
    """Accuracy in [0, 1] and mean cross-entropy in nats; NaN where there are no items."""

    accuracy: float
    loss: float


class LoggedStep(NamedTuple):
    """One mini-batch, a row of steps.parquet; ``clipped_fraction`` is NaN for an empty one, and may be a 0-dimensional
    tensor in the log."""

    round: int
    silo: int
    step: int
    items: int
    subjects: int
    largest_group: int
    noise_multiplier: float
    clipped_fraction: Tensor | float


class StepLog:
    """Rows in the order in which steps end. ``after_step`` is called after each row; what it raises ends the round."""

    def __init__(self, after_step: Callable[[], None] = lambda: None) -> None:
        self._rows: list[LoggedStep] = []
        self._after_step = after_step

    def add(self, row: LoggedStep) -> None:
        self._rows.append(row)
        self._after_step()

    def add_release(self, release: LoggedStep) -> None:
        """Puts noise and clipping of a silo's whole update into the row of its last local step, the last one added."""
        noise, fraction = release.noise_multiplier, release.clipped_fraction
        self._rows[-1] = self._rows[-1]._replace(noise_multiplier=noise, clipped_fraction=fraction)

    def take(self) -> list[LoggedStep]:
        """Empties the log; rows by round, silo and step. Reads all fractions from the device at once."""
        rows, self._rows = self._rows, []
        fractions = [(place, row.clipped_fraction) for place, row in enumerate(rows)]
        tensors = {place: value.float() for place, value in fractions if isinstance(value, Tensor)}
        read = torch.stack([*tensors.values()]).tolist() if tensors else []
        for place, fraction in zip(tensors, read, strict=True):
            rows[place] = rows[place]._replace(clipped_fraction=fraction)
        return sorted(rows, key=lambda row: row[:3])


@dataclass(frozen=True)
class Snapshot:
    """A run after ``round`` (0: before the first): everything that later rounds read; they do not change it.

    It holds no generator: each draw has its own key (decision 0004), so that a repeated round releases the same model.
    """

    round: int
    tensors: dict[str, Tensor]  # state of the global model (``GlobalModel.state``)
    steps: list[LoggedStep] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)  # those that were evaluated
    train_seconds: float = 0.0  # in rounds
    wall_seconds: float = 0.0  # in all
    resumed_after: tuple[int, ...] = ()  # rounds after which the run was resumed


class Recorder:
    """Collects rounds and steps in memory and writes them as parquet."""

    def __init__(self, run_id: str, rounds: int) -> None:
        self.run_id, self.rounds = run_id, rounds
        self.step_rows: list[LoggedStep] = []
        self.round_rows: list[dict[str, Any]] = []
        self._started, self._first_round = time.perf_counter(), 0

    def resume(self, round_: int, steps: list[LoggedStep], rounds: list[dict[str, Any]]) -> None:
        """Continues after ``round_`` with the rows recorded up to it."""
        self.step_rows, self.round_rows = list(steps), list(rounds)
        self._started, self._first_round = time.perf_counter(), round_

    def add_round(self, round_: int, test: Score, validation: Score, seconds: float) -> None:
        """Records an evaluated round; ``seconds`` is the mean training time of a round so far."""
        self.round_rows.append(
            {
                "run_id": self.run_id,
                "round": round_,
                "test_accuracy": test.accuracy,
                "test_loss": test.loss,
                "validation_accuracy": validation.accuracy,
                "validation_loss": validation.loss,
                "train_seconds": seconds,
                "steps_done": len(self.step_rows),
            }
        )

    def report(self, folder: Path) -> str:
        """Replaces the progress record in ``folder``, or warns; returns it as a line for people."""
        row = self.round_rows[-1]
        done = time.perf_counter() - self._started
        left = done / (row["round"] - self._first_round) * (self.rounds - row["round"])
        shown = ("run_id", "round", "test_accuracy", "test_loss", "validation_accuracy")
        record = strict({key: row[key] for key in shown})
        try:
            write_json(folder / PROGRESS, {**record, "rounds": self.rounds, "seconds_left": round(left)})
        except (StorageError, OSError) as problem:
            log.warning("%s: %s", folder / PROGRESS, problem)
        return (
            f"{self.run_id} round {row['round']}/{self.rounds} test accuracy {row['test_accuracy']:.4f} "
            f"loss {row['test_loss']:.4f} validation {row['validation_accuracy']:.4f} | "
            f"{row['train_seconds']:.2f} s a round, {clock(done)} done, {clock(left)} left"
        )

    def write(self, folder: Path) -> None:
        steps = pd.DataFrame.from_records(self.step_rows, columns=LoggedStep._fields)
        steps.insert(0, "run_id", self.run_id)
        write_frame(folder / "steps.parquet", steps)
        write_frame(folder / "rounds.parquet", pd.DataFrame.from_records(self.round_rows))


def also_to(file: Path, report: Callable[[str], None]) -> Callable[[str], None]:
    """A report that also appends each line to ``file``; a line that cannot be written there is a warning in the log."""

    def both(line: str) -> None:
        try:
            with open(file, "a", encoding="utf-8") as stream:
                stream.write(line + "\n")
        except OSError as problem:
            log.warning("%s: %s", file, problem)
        report(line)

    return both


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
        """Writes a checkpoint, removes all but the last ``KEEP`` good ones; False, with a report, where the disk
        cannot."""
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
        columns = [tensors.pop(_STEPS + name).tolist() for name in LoggedStep._fields]
        steps = [LoggedStep(*row) for row in zip(*columns, strict=True)]
        state = {name.removeprefix(_TENSOR): tensor for name, tensor in tensors.items()}
        rounds, resumed = [dict(row) for row in record["rounds"]], tuple(record["resumed_after"])
        return Snapshot(round_, state, steps, rounds, record["train_seconds"], record["wall_seconds"], resumed)

    def _record(self, path: Path, round_: int) -> dict[str, Any]:
        record = read_sealed(path)
        if record["round"] != round_:
            raise DataError(f"{path} describes round {record['round']}.")
        identity = record["identity"]
        differ = [key for key, value in self.identity.items() if identity.get(key) != value]
        if differ or identity.keys() != self.identity.keys():
            what = ", ".join(f"{key} {identity.get(key)!r} instead of {self.identity[key]!r}" for key in differ)
            raise DataError(f"{path} belongs to another run: {what or 'other facts are recorded'}.")
        return record


def _columns(rows: list[LoggedStep]) -> dict[str, Tensor]:
    columns = zip(*rows, strict=True) if rows else ((),) * len(LoggedStep._fields)
    tensors = {}
    for name, column in zip(LoggedStep._fields, columns, strict=True):
        whole = all(isinstance(value, int) for value in column)
        tensors[name] = torch.from_numpy(np.asarray(column, np.int64 if whole else np.float64))
    return tensors


def run_secret(checkpoints: Path) -> int:
    """The secret of the run that was stopped here, else a new one; no checkpoint survives without its secret.
    Raises StorageError where the file cannot be written, or others may read it."""
    if (secret := _read_secret(checkpoints / SECRET)) is None:
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
    return content if own and stat.S_IMODE(status.st_mode) == _OWNER_ALONE and len(content) == BYTES else None


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
