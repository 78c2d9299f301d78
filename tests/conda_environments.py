"""The whole conda environments, from the lock files: ``PYTHONPATH=tests python -m conda_environments`` writes them."""

import importlib.metadata
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "workflow" / "envs"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDED = [
    text
    for text in [*PROJECT["dependencies"], *EXTRAS["pipeline"], *EXTRAS["opacus"]]
    if not text.startswith("subjectdp[")
]
"""What the workflow imports: the core, [pipeline] and [opacus]."""

# Training nodes have no need of Snakemake, figures and downloads; of what Snakemake brings they read YAML.
_NOT_FOR_TRAINING = {"snakemake", "snakemake-executor-plugin-slurm", "seaborn", "requests"}
_FOR_TRAINING = {"pyyaml"}
_ABOUT = {
    "pipeline": "Everything the workflow needs.",
    "cuda": "Training nodes. The torch wheel for Linux on the public index carries CUDA and runs on CPUs as well.",
    "dev": "Development: the workflow's packages and the tools that check it.",
}


def pins(lock: str) -> dict[str, str]:
    """Package -> version of the exact pins in a lock file."""
    lines = [line.strip() for line in (ROOT / lock).read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", "-r "))]
    found = dict(line.split("==") for line in lines)
    assert len(found) == len(lines), "a package is pinned twice"
    return {canonicalize_name(name): version for name, version in found.items()}


def with_dependencies(names: set[str], locked: dict[str, str]) -> dict[str, str]:
    """The locked packages that these packages need, themselves included."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        for requirement in map(Requirement, importlib.metadata.requires(name) or []):
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            package = canonicalize_name(requirement.name)
            if needed and package in locked and package not in found:
                waiting.add(package)
    return {name: locked[name] for name in sorted(found)}


def packages(environment: str) -> dict[str, str]:
    """Package -> version of one environment, nothing left to the solver."""
    run, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    direct = {canonicalize_name(Requirement(text).name) for text in NEEDED}
    if environment == "dev":
        return {**run, **dev}
    if environment == "cuda":
        return with_dependencies(direct - _NOT_FOR_TRAINING | _FOR_TRAINING, run)
    return run


def text(environment: str) -> str:
    """The file of one environment."""
    name = "subjectdp" if environment == "pipeline" else f"subjectdp-{environment}"
    pinned = "".join(f"      - {package}=={version}\n" for package, version in packages(environment).items())
    return (
        f"# {_ABOUT[environment]} Every package to the version, as the lock files have it; written by\n"
        "# `PYTHONPATH=tests python -m conda_environments`.\n"
        f"name: {name}\nchannels:\n  - conda-forge\n  - nodefaults\n"
        f"dependencies:\n  - python=3.11\n  - pip\n  - pip:\n{pinned}"
    )


if __name__ == "__main__":
    for environment in _ABOUT:
        (FOLDER / f"{environment}.yaml").write_text(text(environment))
