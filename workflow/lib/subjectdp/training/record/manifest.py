"""A run's identity, known before it starts, and its manifest, written when it is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from subjectdp.algorithms.registry import label
from subjectdp.config.paths import FINISHED
from subjectdp.errors import DataError
from subjectdp.io.atomic import sha256_of, write_bytes
from subjectdp.io.checksummed_json import is_intact, sealed
from subjectdp.training.record import environment

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import Partition
    from subjectdp.data.store import PreparedData
    from subjectdp.plan.plan import PrivacyPlan
    from subjectdp.training.record.records import Recorder

MANIFEST = "manifest.json"
RESULT_FILES = ("rounds.parquet", "steps.parquet", "model.safetensors")


def identity(
    run: RunConfig, plan: PrivacyPlan, prepared: PreparedData, partition: Partition, device: torch.device
) -> dict[str, str]:
    """What must be the same for one process to go on where another one stopped.

    The section ``performance`` is no part of it (a run may go on with smaller physical batches), but the kind of device
    is: noise is drawn on it. The code's fingerprint is of the files as they are now, before training.
    """
    from subjectdp.config.fingerprint import fingerprint

    return {
        "run_id": run.run_id,
        "config": _digest(run.model_dump(mode="json", exclude={"performance"})),
        "plan": _digest(plan.to_dict()),
        "data": _digest(prepared.meta["sha256"]),
        "partition": _digest(partition.facts),
        "code": fingerprint(f"train:{run.algorithm.name}"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device.type,
    }


def manifest(
    run: RunConfig,
    plan: PrivacyPlan,
    privacy: dict[str, Any],
    prepared: PreparedData,
    partition: Partition,
    recorder: Recorder,
    device: torch.device,
    identity: Mapping[str, str],
    folder: Path,
    seconds: float,
    resumed_after: tuple[int, ...],
) -> dict[str, Any]:
    """Everything that is known of a finished run, with the hashes of the files in ``folder`` and a seal of its own."""
    content = {
        "run_id": run.run_id,
        "algorithm": label(run.algorithm.name, run.algorithm.variant),
        "config": run.model_dump(mode="json"),
        "synthetic": prepared.synthetic,
        "plan": plan.to_dict(),
        "privacy": privacy,
        "partition": partition.facts,
        "data": {"sha256": prepared.meta["sha256"], "inputs": prepared.meta.get("inputs", [])},
        "identity": dict(identity),
        "code_fingerprint": identity["code"],
        "files": {name: _file(folder / name) for name in RESULT_FILES},
        "environment": environment.describe(device, run.performance.threads),
        "rounds_executed": plan.rounds,
        "resumed_after_rounds": list(resumed_after),
        "final": recorder.final(),
        "wall_seconds": round(seconds, 3),
        "peak_memory_mb": round(environment.peak_memory_mb(device), 1),
    }
    return sealed(content)


def is_complete(folder: Path, identity: Mapping[str, str], name: str = MANIFEST) -> bool:
    """Whether ``folder`` holds all results of the run with this identity, unchanged since they were written.

    ``name`` is the file that says what they were: the manifest, or its copy.
    """
    try:
        found = json.loads((folder / name).read_text())
        files = {name: _file(folder / name) for name in RESULT_FILES}
        return bool(is_intact(found) and found["identity"] == dict(identity) and found["files"] == files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def keep_finished(folder: Path) -> None:
    """Copies the manifest of a finished run to where Snakemake does not know of it (:data:`paths.FINISHED`)."""
    write_bytes(folder / FINISHED, (folder / MANIFEST).read_bytes())


def take_back_finished(folder: Path, identity: Mapping[str, str]) -> bool:
    """Whether the run with this identity was finished by an earlier attempt of its job; its manifest is back then.

    A copy of anything else (other code, data or settings, changed results) is not taken, and the run trains anew.
    """
    if not is_complete(folder, identity, FINISHED):
        return False
    write_bytes(folder / MANIFEST, (folder / FINISHED).read_bytes())
    return True


def check_match(prepared: PreparedData, partition: Partition) -> None:
    """DataError if the partition was made from other prepared data than these."""
    if partition.data_hashes != prepared.meta["sha256"]:
        raise DataError(
            f"The partition was made from other data than {prepared.folder} holds: make the partition again."
        )


def _file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
