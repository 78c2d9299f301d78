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
from subjectdp.training.global_model import GlobalModel
from subjectdp.training.record.steplog import StepLog
from subjectdp.training.rounds import run_round
from subjectdp.training.steps.silo_step import MiniBatch, SiloStep

MODEL = "handwriting_head"
STEPS = 16
_ITEMS = 240  # of a subject


def time_light_round(batch: int, rounds: int) -> dict[str, Outcome]:
    """Round 1 of LocalItemDP on a linear head, its parts alone, and the peers' rounds of the same steps."""
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(Path(folder), MODEL, batch, STEPS, _ITEMS)
        trained = GlobalModel(federation)
        methods: dict[str, Callable[[], object]] = {
            "subjectdp_round": lambda: run_round(federation, trained, 1, StepLog()),
            **_parts(federation),
            "opacus_round": partial(_peer_round, federation, list(_peers(federation, batch, "hooks"))),
            "opacus_ghost_round": partial(_peer_round, federation, list(_peers(federation, batch, "ghost"))),
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


def _peers(federation: Federation, batch: int, mode: str) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Opacus' module, optimiser, criterion and data loader of each silo."""
    clip_norm = federation.plan.clip_norm or 1.0
    for silo in range(SILOS):
        addresses, _ = federation.partition.silo(silo)
        loader = DataLoader(TensorDataset(*federation.data.batch(addresses)), batch_size=batch)
        module = copy.deepcopy(federation.engine.flat.model)
        for parameter in module.parameters():
            parameter.data, parameter.requires_grad = parameter.data.clone(), True
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


def _peer_round(federation: Federation, silos: list[tuple[Any, Any, Any, Any]]) -> Tensor:
    """Each silo starts from the global model and takes its steps; the mean of the models."""
    start, models = federation.engine.flat.vector.clone(), []
    for module, optimiser, criterion, loader in silos:
        (weight,) = module.parameters()
        with torch.no_grad():
            weight.copy_(start.view_as(weight))
        epochs = chain.from_iterable(repeat(loader))
        for inputs, labels in islice(epochs, STEPS):
            optimiser.zero_grad()
            with warnings.catch_warnings():
                warnings.filterwarnings(
                    "ignore", category=UserWarning
                )  # Opacus' own use of full backward hooks
                criterion(module(inputs), labels).backward()
            optimiser.step()
        models.append(weight.detach().clone())
    return torch.stack(models).mean(0)
