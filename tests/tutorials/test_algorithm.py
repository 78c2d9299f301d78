"""docs/extending.md, carried out."""

import json
import re
from pathlib import Path

import pytest

from tutorials.follow import DOCS, follow

PAGE = DOCS / "extending.md"


@pytest.mark.long
@pytest.mark.workflow
def test_the_page_adds_an_algorithm(tmp_path: Path) -> None:
    project = tmp_path / "project"
    follow(PAGE, project)
    runs = {
        manifest["algorithm"]: manifest
        for manifest in map(json.loads, (p.read_text() for p in project.glob("results/runs/*/manifest.json")))
    }
    assert set(runs) == {"LocalItemDP", "CentralItemDP"}
    sound = {name: manifest["privacy"]["sound"]["item"] for name, manifest in runs.items()}
    for name, record in sound.items():
        assert 3.9 < record["epsilon"] <= 4.0, f"{name} was calibrated to 4"
    assert sound["CentralItemDP"]["trust"] == "central"
    picture = project / "results/central-item/figures/figure1_v3/figure1_v3.svg"
    assert "#8c6d1f" in picture.read_text().lower(), "drawn in its colour"
    assert re.search(r"central_item_dp", (project / "config/config.schema.json").read_text())
