"""A small prepared data set and partition on disk, for runs from end to end, and what a run ends with."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from torch import nn

from subjectdp.accounting.calibration import kept_in
from subjectdp.config.run import RunConfig
from subjectdp.data.content import Content, subjects_in_order
from subjectdp.data.partition import make_partition
from subjectdp.data.store import write_prepared
from subjectdp.training import federation as federation_module
from subjectdp.training.run import train_run

SUBJECTS, ITEMS = 6, 40
TIMES = ("wall_seconds", "peak_memory_mb", "resumed_after_rounds")


def image_content(classes: int = 62) -> Content:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, classes, SUBJECTS * ITEMS).astype(np.uint8)
    features = np.full((len(labels), 28, 28), 255, np.uint8)
    features[np.arange(len(labels)), labels // 8 + 8, labels % 8 + 8] = 0
    subjects = subjects_in_order([f"w{i}" for i in range(SUBJECTS)], [ITEMS] * SUBJECTS)
    return Content("femnist", "image", features, labels, classes=62, **subjects)


CNN = {"name": "small_cnn", "parameters": {"width": 4}}


def config(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "seed": 0,
        "partition": {"silos": 3, "max_items_per_subject": 6},
        "algorithm": "local_item_dp",
        "privacy": {"epsilon": 8.0, "delta": 1e-3},
        "training": {"rounds": 2, "batch_size": 8, "optimizer": {"learning_rate": 0.2}},
        "model": {"name": "logistic"},
        "performance": {"device": "cpu"},
    }
    for key, value in changes.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    return base


def build(folder: Path, run: dict[str, Any]) -> tuple[Path, Path]:
    """Writes the prepared data and the partition of a run; returns both folders."""
    prepared, partition = folder / "prepared", folder / f"partition-{run['seed']}"
    if not prepared.exists():
        write_prepared(prepared, image_content(), "leaf_json", [], 0.2)
    make_partition(prepared, partition, RunConfig.model_validate(run))
    return prepared, partition


def train(folder: Path, name: str, run: dict[str, Any], report: Callable[[str], None] = lambda line: None) -> Path:
    """A run on the data set of ``folder``; returns the folder of its results."""
    prepared, partition = build(folder, run)
    with kept_in(folder / "cache"):
        train_run(run, prepared, partition, folder / name, report)
    return folder / name


TRIED: dict[str, list[str]] = {}  # by model and device


def try_models_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial of a model takes a third of a training in this world: it is made once a session."""
    check = federation_module.check_model

    def tried(model: nn.Module, *items: Any) -> list[str]:
        key = f"{next(model.parameters()).device} {model}"
        if key not in TRIED:
            TRIED[key] = check(model, *items)
        return TRIED[key]

    monkeypatch.setattr(federation_module, "check_model", tried)


class KilledError(Exception):
    """Stands for the end of the process."""


def at_round(round_: int, action: Callable[[], object]) -> Callable[[str], None]:
    """A report that acts when a round has been evaluated, before its checkpoint."""
    return lambda line: action() if f" round {round_}/" in line else None


def killed(round_: int, train: Callable[[Callable[[str], None]], object]) -> None:
    def kill() -> None:
        raise KilledError

    with pytest.raises(KilledError):
        train(at_round(round_, kill))


def outcome(folder: Path) -> dict[str, Any]:
    """Model, mini-batches, evaluated rounds and manifest; equal for two runs exactly if they ended the same."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("seal")  # it covers times
    manifest = {key: value for key, value in manifest.items() if key not in TIMES}
    manifest["final"].pop("train_seconds")
    manifest["files"].pop("rounds.parquet")  # it holds times
    manifest["config"].pop("performance")
    manifest["environment"].pop("git_commit")
    rounds = pd.read_parquet(folder / "rounds.parquet").drop(columns="train_seconds")
    return {
        "model": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "steps": pd.read_parquet(folder / "steps.parquet").to_csv(),
        "rounds": rounds.to_csv(float_format="%.17g"),
        "manifest": json.dumps(manifest, sort_keys=True),
    }


def resumed_after(folder: Path) -> list[int]:
    """The rounds after which a finished run had been taken up again."""
    found: list[int] = json.loads((folder / "manifest.json").read_text())["resumed_after_rounds"]
    return found
