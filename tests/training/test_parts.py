"""Parts of the training loop on their own: the log of steps, plain descent, resident data, malloc."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.content import Content
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.io.freed_memory import keep_freed_memory
from subjectdp.sampling import BatchStatistics
from subjectdp.training import federation
from subjectdp.training.device_data import DeviceDataset, FeatureCache, FixedFeatures
from subjectdp.training.federation import Optimiser
from subjectdp.training.records import LoggedStep, StepLog
from subjectdp.training.rounds import IterateAverage, evaluate
from training import small_world

BATCH = BatchStatistics(7, 3, 4)


def test_the_log_sorts_its_rows_and_reads_fractions_that_were_left_on_the_device() -> None:
    log = StepLog()
    log.add(LoggedStep(1, 2, 0, *BATCH, 1.5, torch.tensor(0.25)))
    log.add(LoggedStep(1, 0, 1, *BATCH, 1.5, 0.75))
    log.add(LoggedStep(1, 0, 0, *BATCH, 0.0, torch.tensor(True)))
    rows = log.take()
    assert [row[:3] for row in rows] == [(1, 0, 0), (1, 0, 1), (1, 2, 0)]
    assert [row.clipped_fraction for row in rows] == [1.0, 0.75, 0.25]
    assert rows[2][3:6] == BATCH and rows[2].noise_multiplier == 1.5
    assert log.take() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam"])
def test_descent_is_torchs_to_the_bit(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(1001, generator=generator)
    theirs = ours.clone()
    settings = OptimizerConfig.model_validate({"name": name, "learning_rate": 0.3})
    optimiser = Optimiser(settings)
    momentum = 0.9 if name == "momentum" else 0.0
    sgd, adam = torch.optim.SGD([theirs], lr=0.3, momentum=momentum), torch.optim.Adam([theirs], lr=0.3)
    reference = adam if name == "adam" else sgd
    for _ in range(3):
        gradient = torch.randn(1001, generator=generator)
        optimiser.step(ours, gradient)
        theirs.grad = gradient.clone()
        reference.step()
    assert torch.equal(ours, theirs)


def test_resident_features_are_the_memory_map(tmp_path: Path) -> None:
    config = small_world.config()
    prepared_folder, _ = small_world.build(tmp_path, config)
    prepared = load_prepared(prepared_folder)
    data = DeviceDataset(prepared, torch.device("cpu"))
    assert np.shares_memory(data.features.numpy(), prepared.features)
    images, labels = data.batch(np.array([5, 3]))
    ink = (255.0 - prepared.features[[5, 3]].astype(np.float64)) / 255.0
    np.testing.assert_allclose(images[:, 0].numpy(), (ink - 0.17) / 0.33, rtol=1e-6)
    assert labels.tolist() == prepared.labels[[5, 3]].tolist()


def test_text_comes_as_the_characters_before_the_one_to_predict(tmp_path: Path) -> None:
    stream = np.random.default_rng(3).integers(0, 82, 30).astype(np.uint8)
    owners, starts, items = np.zeros(24, np.uint8), np.array([0, 13], np.int64), np.array([7, 11], np.int64)
    content = Content("shakespeare", "text", stream, owners, ["a", "b"], ["", ""], starts, items, classes=82, window=6)
    write_prepared(tmp_path, content, "leaf_json", [], 0.1)
    data = DeviceDataset(load_prepared(tmp_path), torch.device("cpu"))
    for addresses in ([0, 23, 5], [11], []):
        windows, labels = data.batch(np.array(addresses, np.int64))
        assert windows.dtype == torch.int64 and windows.shape == (len(addresses), 6)
        assert windows.tolist() == [stream[start : start + 6].tolist() for start in addresses]
        assert labels.tolist() == [stream[start + 6] for start in addresses]


def test_scores_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    prepared_folder, _ = small_world.build(tmp_path, small_world.config())
    data = DeviceDataset(load_prepared(prepared_folder), torch.device("cpu"))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 62))
    addresses = np.arange(50, dtype=np.int32)
    inputs, labels = data.batch(addresses)
    losses = -model(inputs).detach().double().log_softmax(1)[torch.arange(50), labels]
    for size in (1, 7, 50, 64):
        score = evaluate(model, data, addresses, size)
        assert score.loss == pytest.approx(float(losses.mean()), rel=1e-6)
        assert score.accuracy == float((model(inputs).argmax(1) == labels).double().mean())
    assert math.isnan(evaluate(model, data, addresses[:0], 7).loss)


def test_freed_memory_is_kept_unless_the_user_has_set_malloc_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "1000000")
    assert not keep_freed_memory()


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


def test_a_part_of_a_hundred_rounds_is_not_rounded_down() -> None:
    running = IterateAverage(0.29, 100, torch.zeros(1))
    for round_ in range(1, 101):
        running.update(torch.full((1,), float(round_)), round_)
    assert float(running.vector) == pytest.approx(86.0), "the mean of 72 to 100"


def trained(folder: Path, name: str, rounds: int, part: float | None) -> tuple[np.ndarray, Any]:
    config = small_world.config(
        training={"rounds": rounds, "batch_size": 8, "local_steps": 1, "averaged_rounds": part},
        privacy={"epsilon": 4.0, "noise_multiplier": 1.0},
    )
    small_world.train(folder, name, config)
    model = load_file(folder / name / "model.safetensors")
    vector = np.concatenate([model[key].numpy().ravel() for key in sorted(model)])
    return vector, pd.read_parquet(folder / name / "rounds.parquet")


@pytest.mark.slow
def test_a_run_saves_and_evaluates_the_average_and_trains_on_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_statements: None
) -> None:
    """Runs of 1, 2 and 3 rounds give the newest models; the run with an average of all must save their mean."""
    monkeypatch.setattr(federation, "noise_name", lambda *_: "shared")  # which else is each run's own
    newest = [trained(tmp_path, f"newest{rounds}", rounds, None) for rounds in (1, 2, 3)]
    mean, table = trained(tmp_path, "mean", 3, 1.0)
    vectors = np.stack([vector for vector, _ in newest])
    np.testing.assert_allclose(mean, vectors.mean(0), rtol=1e-5, atol=1e-7)
    assert np.abs(mean - vectors[2]).max() > 1e-3, "the average differs from the newest model"
    losses = [float(rounds["test_loss"].iloc[-1]) for _, rounds in newest]
    assert float(table["test_loss"].iloc[0]) == pytest.approx(losses[0], rel=1e-6), "one round: the same model"
    assert float(table["test_loss"].iloc[-1]) != pytest.approx(losses[2], rel=1e-4)


CPU = torch.device("cpu")
MODEL: dict[str, Any] = {"name": "handwriting_head", "parameters": {}}


def features(images: Tensor) -> Tensor:
    """A product whose rounding depends on how many items it is given at once, as a network's does."""
    flat = images.flatten(1)
    return torch.tanh(flat @ torch.linspace(-1, 1, flat.shape[1] * 8).view(-1, 8))


def test_kept_features_are_those_of_a_run_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subjectdp.training.device_data._FEATURES_AT_ONCE", 16)
    prepared_folder, _ = small_world.build(tmp_path, small_world.config())
    prepared = load_prepared(prepared_folder)
    used = np.array([3, len(prepared.labels) - 1, 40, 3], dtype=np.int32)
    cache = FeatureCache(tmp_path / "cache", prepared.meta["sha256"], MODEL)
    alone, first, second = (
        DeviceDataset(prepared, CPU, FixedFeatures(features, used, kept=kept)) for kept in (None, cache, cache)
    )
    assert cache.path.is_file()
    wanted = alone.batch(used)[0]
    assert wanted.any()
    assert torch.equal(first.batch(used)[0], wanted) and torch.equal(second.batch(used)[0], wanted)
    every = np.arange(len(prepared.labels), dtype=np.int32)
    assert torch.equal(DeviceDataset(prepared, CPU, FixedFeatures(features)).batch(every)[0], second.batch(every)[0])


def refuse() -> Tensor:
    raise AssertionError("computed again")


def test_a_whole_file_is_read_and_a_broken_one_made_anew(tmp_path: Path) -> None:
    table = torch.arange(12, dtype=torch.float32).view(4, 3)
    cache = FeatureCache(tmp_path, {"x": "1"}, MODEL)
    cache.table(4, lambda: table)
    assert torch.equal(FeatureCache(tmp_path, {"x": "1"}, MODEL).table(4, refuse), table)
    whole = cache.path.read_bytes()
    for broken in (whole[:-4], whole[:-1] + b"x", b""):
        cache.path.write_bytes(broken)
        assert torch.equal(cache.table(4, lambda: table + 1), table + 1)
        assert torch.equal(cache.table(4, refuse), table + 1)


def test_other_data_models_and_weights_have_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of learned weights is a constant of the code, whose fingerprint is part of the key."""
    others = [{**MODEL, "name": "scattering_head"}, {**MODEL, "parameters": {"a": 1}}]
    paths = [FeatureCache(tmp_path, {"x": "1"}, model).path for model in (MODEL, *others)]
    paths.append(FeatureCache(tmp_path, {"x": "2"}, MODEL).path)
    monkeypatch.setattr("subjectdp.training.device_data.fingerprint", lambda stage: f"changed {stage}")
    paths.append(FeatureCache(tmp_path, {"x": "1"}, MODEL).path)
    assert len(set(paths)) == 5
