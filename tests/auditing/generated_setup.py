"""A generated setup for training audits: points around one centre for each class, and a linear model."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from algorithms.tiny import TinyData
from subjectdp.auditing.training_audit import TrainingSetup
from subjectdp.data.partition import Partition
from subjectdp.noise.gaussian import keyed_generator
from subjectdp.noise.keys import Purpose, key_bytes, key_int
from subjectdp.plan.plan import FederationFacts

_CLASSES, _FEATURES, _SEPARATION = 5, 20, 2.0


def points(items: int, seed: int) -> TinyData:
    """Normally distributed points around one centre for each class."""
    generator = keyed_generator(key_bytes(seed, Purpose.AUDIT, "points"))
    labels = torch.randint(0, _CLASSES, (items,), generator=generator)
    centres = torch.eye(_CLASSES, _FEATURES) * _SEPARATION
    return TinyData(torch.randn(items, _FEATURES, generator=generator) + centres[labels], labels)


def partition_of(owners: np.ndarray, test_items: int = 0) -> Partition:
    """Items 0, 1, ... of the owners (silos, items of each), and as many test items after them."""
    train, test = np.split(np.arange(owners.size + test_items, dtype=np.int32), [owners.size])
    offsets = np.arange(len(owners) + 1, dtype=np.int64) * owners.shape[1]
    facts = {"counts": {"subjects": int(owners.max()) + 1}}
    return Partition(train, owners.reshape(-1).astype(np.int32), offsets, test[:0], test, facts)


def generated_setup(seed: int, silos: int = 1, subjects: int = 500, items: int = 8) -> TrainingSetup:
    """Subjects with ``items`` points at each silo, a linear model, and as many test points as one silo has."""
    size = subjects * items
    partition = partition_of(np.tile(np.repeat(np.arange(subjects), items), (silos, 1)), test_items=size)
    facts = FederationFacts((size,) * silos, (subjects,) * silos, (items,) * silos, True, items, silos)
    data: Any = points((silos + 1) * size, seed)
    return TrainingSetup(data, (silos + 1) * size, partition, facts, partial(_linear, seed))


def _linear(seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key_int(seed, Purpose.MODEL_INIT, "linear") & 0x7FFF_FFFF_FFFF_FFFF)
        return nn.Linear(_FEATURES, _CLASSES)
