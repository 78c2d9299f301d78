"""docs/extending.md, carried out."""

import json
import re
from pathlib import Path

import pytest

from tutorials.follow import DOCS, follow

PAGE = DOCS / "extending.md"


@pytest.mark.long
@pytest.mark.workflow
def test_the_page_adds_an_algorithm_a_figure_a_model_and_a_key(tmp_path: Path) -> None:
    project = tmp_path / "project"
    follow(PAGE, project)
    manifests = [json.loads(path.read_text()) for path in project.glob("results/runs/*/manifest.json")]
    pooled = [each for each in manifests if each["config"]["model"]["name"] == "pooled_cnn"]
    assert len(pooled) == 2
    runs = {each["algorithm"]: each for each in manifests if each not in pooled}
    assert set(runs) == {"LocalItemDP", "AutoItemDP"}
    sound = {name: manifest["privacy"]["sound"]["item"]["epsilon"] for name, manifest in runs.items()}
    assert sound["AutoItemDP"] == sound["LocalItemDP"] and 3.9 < sound["AutoItemDP"] <= 4.0, "calibrated to 4"
    models = {(project / "results/runs" / run["run_id"] / "model.safetensors").read_bytes() for run in runs.values()}
    assert len(models) == 2, "normalised, not clipped"
    picture = project / "results/auto-item-time/figures/time_and_accuracy/time_and_accuracy.svg"
    assert "time of a run (s)" in picture.read_text()
    assert re.search(r"auto_item_dp", (project / "config/config.schema.json").read_text())
