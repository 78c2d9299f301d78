"""Algorithms beyond the papers from end to end: runs, resuming, records, and what cannot run."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from algorithms import tiny
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import AccountingMode
from training import small_world

SOUND = {"mode": "sound", "epsilon": 8.0, "delta": 1e-3}
RELEASE: dict[str, Any] = {
    "algorithm": "subject_release",
    "privacy": SOUND,
    "partition": {"max_items_per_subject": None},
}
RUNS: dict[str, dict[str, Any]] = {
    "a release a round": {},
    "a trusted server": {"subject": {"trust": "central", "weights": "proportional"}},
    "coins, some items, the sum alone": {
        "subject": {"sampling_probability": 0.6, "items": 2, "trust": "secure_aggregation"}
    },
    "updates": {"algorithm": "uldp_fl", "subject": {"weights": "proportional"}, "training": {"local_steps": 2}},
    "some silos": {"training": {"silos_per_round": 2}, "subject": {"weights": "fixed"}},
    "sampled subjects": {
        "algorithm": "subject_sampling",
        "subject": {"sampling_probability": 0.5},
        "training": {"local_steps": 3},
    },
    "capped items": {"algorithm": "capped_item_dp", "partition": {"max_items_per_subject": 4}},
    "predicted noise": {"privacy": {**SOUND, "predicted_subjects": 600}},
}


def config(name: str) -> dict[str, Any]:
    training = {"rounds": 3, "optimizer": {"name": "momentum"}, **RUNS[name].get("training", {})}
    return small_world.config(**{**RELEASE, **RUNS[name], "training": training})


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_states_the_epsilon_that_it_was_asked_for(name: str, tmp_path: Path) -> None:
    output = small_world.train(tmp_path, name, config(name))
    manifest = json.loads((output / "manifest.json").read_text())
    steps = pd.read_parquet(output / "steps.parquet")
    sound = manifest["privacy"]["sound"]["subject"]
    assert sound["guarantee"] is True
    assert manifest["privacy"]["as_published"]["epsilon"] is None
    predicted = manifest["privacy"]["predicted"]
    if name == "predicted noise":
        assert sound["epsilon"] > 500
        assert (predicted["subjects"], predicted["present"]) == (600, small_world.SUBJECTS)
        assert predicted["epsilon"] == pytest.approx(8.0, rel=1e-3)
    else:
        assert predicted is None
        assert 7.9 < sound["epsilon"] <= 8.0
    assert (steps.noise_multiplier > 0).all()
    assert steps.noise_multiplier.nunique() == 1
    if manifest["plan"]["mechanism"]["shared_budget"]:
        assert (steps.step == 0).all()
    if "items" in RUNS[name].get("subject", {}):
        assert steps.largest_group.max() == 2


def test_a_silo_beyond_the_bound_on_a_subjects_silos_stops_the_run() -> None:
    """Weights are checked against the plan, not believed."""
    plan = tiny.tiny_plan("subject_release", None, AccountingMode.SOUND)
    with pytest.raises(PrivacyError, match="silos of one subject"):
        tiny.tiny_run(replace(plan, silos_per_subject=1)).run_round(1)
