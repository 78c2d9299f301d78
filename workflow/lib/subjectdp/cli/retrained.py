"""Which runs an edit of the code makes Snakemake train again."""

import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from subjectdp.config import RunConfig, Scenario
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


def retrained(scenario: Scenario, commit: str) -> int:
    """Number of the scenario's runs whose code is not that of ``commit``; comments and messages do not count.

    Raises:
        ConfigError: no checkout, or no such commit.
    """
    stages = sorted({stage for run in scenario.runs for stage in _stages(run)})
    before = _fingerprints_at(commit, stages)
    changed = {stage for stage, old in zip(stages, before, strict=True) if fingerprint(*stage) != old}
    return sum(not changed.isdisjoint(_stages(run)) for run in scenario.runs)


def _stages(run: RunConfig) -> list[_Stages]:
    """The rules that a run's result goes through, as the workflow fingerprints them."""
    dataset = run.data.dataset
    found = [
        ("script:train", *training_stages(run.algorithm.name, run.model.name)),
        ("script:partition", "partition"),
        ("script:prepare", f"prepare:{dataset}"),
    ]
    return [*found, (f"generate:{dataset}",)] if run.data.source == "embedded" else found


def _fingerprints_at(commit: str, stages: list[_Stages]) -> list[str | None]:
    """The stages' fingerprints in the code of a commit; None for one that it does not have."""
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
        own = (LIBRARY / "subjectdp" / _FINGERPRINT).read_bytes()  # today's rules of what counts, for both
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
