"""The score that a private selection compares models by: one noisy number a model.

A subject's part is the share of its validation items that the model knows, so that a subject (or an item) moves the sum
over subjects by at most 1. Gaussian noise is added to the sum once.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.training.build import RunInputs, make_federation


def noisy_score(
    inputs: RunInputs,
    partition_folder: Path,
    model_file: Path,
    noise: float,
    seed: int,
    cache: Path | None = None,
) -> float:
    """The score of a finished run's model, over the number of subjects: about a mean accuracy.

    Args:
        inputs: what the run was made from.
        partition_folder: of the run; its table of subjects says whose a validation item is.
        model_file: the run's ``model.safetensors``.
        noise: standard deviation of the noise on the sum over subjects.
        seed: the noise is drawn from it and the run's id.
        cache: where fixed features are kept between runs.
    """
    sizes = pd.read_parquet(partition_folder / "subjects.parquet")["validation_items"].to_numpy()
    right = _right_answers(inputs, model_file, cache)
    total = subject_sum(right, sizes)
    drawn = numpy_generator(seed, Purpose.NOISE, "private selection", inputs.run.run_id).standard_normal()
    return float((total + noise * drawn) / len(sizes))


def subject_sum(right: NDArray[np.bool_], sizes: NDArray[np.int64]) -> float:
    """The sum over subjects of the share of right answers; items ordered by subject, ``sizes`` of them each."""
    held = sizes[sizes > 0]
    starts = np.cumsum(held) - held
    return float((np.add.reduceat(right.astype(np.float64), starts) / held).sum()) if len(held) else 0.0


@torch.no_grad()
def _right_answers(inputs: RunInputs, model_file: Path, cache: Path | None) -> NDArray[np.bool_]:
    """Whether the model knows each validation item of the partition, in its order."""
    federation = make_federation(inputs, torch.device("cpu"), cache)
    flat, tensors = federation.engine.flat, load_file(model_file)
    vector = torch.zeros_like(flat.vector)
    for name, view in flat.views(vector).items():
        view.copy_(tensors[name])
    flat.load(vector)
    items, at_once = inputs.partition.validation_items, inputs.run.performance.evaluation_batch_size
    found = []
    for start in range(0, len(items), at_once):
        features, labels = federation.data.batch(items[start : start + at_once])
        found.append((flat.model(features).argmax(1) == labels).numpy())
    return np.concatenate(found) if found else np.empty(0, np.bool_)
