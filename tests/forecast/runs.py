"""Runs of each size; a small world's data, and its training."""

import json
from pathlib import Path
from typing import Any

from subjectdp.accounting.calibration import kept_in
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import merge
from subjectdp.data.partition import make_partition
from subjectdp.data.store import write_prepared
from subjectdp.places import Places
from subjectdp.training.run import train_run
from training import small_world

SMALL = {
    "data": {"embedded": {"subjects": 8, "items_per_subject": 50}},
    "partition": {"silos": 4},
    "training": {"rounds": 5, "batch_size": 16},
    "model": {"name": "small_cnn"},
}


def run_of(**changes: Any) -> RunConfig:
    return RunConfig.model_validate(merge(SMALL, changes))


SHORT = run_of()
PAPER = run_of(
    data={"source": "upstream", "subjects": 3500},
    partition={"silos": 16},
    training={"rounds": 100, "batch_size": 512},
    model={"name": "leaf_cnn"},
)
SHAKESPEARE = run_of(
    data={"dataset": "shakespeare", "source": "upstream"},
    partition={"silos": 16},
    training={"rounds": 200, "batch_size": 100},
    model={"name": "leaf_lstm"},
)


def small_run(**changes: Any) -> RunConfig:
    """A run of the small world."""
    return RunConfig.model_validate(small_world.config(**changes))


def folders(run: RunConfig, results: Path) -> tuple[Path, Path, Path]:
    """Of its prepared data, its partition and its results."""
    found = Places().prepared_dir(run.data_key), Places().partition_dir(run.partition_id), Places().run_dir(run.run_id)
    prepared, partition, output = (results / path.removeprefix("results/") for path in found)
    return prepared, partition, output


def prepare(run: RunConfig, results: Path) -> None:
    write_prepared(folders(run, results)[0], small_world.image_content(), "leaf_json", [], 0.2)


def train(run: RunConfig, results: Path) -> dict[str, Any]:
    """Makes the partition and trains; returns the manifest."""
    prepared, partition, output = folders(run, results)
    make_partition(prepared, partition, run)
    with kept_in(results / "cache/calibration"):
        train_run(run.model_dump(mode="json"), prepared, partition, output)
    return dict(json.loads((output / "manifest.json").read_text()))
