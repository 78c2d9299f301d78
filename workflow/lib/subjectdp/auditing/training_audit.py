"""One-run audit of a real training: the training federation with canaries, and an observer of its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.base import RoundRule
from subjectdp.algorithms.protocols import LocalStep
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.audited_unit import public_divisor
from subjectdp.auditing.canaries import Canaries, CanaryData, CanaryModel, canary_slice
from subjectdp.auditing.likelihood_ratio import LikelihoodRatio, likelihood_ratios
from subjectdp.auditing.one_run import Guesses, guess
from subjectdp.auditing.training_setup import TrainingSetup
from subjectdp.config.sections import OptimizerConfig
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import AccountingMode, Mechanism, PlanSettings, PrivacyPlan, TrustModel
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


class Observer:
    """Sums up every canary's score, of each noisy local step (LOCAL trust) or of each round's sum of them.

    As published the server receives models; a sound plan is attacked at every step.
    """

    def __init__(
        self, plan: PrivacyPlan, canaries: Canaries, where: slice, scores: Sequence[LikelihoodRatio]
    ) -> None:
        self.plan, self.canaries, self._where = plan, canaries, where
        self._score = dict(zip(canaries.silos, scores, strict=True))
        self.scores = torch.zeros(canaries.count)
        self._models = plan.mechanism.mode is AccountingMode.AS_PUBLISHED
        self._sums = {silo: torch.zeros(canaries.count) for silo in canaries.silos}
        self._scale = {silo: public_divisor(plan, silo) / plan.settings.clip_norm for silo in canaries.silos}

    def watching(self, audited: RoundRule) -> RoundRule:
        """The round with its own local step, whose result is scored before it is returned."""

        def local_step(step: LocalStep) -> Tensor:
            gradient = audited.local_step(step)
            silo: int = step.silo  # type: ignore[attr-defined]
            if silo in self._scale:
                self._see(silo, gradient[self._where] * -self._scale[silo], step.step)  # type: ignore[attr-defined]
            return gradient

        return replace(audited, local_step=local_step)

    def _see(self, silo: int, release: Tensor, step: int) -> None:
        self._sums[silo] += release
        if not self._models or step + 1 == self.plan.silos[silo].steps_per_round:
            self.scores += self._score[silo](self._sums[silo])
            self._sums[silo].zero_()


def plan_with_canaries(
    mechanism: Mechanism,
    setup: TrainingSetup,
    canaries: Canaries,
    settings: PlanSettings,
    members: int | None = None,
) -> PrivacyPlan:
    """The plan of a federation with places for all canaries, for a training in which ``members`` of them take part.

    Only the numbers of items depend on ``members`` (None: all take part). Sampling probabilities and all else are
    computed from the public number of places.
    """
    plan = make_plan(mechanism, canaries.planned_facts(setup.facts), settings)
    if members is None:
        return plan
    missing = (canaries.count - members) * canaries.items
    silos = tuple(
        replace(silo, items=silo.items - missing) if index in canaries.silos else silo
        for index, silo in enumerate(plan.silos)
    )
    return replace(plan, silos=silos)


def audit_training(
    mechanism: Mechanism, setup: TrainingSetup, canaries: Canaries, settings: PlanSettings, guesses: int
) -> TrainingAudit:
    """Trains once with the canaries that take part, and guesses which canaries they are.

    Args:
        guesses: number of guesses, half of them "in"; must be fixed before any score is seen.

    Raises PrivacyError for a trust model in which single steps are not observed.
    """
    if mechanism.trust is not TrustModel.LOCAL:
        raise expected(
            "trust of an audited training", mechanism.trust.value, TrustModel.LOCAL.value, PrivacyError
        )
    members = canaries.members()
    planned = plan_with_canaries(mechanism, setup, canaries, settings)
    plan = plan_with_canaries(mechanism, setup, canaries, settings, int(members.sum()))
    data = CanaryData(setup.data, setup.size)
    model = CanaryModel(setup.model(), data.shape, canaries.count, GRADIENT * settings.clip_norm)
    engine = ClippingEngine(FlatParameters(model))
    models = mechanism.mode is AccountingMode.AS_PUBLISHED
    scores = likelihood_ratios(planned, canaries.unit, canaries.silos, models)
    observer = Observer(plan, canaries, canary_slice(engine.flat.shapes), scores)
    audited, partition = algorithm(mechanism.algorithm, mechanism.variant), setup.partition
    federation = Federation(
        rule=observer.watching(audited.round_rule(plan)),
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
    found = observer.scores.numpy()
    accuracy = evaluate(engine.flat.model, federation.data, setup.partition.test_items, 1024).accuracy
    return TrainingAudit(plan, found, members, guess(found, members, guesses), accuracy)
