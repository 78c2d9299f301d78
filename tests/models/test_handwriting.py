"""Features learned from synthetic characters: where they come from, and that a run trains nothing but the head."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

from subjectdp.config.sections import DataConfig, EmbeddedConfig
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.store import load_prepared
from subjectdp.errors import ModelError
from subjectdp.models.build import build_model
from subjectdp.models.handwriting import TYPEFACES, WEIGHTS, HandwritingNet, PublicFeatures, load_weights
from subjectdp.training import build
from subjectdp.training import run as run_module
from subjectdp.training.device_data import DeviceDataset, FixedFeatures
from subjectdp.training.run import train_run
from training import small_world

ROOT = Path(__file__).parents[2]
PAPER = -0.17 / 0.33
SEEDS = {WEIGHTS: 20_260_517, TYPEFACES: 20_261_123}  # of the writers of the features; those of the head have one more


@pytest.mark.parametrize("file", SEEDS)
def test_the_weights_say_how_they_were_made(file: Path) -> None:
    with safe_open(file, framework="pt") as tensors:
        made = json.loads(tensors.metadata()["provenance"])
    assert made["seed"] == SEEDS[file] and {"writers", "items_per_writer", "training_accuracy", "torch"} <= made.keys()


def test_no_scenario_and_no_default_draws_the_writers_of_the_pretraining() -> None:
    seeds = {EmbeddedConfig().seed}
    for path in (ROOT / "config").rglob("*.yaml"):
        seeds |= set(seeds_in(yaml.safe_load(path.read_text())))
    assert len(seeds) >= 1 and not seeds & {seed + more for seed in SEEDS.values() for more in (0, 1)}


def seeds_in(node: Any, key: str = "") -> list[int]:
    if isinstance(node, dict):
        return [seed for name, value in node.items() for seed in seeds_in(value, str(name))]
    if isinstance(node, list):
        return [seed for value in node for seed in seeds_in(value, key)]
    return [node] if key.rpartition(".")[2] == "seed" and isinstance(node, int) else []


@pytest.mark.slow
@pytest.mark.parametrize("typefaces", [False, True])
def test_the_head_of_the_package_knows_synthetic_characters_of_other_writers(tmp_path: Path, typefaces: bool) -> None:
    data = DataConfig(dataset="femnist", embedded=EmbeddedConfig(subjects=8, items_per_subject=40, seed=77))
    fetch_sources(data, tmp_path / "source")
    prepare_dataset(data, tmp_path / "source", tmp_path / "prepared")
    drawn = DeviceDataset(load_prepared(tmp_path / "prepared"), torch.device("cpu"))
    images, labels = drawn.at(torch.arange(len(drawn.labels)))
    model = build_model("handwriting_head", 62, "image", 0, {"typefaces": typefaces})
    with torch.no_grad():
        accuracy = float((model(images).argmax(1) == labels).float().mean())
        features = model.features(images)  # type: ignore[operator]
    assert accuracy > 0.75, "62 classes"
    assert 0.6 < float(features.square().sum(1).mean()) < 1.6


def test_a_head_for_other_classes_starts_from_zero_or_not_at_all() -> None:
    assert build_model("handwriting_head", 5, "image", 0, {"from_synthetic": False})(torch.zeros(2, 128)).shape == (
        2,
        5,
    )
    with pytest.raises(ModelError, match=r"from_synthetic to be false where there are 5 classes .*, got True"):
        build_model("handwriting_head", 5, "image", 0)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    copy = tmp_path / "handwriting.safetensors"
    with pytest.raises(ModelError, match="handwriting.safetensors is missing"):
        load_weights(copy)
    shutil.copy(WEIGHTS, copy)
    assert load_weights(copy).keys() == load_weights().keys()
    content = bytearray(copy.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    load_weights.cache_clear()
    with pytest.raises(ModelError, match="to have the sha256"):
        load_weights(copy)


def test_resident_features_are_those_of_the_used_items(tmp_path: Path) -> None:
    prepared_folder, _ = small_world.build(tmp_path, small_world.config())
    prepared, cpu = load_prepared(prepared_folder), torch.device("cpu")
    features = PublicFeatures(HandwritingNet, load_weights())
    used = np.array([7, 3, 100, 3], dtype=np.int32)
    data, plain = DeviceDataset(prepared, cpu, FixedFeatures(features, used)), DeviceDataset(prepared, cpu)
    found, labels = data.batch(used)
    images, wanted = plain.batch(used)
    torch.testing.assert_close(found, features(images), rtol=1e-4, atol=1e-5)
    assert torch.equal(labels, wanted)
    assert not data.batch(np.array([5]))[0].any(), "not used, not computed"


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["local_item_dp", "fed_avg"])
def test_a_run_on_features_computed_once_is_the_run_that_computes_them_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(run_module, "_privacy", lambda plan: {})
    config = small_world.config(model={"name": "handwriting_head", "parameters": {}}, algorithm=algorithm)
    prepared, partition = small_world.build(tmp_path, config)
    weights = []
    for name in ("once", "each"):
        if name == "each":
            monkeypatch.setattr(build, "fixed_features", lambda model: None)
        train_run(config, prepared, partition, tmp_path / name, tmp_path / "cache", lambda line: None)
        weights.append(load_file(tmp_path / name / "model.safetensors")["head.weight"])
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-4, atol=1e-4)
    start = load_weights()["head"].float()
    assert float((weights[0] - start).norm()) > 1e-2, "it has been trained"
