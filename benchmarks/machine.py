"""The machine that a ratio was measured on, and its load."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("torch", "opacus", "dp-accounting", "snakemake")
_CPUINFO = Path("/proc/cpuinfo")


def describe() -> dict[str, Any]:
    """Processor, cores, operating system, Python, and the versions of the packages that are measured."""
    return {
        "processor": processor(),
        "cores": os.cpu_count() or 1,
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in _PACKAGES},
    }


def line() -> str:
    """The machine and its current load in one line."""
    about = describe()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return f"{about['processor']}, {about['cores']} cores, load {load():.1f}; Python {about['python']}, {versions}"


def processor() -> str:
    """The processor's name."""
    lines = _CPUINFO.read_text().splitlines() if _CPUINFO.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def glibc() -> bool:
    """Whether malloc is glibc's, the only one with the tuned settings."""
    return platform.libc_ver()[0] == "glibc"


def load() -> float:
    """Load average of the last minute, 0 if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
