"""A real one-node Slurm for the tests of this folder; without one they are skipped, and the line says why."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from project_copy import copy_parts
from slurm.world import World

HERE = Path(__file__).parent
ASKED = "SUBJECTDP_SLURM_TESTS"
CANNOT = 3  # cluster_up.sh: this machine cannot do it


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Slurm is up while the tests run. Only where it was asked for: it takes root, ports and minutes."""
    if not os.environ.get(ASKED):
        pytest.skip(f"{ASKED} is not set; make slurm-test sets it")
    up = subprocess.run([HERE / "cluster_up.sh"], capture_output=True, text=True, timeout=480)
    if up.returncode == CANNOT:
        pytest.skip(up.stdout.strip().splitlines()[-1])
    assert up.returncode == 0, up.stdout + up.stderr
    try:
        yield
    finally:
        subprocess.run([HERE / "cluster_down.sh"], check=True, timeout=60)


@pytest.fixture(scope="session")
def world(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A copy of the project whose jobs run on that Slurm; the data of the small runs are shared by all tests."""
    return World(copy_parts(tmp_path_factory.mktemp("slurm") / "project"))


@pytest.fixture
def long_form() -> None:
    """For tests that CI leaves out: they run with ``SUBJECTDP_SLURM_TESTS=long``."""
    if os.environ.get(ASKED) != "long":
        pytest.skip(f"{ASKED}=long runs it")
