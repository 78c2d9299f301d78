"""All faults, in the order of the table that the suite prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from faults import download_faults as download
from faults import training_faults as training
from faults.workspace import Workspace

TRIALS = 3


@dataclass(frozen=True)
class Fault:
    """One thing that breaks; ``inject`` breaks it, recovers, and says what it saw (see ``training_faults``)."""

    name: str
    inject: Callable[[Workspace, int, dict[str, Any]], str]
    mounts: bool = False  # needs a mount namespace of its own


FAULTS = (
    Fault("SIGKILL of Snakemake", training.snakemake_killed),
    Fault("SIGKILL of a job", training.job_killed),
    Fault("an orphan beside its replacement", training.orphan_and_replacement),
    Fault("disk full", training.disk_full, mounts=True),
    Fault("truncated download", download.truncated_download),
    Fault("wrong hash", download.wrong_hash),
    Fault("HTML as data", download.page_as_data),
    Fault("read-only results", training.read_only_results, mounts=True),
    Fault("corrupt checkpoint", training.corrupt_checkpoint),
    Fault("corrupt prepared data", training.corrupt_prepared_data),
    Fault("offline", download.offline),
    Fault("dead first mirror", download.dead_first_mirror),
)
