"""The machine line: what a ratio was measured on, and how loaded it was."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_PEERS = ("torch", "opacus", "dp-accounting", "jax", "snakemake")


@dataclass(frozen=True)
class Machine:
    """Processor, operating system and versions.

    Attributes:
        versions: package -> version of those that are installed.
    """

    processor: str
    cores: int
    system: str
    python: str
    versions: dict[str, str]

    def line(self) -> str:
        """One line for people, with the load of this moment."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return f"{self.processor}, {self.cores} cores, load {load():.1f}; Python {self.python}, {versions}"


def describe() -> Machine:
    """This machine."""
    return Machine(
        processor=_processor(),
        cores=os.cpu_count() or 1,
        system=platform.platform(),
        python=platform.python_version(),
        versions={name: version for name in _PEERS if (version := _version(name)) is not None},
    )


def glibc() -> bool:
    """Whether malloc is glibc's, the only one that the tuned settings mean something to."""
    return platform.libc_ver()[0] == "glibc"


def load() -> float:
    """The load average of the last minute, 0 where the system tells none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
