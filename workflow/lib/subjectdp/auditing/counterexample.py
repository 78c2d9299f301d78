"""A counterexample to joint noise over several local steps (arXiv 2407.19286, Theorem 4.7), executed.

One silo holds the target, an item with a linear loss (gradient C). The items of the other silos have the loss ‖θ -
θ₀‖²/(2γ) around the round's starting model θ₀. One local step of rate γ takes such a silo back to θ₀, whatever noise it
added before, so the released sum contains only the noise of its last step. The variance of the sum is σ²C²(S + N - 1)
instead of the claimed σ²C²NS, while the target adds C in each step that samples it.

Every assumption of the theorem holds: gradients are clipped item by item, all silos share γ, C, σ, S and the sampling
probability, the data are disjoint, and each step draws new noise. The proof fails: Lemma 4.5 composes adaptively over
*released* sums, but a silo's later gradients depend on its own noise, which is not released.

The rounds execute the algorithm's own ``local_step`` and ``aggregate``, many independent rounds at a time in one
dimension. Lower bounds are Monte Carlo with exact confidence limits; the analysis only chooses the attack's threshold.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian
from subjectdp.accounting.renyi import SkellamMechanism, skellam_epsilon
from subjectdp.accounting.table1 import cancelled_noise_epsilon
from subjectdp.algorithms import joint_noise
from subjectdp.auditing.lower_bounds import counts_epsilon, log_ratios
from subjectdp.noise.keys import Purpose, numpy_generator

Floats = NDArray[np.float64]

DELTA = 1e-5
RUNS = 200_000
_RATE, _CLIP = 0.5, 2.0  # cancel in all results
_BATCH = 1000.0  # expected mini-batch; the more items, the closer a step of the other silos is to θ₀


@dataclass(frozen=True)
class Case:
    """N silos, S local steps before one aggregation, items sampled with probability q, noise multiplier σ."""

    silos: int
    local_steps: int
    sampling_probability: float
    noise_multiplier: float

    @property
    def claimed_variance(self) -> float:
        """σ²NS, in units of C²: what Theorem 4.7 accounts for."""
        return self.noise_multiplier**2 * self.silos * self.local_steps

    @property
    def remaining_variance(self) -> float:
        """σ²(S + N - 1): the target's silo keeps all its noise, the others their last step's."""
        return self.noise_multiplier**2 * (self.local_steps + self.silos - 1)


_NOISE = {1: 0.690, 2: 0.754, 5: 0.832, 10: 0.902, 20: 1.002, 50: 1.179}
_OTHERS = (Case(5, 50, 0.1, 1.179), Case(10, 50, 1.0, 6.0))
CASES = (*(Case(10, steps, 0.1, sigma) for steps, sigma in _NOISE.items()), *_OTHERS)
"""Noise as in Table 1, each silo alone at ε = 5 by the paper's accounting, and one case without sampling."""


class _Rounds:
    """The server (``algorithms.base.Server``) of ``runs`` independent rounds; a model is one number."""

    def __init__(self, case: Case, present: bool, runs: int, random: np.random.Generator) -> None:
        self.case, self.present, self.random = case, present, random
        self.silo_count = case.silos
        self.model = torch.zeros(runs, dtype=torch.float64)
        self.released = self.model

    def models(self) -> Iterator[Tensor]:
        for silo in range(self.case.silos):
            theta = self.model.clone()
            for _ in range(self.case.local_steps):
                step: Any = _Step(self, silo, theta)
                theta -= _RATE * joint_noise.local_step(step)
            yield theta

    def set_model(self, model: Tensor) -> None:
        self.released = model


class _Step:
    """One local step (``algorithms.base.LocalStep``) of one silo in all rounds; sizes stand for mini-batches."""

    def __init__(self, rounds: _Rounds, silo: int, theta: Tensor) -> None:
        self.rounds, self.silo, self.theta = rounds, silo, theta

    def sample_batch(self) -> Tensor:
        """Items in each round's mini-batch; at the target's silo only the target counts (the rest has gradient 0)."""
        random, q = self.rounds.random, self.rounds.case.sampling_probability
        items = int(self.rounds.present) if self.silo == 0 else round(_BATCH / q)
        return torch.from_numpy(random.binomial(items, q, len(self.theta)).astype(np.float64))

    def clipped_sum(self, batch: Tensor) -> Tensor:
        """The number of items times the clipped gradient, which all items of a silo share."""
        if self.silo == 0:
            return batch * _CLIP
        gradient = (self.theta - self.rounds.model) / _RATE
        return batch * gradient.clamp(-_CLIP, _CLIP)

    def noise_multiplier(self, batch: Tensor) -> float:
        return self.rounds.case.noise_multiplier

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        return total + noise_multiplier * _CLIP * torch.from_numpy(self.rounds.random.standard_normal(len(total)))

    def divisor(self, batch: Tensor) -> float:
        return _BATCH


def releases(case: Case, present: bool, runs: int, seed: int = 0) -> Floats:
    """What the server learns in ``runs`` independent rounds: Σ_i Δ_i in units of -γC/B, with or without the target."""
    key = (case.silos, case.local_steps, repr(case.sampling_probability), repr(case.noise_multiplier))
    random = numpy_generator(seed, Purpose.AUDIT, "counterexample", "present" if present else "absent", *key)
    rounds: Any = _Rounds(case, present, runs, random)
    joint_noise.aggregate(rounds, rounds.models())
    total = (rounds.released - rounds.model) * case.silos
    released: Floats = (total * (-_BATCH / (_RATE * _CLIP))).numpy()
    return released


def threshold(case: Case, runs: int, delta: float = DELTA) -> float:
    """The threshold with the best lower bound from the expected counts of ``runs`` runs, by the model of the module's
    text."""
    std = case.remaining_variance**0.5
    places = np.linspace(0.0, 6.0 * std + case.local_steps, 2001)
    counts = np.arange(case.local_steps + 1)
    masses = stats.binom.pmf(counts, case.local_steps, case.sampling_probability)
    alarms = np.floor(runs * stats.norm.sf(places / std))
    hits = np.floor(runs * (stats.norm.sf((places[:, None] - counts) / std) @ masses))
    return float(places[int(np.argmax(log_ratios(hits, runs, alarms, runs, delta)))])


def claimed_epsilon(case: Case, delta: float = DELTA) -> tuple[float, float]:
    """ε of S steps with noise σ√N: by the paper's Rényi accounting, and by privacy loss distributions."""
    total = case.noise_multiplier * case.silos**0.5
    paper, _ = skellam_epsilon(SkellamMechanism(total), case.sampling_probability, case.local_steps, delta)
    return paper, stepwise_epsilon(case, total, delta)


def stepwise_epsilon(case: Case, sigma: float, delta: float = DELTA) -> float:
    """ε of S steps with noise σ: with each silo's own noise alone it holds for any number of local steps."""
    return epsilon_of((MixtureSteps(sigma, sampled_gaussian(case.sampling_probability), case.local_steps),), delta)


def demonstrate(case: Case, runs: int = RUNS, seed: int = 0, delta: float = DELTA) -> dict[str, float]:
    """Runs the case ``runs`` times with and without the target and compares the outcome with the claims."""
    absent, present = (releases(case, world, runs, seed) for world in (False, True))
    cut = threshold(case, runs, delta)
    hits, alarms = int((present > cut).sum()), int((absent > cut).sum())
    paper, tight = claimed_epsilon(case, delta)
    q, sigma = case.sampling_probability, case.noise_multiplier
    return {
        **asdict(case),
        "runs": runs,
        "variance_claimed": case.claimed_variance,
        "variance_remaining": case.remaining_variance,
        "variance_measured": float(absent.var()),  # of releases without the target, in units of C²
        "epsilon_claimed": paper,  # the paper's accounting (Rényi, Mironov's conversion)
        "epsilon_claimed_tight": tight,  # the same claim by privacy loss distributions
        "epsilon_released": cancelled_noise_epsilon(case.silos, case.local_steps, q, sigma, delta),  # of the sum
        "epsilon_own_noise": stepwise_epsilon(case, sigma, delta),  # holds for any number of local steps
        "lower_bound": counts_epsilon(hits, runs, alarms, runs, delta),  # Monte Carlo, 95 %
        "threshold": cut,  # in units of C; a release above it is a guess that the target takes part
        "true_positive_rate": hits / runs,
        "false_positive_rate": alarms / runs,
    }


def table(cases: Sequence[Case] = CASES, runs: int = RUNS, seed: int = 0) -> pd.DataFrame:
    """A row for each case, with the columns of :func:`demonstrate`."""
    return pd.DataFrame([demonstrate(case, runs, seed) for case in cases])
