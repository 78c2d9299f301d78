"""Results of a few runs, and tables of counts."""

import json
from pathlib import Path

import pytest

from cli.commands import SMOKE
from subjectdp.config.scenario import load_scenario
from subjectdp.io.atomic import sealed


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two finished runs of the smoke scenario, and one that was started."""
    runs = load_scenario(SMOKE).runs
    none = {"epsilon": None, "delta": 1e-5, "guarantee": False, "reason": "no cap", "assumptions": []}
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
                    "item": {"epsilon": 3.25, "delta": 1e-5, "guarantee": True, "assumptions": ["silos are honest"]},
                    "subject_one_silo": none,
                    "subject": none,
                },
                "predicted": None,
                "own_subjects": False,
                "excluded": ["choice of hyperparameters"],
                "card": ["Privacy report: fed_avg, as published", "  one item   epsilon 3.25 at delta 1e-05"],
            },
            "final": {"round": 2, "test_accuracy": 0.1234 + number, "test_loss": 4.1}
            | dict.fromkeys(("validation_accuracy", "validation_loss"), 0.5),
            "rounds_executed": 2,
            "wall_seconds": 1.5,
            "peak_memory_mb": 300.0,
            "code_fingerprint": "0a1b",
            "environment": {"threads": 1},
        }
        (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    (tmp_path / "runs" / runs[2].run_id).mkdir()
    return tmp_path


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in: numbers of people's items, sizes of silos, and a table of visits."""
    monkeypatch.chdir(tmp_path)
    rows = [f"s{n},{silo},2" for silo, size in (("north", 30), ("south", 40)) for n in range(size)]
    counts = "subject,silo,items\n" + "\n".join(rows) + "\n"
    (tmp_path / "counts.csv").write_text(counts)
    (tmp_path / "bad.csv").write_text(counts + "zoe,north,few\n")
    (tmp_path / "few.csv").write_text("subject,silo,items\nann,n,6\nann,s,2\nbob,n,3\ncleo,s,9\n")
    (tmp_path / "sizes.csv").write_text("silo,items\nn,9\ns,11\n")
    visits = "".join(f"{n % 20},{n % 3},{20 + n},{'fm'[n % 2]},{7 * n},x\n" for n in range(150))
    (tmp_path / "visits.csv").write_text("patient,site,age,sex,cost,note\n" + visits)
    (tmp_path / "there.yaml").touch()
    return tmp_path
