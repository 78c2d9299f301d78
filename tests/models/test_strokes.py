"""Features learned from random strokes: the glyphs, the script that learns, the file that comes with the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from benchmarks import strokes
from subjectdp.models.build import build_model
from subjectdp.models.fixed import fixed_features
from subjectdp.models.handwriting import FEATURES, STROKES, STROKES_SHA256, load_weights
from subjectdp.training.device_data import INK_SCALE, INK_SHIFT


def hands(seed: int, glyphs: int, each: int) -> tuple[Tensor, Tensor]:
    """Images (glyphs · each, 1, 28, 28) and their glyphs."""
    numbers = torch.arange(glyphs).repeat_interleave(each)
    return strokes.Glyphs(glyphs, torch.Generator().manual_seed(seed)).images(numbers), numbers


def test_glyphs_are_ink_on_paper_the_same_for_a_seed() -> None:
    images, _ = hands(1, 20, 4)
    assert images.shape == (80, 1, 28, 28) and float(images.min()) >= 0 and float(images.max()) <= 1
    assert torch.equal(images, hands(1, 20, 4)[0]) and not torch.equal(images, hands(2, 20, 4)[0])
    ink = images.flatten(1).sum(1)
    assert float(ink.min()) > 3 and float(ink.max()) < 400, "drawn, and not all over the paper"
    assert float(images[:, :, :2].max()) < 0.5, "within the paper"


def nearest_mean(features: Tensor, numbers: Tensor) -> float:
    """The share of items nearest, by angle, to the mean of the other items of their glyph."""
    rows = torch.nn.functional.normalize(features, dim=1)
    sums = torch.zeros(int(numbers.max()) + 1, rows.shape[1]).index_add_(0, numbers, rows)
    scores = rows @ torch.nn.functional.normalize(sums, dim=1).t()
    own = torch.nn.functional.normalize(sums[numbers] - rows, dim=1)
    scores[torch.arange(len(rows)), numbers] = (own * rows).sum(1)
    return float((scores.argmax(1) == numbers).float().mean())


def test_the_features_know_glyphs_that_they_have_not_seen() -> None:
    images, numbers = hands(3, 60, 8)
    features = fixed_features(build_model("stroke_head", 62, "image", 0))
    assert features is not None
    shaded = (images - INK_SHIFT) / INK_SCALE
    found, pixels = features(shaded), shaded.flatten(1)
    assert nearest_mean(found, numbers) > 0.8 > 0.6 > nearest_mean(pixels, numbers)
    assert 0.6 < float(found.square().sum(1).mean()) < 1.6


def test_the_file_says_how_it_was_made_and_the_script_makes_such_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with safe_open(STROKES, framework="pt") as file:
        made = json.loads(file.metadata()["provenance"])
    assert made["seed"] == strokes.SEED and made["glyphs"] == strokes.GLYPHS and made["images"] == strokes.IMAGES
    monkeypatch.setattr(strokes, "GLYPHS", 20)
    monkeypatch.setattr(strokes, "_PUBLIC", 80)
    monkeypatch.setattr(strokes, "_BATCH", 8)
    assert strokes.main([str(tmp_path / "own.safetensors"), "--images", "800"]) == 0
    assert "step 100 of 100" in capsys.readouterr().out
    with safe_open(tmp_path / "own.safetensors", framework="pt") as file:
        shapes = {name: tuple(file.get_tensor(name).shape) for name in file.keys()}  # noqa: SIM118
    packaged = load_weights(STROKES, STROKES_SHA256)
    assert shapes == {name: tuple(tensor.shape) for name, tensor in packaged.items()}
    assert shapes["projection"][1] == strokes.FEATURES < FEATURES
