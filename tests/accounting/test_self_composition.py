"""Self-composition of privacy loss distributions against dp-accounting's own and against plain convolution."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from subjectdp.accounting.mixture_pld import mixture_pld, self_composed, self_convolved
from subjectdp.accounting.shifts import Shift


@pytest.mark.parametrize(
    ("sigma", "q", "times"), [(3.6, 0.23, 200), (1.1, 0.02, 1), (20.0, 0.9, 7), (0.8, 0.05, 90)]
)
def test_sampled_gaussians_compose_as_in_dp_accounting(sigma: float, q: float, times: int) -> None:
    step = mixture_pld(sigma, Shift((0.0, 1.0), (1 - q, q)), 5e-4)
    theirs, ours = step.self_compose(times), self_composed(step, times)
    for delta in (1e-3, 1e-5, 1e-9):
        expected = theirs.get_epsilon_for_delta(delta)
        assert ours.get_epsilon_for_delta(delta) == pytest.approx(expected, rel=1e-6, abs=1e-9)
    for mine, other in ((ours._pmf_remove, theirs._pmf_remove), (ours._pmf_add, theirs._pmf_add)):
        assert mine.size == other.size, "the same range is kept"
        assert mine._infinity_mass == pytest.approx(other._infinity_mass, rel=1e-9)


def test_a_symmetric_loss_stays_symmetric() -> None:
    step = pld.from_gaussian_mechanism(5.0, value_discretization_interval=1e-3)
    assert self_composed(step, 9).get_epsilon_for_delta(1e-5) == pytest.approx(
        step.self_compose(9).get_epsilon_for_delta(1e-5), rel=1e-9
    )


@pytest.mark.parametrize("times", [2, 3, 6])
def test_masses_are_those_of_plain_convolution(times: int) -> None:
    masses = np.random.default_rng(0).dirichlet(np.ones(40))
    low, found = self_convolved(masses, times)
    whole = reduce(np.convolve, [masses] * times)
    kept = whole[low : low + len(found)]
    assert np.allclose(found[: len(kept)], kept, atol=1e-14)
    assert whole.sum() - kept.sum() < 1e-14
