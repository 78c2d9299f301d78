"""One federated round: the round loop against its bare private steps on mini-batches drawn beforehand."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.steps import Outcome
from benchmarks.timing import interleave
from subjectdp.accounting.plan_run import plan_run
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.run import RunConfig
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.content import Content
from subjectdp.data.partition import load_partition, make_partition
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.sampling.batches import StepKey, sample_items
from subjectdp.training.build import RunInputs, make_federation
from subjectdp.training.federation import Federation
from subjectdp.training.global_model import GlobalModel
from subjectdp.training.record.steplog import StepLog
from subjectdp.training.rounds import run_round
from subjectdp.training.steps.optimisers import descend, make_optimiser

_SUBJECTS, _ITEMS, _SILOS, _STEPS = 40, 80, 4, 4
_NOISE_MULTIPLIER, _RATE = 1.0, 0.01


def time_round(model: str, batch: int, rounds: int) -> dict[str, Outcome]:
    """Round 1 of LocalItemDP, repeated, and the same steps without the loop."""
    with tempfile.TemporaryDirectory() as folder:
        federation = _federation(Path(folder), model, batch)
        bare, trained = BareSteps(federation), GlobalModel(federation)

        def whole_round() -> None:
            run_round(federation, trained, 1, StepLog())

        samples = interleave({"bare_steps": bare.run, "subjectdp_round": whole_round}, rounds)
    note = f"{_SILOS} silos, {_STEPS} steps each, {federation.plan.mechanism.algorithm}"
    return {name: Outcome("ok", note, times) for name, times in samples.items()}


class BareSteps:
    """The round's clipped sums, noise and descents, without sampling, loading, averaging and records."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.batches = [
            self._batch(silo, step) for silo in range(federation.partition.silos) for step in range(_STEPS)
        ]

    def _batch(self, silo: int, step: int) -> tuple[torch.Tensor, torch.Tensor, float]:
        """Inputs and labels that the round draws for a step, and the plan's divisor."""
        federation, schedule = self.federation, self.federation.plan.silos[silo]
        items, _ = federation.partition.silo(silo)
        settings = federation.plan.settings
        positions = sample_items(
            len(items),
            schedule,
            settings.sampling,
            settings.batch_size,
            StepKey(federation.seed, 1, silo, step),
        )
        return *federation.data.batch(items[positions]), schedule.divisor

    def run(self) -> torch.Tensor:
        """All steps on one model; returns it."""
        engine, plan = self.federation.engine, self.federation.plan
        vector, clip_norm = engine.flat.vector, plan.clip_norm or 1.0
        optimiser = make_optimiser(vector, OptimizerConfig(learning_rate=_RATE))
        for number, (inputs, labels, divisor) in enumerate(self.batches):
            total, _ = engine.clipped_sum(inputs, labels, clip_norm)
            key = key_bytes(0, Purpose.NOISE, "bench", number)
            descend(optimiser, vector, add_gaussian(total, _NOISE_MULTIPLIER * clip_norm, key) / divisor)
        return vector


def _federation(folder: Path, model: str, batch: int) -> Federation:
    training = {
        "rounds": 1,
        "batch_size": batch,
        "local_steps": _STEPS,
        "optimizer": {"learning_rate": _RATE},
    }
    settings = {
        "partition": {"silos": _SILOS},
        "algorithm": "local_item_dp",
        "privacy": {"noise_multiplier": _NOISE_MULTIPLIER, "delta": 1e-3},
        "training": training,
        "model": {"name": model},
        "performance": {"device": "cpu"},
    }
    run = resolve_defaults(RunConfig.model_validate(settings))
    write_prepared(folder / "prepared", _content(), "leaf_json", [], 0.2)
    make_partition(folder / "prepared", folder / "partition", run)
    prepared, partition = load_prepared(folder / "prepared"), load_partition(folder / "partition")
    inputs = RunInputs(run, plan_run(run, partition), prepared, partition)
    return make_federation(inputs, torch.device("cpu"))


def _content() -> Content:
    """Random images of FEMNIST's shape."""
    generator, count = np.random.default_rng(0), _SUBJECTS * _ITEMS
    return Content(
        "femnist",
        "image",
        generator.integers(0, 256, (count, 28, 28)).astype(np.uint8),
        generator.integers(0, 62, count).astype(np.uint8),
        [f"subject{number}" for number in range(_SUBJECTS)],
        [""] * _SUBJECTS,
        np.arange(_SUBJECTS, dtype=np.int64) * _ITEMS,
        np.full(_SUBJECTS, _ITEMS, np.int64),
        62,
    )
