"""``subjectdp plan --since`` on a repository of its own: what an edit retrains, and what it does not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from project_copy import copy_parts

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("git") is None, reason="no git here")]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = copy_parts(tmp_path_factory.mktemp("reruns") / "checkout")
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return root


def reruns(checkout: Path, commit: str = "HEAD") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "subjectdp", "plan", "config/scenarios/smoke.yaml", "--since", commit],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "workflow" / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("lib/subjectdp/algorithms/fed_avg.py", "ADDED = 1\n", "smoke: retrains 2 of 6 runs"),
        ("lib/subjectdp/data/shakespeare.py", "ADDED = 1\n", "smoke: retrains 3 of 6 runs"),
        ("scripts/train.py", "ADDED = 1\n", "smoke: retrains 6 of 6 runs"),
        ("scripts/train.py", "# a comment\n", "smoke: retrains 0 of 6 runs"),
    ],
)
def test_an_edit_is_told(checkout: Path, file: str, text: str, told: str) -> None:
    path = checkout / "workflow" / file
    before = path.read_text()
    path.write_text(f"{before}\n{text}")
    try:
        done = reruns(checkout)
    finally:
        path.write_text(before)
    assert done.returncode == 0 and told in done.stdout, done


def test_an_unknown_commit_is_refused(checkout: Path) -> None:
    done = reruns(checkout, "no-such-commit")
    assert done.returncode == 2 and "Expected --since to be a commit of this checkout" in done.stderr
