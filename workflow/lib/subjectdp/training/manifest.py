"""A run's identity, known before it starts, and its manifest, written when it is done."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subjectdp.algorithms.registry import label
from subjectdp.config.fingerprint import fingerprint, training_stages
from subjectdp.io.atomic import is_intact, sealed, sha256_of, write_bytes
from subjectdp.io.printing import strict
from subjectdp.places import FINISHED
from subjectdp.training import environment
from subjectdp.training.build import RunInputs
from subjectdp.training.federation import noise_name
from subjectdp.training.records import Snapshot

MANIFEST = "manifest.json"
RESULT_FILES = ("rounds.parquet", "steps.parquet", "model.safetensors")


def identity(inputs: RunInputs, device: torch.device) -> dict[str, str]:
    """What must be the same for one process to continue where another one stopped.

    Of the section ``performance`` the name of the noise holds what changes how sums are rounded. The kind of device is
    a part too: noise is drawn on it. The code's fingerprint is of the files as they are now, before training.
    """
    run = inputs.run
    return {
        "run_id": run.run_id,
        "config": _digest(run.model_dump(mode="json", exclude={"performance"})),
        "plan": _digest(inputs.plan.to_dict()),
        "data": _digest(inputs.prepared.meta["sha256"]),
        "partition": _digest(inputs.partition.facts),
        "code": fingerprint(*training_stages(run.algorithm.name, run.model.name)),
        "noise": noise_name(inputs.plan, run.run_id, inputs.partition, run.model.name, run.performance),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device.type,
    }


def manifest(
    inputs: RunInputs,
    privacy: dict[str, Any],
    identity: Mapping[str, str],
    device: torch.device,
    reached: Snapshot,
    folder: Path,
) -> dict[str, Any]:
    """Everything that is known of a finished run, with the hashes of the files in ``folder`` and its own seal.

    ``privacy`` holds the statements of the plan, ``reached`` is the run after its last round.
    """
    run, plan, prepared = inputs.run, inputs.plan, inputs.prepared
    content = {
        "run_id": run.run_id,
        "algorithm": label(run.algorithm.name, run.algorithm.variant),
        "config": run.model_dump(mode="json"),
        "synthetic": prepared.synthetic,
        "plan": plan.to_dict(),
        "privacy": privacy,
        "partition": inputs.partition.facts,
        "data": {"sha256": prepared.meta["sha256"], "inputs": prepared.meta.get("inputs", [])},
        "identity": dict(identity),
        "code_fingerprint": identity["code"],
        "files": {name: _file(folder / name) for name in RESULT_FILES},
        "environment": environment.describe(device, run.performance.threads),
        "rounds_executed": plan.rounds,
        "resumed_after_rounds": list(reached.resumed_after),
        "final": strict({key: value for key, value in reached.rounds[-1].items() if key != "run_id"}),
        "most_frequent_class": prepared.most_frequent_share(inputs.partition.test_items),
        "wall_seconds": round(reached.wall_seconds, 3),
        "peak_memory_mb": round(environment.peak_memory_mb(device), 1),
    }
    return sealed(content)


def is_complete(folder: Path, identity: Mapping[str, str], name: str = MANIFEST) -> bool:
    """Whether ``folder`` holds all results of the run with this identity, unchanged since they were written.

    ``name`` is the file with their hashes: the manifest, or its copy.
    """
    try:
        record = json.loads((folder / name).read_text())
        files = {name: _file(folder / name) for name in RESULT_FILES}
        return bool(is_intact(record) and record["identity"] == dict(identity) and record["files"] == files)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def take_back_finished(folder: Path, identity: Mapping[str, str]) -> bool:
    """Restores the manifest if an earlier attempt of the job finished the run with this identity; returns whether.

    With other code, data or settings, or changed results, the copy is not used, and the run trains again.
    """
    if not is_complete(folder, identity, FINISHED):
        return False
    write_bytes(folder / MANIFEST, (folder / FINISHED).read_bytes())
    return True


def _file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
