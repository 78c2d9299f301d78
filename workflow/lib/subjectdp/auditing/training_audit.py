"""One-run audit of a real training: the training federation with canaries, and an observer of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.base import RoundRule
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.lower_bounds import Guesses, guess
from subjectdp.auditing.vector import LikelihoodRatio, likelihood_ratios, public_divisor
from subjectdp.config.run import load_run
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import load_prepared
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ModelError, PrivacyError, expected
from subjectdp.models.build import build_model
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import (
    AccountingMode,
    FederationFacts,
    Mechanism,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    TrustModel,
)
from subjectdp.training.device_data import DeviceDataset
from subjectdp.training.federation import Federation, noise_name
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, evaluate, run_round

GRADIENT = 4.0  # a canary's unclipped gradient norm, in units of C


@dataclass(frozen=True)
class TrainingAudit:
    """Result of one audited training: each canary's score, which canaries took part, and the guesses' outcome."""

    plan: PrivacyPlan
    scores: NDArray[np.float32]
    members: NDArray[np.bool_]
    outcome: Guesses
    accuracy: float  # of the trained model on the test items, NaN without any


def _watched(
    rule: RoundRule, plan: PrivacyPlan, scores: Mapping[int, LikelihoodRatio], where: slice, total: Tensor
) -> RoundRule:
    """The round with its own local step, whose result is scored before it is returned.

    Scores (by silo) of the gradient's part ``where`` are added to ``total``: of each noisy local step, or as published,
    where the server receives models, of each round's sum of them.
    """
    models = plan.mechanism.mode is AccountingMode.AS_PUBLISHED
    sums = {silo: torch.zeros_like(total) for silo in scores}

    def local_step(step: Any) -> Tensor:
        gradient = rule.local_step(step)
        if (silo := step.silo) in scores:
            sums[silo] += gradient[where] * -(public_divisor(plan, silo) / plan.settings.clip_norm)
            if not models or step.step + 1 == plan.silos[silo].steps_per_round:
                total.add_(scores[silo](sums[silo]))
                sums[silo].zero_()
        return gradient

    return replace(rule, local_step=local_step)


def plan_with_canaries(
    mechanism: Mechanism, setup: TrainingSetup, canaries: Canaries, settings: PlanSettings, members: int | None = None
) -> PrivacyPlan:
    """The plan of a federation with places for all canaries, for a training with ``members`` (None: all) of them.
    Only the numbers of items depend on ``members``; all else is computed from the public number of places."""
    plan = make_plan(mechanism, canaries.planned_facts(setup.facts), settings)
    if members is None:
        return plan
    missing = (canaries.count - members) * canaries.items
    silos = list(plan.silos)
    for index in canaries.silos:
        silos[index] = replace(silos[index], items=silos[index].items - missing)
    return replace(plan, silos=tuple(silos))


def audit_training(
    mechanism: Mechanism, setup: TrainingSetup, canaries: Canaries, settings: PlanSettings, guesses: int
) -> TrainingAudit:
    """Trains once with the canaries that take part, and guesses which canaries they are.

    ``guesses``, half of them "in", are fixed before any score is seen. PrivacyError where single steps are not
    observed.
    """
    if mechanism.trust is not TrustModel.LOCAL:
        raise expected("trust of an audited training", mechanism.trust.value, "local", PrivacyError)
    members = canaries.members()
    planned = plan_with_canaries(mechanism, setup, canaries, settings)
    plan = plan_with_canaries(mechanism, setup, canaries, settings, int(members.sum()))
    data = CanaryData(setup.data, setup.size)
    model = CanaryModel(setup.model(), data.shape, canaries.count, GRADIENT * settings.clip_norm)
    engine = ClippingEngine(FlatParameters(model))
    scores = likelihood_ratios(planned, canaries.unit, canaries.silos, mechanism.mode is AccountingMode.AS_PUBLISHED)
    where = slice(engine.flat.size - canaries.count, engine.flat.size)  # the last parameters, without the padding row
    rule, partition = algorithm(mechanism.algorithm, mechanism.variant).round_rule(plan), setup.partition
    scored = torch.zeros(canaries.count)
    federation = Federation(
        rule=_watched(rule, plan, dict(zip(canaries.silos, scores, strict=True)), where, scored),
        plan=plan,
        partition=canaries.inserted(partition, setup.size),
        data=data,  # type: ignore[arg-type]
        engine=engine,
        seed=canaries.seed,
        noise_name=noise_name(plan, canaries.name, partition),
        optimiser=OptimizerConfig(learning_rate=setup.learning_rate),
    )
    trained, log = GlobalModel(federation), StepLog()
    for round_ in range(1, plan.rounds + 1):
        run_round(federation, trained, round_, log)
    total = scored.numpy()
    accuracy = evaluate(engine.flat.model, federation.data, setup.partition.test_items, 1024).accuracy
    return TrainingAudit(plan, total, members, guess(total, members, guesses), accuracy)


_CERTAIN = 1e4  # logit that makes a canary's loss linear in its own parameter
LABEL = 1  # of every canary item


@dataclass(frozen=True)
class Canaries:
    """The canaries of an audit: each has ``items`` items at each of ``silos``."""

    count: int
    items: int
    silos: tuple[int, ...]
    seed: int
    name: str

    @property
    def unit(self) -> PrivacyUnit:
        """Whether a canary is an item or a subject."""
        return PrivacyUnit.ITEM if self.items == 1 and len(self.silos) == 1 else PrivacyUnit.SUBJECT

    def members(self) -> NDArray[np.bool_]:
        """(count,) bool: which canaries take part, by independent fair coins."""
        return numpy_generator(self.seed, Purpose.AUDIT, "members", self.name).random(self.count) < 0.5

    def planned_facts(self, facts: FederationFacts) -> FederationFacts:
        """The public facts of a federation with places for all canaries."""
        added = [self.count if silo in self.silos else 0 for silo in range(len(facts.items))]
        return replace(
            facts,
            items=tuple(n + self.items * more for n, more in zip(facts.items, added, strict=True)),
            subjects=tuple(n + more for n, more in zip(facts.subjects, added, strict=True)),
            largest_subject=tuple(max(n, self.items) for n in facts.largest_subject),
            max_items_per_subject=max(self.items, facts.max_items_per_subject or 1),
            silos_per_subject=max(facts.silos_per_subject, len(self.silos)),
        )

    def inserted(self, partition: Partition, addresses: int) -> Partition:
        """The partition with the items of the canaries that take part, addressed from ``addresses`` on."""
        owners, silos = np.repeat(np.flatnonzero(self.members()), self.items), np.array(self.silos)
        ends = np.repeat(partition.train_offsets[silos + 1], len(owners))  # behind each silo's own items
        more, first, sizes = np.tile(owners, len(silos)), partition.subjects, np.diff(partition.train_offsets)
        sizes[silos] += len(owners)
        return replace(
            partition,
            train_items=np.insert(partition.train_items, ends, addresses + more).astype(np.int32),
            train_subjects=np.insert(partition.train_subjects, ends, first + more).astype(np.int32),
            train_offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            facts={**partition.facts, "counts": {**partition.facts["counts"], "subjects": first + self.count}},
        )


class CanaryData:
    """A data set in which address ``size`` + c is an item of canary c.
    Inputs are flattened and get a last column: 0 for an item of the data set, c + 1 for an item of canary c."""

    def __init__(self, inner: DeviceDataset, size: int) -> None:
        self.inner, self.size = inner, size
        inputs, _ = inner.batch(np.zeros(1, np.int64))
        self.shape, self._dtype, self.device = tuple(inputs.shape[1:]), inputs.dtype, inputs.device

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        where = np.asarray(addresses, dtype=np.int64)
        real = where < self.size
        inputs, labels = self.inner.batch(where[real])
        rows = inputs.flatten(1) if len(inputs) else inputs.reshape(0, int(np.prod(self.shape)))
        if real.all():
            return torch.cat([rows, rows.new_zeros(len(rows), 1)], dim=1), labels
        at = torch.from_numpy(np.flatnonzero(real))
        joined = torch.zeros(len(where), rows.shape[1] + 1, dtype=self._dtype)
        joined[at, :-1] = rows
        joined[:, -1] = torch.from_numpy(np.where(real, 0, where - self.size + 1)).to(self._dtype)
        targets = torch.full((len(where),), LABEL, dtype=torch.int64)
        targets[at] = labels
        return joined, targets


class CanaryModel(nn.Module):
    """A model for :class:`CanaryData`: the inner model for real items, one parameter for each canary.

    A canary's loss is λ·(its parameter) up to a constant while that stays far below 10^4/λ; the inner model gets no
    gradient.
    """

    def __init__(self, inner: nn.Module, shape: tuple[int, ...], count: int, gradient: float) -> None:
        super().__init__()
        self.inner, self.shape, self.gradient = inner, shape, gradient
        self.canaries = nn.Embedding(count + 1, 1, padding_idx=0)
        nn.init.zeros_(self.canaries.weight)

    def forward(self, rows: Tensor) -> Tensor:
        which = rows[:, -1].long()
        logits: Tensor = self.inner(rows[:, :-1].reshape(-1, *self.shape))
        value = self.canaries(which.unsqueeze(1)).squeeze(1) * self.gradient  # (n, 1)
        certain = torch.full_like(logits[:, :1], _CERTAIN)
        crafted = torch.cat([certain, value - _CERTAIN, torch.zeros_like(logits[:, 2:])], dim=1)
        return torch.where((which == 0).unsqueeze(1), logits, crafted)


@dataclass(frozen=True)
class TrainingSetup:
    """The data, model and partition that a training audit runs on; ``size`` counts the data set's addresses."""

    data: DeviceDataset
    size: int
    partition: Partition
    facts: FederationFacts
    model: Callable[[], nn.Module]
    learning_rate: float = 0.1  # of plain SGD: what is released is the gradient itself
    synthetic: bool = True


def prepared_setup(
    config: Mapping[str, Any], prepared_folder: Path | str, partition_folder: Path | str
) -> TrainingSetup:
    """The setup of a run, on the CPU. Raises DataError and ModelError as training does."""
    run = load_run(config)
    prepared, partition = load_prepared(prepared_folder), load_partition(partition_folder)
    if prepared.classes == 0:
        raise ModelError("Expected data with classes to audit on, the labels are numbers.")
    name, parameters = str(run.model.name), run.model.parameters
    model = partial(build_model, name, prepared.outputs, prepared.kind, run.seed, parameters, prepared.shape)
    data, size = DeviceDataset(prepared, torch.device("cpu")), len(prepared.features)
    facts, rate = partition.federation_facts(), run.training.optimizer.learning_rate
    return TrainingSetup(data, size, partition, facts, model, rate, prepared.synthetic)
