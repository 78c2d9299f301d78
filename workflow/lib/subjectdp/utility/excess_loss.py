"""Excess loss of the papers' algorithms on a convex loss, measured with the engine that trains all models, and bounds.

The setting is section 4 of arXiv 2206.03617 v3: one silo, T steps of plain SGD from w_1 = 0; the mean of the iterates
is scored. The clip norm is the Lipschitz constant of :class:`subjectdp.models.linear.Logistic`, so clipping changes
nothing. Steps are not projected into the ball of parameters: the proofs need it only for the optimum. Each algorithm
uses the learning rate that minimises its bound. The bounds are that section's, on DP training with Lipschitz losses.

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

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.accounting.make_plan import plan_run
from subjectdp.accounting.sound import typical_group_size
from subjectdp.algorithms.registry import label
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import PartitionConfig
from subjectdp.data.partition import Partition, partition_subjects, taken_and_split
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_frame
from subjectdp.models.linear import LIPSCHITZ, Logistic
from subjectdp.plan.plan import DivisorRule, NoiseRule, PrivacyPlan
from subjectdp.plan.rules import expected_batch
from subjectdp.training.device_data import DeviceDataset
from subjectdp.training.federation import RunInputs, make_federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round
from subjectdp.utility import EMPIRICAL, EXCESS_COLUMNS, POPULATION

log = logging.getLogger(__name__)

STEPS, SEEDS, RADIUS, POOL = 700, 3, 10.0, 4
_CHUNK = 4096  # images at once
_POINTS = 12  # numbers of steps at which the mean iterate is scored


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


@dataclass(frozen=True)
class _SeedData:
    base: RunConfig
    prepared: PreparedData
    partition: Partition
    train: tuple[Tensor, Tensor]  # features float64 (n, p), labels
    test: tuple[Tensor, Tensor]
    train_optimum: Optimum  # of equal weights
    test_optimum: Optimum

    @property
    def problem(self) -> Problem:
        dimension = self.train[0].shape[1] * self.prepared.classes
        return Problem(LIPSCHITZ, RADIUS, dimension, len(self.train[1]))


_ITEM_LEVEL = "local_item_dp"
THEOREMS: dict[str, tuple[str, Callable[[Problem, Schedule, float], float] | None]] = {
    "fed_avg": ("no noise: the first two terms", None),
    _ITEM_LEVEL: ("Theorem 4.8 with k = 1", local_group_bound),
    "local_group_dp": ("Theorem 4.8", local_group_bound),
    "user_ldp": ("Theorem 4.9", user_bound),
    "higrad_avg_dp:v3": ("Theorem 4.11", higrad_bound),
}
"""The measured algorithms, ``name`` or ``name:variant``, and their theorems: words, and the bound with noise."""
_GROUPS: dict[str, Callable[[_SeedData, PrivacyPlan], float]] = {  # k of a bound; 1 for others
    "local_group_dp": lambda data, plan: typical_group_size(plan.silos[0]),
    "user_ldp": lambda data, plan: expected_batch(plan.settings, plan.silos[0].items),
    "higrad_avg_dp:v3": lambda data, plan: len(data.train[1]) / data.partition.subjects,
}


@dataclass(frozen=True)
class _Trained:
    """One algorithm's training: the noise std is the root mean square over all steps and coordinates."""

    plan: PrivacyPlan
    learning_rate: float
    noise_std: float
    means: dict[int, Tensor]


def write_utility(
    config: Mapping[str, Any],
    prepared_folder: Path | str,
    target_parquet: Path | str,
    seeds: Sequence[int] = tuple(range(SEEDS)),
    steps: int = STEPS,
) -> pd.DataFrame:
    """Trains every algorithm of :data:`THEOREMS` for each seed; writes and returns utility.parquet.

    Of the run's configuration data, split, mini-batch size, ε and δ are used (mini-batches are Poisson). Raises
    DataError for data that are not images, ConfigError for settings that do not fit.
    """
    prepared = load_prepared(prepared_folder)
    if prepared.kind != "image":
        raise expected("data of the convex model", prepared.kind, "images", DataError)
    rows: list[dict[str, Any]] = []
    for seed in seeds:
        data = _seed_data(RunConfig.model_validate({**config, "seed": seed}), prepared)
        item_level = plan_run(_run(data, _ITEM_LEVEL, steps, 1.0), data.partition)
        # c₂ for which equation 9 gives LocalItemDP's noise multiplier
        constant = constant_of(item_level.silos[0].noise_multiplier, _schedule(item_level, 1.0, 1.0))
        for name in THEOREMS:
            rows += _rows(data, name, _train(data, name, steps), constant)
            excess, bound = rows[-2]["excess"], rows[-2]["bound"]
            log.info(f"seed {seed}, {name}: excess {excess:.3f} nats, bound {bound:.3f}")
    table = pd.DataFrame(rows, columns=list(EXCESS_COLUMNS))
    write_frame(target_parquet, table)
    return table


def _seed_data(base: RunConfig, prepared: PreparedData) -> _SeedData:
    kept, splits = taken_and_split(prepared, base)
    partition = partition_subjects(splits, kept.subject_ids, PartitionConfig(silos=1), base.seed)
    resident, model = DeviceDataset(kept, torch.device("cpu")), Logistic(kept.classes, kept.shape, POOL)
    train = _features(resident, model, partition.train_items)
    test = _features(resident, model, partition.test_items)
    optima = [minimise(_equally_weighted(part, kept.classes), RADIUS) for part in (train, test)]
    return _SeedData(base, kept, partition, train, test, *optima)


def _equally_weighted(part: tuple[Tensor, Tensor], classes: int) -> Objective:
    items = len(part[1])
    return Objective(*part, torch.full((items,), 1.0 / items, dtype=torch.float64), classes)


def _features(data: DeviceDataset, model: Logistic, items: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
    batches = [data.batch(chunk) for chunk in np.array_split(items, math.ceil(len(items) / _CHUNK))]
    features = [model.features(images).double() for images, _ in batches]
    return torch.cat(features), torch.cat([labels for _, labels in batches])


def _run(data: _SeedData, name: str, steps: int, learning_rate: float) -> RunConfig:
    """The run of an algorithm: one silo, one step a round, the Lipschitz constant as the clip norm."""
    base = data.base
    changes: dict[str, Any] = {
        "seed": base.seed,
        "data": base.data.model_dump(),
        "partition": {"silos": 1},
        "algorithm": name,
        "privacy": {"epsilon": base.privacy.epsilon, "delta": base.privacy.delta, "clip_norm": LIPSCHITZ},
        "training": {
            "rounds": steps,
            "local_steps": 1,
            "batch_size": base.training.batch_size,
            "sampling_fraction": base.training.sampling_fraction,
            "sampling": "poisson",
            "optimizer": {"name": "sgd", "learning_rate": learning_rate},
        },
        "model": {"name": "logistic", "parameters": {"pool": POOL}},
        "performance": base.performance.model_dump(),
    }
    return load_run(changes)


def _train(data: _SeedData, name: str, steps: int) -> _Trained:
    plan = plan_run(_run(data, name, steps, 1.0), data.partition)
    planned_noise = 0.0
    if plan.clip_norm is not None:
        group = typical_group_size(plan.silos[0]) if plan.group_noise_multipliers else 1
        planned_noise = plan.noise_multiplier(0, group) * LIPSCHITZ / plan.silos[0].divisor
    rate = best_learning_rate(data.problem, plan.rounds, planned_noise)
    run = _run(data, name, steps, rate)
    federation = make_federation(RunInputs(run, plan, data.prepared, data.partition), torch.device("cpu"))
    model, log, stds = GlobalModel(federation), StepLog(), list[float]()
    realised = plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS

    def iterates() -> Iterator[Tensor]:
        """The model before each of the plan's steps, one a round."""
        for round_ in range(1, plan.rounds + 1):
            yield model.vector
            run_round(federation, model, round_, log)
            for step in log.take():
                divisor = max(1, step.subjects) if realised else plan.silos[0].divisor
                stds.append(step.noise_multiplier * LIPSCHITZ / divisor)

    means = _mean_iterates(iterates(), plan.rounds)  # which trains, and fills stds
    return _Trained(plan, rate, float(np.sqrt(np.mean(np.square(stds)))), means)


def _mean_iterates(iterates: Iterable[Tensor], steps: int) -> dict[int, Tensor]:
    """w̄_t = (w_1 + ... + w_t)/t at some t, the last of ``steps`` included; w_1 is the model before the first step."""
    chosen = {max(1, round(steps * place / _POINTS)) for place in range(1, _POINTS + 1)}
    total, means = torch.zeros((), dtype=torch.float64), {}
    for step, model in enumerate(iterates, start=1):
        total = total + model.double()
        if step in chosen:
            means[step] = total / step
    return means


def _schedule(plan: PrivacyPlan, learning_rate: float, constant: float) -> Schedule:
    settings, probability = plan.settings, plan.silos[0].sampling_probability
    return Schedule(learning_rate, plan.rounds, probability, settings.epsilon, settings.delta, constant)


def _objectives(data: _SeedData, plan: PrivacyPlan) -> dict[str, tuple[Objective, Optimum, float]]:
    """What each quantity is the excess of, with its optimum and its value at the start."""
    classes = data.prepared.classes
    training, optimum = _equally_weighted(data.train, classes), data.train_optimum
    if plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS:  # what the plan's steps descend on
        weights = subject_mean_weights(data.partition.train_subjects, plan.silos[0].sampling_probability)
        training = Objective(*data.train, torch.from_numpy(weights), classes)
        optimum = minimise(training, RADIUS)
    chosen = {EMPIRICAL: (training, optimum), POPULATION: (_equally_weighted(data.test, classes), data.test_optimum)}
    start = torch.zeros(classes, data.problem.dimension // classes)
    return {quantity: (each, least, each.value(start)) for quantity, (each, least) in chosen.items()}


def _rows(data: _SeedData, name: str, trained: _Trained, constant: float) -> list[dict[str, Any]]:
    plan, rate, classes = trained.plan, trained.learning_rate, data.prepared.classes
    common, printed = _common(data, name, trained), _printed_bound(data, name, trained, constant)
    objectives = _objectives(data, plan)
    rows = []
    for step, mean in trained.means.items():
        for quantity, (objective, optimum, at_start) in objectives.items():
            loss = objective.value(mean.view(classes, -1))
            bound = empirical_bound(data.problem, rate, step, trained.noise_std)
            if quantity == POPULATION:
                bound += stability(data.problem, rate, step)
            last = step == plan.rounds
            scores = {
                "quantity": quantity,
                "steps": step,
                "loss": loss,
                "optimum": optimum.lower,
                "excess": loss - optimum.lower,
                "excess_at_start": at_start - optimum.lower,
                "bound": bound,
                "bound_printed": printed if last and quantity == POPULATION else math.nan,
                "last": last,
            }
            rows.append(common | scores)
    return rows


def _printed_bound(data: _SeedData, name: str, trained: _Trained, constant: float) -> float:
    if (bound := THEOREMS[name][1]) is None:
        return math.nan
    group = _GROUPS[name](data, trained.plan) if name in _GROUPS else 1.0
    return bound(data.problem, _schedule(trained.plan, trained.learning_rate, constant), group)


def _common(data: _SeedData, name: str, trained: _Trained) -> dict[str, Any]:
    algorithm, _, variant = name.partition(":")
    private = trained.plan.mechanism.noise_rule is not NoiseRule.NONE
    return {
        "dataset": data.prepared.dataset,
        "synthetic": bool(data.prepared.synthetic),
        "algorithm": name,
        "label": label(algorithm, variant or None),
        "theorem": THEOREMS[name][0],
        "seed": data.base.seed,
        "subjects": data.partition.subjects,
        "items": data.problem.items,
        "batch_size": expected_batch(data.base.training, len(data.train[1])),
        "parameters": data.problem.dimension,
        "radius": data.problem.radius,
        "learning_rate": trained.learning_rate,
        "noise_std": trained.noise_std,
        "epsilon": trained.plan.settings.epsilon if private else math.nan,
    }


_MOST_STEPS = 20_000
_NODES = 64  # of Gauss-Legendre: exact for fewer than 128 subjects, within 1e-12 for any number


@dataclass(frozen=True)
class Objective:
    """F(W) = Σ_j ω_j CE(W φ_j, y_j), convex in W (classes, p): float64 φ (n, p) and ω (n,) of sum 1, int64 y (n,)."""

    features: Tensor
    labels: Tensor
    weights: Tensor
    classes: int

    def value(self, model: Tensor) -> float:
        """F at ``model`` (classes, p) in nats."""
        return float(self._losses(self.features @ model.double().T)[0] @ self.weights)

    def value_and_gradient(self, model: Tensor) -> tuple[float, Tensor]:
        """F and ∇F (classes, p)."""
        logits = self.features @ model.T
        losses, log_z = self._losses(logits)
        residual = torch.exp(logits - log_z.unsqueeze(1))
        residual[torch.arange(len(residual)), self.labels] -= 1.0
        return float(losses @ self.weights), (residual * self.weights.unsqueeze(1)).T @ self.features

    def _losses(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        log_z = torch.logsumexp(logits, dim=1)
        return log_z - logits.gather(1, self.labels.unsqueeze(1)).squeeze(1), log_z

    def smoothness(self) -> float:
        """An upper bound on the largest curvature: half the largest eigenvalue of Σ_j ω_j φ_j φ_jᵀ."""
        second = (self.features * self.weights.unsqueeze(1)).T @ self.features
        return 0.5 * float(torch.linalg.eigvalsh(second)[-1])


@dataclass(frozen=True)
class Optimum:
    """A point of the ball and how good it is: min F ∈ [``value`` - ``gap``, ``value``]."""

    model: Tensor  # float64 (classes, p)
    value: float
    gap: float

    @property
    def lower(self) -> float:
        return self.value - self.gap


def minimise(objective: Objective, radius: float, tolerance: float = 1e-3) -> Optimum:
    """The minimum of F over ‖W‖ ≤ ``radius``, up to ``tolerance`` nats; DataError if 20,000 steps do not certify it."""
    rate = 1.0 / max(objective.smoothness(), 1e-12)
    point = torch.zeros(objective.classes, objective.features.shape[1], dtype=torch.float64)
    ahead, momentum = point, 1.0
    for _ in range(_MOST_STEPS):
        value, gradient = objective.value_and_gradient(ahead)
        gap = float((gradient * ahead).sum() + radius * torch.linalg.vector_norm(gradient))
        if gap <= tolerance and float(torch.linalg.vector_norm(ahead)) <= radius * (1 + 1e-12):
            return Optimum(ahead, value, gap)
        following = _into_ball(ahead - rate * gradient, radius)
        if float(((ahead - following) * (following - point)).sum()) > 0:  # restart: the momentum leads uphill
            momentum, ahead, point = 1.0, following, following
            continue
        faster = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = _into_ball(following + (momentum - 1) / faster * (following - point), radius)
        point, momentum = following, faster
    raise expected("gap to the optimum", gap, f"at most {tolerance} after {_MOST_STEPS} steps", DataError)


def _into_ball(model: Tensor, radius: float) -> Tensor:
    norm = float(torch.linalg.vector_norm(model))
    return model * (radius / norm) if norm > radius else model


def subject_mean_weights(owners: NDArray[np.int32], sampling_probability: float) -> NDArray[np.float64]:
    """E[1{j in S} / (|S_a| · subjects(S))] for each item j of subject a, scaled to sum 1: float64 (items,).

    An item's weight in an expected step of HiGradAvgDP with Poisson mini-batches. Subject a is in the mini-batch with
    p_a = 1 - (1 - q)^{n_a}; its n_a items share its weight. E[1/(1 + X)] = ∫₀¹ E[t^X] dt for the number X of other
    subjects, whose generating function is a product.
    """
    subjects, inverse, counts = np.unique(owners, return_inverse=True, return_counts=True)
    present = np.ones(len(subjects))
    if sampling_probability < 1:
        present = -np.expm1(counts * np.log1p(-sampling_probability))
    nodes, masses = np.polynomial.legendre.leggauss(_NODES)
    t = (nodes + 1) / 2
    logs = np.log1p(-np.outer(present, 1 - t))  # (subjects, nodes): log of one subject's generating function
    others = np.exp(logs.sum(axis=0) - logs)
    shares = present * (others @ masses / 2)
    weights: NDArray[np.float64] = (shares / counts)[inverse]
    weights /= weights.sum()
    return weights
