"""The worst of many people whose items differ: found by bounds, as by looking at each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from accounting.plans import POISSON, SUBJECT
from subjectdp.accounting import sound
from subjectdp.accounting.epsilon import coarse_bounds, epsilon_of, truncated_tail_bounds
from subjectdp.accounting.events import MixtureSteps, PrivacyLoss, unit_shift
from subjectdp.accounting.renyi import quick_bounds
from subjectdp.plan.plan import Clipping

DELTA = 1e-5


def people(count: int, noise: float, most: int) -> list[PrivacyLoss]:
    """Each at two of three silos, with numbers of items of their own."""
    generator = np.random.default_rng(4)

    def part(silo: int, items: int) -> MixtureSteps:
        shift = unit_shift(Clipping.PER_ITEM, SUBJECT, POISSON, 0.02 * (silo + 2), items, 5000)
        return MixtureSteps(noise * (1.0 + 0.1 * silo), shift, 20)

    held = [generator.choice(3, 2, replace=False) for _ in range(count)]
    return [tuple(part(int(silo), int(generator.integers(1, most))) for silo in silos) for silos in held]


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "most"), [(1.5, 30), (20.0, 12)])
def test_the_worst_of_many_is_that_of_looking_at_each(noise: float, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little noise Rényi bounds say nothing; with much they suffice."""
    losses, looked = people(20, noise, most), []
    exact = [epsilon_of(loss, DELTA) for loss in losses]

    def counted(loss: PrivacyLoss, *rest: object) -> float:
        looked.append(loss)
        return exact[losses.index(loss)]

    monkeypatch.setattr(sound, "FEW_LOSSES", 12)
    monkeypatch.setattr(sound, "epsilon_of", counted)
    found, worst = sound.largest(losses, DELTA, "pld")
    assert found == max(exact) and worst == losses[int(np.argmax(exact))]
    assert len(looked) <= sound.FEW_LOSSES, "most are left out"


def test_bounds_on_a_coarse_grid_are_above_and_close() -> None:
    losses = people(6, 1.5, 30)
    for bound, loss in zip(coarse_bounds(losses, DELTA), losses, strict=True):
        assert epsilon_of(loss, DELTA) <= bound <= 1.5 * epsilon_of(loss, DELTA) + 0.5


@pytest.mark.parametrize("bounds", [quick_bounds, coarse_bounds])
def test_bounds_without_far_tails_are_above(bounds: Callable[[list[PrivacyLoss], float], list[float]]) -> None:
    """A thousand items at a silo are a thousand atoms, of which nearly all are next to impossible."""
    shifts = (unit_shift(Clipping.PER_ITEM, SUBJECT, POISSON, q, 1000, 5000) for q in (0.01, 0.02))
    losses: list[PrivacyLoss] = [(MixtureSteps(30.0, shift, 20),) for shift in shifts]
    for bound, loss in zip(truncated_tail_bounds(losses, DELTA, bounds), losses, strict=True):
        assert epsilon_of(loss, DELTA) <= bound <= 2 * epsilon_of(loss, DELTA) + 0.5
