"""Lock, conda environments and pyproject name the same packages and versions; make passes on what it is told."""

import importlib.metadata
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import conda_environments
from conda_environments import EXTRAS, NEEDED, PROJECT, pins

ROOT = Path(__file__).parents[2]
RUN, DEV = pins("requirements.lock"), pins("requirements-dev.lock")


def test_locks_do_not_overlap_and_the_second_builds_on_the_first():
    assert not set(RUN) & set(DEV)
    assert "-r requirements.lock" in (ROOT / "requirements-dev.lock").read_text().splitlines()


@pytest.mark.parametrize(("requirements", "lock"), [(NEEDED, RUN), (EXTRAS["dev"], DEV)], ids=["run", "dev"])
def test_lock_satisfies_pyproject(requirements, lock):
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in lock, f"{name} is not locked"
        assert requirement.specifier.contains(lock[name]), f"{requirement} against {lock[name]}"
        for extra in requirement.extras:
            brought = map(Requirement, importlib.metadata.requires(name) or [])
            wanted = {
                each.name for each in brought if each.marker is not None and each.marker.evaluate({"extra": extra})
            }
            assert wanted <= set(RUN), f"{requirement} brings {sorted(wanted - set(RUN))}"


def brought(package):
    """What a package requires, but for the libraries of a CUDA build of torch, which that build chooses."""
    found = importlib.metadata.requires(package) or []
    return [Requirement(text) for text in found if package != "torch" or "platform_system" not in text]


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_is_closed_under_dependencies(python):
    """No run-time package brings one that is not pinned, with any Python: pip never has to choose."""
    place = {"extra": "", "python_version": python, "python_full_version": f"{python}.0"}
    for name in RUN:
        for requirement in brought(name):
            if requirement.marker is None or requirement.marker.evaluate(place):
                assert canonicalize_name(requirement.name) in RUN, f"{name} brings {requirement}"


def test_every_python_that_is_promised_is_one_that_make_takes():
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert named == ["3.11", "3.12", "3.13"]
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "Makefile").read_text()


def test_what_is_installed_is_what_is_locked():
    for name, version in {**RUN, **DEV}.items():
        installed = Version(importlib.metadata.version(name))
        assert installed.public == version, f"{name} {installed} is installed, {version} is locked"


@pytest.mark.parametrize("name", ["pipeline", "cuda", "dev"])
def test_conda_environments_pin_every_package_to_the_locked_version(name):
    file = ROOT / "envs" / f"{name}.yaml"
    assert file.read_text() == conda_environments.text(name), "run `python -m conda_environments`"
    content = yaml.safe_load(file.read_text())
    (section,) = [part["pip"] for part in content["dependencies"] if isinstance(part, dict)]
    listed = {canonicalize_name(line.partition("==")[0]) for line in section}
    expected = {"pipeline": set(RUN), "dev": {*RUN, *DEV}}.get(name, listed)
    assert listed == expected and {"torch", "opacus", "dp-accounting", "pyyaml", "numpy"} <= listed
    for package in listed & set(RUN):
        for requirement in brought(package):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert canonicalize_name(requirement.name) in listed, f"{package} brings {requirement}"


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("arguments", ["", "--config x=1", "-n -q", "--unlock"])
def test_make_passes_arguments_on_to_the_command(arguments):
    command = ["make", "--dry-run", "--no-print-directory", "smoke", f"ARGS={arguments}"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in printed.splitlines() if "/subjectdp run " in line]
    assert "config/scenarios/smoke.yaml" in line and line.partition(" -- ")[2].strip() == arguments
