"""Gaussian differential privacy: closed forms between μ, ε and δ (Dong, Roth, Su 2019; Balle, Wang 2018)."""

import math

import numpy as np
from scipy import optimize, special

from subjectdp.accounting.events import Joined, PrivacyLoss, Shift, Told


def gdp_log_delta(mu: float, epsilon: float) -> float:
    """log δ(ε) of a μ-GDP mechanism: δ = Φ(x) - e^ε Φ(-y), x = μ/2 - ε/μ, y = μ/2 + ε/μ; stable for tiny δ, any ε.
    As y² = x² + 2ε, the second term is e^{-x²/2} erfcx(y/√2)/2: no large numbers cancel."""
    if mu <= 0:
        return -math.inf
    x, y = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
    upper = float(special.log_ndtr(x))
    lower = -x * x / 2 + math.log(float(special.erfcx(y / math.sqrt(2))) / 2)
    return upper + math.log(-math.expm1(lower - upper)) if lower < upper else -math.inf


def gdp_epsilon(mu: float, delta: float) -> float:
    """The exact ε of a μ-GDP mechanism at δ (0 where μ is so small that δ alone covers it)."""
    if not math.isfinite(mu):
        return math.inf
    goal = math.log(delta)
    if gdp_log_delta(mu, 0.0) <= goal:
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(-2 * goal) + 1.0
    return float(optimize.brentq(lambda e: gdp_log_delta(mu, e) - goal, 0.0, high, xtol=1e-12, rtol=1e-13))


def gdp_mu(epsilon: float, delta: float) -> float:
    """The μ whose Gaussian mechanism has exactly this ε at δ; infinite for an infinite ε."""
    if not math.isfinite(epsilon):
        return math.inf
    goal = math.log(delta)
    low, high = min(1e-12, delta), 1.0  # δ(ε) < μ
    while gdp_log_delta(high, epsilon) < goal:
        low, high = high, high * 2
    return float(optimize.brentq(lambda mu: gdp_log_delta(mu, epsilon) - goal, low, high, xtol=1e-13, rtol=1e-13))


def exact_mu(loss: PrivacyLoss) -> float | None:
    """μ when every part is an unsampled Gaussian (their composition is exactly Gaussian), else None."""
    total = 0.0
    for part in loss:
        if type(part.shift) is not Shift or len(part.shift.sensitivities) != 1:
            return None
        if part.shift.sensitivities[0] > 0:
            total += part.steps * (part.shift.sensitivities[0] / part.noise_multiplier) ** 2
    return math.sqrt(total)


@np.errstate(over="ignore")
def step_chi_square(sigma: float, shift: Shift) -> float:
    """χ²(P‖Q) of one step, Σ_jl p_j p_l e^{s_j s_l/σ²} - 1, its loss' variance in the central limit; rough for a shared
    coin."""
    if isinstance(shift, Told):
        logs = [sum(n * np.log1p(step_chi_square(sigma * r, s)) for r, n, s in series) for _, series in shift.parts]
        return float(sum(weight * np.expm1(log) for (weight, _), log in zip(shift.parts, logs, strict=True)))
    if isinstance(shift, Joined):
        return max(steps * step_chi_square(sigma * ratio, part) for ratio, steps, part in shift.parts)
    values, weights = np.asarray(shift.sensitivities) / sigma, np.asarray(shift.probabilities)
    return float(weights @ np.expm1(np.outer(values, values)) @ weights)


def clt_mu(loss: PrivacyLoss) -> float:
    """The central-limit μ of a composition: an estimate for starting points and grids, never a certificate."""
    total = sum(part.steps * step_chi_square(part.noise_multiplier, part.shift) for part in loss)
    return math.sqrt(total) if math.isfinite(total) else math.inf
