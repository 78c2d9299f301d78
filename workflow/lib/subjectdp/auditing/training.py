"""One-run audit of a real training: the federation that trains, with canaries in it, and an observer of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.base import Algorithm
from subjectdp.algorithms.protocols import LocalStep
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.canaries import Canaries, CanaryData, CanaryModel, Data, canary_slice
from subjectdp.auditing.one_run import Guesses, guess
from subjectdp.auditing.scores import LikelihoodRatio, scores_of
from subjectdp.auditing.worst_case import public_divisor
from subjectdp.data.partition import Partition
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import FederationFacts, Mechanism, PlanSettings, PrivacyPlan, TrustModel
from subjectdp.training.evaluation import evaluate
from subjectdp.training.federation import Federation
from subjectdp.training.record.records import Recorder
from subjectdp.training.steps.optimisers import OptimiserSettings

GRADIENT = 4.0  # a canary's unclipped gradient norm, in units of C


@dataclass(frozen=True)
class PlainSGD:
    """Optimiser settings for audits: what is released is the gradient itself."""

    name: str = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.0
    beta2: float = 0.0


@dataclass(frozen=True)
class Stage:
    """The data, model and partition that a training audit runs on; ``size`` counts the data set's addresses."""

    data: Data
    size: int
    partition: Partition
    facts: FederationFacts
    model: Callable[[], nn.Module]
    optimiser: OptimiserSettings = PlainSGD()
    synthetic: bool = True


@dataclass(frozen=True)
class TrainingAudit:
    """What one audited training gives: every canary's score, which took part, and the guesses' outcome."""

    plan: PrivacyPlan
    scores: NDArray[np.float32]
    members: NDArray[np.bool_]
    outcome: Guesses
    accuracy: float  # of the trained model on the test items, NaN without any


class Observer:
    """Sees each noisy local step, as LOCAL trust allows, and adds up every canary's score."""

    def __init__(
        self, plan: PrivacyPlan, canaries: Canaries, where: slice, scores: Sequence[LikelihoodRatio]
    ) -> None:
        self.plan, self.canaries, self._where = plan, canaries, where
        self._score = dict(zip(canaries.silos, scores, strict=True))
        self.scores = torch.zeros(canaries.count)
        self._scale = {silo: public_divisor(plan, silo) / plan.settings.clip_norm for silo in canaries.silos}

    def watching(self, audited: Algorithm) -> Algorithm:
        """The algorithm with its own local step, whose result is looked at before it goes on."""

        def local_step(step: LocalStep) -> Tensor:
            gradient = audited.local_step(step)
            silo: int = step.silo  # type: ignore[attr-defined]
            if silo in self._scale:
                self.scores += self._score[silo](gradient[self._where] * -self._scale[silo])
            return gradient

        return replace(audited, local_step=local_step)


def plan_with_canaries(
    mechanism: Mechanism, stage: Stage, canaries: Canaries, settings: PlanSettings, members: int | None = None
) -> PrivacyPlan:
    """The plan of a federation with room for every canary, executed on one where ``members`` of them take part.

    Sampling probabilities and all else come from the public number of places, not from who takes part.
    """
    plan = make_plan(mechanism, canaries.planned_facts(stage.facts), settings)
    if members is None:
        return plan
    missing = (canaries.count - members) * canaries.items
    silos = tuple(
        replace(silo, items=silo.items - missing) if index in canaries.silos else silo
        for index, silo in enumerate(plan.silos)
    )
    return replace(plan, silos=silos)


def audit_training(
    mechanism: Mechanism, stage: Stage, canaries: Canaries, settings: PlanSettings, guesses: int
) -> TrainingAudit:
    """Trains once with the canaries that take part and guesses who they are.

    Args:
        guesses: how many guesses are made, half of them "in"; fixed by the caller before anything is seen.

    Raises PrivacyError for a trust model in which no single step is seen.
    """
    if mechanism.trust is not TrustModel.LOCAL:
        raise expected(
            "trust of an audited training", mechanism.trust.value, TrustModel.LOCAL.value, PrivacyError
        )
    members = canaries.members()
    planned = plan_with_canaries(mechanism, stage, canaries, settings)
    plan = plan_with_canaries(mechanism, stage, canaries, settings, int(members.sum()))
    data = CanaryData(stage.data, stage.size)
    model = CanaryModel(stage.model(), data.shape, canaries.count, GRADIENT * settings.clip_norm)
    engine = ClippingEngine(FlatParameters(model))
    scores = scores_of(planned, canaries.unit, canaries.silos)
    observer = Observer(plan, canaries, canary_slice(engine.flat.shapes), scores)
    federation = Federation(
        observer.watching(algorithm(mechanism.algorithm, mechanism.variant)),
        plan,
        canaries.inserted(stage.partition, stage.size),
        data,  # type: ignore[arg-type]
        engine,
        stage.optimiser,
        replace(PlainSGD(), name="none", learning_rate=1.0),
        canaries.seed,
        Recorder(canaries.name, plan.rounds, lambda line: None),
    )
    for round_ in range(1, plan.rounds + 1):
        federation.run_round(round_)
    found = observer.scores.numpy()
    accuracy = evaluate(engine.flat.model, federation.data, stage.partition.test_items, 1024).accuracy
    return TrainingAudit(plan, found, members, guess(found, members, guesses), accuracy)
