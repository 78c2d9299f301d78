"""A job whose error no retry mends is tried once; another as often as the profile says."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


def test_what_would_fail_again_is_tried_once(tmp_path: Path, make_project) -> None:
    project = make_project(tmp_path / "project")
    wanted = ("--configfile", "config/scenarios/smoke.yaml", "--retries", "2")
    project.snakemake(*wanted, "--until", "partition")
    labels = next(project.root.glob("results/data/femnist-*/prepared/labels.npy"))
    content = labels.read_bytes()
    labels.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    train = project.root / "workflow" / "scripts" / "train.py"
    text = train.read_text()
    failed = project.snakemake(*wanted, "--keep-going", "--rerun-triggers", "mtime", check=False).stdout
    assert len(re.findall("^error: .*labels.npy is truncated or was changed", failed, re.MULTILINE)) >= 3
    assert "Trying to restart" not in failed
    train.write_text(text.replace("with job_log", "raise SystemExit(1)\nwith job_log"))
    crashed = project.snakemake(*wanted, "--keep-going", "--rerun-triggers", "mtime", check=False).stdout
    assert crashed.count("Trying to restart") == 2 * 3  # of the three runs on that data
