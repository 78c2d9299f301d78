"""A silo's durable ledger: which runs and rounds have been released about its people.

A file for each run, written before the first number of a round leaves the silo, under a temporary name, synced and
renamed: a process that is killed at any moment finds the rounds that it may have released. The newest release is kept,
so that a server that did not receive it gets the same bits again, which tell nothing new. A damaged file stops all.
``subjectdp ledger`` and ``subjectdp statement`` read the files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from subjectdp.accounting.ledger import LedgerEntry
from subjectdp.accounting.plan_run import plan_from_dict
from subjectdp.errors import PrivacyError, StorageError
from subjectdp.io.atomic import is_intact, sealed, write_bytes, write_json
from subjectdp.plan.plan import NoiseSource, PrivacyPlan

_KEPT = ".release"


@dataclass(frozen=True)
class RunRecord:
    """One run in the ledger: its plan, and the rounds of it that may have left the silo, with what was asked."""

    name: str
    digest: str  # of the proposal
    plan: PrivacyPlan
    data: str  # sha256 of the silo's file
    seed: int
    rounds: Mapping[int, str] = field(default_factory=dict)  # round -> digest of the request
    kept: int = 0  # the newest round whose release was made and kept

    @property
    def entry(self) -> LedgerEntry:
        """What composes with other runs."""
        shared = self.plan.settings.noise_source is NoiseSource.REPRODUCIBLE
        return LedgerEntry(self.name, self.plan, f"seed {self.seed}" if shared else self.digest, self.digest)


class Budget:
    """The ledger in a folder that one process holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def records(self) -> dict[str, RunRecord]:
        """All runs by digest; PrivacyError where a file is damaged: what it says is then not known."""
        return {record.digest: record for record in map(_read, sorted(self.folder.glob("*.json")))}

    def write(self, record: RunRecord, more: Mapping[str, Any]) -> None:
        """Keeps a run's record; ``more`` is for its readers. Raises StorageError."""
        content = {
            "run_id": record.name,
            "digest": record.digest,
            "plan": record.plan.to_dict(),
            "data": record.data,
            "seed": record.seed,
            "rounds": {str(round_): request for round_, request in record.rounds.items()},
            "kept": record.kept,
            **more,
        }
        try:
            write_json(self.folder / f"{record.name}-{record.digest[:12]}.json", sealed(content))
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be written: {error.strerror}.") from None

    def keep_release(self, record: RunRecord, round_: int, content: bytes) -> None:
        """Keeps what is about to be released in a round, in place of the round before."""
        kept = self._release(record, round_)
        write_bytes(kept, content)
        for other in self.folder.glob(f"{record.digest}-*{_KEPT}"):
            if other != kept:
                other.unlink(missing_ok=True)

    def kept_release(self, record: RunRecord, round_: int) -> bytes | None:
        """What the newest round, ``round_``, released; None where nothing of it has left the silo.

        Raises PrivacyError where the file is gone: the round is not made anew.
        """
        kept = self._release(record, round_)
        if kept.is_file():
            return kept.read_bytes()
        if record.kept == round_:
            raise PrivacyError(f"Round {round_} was released and {kept} is gone: it is not made anew.")
        return None

    def _release(self, record: RunRecord, round_: int) -> Path:
        return self.folder / f"{record.digest}-{round_:07d}{_KEPT}"


def _read(path: Path) -> RunRecord:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not is_intact(content):
            raise ValueError("its seal does not fit")
        rounds = {int(round_): str(request) for round_, request in content["rounds"].items()}
        name, digest, data = (str(content[key]) for key in ("run_id", "digest", "data"))
        plan = plan_from_dict(content["plan"])
        return RunRecord(name, digest, plan, data, int(content["seed"]), rounds, int(content["kept"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise PrivacyError(f"The ledger file {path} is damaged ({problem}): nothing is released.") from None
