"""Excess loss of the papers' algorithms on a convex loss, measured through the same engine that trains everything.

Setting of section 4 of arXiv 2206.03617 v3: one data set (one silo), T steps of plain SGD from w_1 = 0, and the mean of
the iterates is scored. The model is :class:`subjectdp.models.linear.Logistic` and the clip norm its Lipschitz constant,
so that clipping changes nothing. The parameter space is a ball; steps are not projected into it, which the proofs need
only for the optimum that they compare with. Each algorithm has the learning rate at which its bound is least.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.accounting.plan_run import plan_run
from subjectdp.algorithms.registry import label
from subjectdp.config.models import RunConfig
from subjectdp.config.resolve import resolve_defaults
from subjectdp.data.partition import Partition, partition_subjects
from subjectdp.data.splits import DEFAULT_TEST_FRACTION, split_items
from subjectdp.data.spread import SpreadSettings
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_frame
from subjectdp.models.linear import LIPSCHITZ, Logistic
from subjectdp.plan.plan import DivisorRule, PrivacyPlan
from subjectdp.training.federation import Federation
from subjectdp.training.items.device_data import ResidentData
from subjectdp.training.record.records import Recorder
from subjectdp.training.run import make_federation
from subjectdp.utility import bounds
from subjectdp.utility.convex import Objective, Optimum, minimise
from subjectdp.utility.excess_loss_table import COLUMNS, EMPIRICAL, POPULATION
from subjectdp.utility.objective_weights import item_weights, subject_mean_weights

log = logging.getLogger(__name__)

ALGORITHMS = {
    "fed_avg": "no noise: the first two terms",
    "local_item_dp": "Theorem 4.8 with k = 1",
    "local_group_dp": "Theorem 4.8",
    "user_ldp": "Theorem 4.9",
    "higrad_avg_dp:v3": "Theorem 4.11",
}
"""Algorithm -> what bounds its excess loss."""

STEPS, SEEDS, RADIUS, POOL = 700, 3, 10.0, 4
_CHUNK = 4096  # images at once
_POINTS = 12  # numbers of steps at which the mean iterate is scored


@dataclass(frozen=True)
class _Ground:
    """Data, split and optima of one seed, shared by the algorithms."""

    base: RunConfig
    prepared: PreparedData
    partition: Partition
    train: tuple[Tensor, Tensor]  # features float64 (n, p), labels
    test: tuple[Tensor, Tensor]
    train_optimum: Optimum  # of equal weights
    test_optimum: Optimum


def write_utility(
    config: Mapping[str, Any],
    prepared_folder: Path | str,
    target_parquet: Path | str,
    cache_dir: Path | str | None = None,
    seeds: Sequence[int] = tuple(range(SEEDS)),
    steps: int = STEPS,
    report: Callable[[str], None] = log.info,
) -> pd.DataFrame:
    """Trains every algorithm of :data:`ALGORITHMS` for each seed; writes and returns utility.parquet.

    ``config`` is a run's configuration: its data, split, mini-batch size, ε and δ are taken, all else is set here
    (mini-batches are Poisson). Raises DataError for data that are not images, ConfigError for settings that do not fit.
    """
    prepared = load_prepared(prepared_folder)
    if prepared.kind != "image":
        raise expected("data of the convex model", prepared.kind, "images", DataError)
    cache, rows = None if cache_dir is None else Path(cache_dir), []
    for seed in seeds:
        ground = _ground(RunConfig.model_validate({**config, "seed": seed}), prepared)
        constant: float | None = None
        for name in ALGORITHMS:
            found, constant = _rows(ground, name, steps, cache, constant)
            rows += found
            report(
                f"seed {seed}, {name}: excess {found[-2]['excess']:.3f} nats, bound {found[-2]['bound']:.3f}"
            )
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    write_frame(target_parquet, table)
    return table


def _ground(base: RunConfig, prepared: PreparedData) -> _Ground:
    data = base.data
    kept = prepared if data.subjects is None else prepared.first_subjects(data.subjects)
    fraction = DEFAULT_TEST_FRACTION[kept.dataset] if data.test_fraction is None else data.test_fraction
    splits = split_items(kept, base.seed, fraction, data.validation_fraction)
    partition = partition_subjects(splits, list(kept.subject_ids), SpreadSettings(1), base.seed)
    resident, model = ResidentData(kept, torch.device("cpu")), Logistic(kept.classes, POOL)
    train = _features(resident, model, partition.train_items)
    test = _features(resident, model, partition.test_items)
    optima = [minimise(_evenly(part, kept.classes), RADIUS) for part in (train, test)]
    return _Ground(base, kept, partition, train, test, *optima)


def _evenly(part: tuple[Tensor, Tensor], classes: int) -> Objective:
    return Objective(*part, torch.from_numpy(item_weights(len(part[1]))), classes)


def _features(data: ResidentData, model: Logistic, items: NDArray[np.int32]) -> tuple[Tensor, Tensor]:
    chunks = np.array_split(items, math.ceil(len(items) / _CHUNK))
    batches = [data.batch(chunk) for chunk in chunks]
    features = [model.features(images).double() for images, _ in batches]
    return torch.cat(features), torch.cat([labels for _, labels in batches])


def _run(ground: _Ground, name: str, steps: int, learning_rate: float) -> RunConfig:
    """The run of an algorithm: one silo, one step a round, the Lipschitz constant as the clip norm."""
    base = ground.base
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
            "sampling": "poisson",
            "optimizer": {"name": "sgd", "learning_rate": learning_rate},
        },
        "model": {"name": "logistic", "parameters": {"pool": POOL}},
        "performance": base.performance.model_dump(),
    }
    return resolve_defaults(RunConfig.model_validate(changes))


def _rows(
    ground: _Ground, name: str, steps: int, cache: Path | None, constant: float | None
) -> tuple[list[dict[str, Any]], float | None]:
    """The rows of one algorithm and seed, and c₂ as LocalItemDP's noise implies it."""
    plan = plan_run(_run(ground, name, steps, 1.0), ground.partition, cache)
    problem = bounds.Problem(
        LIPSCHITZ, RADIUS, ground.train[0].shape[1] * ground.prepared.classes, len(ground.train[1])
    )
    rate = bounds.best_learning_rate(problem, plan.rounds, _planned_noise(plan))
    run = _run(ground, name, steps, rate)
    recorder = Recorder(run.run_id, plan.rounds, lambda line: None)
    federation = make_federation(run, plan, ground.prepared, ground.partition, torch.device("cpu"), recorder)
    means = _mean_iterates(federation, plan.rounds)
    noise = _noise_std(plan, recorder)
    schedule = _schedule(plan, rate, constant)
    if name == "local_item_dp":
        constant = bounds.constant_of(plan.silos[0].noise_multiplier, schedule)
        schedule = _schedule(plan, rate, constant)
    printed = _printed(name, problem, schedule, ground, plan) if constant is not None else math.nan
    common = _common(ground, name, plan, rate, noise, problem)
    return _scored(ground, plan, means, problem, rate, noise, printed, common), constant


def _mean_iterates(federation: Federation, steps: int) -> dict[int, Tensor]:
    """w̄_t = (w_1 + ... + w_t)/t at some t, the last step included; w_1 is the model before the first step."""
    chosen = {max(1, round(steps * place / _POINTS)) for place in range(1, _POINTS + 1)}
    total, found = torch.zeros_like(federation.theta, dtype=torch.float64), {}
    for step in range(1, steps + 1):
        total += federation.theta.double()
        if step in chosen:
            found[step] = total / step
        federation.run_round(step)
    return found


def _planned_noise(plan: PrivacyPlan) -> float:
    """The noise on a step's gradient that the plan lets expect, for the choice of the learning rate."""
    from subjectdp.accounting.sound import typical_group_size

    silo = plan.silos[0]
    group = typical_group_size(silo) if plan.group_noise_multipliers else 1
    return plan.noise_multiplier(0, group) * LIPSCHITZ / silo.divisor if plan.clip_norm is not None else 0.0


def _noise_std(plan: PrivacyPlan, recorder: Recorder) -> float:
    """Root mean square of σC/divisor over the steps that were run."""
    rows = np.array([(row[4], row[6]) for row in recorder.step_rows])
    realised = plan.mechanism.divisor_rule is DivisorRule.REALISED_SUBJECTS
    divisors = np.maximum(1, rows[:, 0]) if realised else plan.silos[0].divisor
    return float(np.sqrt(np.mean((rows[:, 1] * LIPSCHITZ / divisors) ** 2)))


def _schedule(plan: PrivacyPlan, learning_rate: float, constant: float | None) -> bounds.Schedule:
    settings, silo = plan.settings, plan.silos[0]
    return bounds.Schedule(
        learning_rate,
        plan.rounds,
        silo.sampling_probability,
        settings.epsilon,
        settings.delta,
        1.0 if constant is None else constant,
    )


def _printed(
    name: str, problem: bounds.Problem, schedule: bounds.Schedule, ground: _Ground, plan: PrivacyPlan
) -> float:
    """The algorithm's theorem to the letter, with c₂ as LocalItemDP's noise implies it."""
    from subjectdp.accounting.sound import typical_group_size

    if name == "user_ldp":
        return bounds.user_bound(problem, schedule, ground.base.training.batch_size)
    if name == "higrad_avg_dp:v3":
        return bounds.higrad_bound(problem, schedule, problem.items / ground.partition.subjects)
    group = typical_group_size(plan.silos[0]) if name == "local_group_dp" else 1
    return bounds.local_group_bound(problem, schedule, group)


def _scored(
    ground: _Ground,
    plan: PrivacyPlan,
    means: Mapping[int, Tensor],
    problem: bounds.Problem,
    rate: float,
    noise: float,
    printed: float,
    common: dict[str, Any],
) -> list[dict[str, Any]]:
    """Empirical and population excess of the mean iterates, beside their bounds."""
    classes = ground.prepared.classes
    fresh = _evenly(ground.test, classes), ground.test_optimum
    optima = {EMPIRICAL: _own(ground, plan), POPULATION: fresh}
    rows = []
    for step, mean in means.items():
        for quantity, (objective, optimum) in optima.items():
            loss = objective.value(mean.view(classes, -1))
            bound = bounds.empirical_bound(problem, rate, step, noise)
            if quantity == POPULATION:
                bound += bounds.stability(problem, rate, step)
            last = step == plan.rounds
            shown = printed if last and quantity == POPULATION else math.nan
            rows.append(
                {
                    **common,
                    "quantity": quantity,
                    "steps": step,
                    "loss": loss,
                    "optimum": optimum.lower,
                    "excess": loss - optimum.lower,
                    "bound": bound,
                    "bound_printed": shown,
                    "last": last,
                }
            )
    return rows


def _own(ground: _Ground, plan: PrivacyPlan) -> tuple[Objective, Optimum]:
    """The training loss that the plan's steps descend on, and its least value in the ball."""
    classes = ground.prepared.classes
    if plan.mechanism.divisor_rule is not DivisorRule.REALISED_SUBJECTS:
        return _evenly(ground.train, classes), ground.train_optimum
    weights = subject_mean_weights(ground.partition.train_subjects, plan.silos[0].sampling_probability)
    objective = Objective(*ground.train, torch.from_numpy(weights), classes)
    return objective, minimise(objective, RADIUS)


def _common(
    ground: _Ground, name: str, plan: PrivacyPlan, rate: float, noise: float, problem: bounds.Problem
) -> dict[str, Any]:
    algorithm, _, variant = name.partition(":")
    return {
        "dataset": ground.prepared.dataset,
        "synthetic": bool(ground.prepared.synthetic),
        "algorithm": name,
        "label": label(algorithm, variant or None),
        "theorem": ALGORITHMS[name],
        "seed": ground.base.seed,
        "subjects": ground.partition.subjects,
        "items": problem.items,
        "batch_size": ground.base.training.batch_size,
        "parameters": problem.dimension,
        "radius": problem.radius,
        "learning_rate": rate,
        "noise_std": noise,
        "epsilon": math.nan if name == "fed_avg" else plan.settings.epsilon,
    }
