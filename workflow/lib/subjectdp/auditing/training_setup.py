"""Data, partition and model of training audits: of a run of the pipeline, or generated points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from subjectdp.auditing.canaries import Data
from subjectdp.config.run import load_run
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import load_prepared
from subjectdp.errors import ModelError
from subjectdp.models.build import build_model
from subjectdp.noise.keys import Purpose, key_bytes, key_int
from subjectdp.noise.torch_keys import keyed_generator
from subjectdp.plan.plan import FederationFacts
from subjectdp.training.device_data import DeviceDataset

_CLASSES, _FEATURES, _SEPARATION = 5, 20, 2.0


@dataclass(frozen=True)
class TrainingSetup:
    """The data, model and partition that a training audit runs on; ``size`` counts the data set's addresses."""

    data: Data
    size: int
    partition: Partition
    facts: FederationFacts
    model: Callable[[], nn.Module]
    learning_rate: float = 0.1  # of plain SGD: what is released is the gradient itself
    synthetic: bool = True


def prepared_setup(
    config: Mapping[str, Any], prepared_folder: Path | str, partition_folder: Path | str
) -> TrainingSetup:
    """The setup of a run: its data, partition, model and learning rate, on the CPU.

    Raises DataError and ModelError as training does.
    """
    run = load_run(config)
    prepared, partition = load_prepared(prepared_folder), load_partition(partition_folder)
    if run.model.name is None:
        raise ModelError("Expected model.name to be resolved, got None.")
    model = partial(
        build_model,
        run.model.name,
        prepared.classes,
        prepared.kind,
        run.seed,
        run.model.parameters,
        prepared.shape,
    )
    return TrainingSetup(
        DeviceDataset(prepared, torch.device("cpu")),
        len(prepared.features),
        partition,
        partition.federation_facts(),
        model,
        run.training.optimizer.learning_rate,
        prepared.synthetic,
    )


class Points:
    """Normally distributed points around one centre for each class, as a resident data set."""

    def __init__(self, items: int, seed: int) -> None:
        generator = keyed_generator(key_bytes(seed, Purpose.AUDIT, "points"))
        self.labels = torch.randint(0, _CLASSES, (items,), generator=generator)
        centres = torch.eye(_CLASSES, _FEATURES) * _SEPARATION
        self.features = torch.randn(items, _FEATURES, generator=generator) + centres[self.labels]

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The points at these addresses and their labels."""
        where = torch.from_numpy(np.asarray(addresses, dtype=np.int64))
        return self.features[where], self.labels[where]


def generated_setup(seed: int, silos: int = 1, subjects: int = 500, items: int = 8) -> TrainingSetup:
    """Subjects with ``items`` points at each silo, a linear model, and as many test points as one silo has."""
    size = subjects * items
    owners = np.tile(np.repeat(np.arange(subjects, dtype=np.int32), items), silos)
    test = np.arange(silos * size, (silos + 1) * size, dtype=np.int32)
    partition = Partition(
        np.arange(silos * size, dtype=np.int32),
        owners,
        np.arange(silos + 1, dtype=np.int64) * size,
        test[:0],
        test,
        {"counts": {"subjects": subjects}},
    )
    facts = FederationFacts((size,) * silos, (subjects,) * silos, (items,) * silos, True, items, silos)
    return TrainingSetup(
        Points((silos + 1) * size, seed), (silos + 1) * size, partition, facts, partial(_linear, seed)
    )


def _linear(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key_int(seed, Purpose.MODEL_INIT, "linear") & 0x7FFF_FFFF_FFFF_FFFF)
        return nn.Linear(_FEATURES, _CLASSES)
