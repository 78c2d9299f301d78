"""A run's device and identity, known before it starts, and its manifest, written when it is done."""

import hashlib
import json
import os
import platform
import resource
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from subjectdp.algorithms.registry import label
from subjectdp.config.fingerprint import fingerprint, training_stages
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import read_sealed, sealed, sha256_of, write_bytes
from subjectdp.io.printing import strict
from subjectdp.places import CHECKOUT, FINISHED
from subjectdp.training.federation import RunInputs, noise_name
from subjectdp.training.records import Snapshot

PACKAGES = ["torch", "opacus", "dp-accounting", "numpy", "pandas", "pyarrow", "snakemake", "pillow", "scipy", "numba"]
_NO_DEVICES = ("", "-1", "NoDevFiles")  # of CUDA_VISIBLE_DEVICES

ANY_DEVICE = "SUBJECTDP_ANY_DEVICE"
"""Environment variable that lets a job with a GPU that CUDA does not find train on the CPU."""


def choose_device(name: str) -> torch.device:
    """The device of a run: ``auto`` is the first CUDA device, or else the CPU.

    Raises ConfigError for a device that this machine lacks, and for ``auto`` where Slurm gave a GPU and CUDA finds
    none.
    """
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto" and there == 0:
        _check_none_given()
    if name == "cpu" or (name == "auto" and there == 0):
        return torch.device("cpu")
    wanted = torch.device("cuda" if name == "auto" else name)
    index = 0 if wanted.index is None else wanted.index
    if wanted.type != "cuda" or index >= there:
        raise expected("performance.device", name, f"auto, cpu or a device of this machine ({_cuda_there(there)})")
    return torch.device("cuda", index)


def _check_none_given() -> None:
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if "SLURM_JOB_ID" in os.environ and given not in _NO_DEVICES and ANY_DEVICE not in os.environ:
        raise expected(
            "performance.device",
            "auto",
            f"cpu, since Slurm gave this job GPU {given} and {_cuda_there(0)}: mend the driver or the build of torch, "
            f"ask for no GPU (SUBJECTDP_SLURM_GPU=none), or set {ANY_DEVICE}=1",
        )


def _cuda_there(count: int) -> str:
    if count:
        return ", ".join(f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(count))
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return f"torch is built for CUDA {torch.version.cuda} and finds no device"


def synchronise(device: torch.device) -> None:
    """Waits until a GPU has finished its queued work, so that timings include it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_mb(device: torch.device) -> float:
    """Peak resident memory of this process, or peak allocated memory of the GPU, in MB."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def environment_of(device: torch.device, threads: int) -> dict[str, Any]:
    """What the manifest says about the machine and the software."""
    lock = CHECKOUT / "requirements.lock"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {
        "device": str(device),
        "device_name": name,
        "threads": threads,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "slurm_job": os.environ.get("SLURM_JOB_ID"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git_commit": _git_commit(),
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else None,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        # In its own session: a Ctrl-C in the terminal must not end git before it has told the commit.
        options: dict[str, Any] = {"timeout": 20, "env": environment, "start_new_session": True}
        told: str = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, **options)
        return told.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


MANIFEST = "manifest.json"
RESULT_FILES = ("rounds.parquet", "steps.parquet", "model.safetensors")


def identity(inputs: RunInputs, device: torch.device) -> dict[str, str]:
    """What must be the same for one process to continue where another one stopped.

    The name of the noise holds what of ``performance`` changes how sums are rounded. Noise is drawn on the kind of
    device. The code's fingerprint is of the files before training.
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
    """All that is known of a finished run (its statements, its last state), hashes of its files, and its own seal."""
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
        "environment": environment_of(device, run.performance.threads),
        "rounds_executed": plan.rounds,
        "resumed_after_rounds": list(reached.resumed_after),
        "final": strict({key: value for key, value in reached.rounds[-1].items() if key != "run_id"}),
        "most_frequent_class": prepared.most_frequent_share(inputs.partition.test_items),
        "wall_seconds": round(reached.wall_seconds, 3),
        "peak_memory_mb": round(peak_memory_mb(device), 1),
    }
    return sealed(content)


def is_complete(folder: Path, identity: Mapping[str, str], name: str = MANIFEST) -> bool:
    """Whether a folder holds all results of that run, unchanged by the hashes in ``name``: manifest, or its copy."""
    try:
        record = read_sealed(folder / name)
        files = {file: _file(folder / file) for file in RESULT_FILES}
    except (OSError, DataError):
        return False
    return bool(record["identity"] == dict(identity) and record["files"] == files)


def take_back_finished(folder: Path, identity: Mapping[str, str]) -> bool:
    """Restores the manifest if an earlier attempt of the job finished this very run, unchanged; returns whether."""
    if not is_complete(folder, identity, FINISHED):
        return False
    write_bytes(folder / MANIFEST, (folder / FINISHED).read_bytes())
    return True


def _file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
