"""``subjectdp reruns``: which finished runs an edit of the code makes Snakemake train again."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from subjectdp.config import RunConfig, Scenario, load_scenario
from subjectdp.config.fingerprint import fingerprint, training_stages
from subjectdp.errors import ConfigError
from subjectdp.places import CHECKOUT, LIBRARY

_Stages = tuple[str, ...]
_FINGERPRINT = Path("config") / "fingerprint.py"
_ASK = """
import json, sys
from subjectdp.config.fingerprint import fingerprint
def known(stages):
    try:
        return fingerprint(*stages)
    except Exception:  # the older code has no such stage
        return None
print(json.dumps([known(stages) for stages in json.load(sys.stdin)]))
"""


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "reruns",
        description="Compares the code with that of a commit and says how many runs of each scenario Snakemake would "
        "train again. Comments, docstrings, messages and log lines do not count.",
    )
    parser.add_argument("scenarios", nargs="*", metavar="FILE", help="default: all of config/scenarios")
    parser.add_argument("--since", default="HEAD", metavar="COMMIT", help="default: HEAD")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints a line for each scenario that is affected."""
    files = options.scenarios or sorted(map(str, (CHECKOUT / "config" / "scenarios").glob("*.yaml")))
    scenarios = [load_scenario(file) for file in files]
    stages = sorted({stage for scenario in scenarios for run in scenario.runs for stage in _stages(run)})
    before = fingerprints_at(options.since, stages)
    changed = {stage for stage, old in zip(stages, before, strict=True) if fingerprint(*stage) != old}
    lines = [line for scenario in scenarios if (line := _line(scenario, changed))]
    print(
        "\n".join(lines)
        if lines
        else f"Nothing is trained again: no such code changed since {options.since}."
    )
    return 0


def _line(scenario: Scenario, changed: set[_Stages]) -> str:
    again = sum(any(stage in changed for stage in _stages(run)) for run in scenario.runs)
    return f"{scenario.name}: retrains {again} of {len(scenario.runs)} runs" if again else ""


def _stages(run: RunConfig) -> list[_Stages]:
    """The rules that a run's result goes through, as the workflow fingerprints them."""
    dataset = run.data.dataset
    found = [
        ("script:train", *training_stages(run.algorithm.name, run.model.name)),
        ("script:partition", "partition"),
        ("script:prepare", f"prepare:{dataset}"),
    ]
    return [*found, (f"generate:{dataset}",)] if run.data.source == "embedded" else found


def fingerprints_at(commit: str, stages: list[_Stages]) -> list[str | None]:
    """The stages' fingerprints in the code of a commit; None for one that it does not have.

    Raises:
        ConfigError: no checkout, or no such commit.
    """
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "workflow"], cwd=CHECKOUT, capture_output=True, check=False
    )
    if packed.returncode != 0:
        reason = packed.stderr.decode(errors="replace").strip()
        raise ConfigError(f"Expected --since to be a commit of this checkout, got {commit!r}: {reason}.")
    with TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(folder, filter="data")
        library = Path(folder) / "workflow" / "lib"
        # Today's rules of what counts, for both.
        own = (LIBRARY / "subjectdp" / _FINGERPRINT).read_bytes()
        (library / "subjectdp" / _FINGERPRINT).write_bytes(own)
        asked = subprocess.run(
            [sys.executable, "-c", _ASK],
            input=json.dumps(stages),
            env={**os.environ, "PYTHONPATH": str(library)},
            capture_output=True,
            text=True,
            check=True,
        )
    return list(json.loads(asked.stdout))
