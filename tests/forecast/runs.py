"""Runs of each size."""

from typing import Any

from subjectdp.config.run import RunConfig

SMALL = {
    "data": {"embedded": {"subjects": 8, "items_per_subject": 50}},
    "partition": {"silos": 4},
    "training": {"rounds": 5, "batch_size": 16},
    "model": {"name": "small_cnn"},
}


def run_of(**changes: Any) -> RunConfig:
    content = {**SMALL}
    for key, value in changes.items():
        content[key] = {**content.get(key, {}), **value}
    return RunConfig.model_validate(content)


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
