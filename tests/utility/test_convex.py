"""The optimum against scipy's, its certificate against any other point, and the weights against enumeration."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize

from subjectdp.errors import DataError
from subjectdp.utility import excess_loss as convex
from subjectdp.utility.excess_loss import Objective, minimise, subject_mean_weights


def objective(items: int = 60, features: int = 4, classes: int = 3, seed: int = 0) -> Objective:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(items, features))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = random.integers(0, classes, items)
    weights = random.random(items)
    return Objective(
        torch.from_numpy(rows), torch.from_numpy(labels), torch.from_numpy(weights / weights.sum()), classes
    )


def reference(found: Objective, flat: np.ndarray) -> float:
    """The same loss in plain numpy, one item at a time."""
    model, total = flat.reshape(found.classes, -1), 0.0
    for row, label, weight in zip(found.features.numpy(), found.labels.numpy(), found.weights.numpy(), strict=True):
        logits = model @ row
        total += weight * (math.log(sum(math.exp(z - logits.max()) for z in logits)) + logits.max() - logits[label])
    return total


@pytest.mark.parametrize("radius", [0.5, 4.0])
def test_the_optimum_is_scipys(radius: float) -> None:
    found = objective()
    optimum = minimise(found, radius, tolerance=1e-6)
    ball = {"type": "ineq", "fun": lambda w: radius**2 - w @ w}
    other = scipy_minimize(
        lambda w: reference(found, w), np.full(12, 0.01), constraints=[ball], method="SLSQP", tol=1e-10
    )
    assert other.success
    assert optimum.value == pytest.approx(other.fun, abs=2e-6)
    assert optimum.lower <= other.fun <= optimum.value + 1e-7
    assert float(optimum.model.norm()) <= radius * (1 + 1e-9)


def test_no_point_of_the_ball_lies_below_the_certified_value() -> None:
    found, random = objective(seed=3), np.random.default_rng(1)
    optimum = minimise(found, 2.0, tolerance=1e-2)
    assert 0 <= optimum.gap <= 1e-2
    for _ in range(300):
        point = random.normal(size=12)
        point *= 2.0 * random.random() ** 0.1 / np.linalg.norm(point)
        assert found.value(torch.from_numpy(point.reshape(3, 4))) >= optimum.lower


def test_value_and_gradient_are_those_of_autograd() -> None:
    found = objective(seed=5)
    model = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    losses = torch.nn.functional.cross_entropy(found.features @ model.T, found.labels, reduction="none")
    value = losses @ found.weights
    value.backward()
    own, gradient = found.value_and_gradient(model.detach())
    assert (
        own == pytest.approx(float(value.detach())) == pytest.approx(reference(found, model.detach().numpy().ravel()))
    )
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
    monkeypatch.setattr(convex, "_MOST_STEPS", 20)
    with pytest.raises(DataError, match="gap"):
        minimise(objective(), 5.0, tolerance=1e-9)


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
    found = subject_mean_weights(np.array(owners, dtype=np.int32), q)
    assert found == pytest.approx(enumerated(owners, q), rel=1e-9)
    assert found.sum() == pytest.approx(1.0)


def test_one_item_a_subject_weighs_all_alike() -> None:
    owners = np.arange(30, dtype=np.int32)
    assert subject_mean_weights(owners, 0.1) == pytest.approx(np.full(30, 1 / 30))


def test_many_subjects_are_weighted_without_underflow() -> None:
    """1,500 subjects: items of subjects with few items weigh more, as one over their number at the extremes."""
    owners = np.repeat(np.arange(1500, dtype=np.int32), np.tile([1, 40], 750))
    weights = subject_mean_weights(owners, 0.5)
    assert weights.sum() == pytest.approx(1.0)
    assert weights[0] / weights[1] == pytest.approx(40 * 0.5, rel=0.01)
