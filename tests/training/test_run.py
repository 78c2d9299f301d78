"""Whole runs on a small world: files, contents, reproducibility, errors before training; runs beyond the papers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import Tensor

from algorithms import tiny
from subjectdp.algorithms.registry import ALGORITHMS, algorithm, is_private
from subjectdp.config.run import RunConfig
from subjectdp.engine.probe import TRIED
from subjectdp.errors import DataError, ModelError, PrivacyError, SubjectDPError
from subjectdp.models.image import SmallCNN
from subjectdp.plan.plan import AccountingMode
from subjectdp.training.run import train_run
from subjectdp.training.silo_step import SiloStep
from training import small_world

pytestmark = pytest.mark.slow

EVERY = [
    name if variant is None else f"{name}:{variant}" for name in ALGORITHMS for variant in algorithm(name).variants
]
CASES = [
    (name, mode)
    for name in EVERY
    for mode in AccountingMode
    if mode is AccountingMode.SOUND or not algorithm(name.partition(":")[0]).mechanisms[0].beyond_papers
]
FIRST = {name.partition(":")[0]: (name, mode) for name, mode in reversed(CASES)}  # of each algorithm


def run(folder: Path, name: str, **changes: Any) -> tuple[Path, list[str]]:
    lines: list[str] = []
    return small_world.train(folder, name, small_world.config(**changes), lines.append), lines


@pytest.mark.parametrize(
    ("name", "mode"),
    [case if case in FIRST.values() else pytest.param(*case, marks=pytest.mark.long) for case in CASES],
)
def test_every_algorithm_runs_in_both_modes(tmp_path: Path, name: str, mode: str) -> None:
    steps = {"local_steps": 1} if name == "joint_noise" else {}
    training = {"rounds": 2, "batch_size": 8, "optimizer": {"learning_rate": 0.2}, **steps}
    output, lines = run(tmp_path, "run", algorithm=name, training=training, privacy={"mode": mode, "epsilon": 8.0})
    manifest = json.loads((output / "manifest.json").read_text())
    rounds = pd.read_parquet(output / "rounds.parquet")
    steps_taken = pd.read_parquet(output / "steps.parquet")
    assert len(rounds) == len(lines) == manifest["rounds_executed"]
    assert rounds.test_accuracy.between(0, 1).all() and rounds.test_loss.gt(0).all()
    planned = sum(s["steps_per_round"] for s in manifest["plan"]["silos"]) * manifest["rounds_executed"]
    assert len(steps_taken) == planned == rounds.steps_done.iloc[-1]
    private = is_private(name.partition(":")[0])
    assert (steps_taken.noise_multiplier > 0).all() == private
    assert (steps_taken.largest_group <= steps_taken["items"]).all()
    published = manifest["privacy"]["as_published"]
    card = "\n".join(manifest["privacy"]["card"])
    assert card.startswith(f"Privacy report: {name.split(':')[0]}")
    assert "What this run gives" in card
    assert published["guarantee"] is False
    assert manifest["environment"]["packages"]["torch"]
    assert "left" in lines[0] and "round 1/" in lines[0]
    assert (output / "progress.log").read_text().splitlines() == lines
    assert RunConfig.model_validate_json((output / "config.json").read_text()).run_id == manifest["run_id"]


@pytest.mark.parametrize(
    ("name", "above", "steps"),
    [(name, TRIED, 1) for name in ("local_item_dp", "higrad_avg_dp:v1", "subject_release")]
    + [("local_item_dp", 25, 40)],
)
def test_a_model_that_mixes_items_in_large_mini_batches_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, above: int, steps: int
) -> None:
    """Of the first mini-batch, or of a larger one later."""
    apart = SmallCNN.forward

    def mixed(model: SmallCNN, images: Tensor) -> Tensor:
        logits = apart(model, images)
        return logits - logits.mean(0) if len(images) > above and model.training else logits

    monkeypatch.setattr(SmallCNN, "forward", mixed)
    training, privacy = {"rounds": 2, "batch_size": 18, "local_steps": steps}, {"mode": "sound", "epsilon": 8.0}
    with pytest.raises(ModelError, match="with other items in the batch, what an item gets changes"):
        run(tmp_path, "run", algorithm=name, training=training, privacy=privacy, model=small_world.CNN)


def test_some_of_the_silos(tmp_path: Path) -> None:
    training = {"rounds": 5, "batch_size": 8, "silos_per_round": 2, "evaluate_every": 2}
    output, _ = run(tmp_path, "run", training=training)
    assert pd.read_parquet(output / "rounds.parquet")["round"].tolist() == [2, 4, 5], "sparse evaluation"
    steps = pd.read_parquet(output / "steps.parquet")
    assert (steps.groupby("round").silo.nunique() == 2).all()
    assert steps.silo.nunique() == 3
    assert steps.groupby("silo")["round"].nunique().tolist() == [4, 3, 3], "in turn"


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"training": {"batch_size": 500}}, "batch_size"), ({"performance": {"device": "cuda:7"}}, "performance.device")],
)
def test_errors_come_before_training(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SubjectDPError, match=message):
        run(tmp_path, "run", **changes)
    assert not (tmp_path / "run").exists()


def test_data_that_were_changed_are_not_trained_on(tmp_path: Path) -> None:
    """A bit of the features, which no size tells."""
    config = small_world.config()
    features = small_world.build(tmp_path, config)[0] / "features.npy"
    content = features.read_bytes()
    features.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match="features.npy is truncated or was changed"):
        train_run(config, features.parent, tmp_path / "partition-0", tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "part"), [("local_item_dp", 0.0), ("higrad_avg_dp:v3", 0.8), ("subject_release", 0.8)]
)
def test_an_algorithm_that_forgets_noise_ends_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: float
) -> None:
    right = SiloStep.add_noise
    monkeypatch.setattr(
        SiloStep, "add_noise", lambda step, total, std: total if part == 0 else right(step, total, part * std)
    )
    wrong = small_world.config(algorithm=name, privacy={"mode": "sound"})
    with pytest.raises(PrivacyError, match="noise multiplier of .* in round 1, step 0 to be .* as its plan says, got"):
        small_world.train(tmp_path, "a", wrong)


def test_evaluation_on_a_part_of_the_items(tmp_path: Path) -> None:
    output, _ = run(tmp_path, "run", training={"rounds": 1, "batch_size": 8, "evaluation_items": 5})
    accuracy = float(pd.read_parquet(output / "rounds.parquet").test_accuracy.iloc[0])
    assert accuracy * 5 == pytest.approx(round(accuracy * 5))


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
