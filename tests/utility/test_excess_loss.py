"""The measurement of excess losses from end to end and in parts; section 4's bounds against numbers by hand."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize as scipy_minimize

from subjectdp.config.run import RunConfig
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import DataError
from subjectdp.utility import EXCESS_COLUMNS as COLUMNS
from subjectdp.utility import excess_loss
from training import small_world

pytestmark = pytest.mark.slow

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
    last = table[table["last"] & (table["quantity"] == "population")]
    row = last[last["algorithm"] == "local_item_dp"].iloc[0]
    problem = excess_loss.Problem(math.sqrt(2), row["radius"], int(row["parameters"]), int(row["items"]))
    expected = excess_loss.empirical_bound(problem, row["learning_rate"], STEPS, row["noise_std"])
    assert row["bound"] == pytest.approx(expected + excess_loss.stability(problem, row["learning_rate"], STEPS))
    assert row["parameters"] == 62 * 50
    printed = last.set_index(["algorithm", "seed"])["bound_printed"]
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
    trained = excess_loss._train(data, "fed_avg", 12)
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


def objective(items: int = 60, features: int = 4, classes: int = 3, seed: int = 0) -> excess_loss.Objective:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(items, features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels, weights = random.integers(0, classes, items), random.random(items)
    weights /= weights.sum()
    return excess_loss.Objective(torch.from_numpy(rows), torch.from_numpy(labels), torch.from_numpy(weights), classes)


def reference(found: excess_loss.Objective, flat: np.ndarray) -> float:
    """The same loss in plain numpy, one item at a time."""
    model, total = flat.reshape(found.classes, -1), 0.0
    for row, label, weight in zip(found.features.numpy(), found.labels.numpy(), found.weights.numpy(), strict=True):
        logits = model @ row
        total += weight * (math.log(sum(math.exp(z - logits.max()) for z in logits)) + logits.max() - logits[label])
    return total


@pytest.mark.parametrize("radius", [0.5, 4.0])
def test_the_optimum_is_scipys(radius: float) -> None:
    found = objective()
    optimum = excess_loss.minimise(found, radius, tolerance=1e-6)
    ball = {"type": "ineq", "fun": lambda w: radius**2 - w @ w}
    other = scipy_minimize(
        lambda w: reference(found, w), np.full(12, 0.01), constraints=[ball], method="SLSQP", tol=1e-10
    )
    assert other.success
    assert optimum.value == pytest.approx(other.fun, abs=2e-6)
    assert optimum.lower <= other.fun <= optimum.value + 1e-7
    assert float(optimum.model.norm()) <= radius * (1 + 1e-9)


def test_value_and_gradient_are_those_of_autograd() -> None:
    found = objective(seed=5)
    model = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    losses = torch.nn.functional.cross_entropy(found.features @ model.T, found.labels, reduction="none")
    value = losses @ found.weights
    value.backward()
    own, gradient = found.value_and_gradient(model.detach())
    assert own == pytest.approx(float(value.detach()))
    assert own == pytest.approx(reference(found, model.detach().numpy().ravel()))
    assert torch.allclose(gradient, model.grad)


def test_the_curvature_is_bounded() -> None:
    """Along random directions the second difference stays below the bound."""
    found, generator = objective(seed=7), torch.Generator().manual_seed(4)
    bound, step = found.smoothness(), 1e-3
    for _ in range(50):
        at, along = (torch.randn(3, 4, dtype=torch.float64, generator=generator) for _ in range(2))
        along /= along.norm()
        second = found.value(at + step * along) - 2 * found.value(at) + found.value(at - step * along)
        assert second / step**2 <= bound * (1 + 1e-3)


def test_a_certificate_that_is_not_reached_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excess_loss, "_MOST_STEPS", 20)
    with pytest.raises(DataError, match="gap"):
        excess_loss.minimise(objective(), 5.0, tolerance=1e-9)


def enumerated(owners: list[int], q: float) -> np.ndarray:
    """E[1{j in S} / (|S_a| · subjects(S))] over all subsets of the items."""
    items = len(owners)
    total = np.zeros(items)
    for chosen in itertools.product([0, 1], repeat=items):
        inside = [j for j in range(items) if chosen[j]]
        probability = q ** len(inside) * (1 - q) ** (items - len(inside))
        subjects = {owners[j] for j in inside}
        for j in inside:
            same = sum(owners[i] == owners[j] for i in inside)
            total[j] += probability / (same * len(subjects))
    return total / total.sum()


@pytest.mark.parametrize("q", [0.05, 0.4, 1.0])
def test_weights_of_subject_means_by_enumeration(q: float) -> None:
    owners = [0, 0, 0, 0, 1, 2, 2, 3, 3, 3]
    found = excess_loss.subject_mean_weights(np.array(owners, dtype=np.int32), q)
    assert found == pytest.approx(enumerated(owners, q), rel=1e-9)
    assert found.sum() == pytest.approx(1.0)


def test_many_subjects_are_weighted_without_underflow() -> None:
    """1,500 subjects: items of subjects with few items weigh more, as one over their number at the extremes."""
    owners = np.repeat(np.arange(1500, dtype=np.int32), np.tile([1, 40], 750))
    weights = excess_loss.subject_mean_weights(owners, 0.5)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] / weights[1] == pytest.approx(40 * 0.5, rel=0.01)


PROBLEM = excess_loss.Problem(lipschitz=2.0, radius=3.0, dimension=10, items=1000)
SCHEDULE = excess_loss.Schedule(0.1, 50, 0.02, 4.0, math.exp(-10), constant=1.5)


def test_the_terms_by_hand() -> None:
    """M²/(2ηT) = 9/10, ηL²/2 = 0.2, L²η(T+1)/n = 0.0204, σ = 1.5·0.02·√500/4, ησ²d = 0.1·10·σ²."""
    assert excess_loss.empirical_bound(PROBLEM, 0.1, 50, 0.0) == pytest.approx(1.1)
    assert excess_loss.empirical_bound(PROBLEM, 0.1, 50, 0.5) == pytest.approx(1.1 + 0.25)
    assert excess_loss.stability(PROBLEM, 0.1, 50) == pytest.approx(0.0204)
    sigma = 0.0075 * math.sqrt(500)
    assert excess_loss.item_noise(SCHEDULE) == pytest.approx(sigma)
    assert excess_loss.local_group_bound(PROBLEM, SCHEDULE, 1) == pytest.approx(1.1 + sigma**2 + 0.0204)


def test_theorem_4_8_with_groups_by_hand() -> None:
    """k = 3: (c₂kq/ε)² = 0.0225², T·log(3 e^{8/3} e^{10}) = 50·(ln 3 + 12.6667)."""
    noise = 0.1 * 10 * 0.0225**2 * 50 * (1.0986122886681098 + 12.666666666666666)
    assert excess_loss.local_group_bound(PROBLEM, SCHEDULE, 3) == pytest.approx(1.1 + noise + 0.0204)


def test_theorem_4_9_is_4_8_with_the_mini_batch_as_the_group_and_no_sampling() -> None:
    """m = 20, q = 1: (1.5·20/4)² · 0.1·10 · 50·(ln 20 + 3.8 + 10)."""
    noise = 7.5**2 * 50 * (math.log(20) + 3.8 + 10)
    assert excess_loss.user_bound(PROBLEM, SCHEDULE, 20) == pytest.approx(1.1 + noise + 0.0204)


def test_theorem_4_11_by_hand() -> None:
    """k = 4: (16·9 + 0.01·50·4)/(2·4·0.1·50) = 146/40, noise 0.1·10·(1.5·4·0.02/4)²·50·10."""
    assert excess_loss.higrad_bound(PROBLEM, SCHEDULE, 4) == pytest.approx(3.65 + 0.03**2 * 500 + 0.0204)


def test_one_item_a_subject_is_the_item_level_bound() -> None:
    of_items = excess_loss.local_group_bound(PROBLEM, SCHEDULE, 1)
    assert excess_loss.higrad_bound(PROBLEM, SCHEDULE, 1) == pytest.approx(of_items)


@given(st.floats(0, 5), st.floats(0.2, 5))
def test_the_best_learning_rate_is_the_least(noise: float, factor: float) -> None:
    best = excess_loss.best_learning_rate(PROBLEM, 50, noise)
    least = excess_loss.empirical_bound(PROBLEM, best, 50, noise)
    assert least <= excess_loss.empirical_bound(PROBLEM, best * factor, 50, noise) * (1 + 1e-12)
    assert least == pytest.approx(3 * math.sqrt((4 + 20 * noise**2) / 50))


def test_the_constant_gives_the_noise_that_it_was_fitted_to() -> None:
    fitted = excess_loss.constant_of(2.5, SCHEDULE)
    assert excess_loss.item_noise(replace(SCHEDULE, constant=fitted)) == pytest.approx(2.5)
