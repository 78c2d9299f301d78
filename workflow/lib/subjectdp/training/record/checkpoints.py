"""Checkpoints: a run's last snapshots on disk, read only by a run with the same identity.

A checkpoint is two files. ``round-N.safetensors`` holds the tensors and the table of mini-batches. ``round-N.json``,
written after it, holds the run's identity, the evaluated rounds, size and sha256 of the other file, and its own hash; a
checkpoint without its JSON does not count. Both are written under a temporary name, synced and renamed, so that a kill
at any moment leaves earlier checkpoints intact.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from subjectdp.errors import DataError, StorageError
from subjectdp.io.atomic import is_intact, sealed, sha256_of, write_bytes, write_json
from subjectdp.training.global_model import MODEL
from subjectdp.training.record.records import STEP_COLUMNS, StepRow
from subjectdp.training.record.secret import SECRET
from subjectdp.training.record.snapshots import Snapshot

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
KEEP = 2
"""Checkpoints that are kept: if the last one is damaged, the one before it is used."""

_NAME = re.compile(r"round-(\d{7,})\.json")
_TENSOR, _STEPS = "tensor.", "steps."


class CheckpointFolder:
    """The checkpoints of one run; only those with the same ``identity`` are read."""

    def __init__(
        self, folder: Path, identity: Mapping[str, str], report: Callable[[str], None] = log.info
    ) -> None:
        self.folder, self.identity, self._report = folder, dict(identity), report
        self._good: list[int] = []  # rounds of those that were written or read by this process

    def save(self, snapshot: Snapshot) -> None:
        """Writes a checkpoint and removes all but the last ``KEEP`` that are known to be good.

        Raises:
            StorageError: it cannot be written; earlier ones are kept.
        """
        tensors = {_TENSOR + name: value.cpu().contiguous() for name, value in snapshot.tensors.items()}
        tensors |= {_STEPS + name: column for name, column in _columns(snapshot.steps).items()}
        file = self._file(snapshot.round, "safetensors")
        content = save(tensors)
        write_bytes(file, content)
        record = {
            "format": FORMAT_VERSION,
            "identity": self.identity,
            "round": snapshot.round,
            "rounds": [list(row.items()) for row in snapshot.rounds],  # keeps the order of the columns
            "steps": len(snapshot.steps),
            "train_seconds": snapshot.train_seconds,
            "wall_seconds": snapshot.wall_seconds,
            "resumed_after": list(snapshot.resumed_after),
            "bytes": len(content),
            "sha256": sha256_of(file),
        }
        write_json(self._file(snapshot.round, "json"), sealed(record))
        self._good = [*(known for known in self._good if known != snapshot.round), snapshot.round][-KEEP:]
        self._remove_others()

    def latest(self) -> Snapshot | None:
        """The last intact checkpoint of this run; reports why each later one is refused."""
        for round_ in sorted(self._rounds(), reverse=True):
            try:
                found = self._read(round_)
            except DataError as problem:
                self._report(f"checkpoint refused: {problem}")
                continue
            self._good = [round_]
            return found
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
        if len(content) != record["bytes"] or sha256_of(file) != record["sha256"]:
            raise DataError(f"{file} is truncated or was changed (its size or sha256 differs).")
        try:
            tensors = load(content)
            steps = _rows({name: tensors[_STEPS + name] for name in STEP_COLUMNS})
        except (SafetensorError, KeyError) as error:
            raise DataError(f"{file} does not hold what {description.name} says ({error}).") from None
        state = {
            name.removeprefix(_TENSOR): tensor for name, tensor in tensors.items() if name.startswith(_TENSOR)
        }
        if len(steps) != record["steps"] or MODEL not in state:
            raise DataError(f"{file} does not hold what {description.name} says.")
        return Snapshot(
            round_,
            state,
            steps,
            [dict(row) for row in record["rounds"]],
            record["train_seconds"],
            record["wall_seconds"],
            tuple(record["resumed_after"]),
        )

    def _record(self, path: Path, round_: int) -> dict[str, Any]:
        try:
            record = json.loads(path.read_text())
            format_, identity = record["format"], dict(record["identity"])
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError(f"{path} is not the whole description of a checkpoint.") from None
        if format_ != FORMAT_VERSION:
            raise DataError(f"{path} has format {format_!r}, this version reads {FORMAT_VERSION}.")
        if not is_intact(record) or record["round"] != round_:
            raise DataError(f"{path} was changed after it was written.")
        differ = [key for key, value in self.identity.items() if identity.get(key) != value]
        if differ or identity.keys() != self.identity.keys():
            what = ", ".join(
                f"{key} {identity.get(key)!r} instead of {self.identity[key]!r}" for key in differ
            )
            raise DataError(f"{path} belongs to another run: {what or 'other facts are recorded'}.")
        return dict(record)


class Checkpoints:
    """When checkpoints are written: after every so many rounds, or minutes, whichever comes first."""

    def __init__(
        self,
        folder: CheckpointFolder,
        every_rounds: int,
        every_minutes: float,
        report: Callable[[str], None] = log.info,
    ) -> None:
        self.folder, self._report = folder, report
        self._every_rounds, self._every_seconds = every_rounds, 60.0 * every_minutes
        self._last_time, self._last_round = time.monotonic(), 0

    def due(self, round_: int) -> bool:
        """Whether one is to be written after ``round_``."""
        by_time = 0 < self._every_seconds <= time.monotonic() - self._last_time
        return by_time or (self._every_rounds > 0 and round_ % self._every_rounds == 0)

    def save(self, snapshot: Snapshot) -> bool:
        """Writes a checkpoint; if the disk cannot take it, reports that and lets the training go on."""
        self._last_time = time.monotonic()
        if snapshot.round == self._last_round:
            return True
        try:
            self.folder.save(snapshot)
        except (StorageError, OSError) as problem:
            self._report(f"no checkpoint after round {snapshot.round}: {problem}")
            return False
        self._last_round = snapshot.round
        return True

    def resume(self) -> Snapshot | None:
        """The snapshot to continue from; None to start anew."""
        found = self.folder.latest()
        if found is not None:
            self._last_round = found.round
            self._report(f"resumed after round {found.round}")
        return found


def _columns(rows: list[StepRow]) -> dict[str, Tensor]:
    columns = zip(*rows, strict=True) if rows else ((),) * len(STEP_COLUMNS)
    found = {}
    for name, column in zip(STEP_COLUMNS, columns, strict=True):
        whole = all(isinstance(value, int) for value in column)
        found[name] = torch.from_numpy(np.asarray(column, np.int64 if whole else np.float64))
    return found


def _rows(columns: Mapping[str, Tensor]) -> list[StepRow]:
    return list(zip(*(column.tolist() for column in columns.values()), strict=True))
