"""The engine and the public API on a GPU: skipped where there is none."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import subjectdp
from api.loops import Loop
from benchmarks.public_api import TRAINED
from engine import oracle
from engine.test_clipping import NAMES, data_of, flat_in_order, model_of
from noise.test_gaussian import fits
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GPU = torch.device("cuda", 0)


def on_gpu(name: str, items: int) -> tuple[ClippingEngine, Tensor, Tensor]:
    inputs, labels = data_of(name, items)
    return ClippingEngine(FlatParameters(model_of(name).to(GPU))), inputs.to(GPU), labels.to(GPU)


@pytest.mark.parametrize("by_group", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_clipped_sum_is_that_of_the_float64_loop(name: str, by_group: bool) -> None:
    groups = [0, 1, 1, 2, 0, 2, 2] if by_group else list(range(7))
    rows = oracle.per_item_gradients(model_of(name), *data_of(name, 7))
    gradients = oracle.group_gradients(rows, torch.ones(7), groups)
    norms = gradients.norm(dim=1)
    clip_norm, (engine, inputs, labels) = float(norms.median()), on_gpu(name, 7)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        numbers = torch.tensor(groups) if by_group else None
        total, found = engine.clipped_sum(inputs, labels, clip_norm, groups=numbers)
    assert found.tolist() == pytest.approx(norms.tolist(), rel=1e-4)
    assert oracle.relative(flat_in_order(engine, total).cpu(), oracle.clipped_sum(gradients, clip_norm)) < 1e-4


@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_no_contribution_is_longer_than_the_clip_norm(name: str, autocast: torch.dtype | None) -> None:
    """With TF32 allowed everywhere, as fast training scripts have it."""
    engine, inputs, labels = on_gpu(name, 24)
    torch.set_float32_matmul_precision("high")
    try:
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            for i in range(24):
                total, norms = engine.clipped_sum(inputs[i : i + 1], labels[i : i + 1], 0.01)
                assert float(norms[0]) > 0.01
                assert float(total.double().norm()) <= 0.01
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("name", list(TRAINED))
def test_any_model_is_clipped_as_on_the_cpu(name: str) -> None:
    trained, items = TRAINED[name], 12
    torch.manual_seed(3)
    model, inputs = trained.model().eval(), trained.items(items)
    targets = torch.randint(0, trained.classes, (items,))
    people = [i // 3 for i in range(items)]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        one = subjectdp.clip_sum(copy.deepcopy(model), inputs, targets, 0.3, people)
        other = subjectdp.clip_sum(model.to(GPU), inputs.to(GPU), targets.to(GPU), 0.3, people)
    for key, value in one.items():
        assert float((other[key].cpu() - value).norm()) <= 2e-3 * float(value.norm()) + 1e-6, key


def test_reproducible_noise_has_the_planned_law_and_repeats() -> None:
    def draw(number: int) -> Any:
        total = torch.zeros(200_000, device=GPU)
        return add_gaussian(total, 1.7, key_bytes(0, Purpose.NOISE, number)).cpu().numpy().astype(np.float64)

    first = draw(1)
    assert fits(first, 1.7) and not fits(first, 1.75)
    assert np.array_equal(first, draw(1)) and abs(np.corrcoef(first, draw(2))[0, 1]) < 0.01


@pytest.mark.parametrize("seed", [None, 4])
def test_a_training_of_the_public_api_releases_the_planned_noise(seed: int | None) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 100, 10)).to(GPU)
    data = DataLoader(TensorDataset(torch.rand(64, 1, 12, 12), torch.randint(0, 10, (64,))), 16)
    settings = {"clip": "subject", "noise_multiplier": 30.0, "clip_norm": 0.01, "max_items_per_subject": 4}
    loop = Loop(model, seed, data_loader=data, subjects=[i // 4 for i in range(64)], settings=settings)
    std = 30.0 * 0.01 / loop.engine.plan.silos[0].divisor
    noises = []
    while loop.engine.steps < 5:
        for inputs, targets in loop.loader:
            before = loop.vector().double()
            loop.optimizer.zero_grad()
            loop.loss(loop.private(inputs.to(GPU)), targets.to(GPU)).backward()
            loop.optimizer.step()
            noises.append((loop.vector().double() - before).cpu().numpy() / std)
    sample = np.concatenate(noises)[:40_000]
    assert fits(sample, 1.0) and not fits(sample, 1.03)
