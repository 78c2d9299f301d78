"""Calibration of σ at the papers' FEMNIST schedule: this project against dp-accounting and Opacus, nothing cached.

Every σ is checked with dp-accounting's privacy loss distributions: one whose ε exceeds the target by more than half a
percent is a FAIL.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dp_accounting
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from opacus.accountants.utils import get_noise_multiplier

from benchmarks.timing import Outcome, interleave
from subjectdp.accounting.calibration import calibrate_noise_multiplier
from subjectdp.accounting.events import MixtureSteps
from subjectdp.accounting.shifts import sampled_gaussian

DELTA = 1e-5
SAMPLING_PROBABILITY = 512 / 25_000
STEPS = 5000
_TOLERANCE = 5e-3
_BRACKET = dp_accounting.ExplicitBracketInterval(0.8, 20.0)  # of σ, for dp-accounting's search


def time_calibration(epsilon: float, methods: Sequence[str], rounds: int) -> dict[str, Outcome]:
    """Times of methods at one ε; an outcome's value is its σ."""
    sigmas: dict[str, float] = {}

    def calibrate(name: str) -> None:
        sigmas[name] = CALIBRATIONS[name](epsilon)

    print(f"calibration of epsilon {epsilon:g}: {', '.join(methods)}", file=sys.stderr, flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns of the orders it leaves out
        outcomes = interleave({name: partial(calibrate, name) for name in methods}, rounds, warm_up=0)
    for name, outcome in outcomes.items():
        reached = epsilon_of(sigmas[name])
        outcome.status = "ok" if reached <= epsilon * (1 + _TOLERANCE) else "FAIL"
        outcome.value, outcome.note = sigmas[name], f"σ = {sigmas[name]:.4f}, ε = {reached:.4f}"
    return outcomes


def epsilon_of(sigma: float) -> float:
    """ε of the schedule by dp-accounting's privacy loss distributions."""
    return float(PLDAccountant().compose(_event(sigma)).get_epsilon(DELTA))


def _subjectdp(epsilon: float) -> float:
    for name, module in list(sys.modules.items()):
        for value in vars(module).values() if name.startswith("subjectdp.accounting") else ():
            getattr(value, "cache_clear", lambda: None)()  # each round starts anew
    steps = MixtureSteps(1.0, sampled_gaussian(SAMPLING_PROBABILITY), STEPS)
    return calibrate_noise_multiplier((steps,), epsilon, DELTA)


def _opacus(accountant: str, epsilon: float) -> float:
    schedule = {"sample_rate": SAMPLING_PROBABILITY, "steps": STEPS, "accountant": accountant}
    return float(get_noise_multiplier(target_epsilon=epsilon, target_delta=DELTA, **schedule))


def _dp_accounting(accountant: Callable[[], Any], epsilon: float) -> float:
    return float(dp_accounting.calibrate_dp_mechanism(accountant, _event, epsilon, DELTA, bracket_interval=_BRACKET))


def _event(sigma: float) -> Any:
    step = dp_accounting.PoissonSampledDpEvent(SAMPLING_PROBABILITY, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.SelfComposedDpEvent(step, STEPS)


CALIBRATIONS: dict[str, Callable[[float], float]] = {
    "subjectdp_pld": _subjectdp,
    "opacus_rdp": partial(_opacus, "rdp"),
    "opacus_prv": partial(_opacus, "prv"),
    "dp_accounting_rdp": partial(_dp_accounting, RdpAccountant),
    "dp_accounting_pld": partial(_dp_accounting, PLDAccountant),
}
"""Method of the workload ``calibration`` -> its σ for an ε; the first is the base."""
