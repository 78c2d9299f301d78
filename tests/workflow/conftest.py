"""Runs Snakemake on a copy of the project, so that no test touches the working tree's results or locks."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dry_runs import dry_run, is_dry
from project_copy import copy_parts


@dataclass(frozen=True)
class Project:
    """A copy of the project in a folder of its own."""

    root: Path

    def snakemake(self, *arguments: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs snakemake there with two cores; its output, both streams together, is in ``stdout``."""
        if is_dry(arguments):
            done = dry_run(self.root, arguments, {**self._environment, **environment})
        else:
            done = self.process(*arguments, **environment)
        if check and done.returncode != 0:
            logs = [f"{path}:\n{path.read_text()[-2000:]}" for path in sorted(self.root.glob("results/logs/*/*.log"))]
            pytest.fail(
                f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-6000:]}\n" + "\n".join(logs[-3:])
            )
        return done

    def process(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """As :meth:`snakemake`, always in a process of its own and whatever its exit status."""
        python = _environment_of(self.root) / os.path.relpath(sys.executable, sys.prefix)
        return subprocess.run(
            [python, "-m", "snakemake", "--cores", "2", "--nocolor", *arguments],
            cwd=self.root,
            env={**os.environ, **self._environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=1800,
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(self.root / ".cache")}


def _environment_of(root: Path) -> Path:
    """The path of the environment has spaces, as a person's folders may have."""
    return root.parent / f"environment of {root.name}"


def copy_project(target: Path) -> Project:
    """Copies what a run needs (no results, no environment) into the new folder ``target``."""
    _environment_of(target).symlink_to(sys.prefix)
    return Project(copy_parts(target))


@pytest.fixture(scope="session")
def make_project() -> Callable[[Path], Project]:
    """Copies the project into a new folder."""
    return copy_project


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A copy for dry runs: nothing has been run in it, and nothing is."""
    return copy_project(tmp_path_factory.mktemp("dry") / "project")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that take a copy of the project: they run Snakemake."""
    for item in items:
        if {"project", "make_project"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.workflow)
