"""A lock of a Snakemake that was killed is said in one line, with the remedy."""

import subprocess
import sys
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
    alive = [sys.executable, "-c", "print(flush=True); input()  # snakemake"]
    with subprocess.Popen(alive, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        _refuse_stale_lock(tmp_path)
        process.communicate("\n")
