"""Lock, conda environments and pyproject name the same packages and versions; make passes on what it is told."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pins(lock: str) -> dict[str, str]:
    """Package -> version of the exact pins in a lock file."""
    lines = [line.strip() for line in (ROOT / lock).read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", "-r "))]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines), "a package is pinned twice"
    return {canonicalize_name(name): version for name, version in found.items()}


RUN, DEV = pins("requirements.lock"), pins("requirements-dev.lock")


def environment(name: str) -> dict[str, str]:
    """Package -> version of a conda environment's pip section."""
    content = yaml.safe_load((ROOT / "envs" / f"{name}.yaml").read_text())
    assert "python=3.11" in content["dependencies"]
    (section,) = [part["pip"] for part in content["dependencies"] if isinstance(part, dict)]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in section)}


def test_locks_do_not_overlap_and_the_second_builds_on_the_first():
    assert not set(RUN) & set(DEV)
    assert "-r requirements.lock" in (ROOT / "requirements-dev.lock").read_text().splitlines()


@pytest.mark.parametrize(
    ("requirements", "lock"),
    [(PROJECT["dependencies"], RUN), (PROJECT["optional-dependencies"]["dev"], DEV)],
    ids=["run", "dev"],
)
def test_lock_satisfies_pyproject(requirements, lock):
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in lock, f"{name} is not locked"
        assert requirement.specifier.contains(lock[name]), f"{requirement} against {lock[name]}"


def test_the_lock_is_closed_under_dependencies():
    """No run-time package brings one that is not pinned: pip never has to choose."""
    for name in RUN:
        for text in importlib.metadata.requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in RUN, f"{name} brings {requirement}"


def test_what_is_installed_is_what_is_locked():
    for name, version in {**RUN, **DEV}.items():
        installed = Version(importlib.metadata.version(name))
        assert installed.public == version, f"{name} {installed} is installed, {version} is locked"


def test_conda_environments_carry_the_locked_versions():
    direct = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    dev = {canonicalize_name(Requirement(text).name) for text in PROJECT["optional-dependencies"]["dev"]}
    assert environment("pipeline") == {name: RUN[name] for name in direct}
    assert environment("dev") == {name: {**RUN, **DEV}[name] for name in direct | dev}
    cuda = environment("cuda")
    assert {"torch", "opacus", "dp-accounting"} <= set(cuda) <= direct
    assert cuda == {name: RUN[name] for name in cuda}


def test_no_file_names_a_package_index():
    for path in ("requirements.lock", "requirements-dev.lock", "Makefile", ".ci/run", "pyproject.toml"):
        assert not re.search(r"index-url|find-links|trusted-host", (ROOT / path).read_text()), path


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("arguments", ["", "--config x=1", "-n -q", "--unlock"])
def test_make_passes_arguments_on_to_the_command(arguments):
    command = ["make", "--dry-run", "--no-print-directory", "smoke", f"ARGS={arguments}"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in printed.splitlines() if "/subjectdp run " in line]
    assert "config/scenarios/smoke.yaml" in line and line.partition(" -- ")[2].strip() == arguments
