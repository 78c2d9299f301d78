"""A federated round: sample silos, train each, aggregate, record; the global model that it changes, and its scores.

A local step is four calls from here: ``run_round``, ``train_silo``, the algorithm's ``local_step`` (of its
:class:`~subjectdp.algorithms.base.RoundRule`), ``SiloStep.clipped_sum`` and the clipping engine.
"""

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.algorithms.base import SiloTask
from subjectdp.engine.clipping import squared_error
from subjectdp.errors import PrivacyError, expected
from subjectdp.noise.skellam import modular_sum
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.sampling import silos_of_round
from subjectdp.training.device_data import DeviceDataset
from subjectdp.training.federation import Federation, Optimiser
from subjectdp.training.records import LoggedStep, Score, StepLog
from subjectdp.training.silo_step import SERVER, UPDATE, SiloStep


class IterateAverage:
    """The mean ``vector`` (P,) of the models of the last ``part`` of the rounds; before it begins, the newest model."""

    def __init__(self, part: float, rounds: int, initial: Tensor) -> None:
        # 0.29 * 100 is a little less than 29
        self._first = rounds - max(1, math.floor(round(part * rounds, 9))) + 1
        self.vector = initial.clone()

    @torch.no_grad()
    def update(self, model: Tensor, round_: int) -> None:
        """Takes in the model after ``round_`` (from 1)."""
        self.vector.lerp_(model, 1.0 / max(1, round_ - self._first + 1))


MODEL, AVERAGE = "model", "average"
_OPTIMISER = "central_optimiser."  # before the names of its state


class GlobalModel:
    """The global model θ, ``vector`` float32 (P,), starting from the model that is in the federation's engine."""

    def __init__(self, federation: Federation) -> None:
        self.vector = federation.engine.flat.vector.clone()
        self._optimiser = Optimiser(federation.optimiser)
        self._average: IterateAverage | None = None
        if federation.averaged_rounds is not None:
            self._average = IterateAverage(federation.averaged_rounds, federation.plan.rounds, self.vector)

    @property
    def reported(self) -> Tensor:
        """The model that is evaluated and saved, (P,): the average over rounds if there is one, else ``vector``."""
        return self.vector if self._average is None else self._average.vector

    def descend(self, gradient: Tensor) -> None:
        """θ ← θ − η·gradient, by the rule of the optimiser."""
        self._optimiser.step(self.vector, gradient)

    def end_round(self, round_: int) -> None:
        if self._average is not None:
            self._average.update(self.vector, round_)

    @torch.no_grad()
    def state(self) -> dict[str, Tensor]:
        """Copies of all state by name, on its devices."""
        state = {MODEL: self.vector.detach().clone()}
        if self._average is not None:
            state[AVERAGE] = self._average.vector.detach().clone()
        return state | {f"{_OPTIMISER}{key}": value.clone() for key, value in self._optimiser.state.items()}

    @torch.no_grad()
    def restore(self, state: dict[str, Tensor]) -> None:
        """Puts back what ``state`` gave, each tensor on its device."""
        self.vector.copy_(state[MODEL])
        if self._average is not None:
            self._average.vector.copy_(state[AVERAGE])
        own = {key.removeprefix(_OPTIMISER): t for key, t in state.items() if key.startswith(_OPTIMISER)}
        self._optimiser.state = {key: value.to(self.vector.device, copy=True) for key, value in own.items()}


Ask = Callable[[Tensor, int, Sequence[int]], Iterable[Tensor]]
"""Asks silos for what :func:`train_silo` gives: from the global model (P,), the round and the silos, in their order."""


def run_round(federation: Federation, model: GlobalModel, round_: int, log: StepLog, ask: Ask | None = None) -> None:
    """A round, from 1; ``model`` and engine then hold the new model. ``ask``: silos are elsewhere; None: they train
    here."""
    settings, all_silos = federation.plan.settings, federation.partition.silos
    silos = silos_of_round(all_silos, settings, federation.seed, round_).tolist()
    here = (train_silo(federation, model.vector, round_, silo, log) for silo in silos)
    results = here if ask is None else ask(model.vector, round_, silos)
    federation.rule.aggregate(RoundServer(federation, model, round_, silos), results)
    model.end_round(round_)
    federation.engine.flat.load(model.vector)


def train_silo(federation: Federation, theta: Tensor, round_: int, silo: int, log: StepLog) -> Tensor:
    """What one silo gives to the server (see :class:`SiloTask`): (P,) float32, or int64 for steps in integers.
    The global model ``theta`` (P,) stays as it is; the engine's parameters are overwritten."""
    task, local_step = federation.rule.silo_task, federation.rule.local_step
    vector = federation.engine.flat.vector
    federation.engine.flat.load(theta)
    optimiser = Optimiser(federation.optimiser)
    integers = torch.zeros(len(theta), dtype=torch.int64) if task is SiloTask.INTEGER_STEPS else None
    for number in range(federation.plan.silos[silo].local_steps):
        step = SiloStep(federation, round_, silo, number)
        direction = local_step(step)
        log.add(step.row)
        if task is SiloTask.ONE_STEP:
            return direction
        if integers is None:
            optimiser.step(vector, direction)
        else:
            integers += direction
            vector.sub_((direction * federation.unit).to(vector))
    if task is SiloTask.NOISY_UPDATE:
        whole = SiloStep(federation, round_, silo, UPDATE)
        released = whole.release(vector - theta)
        log.add_release(whole.row)
        return released
    return vector.clone() if integers is None else integers


def check_noise(plan: PrivacyPlan, rows: Iterable[LoggedStep]) -> None:
    """PrivacyError where an algorithm's own code added less noise to a step than the plan's ε counts on."""
    for row in rows:
        silo = plan.silos[row.silo]
        noised_every = silo.local_steps if plan.mechanism.clips_updates else silo.fused_steps
        wanted = plan.noise_multiplier(row.silo, row.largest_group)
        if (row.step + 1) % noised_every == 0 and row.noise_multiplier < wanted:
            key = f"noise multiplier of {plan.mechanism.title} in round {row.round}, step {row.step}"
            raise expected(key, row.noise_multiplier, f"{wanted:g}, as its plan says", PrivacyError)


class RoundServer:
    """The server in one round (``algorithms.base.Server`` and ``IntegerServer``)."""

    def __init__(self, federation: Federation, model: GlobalModel, round_: int, silos: Sequence[int]) -> None:
        self._federation, self._model, self._silos = federation, model, silos
        self._step = SiloStep(federation, round_, SERVER, 0)

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
        return self._step.add_noise(total, self._federation.plan.silos[0].noise_multiplier)

    def set_model(self, model: Tensor) -> None:
        self._model.vector.copy_(model)

    def descend(self, gradient: Tensor) -> None:
        self._model.descend(gradient)

    def secure_sum(self, updates: Iterable[Tensor]) -> Tensor:
        return torch.from_numpy(modular_sum(update.numpy() for update in updates)).to(self.model)

    @property
    def unit(self) -> float:
        return self._federation.unit


@torch.no_grad()
def evaluate(model: nn.Module, data: DeviceDataset, addresses: NDArray[np.int32], batch_size: int = 1024) -> Score:
    """Scores a model on the items at ``addresses``, batch by batch, added up in their order.
    The loss is the mean cross-entropy; of labels in numbers the mean squared error, and the accuracy is R²."""
    if len(addresses) == 0:
        return Score(float("nan"), float("nan"))
    batches = []
    for start in range(0, len(addresses), batch_size):
        inputs, labels = data.batch(addresses[start : start + batch_size])
        outputs = model(inputs)
        if labels.is_floating_point():
            numbers, error = labels.double(), squared_error(outputs, labels).sum()
            batches.append(torch.stack((numbers.sum(), error.double(), numbers.square().sum())))
        else:
            loss = F.cross_entropy(outputs, labels, reduction="sum")
            batches.append(torch.stack(((outputs.argmax(1) == labels).sum().double(), loss.double())))
    first, loss_sum, *squares = (torch.stack(batches).sum(0) / len(addresses)).tolist()
    if not squares:
        return Score(first, loss_sum)
    variance = squares[0] - first**2
    return Score(1.0 - loss_sum / variance if variance > 0 else float("nan"), loss_sum)
