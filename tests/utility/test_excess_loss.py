"""The measurement from end to end on a small data set, and its parts against plain loops."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from subjectdp.config.run import RunConfig
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import DataError
from subjectdp.utility import EXCESS_COLUMNS as COLUMNS
from subjectdp.utility import excess_loss
from subjectdp.utility.bounds import Problem, empirical_bound, stability
from training import small_world

STEPS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prepared"
    write_prepared(path, small_world.image_content(), "leaf_json", [], 0.2)
    return path


@pytest.fixture(scope="module")
def table(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    target = tmp_path_factory.mktemp("out") / "utility.parquet"
    config = small_world.config(training={"batch_size": 16})
    excess_loss.write_utility(config, folder, target, seeds=(0, 1), steps=STEPS)
    return pd.read_parquet(target)


@pytest.mark.slow
def test_every_algorithm_is_scored_at_the_same_steps(table: pd.DataFrame) -> None:
    assert list(table.columns) == list(COLUMNS)
    groups = table.groupby(["algorithm", "seed", "quantity"])["steps"].apply(list)
    assert len(groups) == len(excess_loss.THEOREMS) * 2 * 2
    assert all(steps == groups.iloc[0] for steps in groups)
    assert groups.iloc[0][-1] == STEPS
    assert set(table.loc[table["last"], "steps"]) == {STEPS}


def test_excess_is_not_negative_and_below_the_bound(table: pd.DataFrame) -> None:
    """The optimum is a certified lower bound; the theorems hold (here: far from tight) for each algorithm."""
    assert (table["excess"] >= 0).all()
    means = table[table["last"]].groupby(["algorithm", "quantity"])[["excess", "bound"]].mean()
    assert (means["excess"] < means["bound"]).all()


def test_bounds_are_those_of_the_rows_own_settings(table: pd.DataFrame) -> None:
    row = table[(table["algorithm"] == "local_item_dp") & table["last"] & (table["quantity"] == "population")].iloc[0]
    problem = Problem(math.sqrt(2), row["radius"], int(row["parameters"]), int(row["items"]))
    expected = empirical_bound(problem, row["learning_rate"], STEPS, row["noise_std"])
    assert row["bound"] == pytest.approx(expected + stability(problem, row["learning_rate"], STEPS))
    assert row["parameters"] == 62 * 50
    printed = table[table["last"] & (table["quantity"] == "population")].set_index(["algorithm", "seed"])[
        "bound_printed"
    ]
    assert printed["fed_avg"].isna().all()
    assert (printed["user_ldp"] > printed["local_group_dp"]).all() and (printed["higrad_avg_dp:v3"] > 0).all()


def test_the_mean_leaves_out_the_last_model() -> None:
    """w̄_T is the mean of the models before each of the T steps, the first of them the start."""
    models = (torch.full((2,), float(place)) for place in range(24))
    found = excess_loss._mean_iterates(models, 24)
    assert sorted(found) == list(range(2, 25, 2))
    assert all(mean.tolist() == [(steps - 1) / 2] * 2 for steps, mean in found.items())


def test_steps_without_noise_are_gradient_steps_on_the_stated_loss(folder: Path) -> None:
    """With every item in every mini-batch FedAvg is gradient descent: the mean of its iterates by a plain loop."""
    prepared = load_prepared(folder)
    items = len(excess_loss._seed_data(RunConfig.model_validate(small_world.config()), prepared).train[1])
    whole = RunConfig.model_validate(small_world.config(training={"batch_size": items}))
    data = excess_loss._seed_data(whole, prepared)
    trained = excess_loss._train(data, "fed_avg", 12, None)
    rows = excess_loss._rows(data, "fed_avg", trained, 1.0)
    features, labels = (part.numpy() for part in data.train)
    model, total, onehot = np.zeros((62, 50)), np.zeros((62, 50)), np.eye(62)[labels]
    for _ in range(12):
        total += model
        logits = features @ model.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        model = model - rows[0]["learning_rate"] * (p - onehot).T @ features / len(labels)
    logits = features @ (total / 12).T
    loss = float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]))
    assert rows[-2]["quantity"] == "empirical"
    assert rows[-2]["loss"] == pytest.approx(loss, abs=1e-5)


def test_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excess_loss, "load_prepared", lambda folder: SimpleNamespace(kind="text"))
    with pytest.raises(DataError, match="images"):
        excess_loss.write_utility(small_world.config(), tmp_path, tmp_path / "u.parquet")
