"""Snakemake on a copy of the project, so that no test touches the working tree's results or locks."""

import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = (".gitignore", ".test", "Snakefile", "workflow", "config", "envs", "requirements.lock", "slurm", "profiles")


def copy_parts(target: Path) -> Path:
    """Copies what a run needs (no results, no environment) into the new folder ``target``.

    Byte code and compiled loops come along, with the times of their sources: no process has to make them again.
    """
    target.mkdir(parents=True)
    for part in PARTS:
        source = ROOT / part
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(
                source, target / part, symlinks=True, ignore=shutil.ignore_patterns("*.egg-info", "node_modules")
            )
        elif source.exists():
            shutil.copy2(source, target / part, follow_symlinks=False)
    return target
