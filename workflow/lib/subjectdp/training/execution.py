"""How the local steps of a run are executed: mini-batches as drawn, padded to one size, or silos in step."""

from __future__ import annotations

from typing import Literal

from torch import nn

from subjectdp.engine.stacked_engine import stackable
from subjectdp.errors import ConfigError, expected
from subjectdp.training.federation import Federation
from subjectdp.training.steps.padded import PaddedGradients, capacity_of
from subjectdp.training.steps.stacking import StackedSilos

Execution = Literal["auto", "exact", "padded", "stacked"]


def set_execution(federation: Federation, name: Execution, processes: int) -> None:
    """Sets how ``federation`` computes gradient sums; results differ by rounding only.

    ``auto`` is "exact" on the CPU, where places that hold nothing and stacked products cost more than they save. On a
    GPU it is "stacked" for recurrent models, whose small products one after another leave it idle, else "padded".

    Args:
        federation: newly made.
        name: ``performance.execution``.
        processes: among how many processes the silos of a round are shared.

    Raises:
        ConfigError: stacked silos with a model that has no stacked form; padded or stacked ones with whole subjects or
            several views of an item.
    """
    model, several = federation.engine.flat.model, federation.plan.settings.views > 1
    if name == "auto":
        recurrent = any(isinstance(layer, nn.RNNBase) for layer in model.modules()) and stackable(model)
        gpu = federation.device.type == "cuda"
        subjects = federation.plan.mechanism.samples_subjects
        name = "exact" if not gpu or subjects or several else "stacked" if recurrent else "padded"
    if name == "exact":
        return
    if federation.plan.mechanism.samples_subjects:
        allowed = "auto or exact with an algorithm that samples whole subjects"
        raise expected("performance.execution", name, allowed, ConfigError)
    if several:
        allowed = "auto or exact with several views of an item (training.augmentation)"
        raise expected("performance.execution", name, allowed, ConfigError)
    capacity = capacity_of(federation.plan, federation.engine.physical_batch_size)
    federation.gradients = PaddedGradients(federation.engine, federation.data, capacity)
    if name == "stacked":
        if not stackable(model):
            allowed = "auto, exact or padded with a model of other than linear, embedding and LSTM layers"
            raise expected("performance.execution", name, allowed, ConfigError)
        chosen = federation.plan.settings.silos_per_round or federation.partition.silos
        federation.stack = StackedSilos(federation, -(-chosen // processes), capacity)
