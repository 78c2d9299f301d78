"""The noise that a plan predicts on a weight: against formulas by hand, and the warning."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from subjectdp.config import load_scenario_from_mapping
from subjectdp.config.run import RunConfig
from subjectdp.forecast.plan_report import plan_scenario, weight_scale

OPTIMIZER = {"name": "sgd", "learning_rate": 0.5}
ONE_STEP = 2.0 * 0.1 / 16 / math.sqrt(4)  # σ C / B, averaged over four silos


def planned(folder: Path, algorithm: str = "local_item_dp", **optimizer: Any) -> tuple[pd.DataFrame, str]:
    run = {
        "data": {"embedded": {"subjects": 9, "items_per_subject": 60}},
        "partition": {"silos": 4},
        "algorithm": {"name": algorithm},
        "privacy": {"mode": "sound", "noise_multiplier": 2.0, "clip_norm": 0.1},
        "training": {"rounds": 5, "local_steps": 3, "batch_size": 16, "optimizer": {**OPTIMIZER, **optimizer}},
        "model": {"name": "handwriting_head", "parameters": {"from_synthetic": False}},
    }
    return plan_scenario(load_scenario_from_mapping({"name": "noise", "run": run}), str(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "noise"),
    [
        ({}, 0.5 * ONE_STEP * math.sqrt(15)),
        ({"name": "momentum", "momentum": 0.9}, 10 * 0.5 * ONE_STEP * math.sqrt(15)),
        ({"name": "adam", "learning_rate": 0.01}, 0.01 * math.sqrt(15) / math.sqrt(4)),
    ],
    ids=["sgd", "momentum", "adam"],
)
def test_the_noise_of_all_steps(tmp_path: Path, optimizer: dict[str, Any], noise: float) -> None:
    frame, text = planned(tmp_path, **optimizer)
    assert frame["noise_a_weight"][0] == pytest.approx(noise)
    assert frame["weight_scale"][0] == 5 and "WARNING" not in text


@pytest.mark.slow
def test_noise_above_the_scale_of_the_weights_is_warned_of_with_its_ratio(tmp_path: Path) -> None:
    _, text = planned(tmp_path, learning_rate=500.0)
    told = text.replace("\n", " ")
    ratio = 500 * ONE_STEP * math.sqrt(15) / 5  # a linear model's scale
    assert "WARNING: the noise of all rounds" in told and f"LocalItemDP on femnist {ratio:.2g}." in told


@pytest.mark.parametrize(
    ("model", "dataset", "scale"),
    [
        ("leaf_cnn", "femnist", 1 / math.sqrt(3 * 7 * 7 * 64)),  # U(-1/√n, 1/√n) of n inputs of the dense layer
        ("mlp", "cifar10", 1 / math.sqrt(3 * 1024)),  # by the shape of the data set's items
        ("handwriting_head", "femnist", 5),
        ("char_ngram", "shakespeare", 5),
    ],
)
def test_the_scale_is_that_of_the_largest_layer_or_of_linear_models(model: str, dataset: str, scale: float) -> None:
    run = RunConfig.model_validate({"data": {"dataset": dataset}, "model": {"name": model}})
    assert weight_scale(run) == pytest.approx(scale, rel=0.02)
