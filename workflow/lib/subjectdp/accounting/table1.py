"""Table 1 of the joint-noise paper (arXiv 2407.19286), with the tight and the provable ε beside the printed one."""

import math
from dataclasses import dataclass
from functools import lru_cache

from scipy import optimize, stats

from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, Shift, sampled_gaussian
from subjectdp.accounting.renyi import SkellamMechanism, skellam_epsilon

DELTA, SAMPLING_PROBABILITY, LOCAL_EPSILON = 1e-5, 0.1, 5.0
PARTIES = (1, 2, 5, 10)
_PRINTED = {  # local steps: (σ, ε) for each number of parties as the paper prints them
    1: ((0.69, 5.00), (0.98, 2.78), (1.54, 1.22), (2.18, 0.64)),
    10: ((0.90, 5.00), (1.28, 2.61), (2.02, 1.19), (2.85, 0.72)),
    50: ((1.18, 5.00), (1.67, 2.85), (2.64, 1.55), (3.73, 1.03)),
}
PRINTED = {(n, s): pair for n, row in _PRINTED.items() for s, pair in zip(PARTIES, row, strict=True)}


@dataclass(frozen=True)
class Row:
    """One cell of the paper's table. ``epsilon``: the paper's accounting at ``sigma_total``, the noise of the sum.

    ``epsilon_tight``: PLD of Gaussian noise with it, as if Theorem 4.7 were true. ``epsilon_sound``: the proven ε; for
    more than one local step each party's own noise alone counts. ``epsilon_lower``: of the counterexample; no proof
    gives less.
    """

    local_steps: int
    parties: int
    sigma_local: float
    sigma_total: float
    epsilon: float
    order: int
    epsilon_tight: float
    epsilon_sound: float
    epsilon_lower: float
    sigma_printed: float
    epsilon_printed: float


def rows() -> list[Row]:
    """The twelve rows, by local steps and then parties."""
    return [_row(steps, parties) for steps, parties in PRINTED]


def _row(steps: int, parties: int) -> Row:
    def tight(sigma: float) -> float:
        return epsilon_of((MixtureSteps(sigma, sampled_gaussian(SAMPLING_PROBABILITY), steps),), DELTA)

    local = skellam_noise(LOCAL_EPSILON, DELTA, SAMPLING_PROBABILITY, steps)
    total = local * math.sqrt(parties)
    epsilon, order = skellam_epsilon(SkellamMechanism(total), SAMPLING_PROBABILITY, steps, DELTA)
    sigma_printed, epsilon_printed = PRINTED[steps, parties]
    return Row(
        local_steps=steps,
        parties=parties,
        sigma_local=local,
        sigma_total=total,
        epsilon=epsilon,
        order=int(order),
        epsilon_tight=tight(total),
        epsilon_sound=tight(total if steps == 1 else local),
        epsilon_lower=cancelled_noise_epsilon(parties, steps, SAMPLING_PROBABILITY, local, DELTA),
        sigma_printed=sigma_printed,
        epsilon_printed=epsilon_printed,
    )


@lru_cache(maxsize=64)
def skellam_noise(epsilon: float, delta: float, q: float, steps: int, scale: float = 2.0**16) -> float:
    """The noise multiplier at which the paper's accounting gives exactly ε for one party."""

    def gap(log_sigma: float) -> float:
        return skellam_epsilon(SkellamMechanism(math.exp(log_sigma), scale=scale), q, steps, delta)[0] - epsilon

    low, high = math.log(0.1), math.log(2.0)
    while gap(high) > 0:
        high += 1.0
    while gap(low) < 0:
        low -= 0.5
    return math.exp(float(optimize.brentq(gap, low, high, xtol=1e-13)))


def cancelled_noise_epsilon(parties: int, steps: int, q: float, sigma: float, delta: float) -> float:
    """ε of the sum if every other party cancels its noise in all steps but the last (``auditing.counterexample``).
    N(0, σ²(S+N-1)) against the same plus Binomial(S, q), in units of C."""
    counts = range(steps + 1)
    masses = stats.binom.pmf(counts, steps, q)
    shift = Shift.of([float(count) for count in counts], (masses / masses.sum()).tolist())
    return epsilon_of((MixtureSteps(sigma * math.sqrt(steps + parties - 1), shift, 1),), delta)


def text() -> str:
    header = "steps  parties  sigma_total  (printed)   epsilon  (printed)   order   tight   sound\n"
    lines = [
        f"{row.local_steps:5d}  {row.parties:7d}  {row.sigma_total:11.4f}  {row.sigma_printed:9.2f}  "
        f"{row.epsilon:8.4f}  {row.epsilon_printed:9.2f}  {row.order:6d}  {row.epsilon_tight:6.3f}  "
        f"{row.epsilon_sound:6.3f}"
        for row in rows()
    ]
    return header + "\n".join(lines)


if __name__ == "__main__":
    print(text())
