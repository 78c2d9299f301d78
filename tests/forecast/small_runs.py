"""Runs of a small world: their folders, data and training."""

import json
from pathlib import Path
from typing import Any

from subjectdp.config import paths
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import make_partition
from subjectdp.data.store import write_prepared
from subjectdp.training.run import train_run
from training import small_world


def run_of(**changes: Any) -> RunConfig:
    return RunConfig.model_validate(small_world.config(**changes))


def folders(run: RunConfig, results: Path) -> tuple[Path, Path, Path]:
    found = paths.prepared_dir(run.data_key), paths.partition_dir(run.partition_id), paths.run_dir(run.run_id)
    prepared, partition, output = (results / path.removeprefix("results/") for path in found)
    return prepared, partition, output


def prepare(run: RunConfig, results: Path) -> None:
    write_prepared(folders(run, results)[0], small_world.image_content(), "leaf_json", [], 0.2)


def train(run: RunConfig, results: Path) -> dict[str, Any]:
    """Makes the partition and trains; returns the manifest."""
    prepared, partition, output = folders(run, results)
    make_partition(prepared, partition, run)
    train_run(run.model_dump(mode="json"), prepared, partition, output, results / "cache/calibration")
    manifest: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return manifest
