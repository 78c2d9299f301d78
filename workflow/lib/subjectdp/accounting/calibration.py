"""Calibration: the noise multiplier whose ε reaches the target and does not exceed it."""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from scipy import optimize

from subjectdp.accounting import gaussian
from subjectdp.accounting.epsilon import FINAL, SEARCH, epsilon_of
from subjectdp.accounting.events import PrivacyLoss, with_noise
from subjectdp.errors import PrivacyError, expected
from subjectdp.io import atomic
from subjectdp.plan.rules import LEAST_NOISE, MOST_NOISE

_ENOUGH = 0.999  # ε(σ) must lie in [0.999, 1] times the target
_AIM = 0.9995
_NEAR = 0.01  # how near the search on the coarse grid has to come
_ROUNDS = 60
_SLOPE = -1.1  # about that of log ε against log σ
_BOUNDLESS = 1e8  # above, the least noise may be enough


def calibrate_noise_multiplier(
    loss: PrivacyLoss,
    epsilon: float,
    delta: float,
    accountant: str = "pld",
    guess: float | None = None,
    resolution: float = FINAL,
) -> float:
    """The noise multiplier that, common to all parts of ``loss`` (whose own are ignored), gives ε(σ) in [0.999 ε, ε] at
    δ.

    A value is accepted only after the accountant has evaluated its ε at full accuracy. A good ``guess`` shortens the
    search. A lower ``resolution`` of the grid is faster and gives more noise, never less. Raises ConfigError for an
    unknown accountant, PrivacyError if no value is found.
    """
    if not any(part.steps > 0 and part.shift.sensitivities[-1] > 0 for part in loss):
        raise expected("steps of the mechanism", 0, "at least one noisy step", PrivacyError)
    unit = gaussian.exact_mu(with_noise(loss, 1.0))
    if unit is not None and accountant == "pld":
        # unsampled Gaussians compose to one: σ = sqrt(Σ s²)/μ, nudged up until ε(σ) ≤ ε in floating point
        sigma = max(LEAST_NOISE, unit / gaussian.gdp_mu(epsilon, delta))
        while epsilon_of(with_noise(loss, sigma), delta) > epsilon:
            sigma *= 1 + 1e-12
        return sigma
    search = _Search(loss, epsilon, delta, accountant, resolution)
    if epsilon > _BOUNDLESS and epsilon_of(with_noise(loss, LEAST_NOISE), delta, accountant) <= epsilon:
        return LEAST_NOISE
    first = min(SEARCH, search.final) if accountant == "pld" and guess is None else search.final
    return search.run(_start(loss, epsilon, delta) if guess is None else guess, first)


def calibrate_many(losses: Sequence[PrivacyLoss], epsilon: float, delta: float, accountant: str) -> list[float]:
    """:func:`calibrate_noise_multiplier` of each of many losses that differ by steps and sampling probability.

    Each starts from its central limit, corrected as those before it, so that most need one evaluation, which certifies
    each: on the coarse grid, whose ε is about 0.05 % larger.
    """
    result: dict[PrivacyLoss, float] = {}
    known: list[tuple[int, float, float]] = []  # steps, log q and log of the correction
    for loss in sorted(set(losses), key=lambda loss: (loss[0].steps, loss[0].shift.probabilities[-1])):
        steps, size = loss[0].steps, math.log(loss[0].shift.probabilities[-1])
        start = math.log(_start(loss, epsilon, delta))
        corrected = known[-1][2] if known else 0.0
        if len(known) > 1 and known[-2][0] == steps and known[-2][1] < known[-1][1]:
            corrected += (known[-1][2] - known[-2][2]) * (size - known[-1][1]) / (known[-1][1] - known[-2][1])
        sigma = calibrate_noise_multiplier(loss, epsilon, delta, accountant, math.exp(start + corrected), SEARCH)
        reached = epsilon_of(with_noise(loss, sigma), delta, accountant, SEARCH)  # remembered by epsilon_of
        if 0 < reached < math.inf:
            known.append((steps, size, math.log(sigma) - start + math.log(_AIM * epsilon / reached) / _SLOPE))
        result[loss] = sigma
    return [result[loss] for loss in losses]


def _start(loss: PrivacyLoss, epsilon: float, delta: float) -> float:
    """σ by the central limit theorem: a good first guess for many small steps, a usable one otherwise."""
    goal = gaussian.gdp_mu(epsilon, delta)

    def gap(log_sigma: float) -> float:
        mu = gaussian.clt_mu(with_noise(loss, math.exp(log_sigma)))
        return math.log(max(min(mu, 1e200), 1e-200)) - math.log(goal)

    low, high = math.log(0.05), math.log(10.0)
    while gap(high) > 0:
        high += math.log(10)
    while gap(low) < 0:
        low -= math.log(2)
    return math.exp(float(optimize.brentq(gap, low, high, xtol=1e-6)))


class _Search:
    """Secant steps on log ε against log σ inside a bracket; a coarse grid first, then the certifying one."""

    def __init__(self, loss: PrivacyLoss, epsilon: float, delta: float, accountant: str, final: float) -> None:
        self.loss, self.epsilon, self.delta, self.accountant = loss, epsilon, delta, accountant
        self.final = final if accountant == "pld" else FINAL
        self.low, self.high = 0.0, math.inf  # ε(low) > target >= ε(high), at the current resolution
        self.known: list[tuple[float, float]] = []

    def run(self, sigma: float, resolution: float) -> float:
        for _ in range(_ROUNDS):
            sigma = min(max(sigma, LEAST_NOISE), MOST_NOISE)
            reached = self._epsilon(sigma, resolution)
            if resolution == self.final and _ENOUGH * self.epsilon <= reached <= self.epsilon:
                return sigma
            if resolution < self.final and abs(reached / self.epsilon - 1) < _NEAR:
                resolution = self.final
                sigma = self._secant(sigma, reached)
                self.low, self.high, self.known = 0.0, math.inf, []
                continue
            sigma = self._next(sigma, reached)
        if math.isfinite(self.high):  # on the coarse grid where δ covers the event whatever the noise
            coarse = resolution < self.final
            if not coarse or self._epsilon(self.high, self.final) <= self.epsilon:
                return self.high
        raise PrivacyError(f"No noise multiplier reaches epsilon {self.epsilon} at delta {self.delta}.")

    def _epsilon(self, sigma: float, resolution: float) -> float:
        return epsilon_of(with_noise(self.loss, sigma), self.delta, self.accountant, resolution)

    def _next(self, sigma: float, reached: float) -> float:
        if reached > self.epsilon:
            self.low = max(self.low, sigma)
        else:
            self.high = min(self.high, sigma)
        if 0 < reached < math.inf:
            self.known.append((math.log(sigma), math.log(reached)))
        guess = self._secant(sigma, reached)
        if self.low > 0 and math.isfinite(self.high) and not self.low < guess < self.high:
            return math.sqrt(self.low * self.high)
        return guess

    def _secant(self, sigma: float, reached: float) -> float:
        if not 0 < reached < math.inf:
            return sigma * (2.0 if reached > self.epsilon else 0.5)
        slope = _SLOPE
        if len(self.known) > 1 and self.known[-1][0] != self.known[-2][0]:
            (x0, y0), (x1, y1) = self.known[-2:]
            slope = min(-0.2, (y1 - y0) / (x1 - x0))
        return sigma * math.exp(min(50.0, (math.log(_AIM * self.epsilon) - math.log(reached)) / slope))


_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)
kept_folder = _FOLDER.get
"""Where this process keeps what is costly to compute, calibrations and fixed features; None: nowhere."""


@contextmanager
def kept_in(folder: Path | str) -> Iterator[None]:
    """What is computed meanwhile is kept in ``folder``, and taken from there if it is there already."""
    before = _FOLDER.set(Path(folder))
    try:
        yield
    finally:
        _FOLDER.reset(before)


REVISION = 2  # raise when a calibration's result changes for the same inputs
_memory: dict[str, Any] = {}


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions that a result depends on (Opacus: where it is installed)."""
    wanted = ("dp-accounting", "opacus", "scipy")
    installed = {each.name.lower() for name in wanted for each in metadata.distributions(name=name)}
    return {name: metadata.version(name) for name in wanted if name in installed}


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cached(kind: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
    """The stored result for these inputs, or ``compute()`` (JSON-able), stored with its hash in place of any other
    file, where results are kept (:func:`kept_in`)."""
    record = {"kind": kind, "inputs": inputs, "versions": versions()}
    key = _hash({**record, "revision": REVISION})
    folder = kept_folder()
    file = None if folder is None else folder / f"{key[:32]}.json"
    stored = None if file is None else _load(file, inputs)
    if key not in _memory:
        _memory[key] = compute() if stored is None else stored
    value = _memory[key]
    if file is not None and stored is None:
        atomic.write_json(file, {**record, "value": value, "sha256": _hash(value)})
    return value


def forget() -> None:
    _memory.clear()


def _load(path: Path, inputs: Mapping[str, Any]) -> Any:
    try:
        content = json.loads(path.read_text())
        same = content["inputs"] == json.loads(json.dumps(inputs))
        return content["value"] if same and content["sha256"] == _hash(content["value"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
