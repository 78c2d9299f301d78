"""A lock of a Snakemake that was killed is said in one line, with the remedy."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from subjectdp.cli.run import _refuse_stale_lock
from subjectdp.errors import ConfigError


def test_a_lock_without_a_snakemake_is_refused_with_the_remedy(tmp_path: Path) -> None:
    _refuse_stale_lock(tmp_path)
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    _refuse_stale_lock(tmp_path)
    (locks / "0.input.lock").touch()
    with pytest.raises(ConfigError, match="snakemake --unlock, then the same command goes on"):
        _refuse_stale_lock(tmp_path)
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    job = _started([*waiting, f"{tmp_path}/.snakemake/scripts/tmp1.train.py"], tmp_path)  # outlives a killed Snakemake
    with job, pytest.raises(ConfigError, match="snakemake --unlock"):
        _refuse_stale_lock(tmp_path)
    with _started([*waiting, "-m", "snakemake"], tmp_path):
        _refuse_stale_lock(tmp_path)


@contextmanager
def _started(command: list[str], folder: Path) -> Iterator[None]:
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate("\n")
