"""Section 4 of arXiv 2206.03617 v3: upper bounds on the loss of DP training on convex, Lipschitz losses.

| symbol | here |
| --- | --- |
| L | ``lipschitz``: Lipschitz constant of the loss, and the clip norm |
| M | ``radius`` of the parameter space, which holds the start and the optimum |
| η, T | ``learning_rate``, ``steps`` |
| d, n | ``dimension`` of the model, ``items`` of the data set |
| q, m | ``sampling_probability`` of an item, ``batch_size`` |
| k | ``group``: items of a subject in a mini-batch (Lemma 4.7), expected items of a subject (Lemma 4.10) |
| c₂ | ``constant`` of Abadi et al.'s Theorem 1, which no paper gives a number for |
| σ | ``noise_std``: standard deviation of the noise on a step's gradient, in each coordinate |

The paper lets σ be both the noise on the gradient (the term ησ²d of its Lemma 4.7) and the noise multiplier of the sum
(equation 9), which differ by C/B. :func:`empirical_bound` takes the noise on the gradient, as its proof does. The
functions named after theorems follow the printed statements (D-71). All losses are in nats.
"""

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Problem:
    lipschitz: float
    radius: float
    dimension: int
    items: int


@dataclass(frozen=True)
class Schedule:
    """The training, its (ε, δ), and c₂ (``constant``)."""

    learning_rate: float
    steps: int
    sampling_probability: float
    epsilon: float
    delta: float
    constant: float


def empirical_bound(problem: Problem, learning_rate: float, steps: int, noise_std: float, group: float = 1.0) -> float:
    """Bound on E[L̂(w̄_T)] - min L̂: kM²/(2ηT) + ηL²/(2k) + ησ²d (proofs of Lemmas 4.7, k = 1, and 4.10).

    w̄_T is the mean of the iterates w_1 = 0, ..., w_T of w ← w - (η/k)·(gradient of norm at most L) - η·noise. Holds
    for 1 ≤ k ≤ 2, the noise term with a factor of 2 to spare.
    """
    drift = group * problem.radius**2 / (2 * learning_rate * steps)
    gradient = learning_rate * problem.lipschitz**2 / (2 * group)
    return drift + gradient + learning_rate * noise_std**2 * problem.dimension


def best_learning_rate(problem: Problem, steps: int, noise_std: float) -> float:
    """η that minimises :func:`empirical_bound` for k = 1: M / √(T (L² + 2σ²d))."""
    moment = problem.lipschitz**2 + 2 * noise_std**2 * problem.dimension
    return problem.radius / math.sqrt(steps * moment)


def stability(problem: Problem, learning_rate: float, steps: int) -> float:
    """Bound on the population loss minus the empirical loss: L²η(T+1)/n (Theorem 4.6)."""
    return problem.lipschitz**2 * learning_rate * (steps + 1) / problem.items


def item_noise(schedule: Schedule) -> float:
    """The noise multiplier at item level, c₂ q √(T log(1/δ)) / ε (equation 9)."""
    s = schedule
    return s.constant * s.sampling_probability * math.sqrt(s.steps * math.log(1 / s.delta)) / s.epsilon


def constant_of(noise_multiplier: float, schedule: Schedule) -> float:
    """The c₂ for which equation 9 gives ``noise_multiplier``, whatever ``schedule.constant`` is."""
    return noise_multiplier * schedule.constant / item_noise(schedule)


def local_group_bound(problem: Problem, schedule: Schedule, group: float) -> float:
    """Theorem 4.8, as printed: bound on LocalGroupDP's excess population loss.
    M²/(2ηT) + ηL²/2 + ηd (c₂²k²q²/ε²) T log(k e^{(k-1)ε/k}/δ) + L²η(T+1)/n."""
    s = schedule
    log = math.log(group) + (group - 1) * s.epsilon / group - math.log(s.delta)
    scale = (s.constant * group * s.sampling_probability / s.epsilon) ** 2
    noise = s.learning_rate * problem.dimension * scale * s.steps * log
    plain = empirical_bound(problem, s.learning_rate, s.steps, 0.0)
    return plain + noise + stability(problem, s.learning_rate, s.steps)


def user_bound(problem: Problem, schedule: Schedule, batch_size: float) -> float:
    """Theorem 4.9, as printed, for UserLDP: Theorem 4.8 with the mini-batch as the group and q = 1."""
    return local_group_bound(problem, replace(schedule, sampling_probability=1.0), batch_size)


def higrad_bound(problem: Problem, schedule: Schedule, group: float) -> float:
    """Theorem 4.11, as printed: bound on HiGradAvgDP's excess population loss.
    (k²M² + η²TL²)/(2kηT) + ηd (c₂²k²q²/ε²) T log(1/δ) + L²η(T+1)/n."""
    s = schedule
    noise = s.learning_rate * problem.dimension * (group * item_noise(s)) ** 2
    plain = empirical_bound(problem, s.learning_rate, s.steps, 0.0, group)
    return plain + noise + stability(problem, s.learning_rate, s.steps)
