"""One federated round: this project's against its bare private steps, and against plain loops with Opacus.

The plain loop is what a simulator such as Flower runs at each silo, without its processes and messages: the global
model is loaded, Opacus' data loader, module and optimiser take the steps, the models are averaged.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.methods import made_private
from benchmarks.timing import Outcome, interleave
from subjectdp.accounting.make_plan import plan_run
from subjectdp.config.run import RunConfig
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.content import Content
from subjectdp.data.partition import load_partition, make_partition
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.sampling import StepKey, sample_items
from subjectdp.training.federation import Federation, Optimiser, RunInputs, make_federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round

SILOS, SUBJECTS = 4, 40
NOISE_MULTIPLIER, RATE = 1.0, 0.01
LIGHT_MODEL, LIGHT_STEPS, LIGHT_ITEMS = "handwriting_head", 16, 240  # items of a subject
_STEPS, _ITEMS = 4, 80

OpacusSilo = tuple[Any, Any, Any, Any]
"""A silo's module, optimiser, criterion and data loader."""


def time_round(model: str, batch: int, rounds: int) -> dict[str, Outcome]:
    """Round 1 of LocalItemDP, repeated, and the same steps without the loop."""
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(Path(folder), model, batch, _STEPS, _ITEMS)
        trained = GlobalModel(federation)
        methods = {
            "bare_steps": _bare_steps(federation),
            "subjectdp_round": lambda: run_round(federation, trained, 1, StepLog()),
        }
        return interleave(methods, rounds)


def time_light_round(batch: int, rounds: int) -> dict[str, Outcome]:
    """Round 1 of LocalItemDP on a linear head, and the peers' rounds of the same steps."""
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(Path(folder), LIGHT_MODEL, batch, LIGHT_STEPS, LIGHT_ITEMS)
        trained = GlobalModel(federation)
        methods: dict[str, Callable[[], object]] = {
            "subjectdp_round": lambda: run_round(federation, trained, 1, StepLog()),
            "opacus_round": partial(_opacus_round, federation, list(opacus_silos(federation, batch, "hooks"))),
            "opacus_ghost_round": partial(_opacus_round, federation, list(opacus_silos(federation, batch, "ghost"))),
        }
        return interleave(methods, rounds)


def federation_of(folder: Path, model: str, batch: int, steps: int, items: int) -> Federation:
    """LocalItemDP with ``steps`` local steps on random images, ``items`` of each subject."""
    optimizer = {"learning_rate": RATE}
    settings = {
        "partition": {"silos": SILOS},
        "algorithm": "local_item_dp",
        "privacy": {"noise_multiplier": NOISE_MULTIPLIER, "delta": 1e-3},
        "training": {"rounds": 1, "batch_size": batch, "local_steps": steps, "optimizer": optimizer},
        "model": {"name": model},
        "performance": {"device": "cpu"},
    }
    run = RunConfig.model_validate(settings)
    write_prepared(folder / "prepared", _content(items), "leaf_json", [], 0.2)
    make_partition(folder / "prepared", folder / "partition", run)
    prepared, partition = load_prepared(folder / "prepared"), load_partition(folder / "partition")
    inputs = RunInputs(run, plan_run(run, partition), prepared, partition)
    return make_federation(inputs, torch.device("cpu"))


def _content(items: int) -> Content:
    """Random images of FEMNIST's shape."""
    generator, count = np.random.default_rng(0), SUBJECTS * items
    images = generator.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    labels = generator.integers(0, 62, count).astype(np.uint8)
    names, starts = [f"subject{number}" for number in range(SUBJECTS)], np.arange(SUBJECTS) * items
    sizes = np.full(SUBJECTS, items)
    return Content("femnist", "image", images, labels, names, [""] * SUBJECTS, starts, sizes, 62)


def _bare_steps(federation: Federation) -> Callable[[], object]:
    """The round's clipped sums, noise and descents, without sampling, loading, averaging and records."""
    engine, clip_norm = federation.engine, federation.plan.clip_norm or 1.0
    batches = [_batch(federation, silo, step) for silo in range(SILOS) for step in range(_STEPS)]

    def run() -> None:
        optimiser = Optimiser(OptimizerConfig(learning_rate=RATE))
        for number, (inputs, labels, divisor) in enumerate(batches):
            total, _ = engine.clipped_sum(inputs, labels, clip_norm)
            key = key_bytes(0, Purpose.NOISE, "bench", number)
            noisy = add_gaussian(total, NOISE_MULTIPLIER * clip_norm, key)
            optimiser.step(engine.flat.vector, noisy / divisor)

    return run


def _batch(federation: Federation, silo: int, step: int) -> tuple[Tensor, Tensor, float]:
    """Inputs and labels that round 1 draws for a step, and the plan's divisor."""
    schedule, settings = federation.plan.silos[silo], federation.plan.settings
    items, _ = federation.partition.silo(silo)
    key = StepKey(federation.seed, 1, silo, step)
    positions = sample_items(len(items), schedule, settings.sampling, settings.batch_size, key)
    return *federation.data.batch(items[positions]), schedule.divisor


# --- Opacus -------------------------------------------------------------------------------------------------


def opacus_silos(federation: Federation, batch: int, mode: str) -> Iterator[OpacusSilo]:
    """What Opacus makes of each silo's data and of the global model."""
    for silo in range(SILOS):
        loader = DataLoader(TensorDataset(*silo_items(federation, silo)), batch_size=batch)
        module = own_module(federation)
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        yield made_private(module.train(), optimiser, loader, mode, federation.plan.clip_norm or 1.0)


def silo_items(federation: Federation, silo: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels of all of a silo's items."""
    addresses, _ = federation.partition.silo(silo)
    return federation.data.batch(addresses)


def own_module(federation: Federation) -> nn.Module:
    """A copy of the global model with parameters of its own, which autograd can train."""
    module = copy.deepcopy(federation.engine.flat.model)
    for parameter in module.parameters():
        parameter.data, parameter.requires_grad = parameter.data.clone(), True
    return module


def opacus_steps(silo: OpacusSilo, start: Tensor, steps: int) -> Tensor:
    """The silo's weights after its private steps from ``start``."""
    module, optimiser, criterion, loader = silo
    (weight,) = module.parameters()
    with torch.no_grad():
        weight.copy_(start.view_as(weight))
    epochs = chain.from_iterable(repeat(loader))
    for inputs, labels in islice(epochs, steps):
        optimiser.zero_grad()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning)  # Opacus' own use of full backward hooks
            criterion(module(inputs), labels).backward()
        optimiser.step()
    trained: Tensor = weight.detach().clone()
    return trained


def _opacus_round(federation: Federation, silos: list[OpacusSilo]) -> Tensor:
    """Each silo starts from the global model and takes its steps; the mean of the models."""
    start = federation.engine.flat.vector.clone()
    return torch.stack([opacus_steps(silo, start, LIGHT_STEPS) for silo in silos]).mean(0)
