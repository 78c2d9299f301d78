"""Averages over rounds, against their definitions; and the place of the average in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from subjectdp.training import build
from subjectdp.training import run as run_module
from subjectdp.training.global_model import IterateAverage
from subjectdp.training.run import train_run
from training import small_world

ROUNDS = 9
MODELS = torch.randn(ROUNDS, 5, generator=torch.Generator().manual_seed(1))
INITIAL = torch.full((5,), 100.0)  # must leave no trace


def averages(part: float) -> list[torch.Tensor]:
    running = IterateAverage(part, ROUNDS, INITIAL)
    found = []
    for round_, model in enumerate(MODELS, start=1):
        running.update(model, round_)
        found.append(running.vector.clone())
    return found


@pytest.mark.parametrize(("fraction", "first"), [(1.0, 1), (0.5, 6), (0.34, 7), (0.01, 9)])
def test_tail_is_the_mean_of_the_last_part(fraction: float, first: int) -> None:
    for round_, average in enumerate(averages(fraction), start=1):
        wanted = MODELS[first - 1 : round_].mean(0) if round_ >= first else MODELS[round_ - 1]
        torch.testing.assert_close(average, wanted)


def trained(folder: Path, name: str, rounds: int, part: float | None) -> tuple[np.ndarray, Any]:
    import pandas as pd

    config = small_world.config(
        training={"rounds": rounds, "batch_size": 8, "local_steps": 1, "averaged_rounds": part},
        privacy={"noise_multiplier": 1.0},
    )
    prepared, partition = small_world.build(folder, config)
    train_run(config, prepared, partition, folder / name, folder / "cache", lambda line: None)
    model = load_file(folder / name / "model.safetensors")
    vector = np.concatenate([model[key].numpy().ravel() for key in sorted(model)])
    return vector, pd.read_parquet(folder / name / "rounds.parquet")


@pytest.mark.slow
def test_a_run_saves_and_evaluates_the_average_and_trains_on_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of 1, 2 and 3 rounds give the newest models; the run with an average of all must save their mean."""
    monkeypatch.setattr(run_module, "_privacy", lambda plan: {})
    monkeypatch.setattr(build, "noise_name", lambda *_: "shared")  # which else is each run's own
    newest = [trained(tmp_path, f"newest{rounds}", rounds, None) for rounds in (1, 2, 3)]
    mean, table = trained(tmp_path, "mean", 3, 1.0)
    vectors = np.stack([vector for vector, _ in newest])
    np.testing.assert_allclose(mean, vectors.mean(0), rtol=1e-5, atol=1e-7)
    assert np.abs(mean - vectors[2]).max() > 1e-3, "the average differs from the newest model"
    losses = [float(rounds["test_loss"].iloc[-1]) for _, rounds in newest]
    assert float(table["test_loss"].iloc[0]) == pytest.approx(losses[0], rel=1e-6), (
        "one round: the same model"
    )
    assert float(table["test_loss"].iloc[-1]) != pytest.approx(losses[2], rel=1e-4)
