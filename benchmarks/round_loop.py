"""One federated round: the round loop against its bare private steps on mini-batches drawn beforehand."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import Outcome, interleave
from subjectdp.accounting.plan_run import plan_run
from subjectdp.config.run import RunConfig
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.content import Content
from subjectdp.data.partition import load_partition, make_partition
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.sampling.batches import StepKey, sample_items
from subjectdp.training.build import RunInputs, make_federation
from subjectdp.training.federation import Federation, descend, make_optimiser
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round

SILOS = 4
_SUBJECTS, _ITEMS, _STEPS = 40, 80, 4
NOISE_MULTIPLIER, RATE = 1.0, 0.01


def time_round(model: str, batch: int, rounds: int) -> dict[str, Outcome]:
    """Round 1 of LocalItemDP, repeated, and the same steps without the loop."""
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(Path(folder), model, batch, _STEPS)
        trained = GlobalModel(federation)
        methods = {
            "bare_steps": _bare_steps(federation),
            "subjectdp_round": lambda: run_round(federation, trained, 1, StepLog()),
        }
        timed = interleave(methods, rounds)
    for outcome in timed.values():
        outcome.note = f"{SILOS} silos, {_STEPS} steps each, {federation.plan.mechanism.algorithm}"
    return timed


def _bare_steps(federation: Federation) -> Callable[[], object]:
    """The round's clipped sums, noise and descents, without sampling, loading, averaging and records."""
    engine, clip_norm = federation.engine, federation.plan.clip_norm or 1.0
    batches = [_batch(federation, silo, step) for silo in range(SILOS) for step in range(_STEPS)]

    def run() -> None:
        optimiser = make_optimiser(engine.flat.vector, OptimizerConfig(learning_rate=RATE))
        for number, (inputs, labels, divisor) in enumerate(batches):
            total, _ = engine.clipped_sum(inputs, labels, clip_norm)
            key = key_bytes(0, Purpose.NOISE, "bench", number)
            noisy = add_gaussian(total, NOISE_MULTIPLIER * clip_norm, key)
            descend(optimiser, engine.flat.vector, noisy / divisor)

    return run


def _batch(federation: Federation, silo: int, step: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Inputs and labels that round 1 draws for a step, and the plan's divisor."""
    schedule, settings = federation.plan.silos[silo], federation.plan.settings
    items, _ = federation.partition.silo(silo)
    key = StepKey(federation.seed, 1, silo, step)
    positions = sample_items(len(items), schedule, settings.sampling, settings.batch_size, key)
    return *federation.data.batch(items[positions]), schedule.divisor


def federation_of(folder: Path, model: str, batch: int, steps: int, items: int = _ITEMS) -> Federation:
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
    generator, count = np.random.default_rng(0), _SUBJECTS * items
    images = generator.integers(0, 256, (count, 28, 28)).astype(np.uint8)
    labels = generator.integers(0, 62, count).astype(np.uint8)
    names, starts = [f"subject{number}" for number in range(_SUBJECTS)], np.arange(_SUBJECTS) * items
    sizes = np.full(_SUBJECTS, items)
    return Content("femnist", "image", images, labels, names, [""] * _SUBJECTS, starts, sizes, 62)
