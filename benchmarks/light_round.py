"""One federated round of a light model: this project's, the share of each of its parts, and a plain loop with Opacus.

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

import torch
from opacus import PrivacyEngine
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.round_loop import NOISE_MULTIPLIER, RATE, SILOS, federation_of
from benchmarks.timing import Outcome, interleave
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.training.federation import Federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round
from subjectdp.training.silo_step import MiniBatch, SiloStep

MODEL = "handwriting_head"
STEPS = 16
ITEMS = 240  # of a subject

OpacusSilo = tuple[Any, Any, Any, Any]
"""A silo's module, optimiser, criterion and data loader."""


def time_light_round(batch: int, rounds: int) -> dict[str, Outcome]:
    """Round 1 of LocalItemDP on a linear head, its parts alone, and the peers' rounds of the same steps."""
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(Path(folder), MODEL, batch, STEPS, ITEMS)
        trained = GlobalModel(federation)
        methods: dict[str, Callable[[], object]] = {
            "subjectdp_round": lambda: run_round(federation, trained, 1, StepLog()),
            **_parts(federation),
            "opacus_round": partial(_opacus_round, federation, list(opacus_silos(federation, batch, "hooks"))),
            "opacus_ghost_round": partial(_opacus_round, federation, list(opacus_silos(federation, batch, "ghost"))),
        }
        timed = interleave(methods, rounds)
    for outcome in timed.values():
        outcome.note = f"{SILOS} silos, {STEPS} steps each"
    return timed


def _parts(federation: Federation) -> dict[str, Callable[[], object]]:
    """The round's work in parts that can run alone; the rest is loops, descent and records."""
    engine, clip_norm = federation.engine, federation.plan.clip_norm or 1.0
    places = [(silo, step) for silo in range(SILOS) for step in range(STEPS)]

    def drawn() -> list[MiniBatch]:
        return [SiloStep(federation, 1, silo, step).sample_batch() for silo, step in places]

    batches = drawn()
    items = [federation.data.batch(batch.addresses) for batch in batches]
    total = torch.zeros_like(engine.flat.vector)

    def noise() -> None:
        for silo, step in places:
            key = key_bytes(0, Purpose.NOISE, federation.noise_name, 1, silo, step)
            add_gaussian(total, NOISE_MULTIPLIER * clip_norm, key)

    return {
        "part_sampling": drawn,
        "part_loading": lambda: [federation.data.batch(batch.addresses) for batch in batches],
        "part_clipped_sums": lambda: [engine.clipped_sum(*item, clip_norm) for item in items],
        "part_products_alone": lambda: [_products(engine.flat.model, inputs) for inputs, _ in items],
        "part_noise": noise,
    }


def _products(model: nn.Module, inputs: Tensor) -> Tensor:
    """The two matrix products that no linear layer's step does without, in the engine's layout."""
    (weight,) = model.parameters()
    return torch.mm(torch.mm(weight, inputs.t()), inputs)


def opacus_silos(federation: Federation, batch: int, mode: str) -> Iterator[OpacusSilo]:
    """What Opacus makes of each silo's data and of the global model."""
    clip_norm = federation.plan.clip_norm or 1.0
    for silo in range(SILOS):
        loader = DataLoader(TensorDataset(*silo_items(federation, silo)), batch_size=batch)
        module = own_module(federation)
        optimiser = torch.optim.SGD(module.parameters(), lr=RATE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the noise is not cryptographic
            made = PrivacyEngine().make_private(
                module=module.train(),
                optimizer=optimiser,
                criterion=nn.CrossEntropyLoss(),
                data_loader=loader,
                noise_multiplier=NOISE_MULTIPLIER,
                max_grad_norm=clip_norm,
                grad_sample_mode=mode,
            )
        ghost = mode == "ghost"
        yield made if ghost else (made[0], made[1], nn.CrossEntropyLoss(), made[2])


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
    return torch.stack([opacus_steps(silo, start, STEPS) for silo in silos]).mean(0)
