"""The environment of a run: device, versions, commit, memory."""

import hashlib
import os
import platform
import resource
import subprocess
from importlib import metadata
from typing import Any

import torch

from subjectdp.errors import expected
from subjectdp.places import CHECKOUT

PACKAGES = (
    *("torch", "opacus", "dp-accounting", "numpy", "pandas", "pyarrow", "snakemake", "pillow", "scipy", "numba"),
)
_NO_DEVICES = ("", "-1", "NoDevFiles")  # of CUDA_VISIBLE_DEVICES

ANY_DEVICE = "SUBJECTDP_ANY_DEVICE"
"""Environment variable that lets a job with a GPU that CUDA does not find train on the CPU."""


def choose_device(name: str) -> torch.device:
    """The device of a run: ``auto`` is the first CUDA device, or else the CPU.

    Raises:
        ConfigError: a device that this machine does not have; ``auto`` where Slurm gave the job a GPU and CUDA finds
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


def describe(device: torch.device, threads: int) -> dict[str, Any]:
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
