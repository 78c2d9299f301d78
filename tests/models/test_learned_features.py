"""Features learned from synthetic characters, public English, random strokes: where they come from, what they know."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from subjectdp.accounting.calibration import kept_in
from subjectdp.config.sections import DataConfig, EmbeddedConfig
from subjectdp.data.embedded_writers import draw_writer
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.shakespeare import VOCABULARY, encode, text_content
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import ModelError
from subjectdp.models import fixed
from subjectdp.models.build import build_model
from subjectdp.training import federation
from subjectdp.training import run as run_module
from subjectdp.training.device_data import INK_SCALE, INK_SHIFT, DeviceDataset, FeatureCache, FixedFeatures
from subjectdp.training.run import train_run
from training import small_world

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAPER = -0.17 / 0.33
SEEDS = {fixed.WEIGHTS: 20_260_517, fixed.TYPEFACES: 20_261_123}  # of the features' writers; the head's have one more
CPU = torch.device("cpu")


def made_by(file: Path) -> dict[str, Any]:
    """How the weights of a file were made, as it says."""
    with safe_open(file, framework="pt") as tensors:
        return dict(json.loads(tensors.metadata()["provenance"]))


def test_the_weights_say_how_they_were_made() -> None:
    for file, seed in SEEDS.items():
        made = made_by(file)
        assert made["seed"] == seed and {"writers", "items_per_writer", "training_accuracy", "torch"} <= made.keys()
    made = made_by(fixed.ENGLISH)
    assert made["training_accuracy"] > 0.6 and len(made["text_sha256"]) == 64 and fixed.ENGLISH.stat().st_size < 450_000
    made = made_by(fixed.STROKES)
    assert (made["seeds"], made["glyphs"], made["images"]) == ([20_261_127, 20_261_137], 3000, 700_000)


def test_no_scenario_and_no_default_draws_the_writers_of_the_pretraining() -> None:
    taken = {seed + more for seed in SEEDS.values() for more in (0, 1)}
    texts = [path.read_text().replace("_", "") for path in (ROOT / "config").rglob("*.yaml")]
    assert len(texts) > 9 and not any(str(seed) in text for seed in taken for text in texts)
    assert EmbeddedConfig().seed not in taken


@pytest.mark.parametrize("typefaces", [False, True])
def test_the_head_of_the_package_knows_synthetic_characters_of_other_writers(tmp_path: Path, typefaces: bool) -> None:
    data = DataConfig(dataset="femnist", embedded=EmbeddedConfig(subjects=8, items_per_subject=40, seed=77))
    fetch_sources(data, tmp_path / "source")
    prepare_dataset(data, tmp_path / "source", tmp_path / "prepared")
    drawn = DeviceDataset(load_prepared(tmp_path / "prepared"), CPU)
    images, labels = drawn.at(torch.arange(len(drawn.labels)))
    model = build_model("handwriting_head", 62, "image", 0, {"typefaces": typefaces})
    with torch.no_grad():
        accuracy = float((model(images).argmax(1) == labels).float().mean())
        features = model.features(images)  # type: ignore[operator]
    assert accuracy > 0.75, "62 classes"
    assert 0.6 < float(features.square().sum(1).mean()) < 1.6


def test_a_head_for_other_classes_starts_from_zero() -> None:
    model = build_model("handwriting_head", 5, "image", 0, {"from_synthetic": False})
    assert model(torch.zeros(2, 128)).shape == (2, 5)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    copy = tmp_path / "handwriting.safetensors"
    with pytest.raises(ModelError, match="handwriting.safetensors is missing"):
        fixed.load_weights(copy)
    shutil.copy(fixed.WEIGHTS, copy)
    assert fixed.load_weights(copy).keys() == fixed.load_weights().keys()
    content = bytearray(copy.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    fixed.load_weights.cache_clear()
    with pytest.raises(ModelError, match="to have the sha256"):
        fixed.load_weights(copy)


@pytest.mark.parametrize("algorithm", ["local_item_dp", "fed_avg"])
def test_a_run_on_features_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """It is the run that computes them each time."""
    monkeypatch.setattr(run_module, "_privacy", lambda plan: {})
    config = small_world.config(model={"name": "handwriting_head", "parameters": {}}, algorithm=algorithm)
    prepared, partition = small_world.build(tmp_path, config)
    weights, kept = [], list[int]()
    for name in ("once", "each"):
        if name == "each":
            monkeypatch.setattr(federation, "fixed_features", lambda model: None)
        with kept_in(tmp_path / "cache"):
            train_run(config, prepared, partition, tmp_path / name, lambda line: None)
        kept += [len([*(tmp_path / "cache").glob("features-*")])]
        weights.append(load_file(tmp_path / name / "model.safetensors")["head.weight"])
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-4)
    assert kept == [1, 1]
    start = fixed.load_weights()["head"].float()
    assert float((weights[0] - start).norm()) > 1e-2, "it has been trained"


def windows(text: str) -> Tensor:
    return torch.from_numpy(encode(text)).long()[None]


def test_the_head_of_the_package_knows_english() -> None:
    model = build_model("english_head", 80, "text", 0)
    for start, following in (("and the lord said unto th", "e"), ("the children of Israe", "l"), ("of the kin", "g")):
        logits = model(windows(start.rjust(80)))
        assert VOCABULARY[int(logits.argmax())] == following


def test_features_read_the_last_characters() -> None:
    features = fixed.fixed_features(build_model("english_head", 80, "text", 0))
    assert features is not None
    characters = torch.randint(0, 80, (5, 80), generator=torch.Generator().manual_seed(0))
    whole, other = features(characters), characters.clone()
    assert (whole[:, -1] == fixed.CONSTANT).all()
    other[:, : -fixed.SEEN] = 0
    assert torch.equal(features(other), whole)
    other[:, -fixed.SEEN] = (characters[:, -fixed.SEEN] + 1) % 80
    assert not torch.equal(features(other), whole)


def test_features_of_text_computed_once_are_those_of_its_windows(tmp_path: Path) -> None:
    texts = {"HAMLET": "the time is out of joint " * 8, "OPHELIA": "there is rosemary " * 9}
    write_prepared(tmp_path / "prepared", text_content(texts, ["play", "play"], {}), "upstream", [], 0.2)
    prepared = load_prepared(tmp_path / "prepared")
    weights = fixed.load_weights(fixed.ENGLISH, fixed.ENGLISH_SHA256)
    features = fixed.public_features(fixed.EnglishNet, weights, fixed.CONSTANT)
    used = np.array([7, len(texts["HAMLET"]) + 3, 0, 7], dtype=np.int32)
    windows_of_text, wanted = DeviceDataset(prepared, CPU).batch(used)
    cache = FeatureCache(tmp_path / "cache", prepared.meta["sha256"], {"name": "english_head"})
    for kept in (None, cache, cache):
        found, labels = DeviceDataset(prepared, CPU, FixedFeatures(features, used, kept=kept)).batch(used)
        torch.testing.assert_close(found, features(windows_of_text), rtol=1e-4, atol=1e-5)
        assert torch.equal(labels, wanted)


def hands(writers: int, each: int) -> tuple[Tensor, Tensor]:
    """Generated characters (writers · each, 1, 28, 28) as ink from 0 to 1, and their classes."""
    drawn = [draw_writer(5, writer, each) for writer in range(writers)]
    inks = torch.from_numpy(np.concatenate([items.images for items in drawn])).float().unsqueeze(1)
    classes = torch.from_numpy(np.concatenate([items.labels for items in drawn])).long()
    return F.interpolate(inks, (28, 28), mode="area"), classes


def test_a_character_that_leans_is_put_upright() -> None:
    images = hands(1, 40)[0][:30]
    lean = F.affine_grid(torch.tensor([[[1, -0.1, 0], [0, 1.0, 0]]]).repeat(30, 1, 1), [30, 1, 28, 28], False)
    leaning = F.grid_sample(images, lean, align_corners=False)
    places = torch.arange(28.0)

    def covariances(inks: Tensor) -> Tensor:
        weights = inks[:, 0] / inks.sum((1, 2, 3))[:, None, None]
        rows, columns = weights.sum(2) @ places, weights.sum(1) @ places
        return torch.einsum("bij,i,j->b", weights, places, places) - rows * columns

    before, after = covariances(leaning).abs(), covariances(fixed.upright(leaning)).abs()
    assert bool((after <= before + 1e-3).all()) and float(after.median()) < 1e-3 < 1 < float(before.median())
    shaded = (leaning - INK_SHIFT) / INK_SCALE
    torch.testing.assert_close(fixed.upright(shaded), (fixed.upright(leaning) - INK_SHIFT) / INK_SCALE)
    torch.testing.assert_close(fixed.upright(torch.full((1, 1, 28, 28), PAPER)), torch.full((1, 1, 28, 28), PAPER))


def nearest_mean(features: Tensor, numbers: Tensor) -> float:
    """The share of items nearest, by angle, to the mean of the other items of their glyph."""
    rows = F.normalize(features, dim=1)
    sums = torch.zeros(int(numbers.max()) + 1, rows.shape[1]).index_add_(0, numbers, rows)
    scores = rows @ F.normalize(sums, dim=1).t()
    own = F.normalize(sums[numbers] - rows, dim=1)
    scores[torch.arange(len(rows)), numbers] = (own * rows).sum(1)
    return float((scores.argmax(1) == numbers).float().mean())


def test_the_features_of_strokes_know_characters_that_they_have_not_seen() -> None:
    images, numbers = hands(40, 30)
    features = fixed.fixed_features(build_model("stroke_head", 62, "image", 0))
    assert features is not None
    shaded = (images - INK_SHIFT) / INK_SCALE
    found, pixels = features(shaded), shaded.flatten(1)
    assert nearest_mean(found, numbers) > 0.8 > 0.6 > nearest_mean(pixels, numbers)
    assert 0.6 < float(found.square().sum(1).mean()) < 1.6
