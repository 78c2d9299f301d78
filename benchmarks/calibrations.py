"""Calibration of σ at the papers' FEMNIST schedule: this project against Opacus, nothing cached.

Every σ is checked with dp-accounting's privacy loss distributions: one whose ε exceeds the target by more than half a
percent is a FAIL.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial

import dp_accounting
from dp_accounting.pld import PLDAccountant
from opacus.accountants.utils import get_noise_multiplier

from benchmarks.timing import Outcome, interleave
from subjectdp.accounting.calibration import calibrate_noise_multiplier
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian

DELTA = 1e-5
SAMPLING_PROBABILITY = 512 / 25_000
STEPS = 5000
_TOLERANCE = 5e-3


def time_calibration(epsilon: float, rounds: int, methods: Sequence[str] | None = None) -> dict[str, Outcome]:
    """Times of the methods (None: all) at one ε; an outcome's note has its σ."""
    sigmas: dict[str, float] = {}

    def calibrate(name: str) -> None:
        sigmas[name] = CALIBRATIONS[name](epsilon)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns of the orders it leaves out
        asked = {name: partial(calibrate, name) for name in methods or CALIBRATIONS}
        outcomes = interleave(asked, rounds, warm_up=0)
    for name, outcome in outcomes.items():
        reached = epsilon_of(sigmas[name])
        outcome.status = "ok" if reached <= epsilon * (1 + _TOLERANCE) else "FAIL"
        outcome.note = f"σ = {sigmas[name]:.4f}, ε = {reached:.4f}"
    return outcomes


def epsilon_of(sigma: float) -> float:
    """ε of the schedule by dp-accounting's privacy loss distributions."""
    step = dp_accounting.PoissonSampledDpEvent(SAMPLING_PROBABILITY, dp_accounting.GaussianDpEvent(sigma))
    return float(PLDAccountant().compose(dp_accounting.SelfComposedDpEvent(step, STEPS)).get_epsilon(DELTA))


def _subjectdp(epsilon: float) -> float:
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("subjectdp.accounting") else ():
            getattr(value, "cache_clear", lambda: None)()  # each round starts anew
    steps = MixtureSteps(1.0, sampled_gaussian(SAMPLING_PROBABILITY), STEPS)
    return calibrate_noise_multiplier((steps,), epsilon, DELTA)


def _opacus(epsilon: float) -> float:
    schedule = {"sample_rate": SAMPLING_PROBABILITY, "steps": STEPS, "accountant": "rdp"}
    return float(get_noise_multiplier(target_epsilon=epsilon, target_delta=DELTA, **schedule))


CALIBRATIONS: dict[str, Callable[[float], float]] = {"subjectdp_pld": _subjectdp, "opacus_rdp": _opacus}
"""Method of the workload ``calibration`` -> its σ for an ε; the first is the base."""
