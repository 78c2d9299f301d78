"""docs/data.md, carried out."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tutorials.follow import DOCS, follow

PAGE = DOCS / "data.md"
_REFUSED = """
import sys
from pathlib import Path
from subjectdp.data.digits_csv import load_upstream
from subjectdp.errors import DataError
try:
    load_upstream(Path(sys.argv[1]))
except DataError as problem:
    print(problem)
"""


@pytest.mark.long
@pytest.mark.workflow
def test_the_page_adds_a_data_set(tmp_path: Path) -> None:
    project = tmp_path / "project"
    follow(PAGE, project)
    (prepared,) = project.glob("results/data/digits-*/prepared")
    written = pd.read_csv(project / "data/digits.csv")
    features, labels = (np.load(prepared / f"{name}.npy") for name in ("features", "labels"))
    by_subject = written.sort_values("subject", kind="stable")
    assert labels.tolist() == by_subject["label"].tolist()
    assert (features.reshape(360, 784) == by_subject.iloc[:, 2:].to_numpy()).all()
    manifests = [json.loads(path.read_text()) for path in project.glob("results/runs/digits-*/manifest.json")]
    assert sorted(manifest["algorithm"] for manifest in manifests) == ["FedAvg", "LocalItemDP"]
    assert not any(manifest["synthetic"] for manifest in manifests)
    _damaged_lines_are_refused(project, written, tmp_path)


def _damaged_lines_are_refused(project: Path, written: pd.DataFrame, folder: Path) -> None:
    lines = written.head(3).to_csv(index=False).splitlines()
    for damaged in (lines[2] + ",7", "," + lines[2].partition(",")[2], lines[2].replace(",", ",x", 1)):
        (folder / "digits.csv").write_text("\n".join([*lines[:2], damaged, lines[3]]) + "\n")
        done = subprocess.run(
            [sys.executable, "-c", _REFUSED, str(folder)],
            env={"PYTHONPATH": str(project / "workflow" / "lib")},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "digits.csv, line 3: expected" in done.stdout
