"""Calibration of σ at the papers' FEMNIST schedule: this project against dp-accounting and Opacus, all cold.

Nothing is cached. Every σ is checked afterwards with dp-accounting's privacy loss distributions: one that misses the
target by more than half a percent on the unsafe side is a FAIL.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from subjectdp.accounting.calibration import calibrate_noise_multiplier
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian
from subjectdp.benchmarks.harness import interleave
from subjectdp.benchmarks.methods import CALIBRATION_METHODS
from subjectdp.benchmarks.steps import Outcome

DELTA = 1e-5
SAMPLING_PROBABILITY = 512 / 25_000
STEPS = 5000
_TOLERANCE = 5e-3
_BRACKET = (0.8, 20.0)  # of σ, for dp-accounting's search


def time_calibration(task: dict[str, Any]) -> dict[str, Outcome]:
    """The ``methods`` for one ``epsilon``, in ``rounds`` rounds; the value of an outcome is its σ."""
    epsilon, found = float(task["epsilon"]), {}

    def keep(name: str, calibrate: Callable[[float], float]) -> None:
        found[name] = calibrate(epsilon)

    methods = {name: CALIBRATIONS[name] for name in task["methods"]}
    print(f"calibration of epsilon {epsilon:g}: {', '.join(methods)}", file=sys.stderr, flush=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus warns of the orders it leaves out
        timed = {name: partial(keep, name, method) for name, method in methods.items()}
        samples = interleave(timed, task["rounds"], warm_up=0)
    outcomes = {}
    for name in methods:
        sigma = found[name]
        reached = epsilon_of(sigma)
        status = "ok" if reached <= epsilon * (1 + _TOLERANCE) else "FAIL"
        outcomes[name] = Outcome(status, f"σ = {sigma:.4f}, ε = {reached:.4f}", samples[name], value=sigma)
    return outcomes


def epsilon_of(sigma: float) -> float:
    """ε of the schedule by dp-accounting's privacy loss distributions."""
    from dp_accounting.pld import PLDAccountant

    return float(PLDAccountant().compose(_event(sigma)).get_epsilon(DELTA))


def _subjectdp(epsilon: float) -> float:
    steps = MixtureSteps(1.0, sampled_gaussian(SAMPLING_PROBABILITY), STEPS)
    return calibrate_noise_multiplier((steps,), epsilon, DELTA)


def _opacus(epsilon: float, accountant: str) -> float:
    from opacus.accountants.utils import get_noise_multiplier

    return float(
        get_noise_multiplier(
            target_epsilon=epsilon,
            target_delta=DELTA,
            sample_rate=SAMPLING_PROBABILITY,
            steps=STEPS,
            accountant=accountant,
        )
    )


def _dp_accounting(epsilon: float, accountant: str) -> float:
    import dp_accounting

    fresh = {"pld": dp_accounting.pld.PLDAccountant, "rdp": dp_accounting.rdp.RdpAccountant}[accountant]
    bracket = dp_accounting.ExplicitBracketInterval(*_BRACKET)
    return float(
        dp_accounting.calibrate_dp_mechanism(fresh, _event, epsilon, DELTA, bracket_interval=bracket)
    )


def _event(sigma: float) -> Any:
    import dp_accounting

    step = dp_accounting.PoissonSampledDpEvent(SAMPLING_PROBABILITY, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.SelfComposedDpEvent(step, STEPS)


CALIBRATIONS: dict[str, Callable[[float], float]] = dict(
    zip(
        CALIBRATION_METHODS,
        (
            _subjectdp,
            partial(_opacus, accountant="rdp"),
            partial(_opacus, accountant="prv"),
            partial(_dp_accounting, accountant="rdp"),
            partial(_dp_accounting, accountant="pld"),
        ),
        strict=True,
    )
)
