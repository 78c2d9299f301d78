"""Results of a few runs."""

import json
from pathlib import Path

import pytest

from cli.commands import SMOKE
from subjectdp.config import load_scenario


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two finished runs of the smoke scenario, one that was started, and one from elsewhere."""
    runs = load_scenario(SMOKE).runs
    for number, config in enumerate((runs[0], runs[1])):
        folder = tmp_path / "runs" / config.run_id
        folder.mkdir(parents=True)
        manifest = {
            "run_id": config.run_id,
            "algorithm": config.algorithm.label,
            "config": config.model_dump(mode="json"),
            "synthetic": True,
            "privacy": {
                "as_published": {"guarantee": False, "epsilon": 4.0, "delta": 1e-5, "unit": "subject"},
                "sound": {
                    "item": {"epsilon": 3.25, "delta": 1e-5, "assumptions": ["silos are honest"]},
                    "subject": {"epsilon": None, "reason": "no cap"},
                },
                "excluded": ["choice of hyperparameters"],
            },
            "final": {"round": 2, "test_accuracy": 0.1234 + number, "test_loss": 4.1},
            "rounds_executed": 2,
            "wall_seconds": 1.5,
            "peak_memory_mb": 300.0,
        }
        (folder / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "runs" / runs[2].run_id).mkdir()
    return tmp_path
