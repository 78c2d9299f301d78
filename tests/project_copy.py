"""Snakemake on a copy of the project, so that no test touches the working tree's results or locks."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("Snakefile", "workflow", "config", "envs", "requirements.lock", "slurm", "profiles")


def copy_parts(target: Path) -> Path:
    """Copies what a run needs (no results, no environment) into the new folder ``target``."""
    target.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target / part, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        elif source.exists():
            shutil.copy2(source, target / part, follow_symlinks=False)
    return target
