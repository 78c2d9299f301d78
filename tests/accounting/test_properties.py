"""Properties of losses and calibrations, by hypothesis. SUBJECTDP_FULL_TESTS=1 runs the long versions."""

import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accounting.plans import CLIPPINGS, FIXED, POISSON, SUBJECT
from subjectdp.accounting.calibration import calibrate_many, calibrate_noise_multiplier
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, Shift, unit_shift, with_noise

pytestmark = pytest.mark.slow

FULL = os.environ.get("SUBJECTDP_FULL_TESTS") == "1"
CLIPPING = st.sampled_from(CLIPPINGS)
few = settings(max_examples=500 if FULL else 15, deadline=None)
fewer = settings(max_examples=200 if FULL else 8, deadline=None)


@st.composite
def shifts(draw: st.DrawFn) -> Shift:
    k = draw(st.integers(1, 12))
    if draw(st.booleans()):
        return unit_shift(draw(CLIPPING), SUBJECT, POISSON, draw(st.floats(5e-4, 0.9)), k, 10_000)
    batch = draw(st.integers(5, 9_000))  # a fixed mini-batch has a whole number of items
    return unit_shift(draw(CLIPPING), SUBJECT, FIXED, batch / 10_000, k, 10_000)


@pytest.mark.parametrize(("accountant", "steps"), [("pld", (40, 41, 300)), ("rdp", (40,))])
def test_many_silos_are_calibrated_as_each_is(accountant: str, steps: tuple[int, ...]) -> None:
    """Silos with the same sampling probability and all items at once are among them; the order is that of the silos."""
    sampled = [0.3, 0.01, 0.011, 1.0, 0.012, 0.02, 0.01]
    losses = [(MixtureSteps(1.0, Shift.of((0.0, 1.0), (1 - q, q)), n),) for n in steps for q in sampled]
    losses.append((MixtureSteps(1.0, Shift.of((0.0, 2.0), (0.7, 0.3)), steps[-1]),))
    for loss, sigma in zip(losses, calibrate_many(losses, 3.0, 1e-5, accountant), strict=True):
        reached = epsilon_of(with_noise(loss, sigma), 1e-5, accountant)
        assert 0.998 * 3.0 <= reached <= 3.0


@few
@example(shift=Shift((0.0, 2.0), (0.9995, 0.0005)), steps=1, epsilon=1.0, exponent=-3.0)
@given(shift=shifts(), steps=st.integers(1, 20_000), epsilon=st.floats(0.1, 12.0), exponent=st.floats(-9.0, -3.0))
def test_calibration_never_overshoots_and_comes_within_one_percent(
    shift: Shift, steps: int, epsilon: float, exponent: float
) -> None:
    delta = 10.0**exponent
    loss = (MixtureSteps(1.0, shift, steps),)
    sigma = calibrate_noise_multiplier(loss, epsilon, delta)
    reached = epsilon_of((MixtureSteps(sigma, shift, steps),), delta)
    assert reached <= epsilon
    assert reached >= 0.99 * epsilon or reached == 0.0, "or δ covers the event, whatever the noise"
