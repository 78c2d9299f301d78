"""A federated round: sample silos, train each, aggregate, record.

What a silo does and how the server aggregates is the algorithm's :class:`~subjectdp.algorithms.base.RoundRule`. A local
step is four calls from here: ``run_round``, ``train_silo``, the algorithm's ``local_step``, ``SiloStep.clipped_sum``
and the clipping engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from subjectdp.algorithms.base import SiloTask
from subjectdp.sampling.batches import silos_of_round
from subjectdp.training.federation import Federation
from subjectdp.training.global_model import GlobalModel
from subjectdp.training.record.steplog import StepLog
from subjectdp.training.steps.optimisers import descend, make_optimiser
from subjectdp.training.steps.silo_step import SERVER, UPDATE, SiloStep, silo_steps


def run_round(federation: Federation, model: GlobalModel, round_: int, log: StepLog) -> None:
    """Runs one round; afterwards ``model`` and the engine hold the new global model, ``log`` the round's local steps.

    Args:
        federation: what stays the same over the rounds.
        model: the global model, which changes.
        round_: counted from 1.
        log: takes a row for every local step.
    """
    settings, all_silos = federation.plan.settings, federation.partition.silos
    silos = silos_of_round(all_silos, settings, federation.seed, round_).tolist()
    results = (train_silo(federation, model.vector, round_, silo, log) for silo in silos)
    federation.rule.aggregate(RoundServer(federation, model, round_, silos), results)
    model.end_round(round_)
    federation.engine.flat.load(model.vector)


def train_silo(federation: Federation, theta: Tensor, round_: int, silo: int, log: StepLog) -> Tensor:
    """What one silo gives to the server (see :class:`SiloTask`): (P,) float32, or int64 for steps in integers.

    Args:
        federation: what stays the same over the rounds; its engine's parameters are overwritten.
        theta: the global model (P,), read only.
        round_: counted from 1.
        silo: which one.
        log: takes a row for every local step.
    """
    task, local_step = federation.rule.silo_task, federation.rule.local_step
    vector = federation.engine.flat.vector
    federation.engine.flat.load(theta)
    optimiser = make_optimiser(vector, federation.optimiser)
    integers = torch.zeros(len(theta), dtype=torch.int64) if task is SiloTask.INTEGER_STEPS else None
    for step in silo_steps(federation, round_, silo):
        direction = local_step(step)
        log.add(step.row)
        if task is SiloTask.ONE_STEP:
            return direction
        if integers is None:
            descend(optimiser, vector, direction)
        else:
            integers += direction
            vector.sub_((direction * federation.integer_noise.unit).to(vector))
    if task is SiloTask.NOISY_UPDATE:
        return _release(federation, vector - theta, round_, silo, log)
    return vector.clone() if integers is None else integers


def _release(federation: Federation, update: Tensor, round_: int, silo: int, log: StepLog) -> Tensor:
    step = SiloStep(federation, round_, silo, UPDATE)
    released = step.release(update)
    log.add_release(step.row)
    return released


class RoundServer:
    """The server in one round (``algorithms.protocols.Server`` and ``IntegerServer``)."""

    def __init__(self, federation: Federation, model: GlobalModel, round_: int, silos: Sequence[int]) -> None:
        self._federation, self._model, self._round, self._silos = federation, model, round_, silos

    @property
    def silo_count(self) -> int:
        return len(self._silos)

    @property
    def model(self) -> Tensor:
        return self._model.vector

    @property
    def divisor(self) -> float:
        return sum(self._federation.plan.silos[silo].divisor for silo in self._silos)

    def add_noise(self, total: Tensor) -> Tensor:
        step = SiloStep(self._federation, self._round, SERVER, 0)
        return step.add_noise(total, self._federation.plan.silos[0].noise_multiplier)

    def set_model(self, model: Tensor) -> None:
        self._model.set(model)

    def descend(self, gradient: Tensor) -> None:
        self._model.descend(gradient)

    def secure_sum(self, updates: Iterable[Tensor]) -> Tensor:
        return self._federation.integer_noise.secure_sum(updates).to(self.model)

    @property
    def unit(self) -> float:
        return self._federation.integer_noise.unit
