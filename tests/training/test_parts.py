"""Parts of the training loop on their own: the log of steps, plain descent, resident data, malloc."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.content import Content
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.places import LIBRARY
from subjectdp.sampling.batches import BatchStatistics
from subjectdp.training.device_data import ResidentData
from subjectdp.training.evaluation import evaluate
from subjectdp.training.record.steplog import LoggedStep, StepLog
from subjectdp.training.steps.optimisers import descend, make_optimiser
from training import small_world

BATCH = BatchStatistics(7, 3, 4)


def test_the_log_sorts_its_rows_and_reads_fractions_that_were_left_on_the_device() -> None:
    log = StepLog()
    log.add(LoggedStep(1, 2, 0, BATCH, 1.5, torch.tensor(0.25)))
    log.add(LoggedStep(1, 0, 1, BATCH, 1.5, 0.75))
    log.add(LoggedStep(1, 0, 0, BATCH, 0.0, torch.tensor(True)))
    rows = log.take()
    assert [row[:3] for row in rows] == [(1, 0, 0), (1, 0, 1), (1, 2, 0)]
    assert [row.clipped_fraction for row in rows] == [1.0, 0.75, 0.25]
    assert rows[2].batch == BATCH and rows[2].noise_multiplier == 1.5
    assert log.take() == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "momentum"), [("sgd", 0.0), ("momentum", 0.9)])
def test_descent_is_torchs_to_the_bit(name: str, momentum: float) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = torch.randn(1001, generator=generator)
    theirs = ours.clone()
    settings = OptimizerConfig.model_validate({"name": name, "learning_rate": 0.3})
    optimiser = make_optimiser(ours, settings)
    reference = torch.optim.SGD([theirs], lr=0.3, momentum=momentum)
    for _ in range(3):
        gradient = torch.randn(1001, generator=generator)
        descend(optimiser, ours, gradient)
        theirs.grad = gradient.clone()
        reference.step()
    assert torch.equal(ours, theirs)


def test_resident_features_are_the_memory_map(tmp_path: Path) -> None:
    config = small_world.config()
    prepared_folder, _ = small_world.build(tmp_path, config)
    prepared = load_prepared(prepared_folder)
    data = ResidentData(prepared, torch.device("cpu"))
    assert np.shares_memory(data.features.numpy(), prepared.features)
    images, labels = data.batch(np.array([5, 3]))
    ink = (255.0 - prepared.features[[5, 3]].astype(np.float64)) / 255.0
    np.testing.assert_allclose(images[:, 0].numpy(), (ink - 0.17) / 0.33, rtol=1e-6)
    assert labels.tolist() == prepared.labels[[5, 3]].tolist()


def test_text_comes_as_the_characters_before_the_one_to_predict(tmp_path: Path) -> None:
    stream = np.random.default_rng(3).integers(0, 82, 30).astype(np.uint8)
    owners, starts, items = np.zeros(24, np.uint8), np.array([0, 13], np.int64), np.array([7, 11], np.int64)
    content = Content(
        "shakespeare", "text", stream, owners, ["a", "b"], ["", ""], starts, items, classes=82, window=6
    )
    write_prepared(tmp_path, content, "leaf_json", [], 0.1)
    data = ResidentData(load_prepared(tmp_path), torch.device("cpu"))
    for addresses in ([0, 23, 5], [11], []):
        windows, labels = data.batch(np.array(addresses, np.int64))
        assert windows.dtype == torch.int64 and windows.shape == (len(addresses), 6)
        assert windows.tolist() == [stream[start : start + 6].tolist() for start in addresses]
        assert labels.tolist() == [stream[start + 6] for start in addresses]


def test_scores_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    prepared_folder, _ = small_world.build(tmp_path, small_world.config())
    data = ResidentData(load_prepared(prepared_folder), torch.device("cpu"))
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 62))
    addresses = np.arange(50, dtype=np.int32)
    inputs, labels = data.batch(addresses)
    losses = -model(inputs).detach().double().log_softmax(1)[torch.arange(50), labels]
    for size in (1, 7, 50, 64):
        score = evaluate(model, data, addresses, size)
        assert score.loss == pytest.approx(float(losses.mean()), rel=1e-6)
        assert score.accuracy == float((model(inputs).argmax(1) == labels).double().mean())
    assert math.isnan(evaluate(model, data, addresses[:0], 7).loss)


FAULTS = """
import resource, sys, torch
from subjectdp.training.record.environment import keep_freed_memory
assert keep_freed_memory() == (sys.argv[1] == "kept")
for _ in range(30):
    torch.ones(16_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(16_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is set up")
def test_freed_memory_is_kept_unless_the_user_has_set_malloc_up() -> None:
    faults = {}
    for name, settings in (("kept", {}), ("users", {"MALLOC_MMAP_THRESHOLD_": "1000000"})):
        printed = subprocess.run(
            [sys.executable, "-c", FAULTS, name],
            env={"PYTHONPATH": str(LIBRARY), **settings},
            capture_output=True,
            text=True,
            check=True,
        )
        faults[name] = int(printed.stdout)
    assert faults["kept"] < 1000, "64 MB are had again page by page"
    assert faults["users"] > 10 * faults["kept"] + 1000
