"""Features learned from synthetic characters: where they come from, and that a run trains nothing but the head."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from safetensors.torch import load_file
from torch import Tensor

from benchmarks import pretraining as pretraining_module
from benchmarks.pretrain import main as command
from benchmarks.pretraining import (
    OF_TYPEFACES,
    Settings,
    characters_of,
    fit_head,
    of_head,
    pretrain,
    project,
    synthetic_characters,
    train_net,
    warped,
)
from subjectdp.config.sections import EmbeddedConfig
from subjectdp.data.embedded.glyphs import stroke_fields
from subjectdp.data.store import load_prepared
from subjectdp.errors import ConfigError, ModelError
from subjectdp.models.build import build_model
from subjectdp.models.fixed import fixed_features
from subjectdp.models.handwriting import (
    FEATURES,
    TYPEFACES,
    WEIGHTS,
    HandwritingFeatures,
    load_weights,
    provenance,
)
from subjectdp.training import build
from subjectdp.training import run as run_module
from subjectdp.training.device_data import DeviceDataset, FixedFeatures
from subjectdp.training.run import train_run
from training import small_world

ROOT = Path(__file__).parents[2]
TINY = Settings(writers=3, items_per_writer=30, epochs=2, batch_size=8, seed=5)
PAPER = -0.17 / 0.33


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("file", "settings"), [(WEIGHTS, Settings()), (TYPEFACES, OF_TYPEFACES)])
def test_the_weights_say_how_they_were_made(file: Path, settings: Settings) -> None:
    """What a new ``python -m benchmarks.pretrain`` would do is what was done."""
    made = provenance(file)
    assert {key: made[key] for key in asdict(settings)} == asdict(settings)
    assert made["training_accuracy"] > 0.6
    assert file.stat().st_size < 450_000


def test_no_scenario_and_no_default_draws_the_writers_of_the_pretraining() -> None:
    seeds = {EmbeddedConfig().seed}
    for path in (ROOT / "config").rglob("*.yaml"):
        seeds |= set(seeds_in(yaml.safe_load(path.read_text())))
    assert len(seeds) >= 1 and not seeds & {Settings().seed, OF_TYPEFACES.seed, of_head(OF_TYPEFACES).seed}


def seeds_in(node: Any, key: str = "") -> list[int]:
    if isinstance(node, dict):
        return [seed for name, value in node.items() for seed in seeds_in(value, str(name))]
    if isinstance(node, list):
        return [seed for value in node for seed in seeds_in(value, key)]
    return [node] if key.rpartition(".")[2] == "seed" and isinstance(node, int) else []


def test_pretraining_reads_generated_data_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(data: Any, folder: Path) -> list[Path]:
        asked.append(data)
        raise InterruptedError

    monkeypatch.setattr(pretraining_module, "fetch_sources", fetched)
    with pytest.raises(InterruptedError):
        synthetic_characters(TINY)
    assert [(data.source, data.path, data.embedded.seed) for data in asked] == [("embedded", None, 5)]


@pytest.mark.slow
def test_characters_drawn_at_once_are_those_of_the_prepared_data_set() -> None:
    drawn = characters_of(stroke_fields(), TINY)
    assert rows_of(*drawn) == rows_of(*synthetic_characters(TINY)), "in another order"


def rows_of(images: Tensor, labels: Tensor) -> list[tuple[int, bytes]]:
    grey = ((images * 0.33 + 0.17) * 255).round().to(torch.uint8)
    return sorted((int(label), bytes(image.flatten().tolist())) for image, label in zip(grey, labels, strict=True))


@pytest.mark.slow
def test_the_same_settings_give_the_same_bytes(tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    for name in ("one", "other"):
        pretrain(TINY, tmp_path / name)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()
    shipped = load_weights()
    assert {k: v.shape for k, v in load_file(tmp_path / "one").items()} == {k: v.shape for k, v in shipped.items()}


@pytest.mark.slow
@pytest.mark.parametrize("typefaces", [False, True])
def test_the_head_of_the_package_knows_synthetic_characters_of_other_writers(typefaces: bool) -> None:
    images, labels = synthetic_characters(Settings(writers=8, items_per_writer=40, seed=77))
    model = build_model("handwriting_head", 62, "image", 0, {"typefaces": typefaces})
    with torch.no_grad():
        accuracy = float((model(images).argmax(1) == labels).float().mean())
        features = model.features(images)  # type: ignore[operator]
    assert accuracy > 0.75, "62 classes"
    assert 0.6 < float(features.square().sum(1).mean()) < 1.6


def test_features_look_at_one_item_and_hold_nothing_to_train() -> None:
    model = build_model("handwriting_head", 62, "image", 0, {"from_synthetic": False})
    assert [(name, tuple(p.shape)) for name, p in model.named_parameters()] == [("head.weight", (62, FEATURES))]
    assert not model.head.weight.any() and list(model.state_dict()) == ["head.weight"]  # type: ignore[union-attr]
    images = torch.rand(5, 1, 28, 28, generator=generator()) * 3 + PAPER
    features = fixed_features(model)
    assert features is not None
    whole = features(images)
    torch.testing.assert_close(whole[3:4], features(images[3:4]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(images), model(whole))


def test_a_head_for_other_classes_starts_from_zero_or_not_at_all() -> None:
    assert build_model("handwriting_head", 5, "image", 0, {"from_synthetic": False})(torch.zeros(2, 128)).shape == (
        2,
        5,
    )
    with pytest.raises(ModelError, match=r"from_synthetic to be false where there are 5 classes .*, got True"):
        build_model("handwriting_head", 5, "image", 0)
    with pytest.raises(ModelError, match="from_synthetic to be true or false, got 1"):
        build_model("handwriting_head", 62, "image", 0, {"from_synthetic": 1})


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


def test_warps_keep_paper_and_differ_from_item_to_item() -> None:
    paper = torch.full((4, 1, 28, 28), PAPER)
    torch.testing.assert_close(warped(paper, generator()), paper)
    dot = paper.clone()
    dot[:, :, 10:18, 10:18] = PAPER + 3.0
    moved = warped(dot, generator())
    assert not torch.equal(moved[0], moved[1])
    ink = (moved - PAPER).sum((1, 2, 3)) / (dot - PAPER).sum((1, 2, 3))
    assert bool(((ink > 0.2) & (ink < 1.6)).all()), "smaller by at most e^-1.1, larger by little"


@pytest.mark.parametrize("power", [0.0, 0.25, 0.5])
def test_the_projection_is_centred_uncorrelated_and_of_unit_norm(power: float) -> None:
    mixing = torch.randn(200, 200, generator=generator(1)) / 4
    outputs = torch.randn(4000, 200, generator=generator(2)) @ mixing + 3.0
    projection, mean = project(outputs, power)
    features = ((outputs - mean) @ projection).double()
    torch.testing.assert_close(features.mean(0), torch.zeros(FEATURES, dtype=torch.float64), rtol=0, atol=1e-4)
    covariance = torch.cov(features.T)
    largest = torch.linalg.eigvalsh(torch.cov(outputs.double().T)).flip(0)[:FEATURES]
    ratios = covariance.diag() / (largest + 1e-3 * largest.mean()) ** (1 - 2 * power)
    torch.testing.assert_close(ratios / ratios[0], torch.ones_like(ratios), rtol=5e-3, atol=0)
    assert float((covariance - covariance.diag().diag()).abs().max()) < 1e-5
    assert float(features.square().sum(1).mean()) == pytest.approx(1.0, abs=1e-3)


def test_the_fitted_head_is_where_the_penalised_loss_is_flat() -> None:
    features, labels = (
        torch.randn(300, 6, generator=generator(3)),
        torch.randint(0, 62, (300,), generator=generator(4)),
    )
    weight = fit_head(features, labels, 0.05).requires_grad_(True)
    loss = F.cross_entropy(features @ weight.T, labels) + 0.025 * weight.square().sum()
    (gradient,) = torch.autograd.grad(loss, [weight])
    assert float(gradient.norm()) < 1e-3 < float(weight.detach().norm())


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="Expected epochs to be at least 1, got 0"):
        Settings(epochs=0)
    images, labels = torch.zeros(30, 1, 28, 28), torch.zeros(30, dtype=torch.int64)
    with pytest.raises(ConfigError, match="batch_size to be so small that all epochs .* of the 30 characters, got 128"):
        train_net(images, labels, Settings(epochs=3))


@pytest.fixture
def threads() -> Iterator[None]:
    count = torch.get_num_threads()
    yield
    torch.set_num_threads(count)


def test_the_command_pretrains_with_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def pretrained(settings: Settings, target: Path, folder: Path | None) -> None:
        asked.append((settings, folder))
        target.write_bytes(b"abc")

    monkeypatch.setattr(pretraining_module, "pretrain", pretrained)
    for options in ([], ["--typefaces", "node_modules"]):
        command(["--output", str(tmp_path / "w"), *options])
    assert asked == [(Settings(), None), (OF_TYPEFACES, Path("node_modules"))]
    assert "sha256 ba7816bf8f01cfea" in capsys.readouterr().out, "of 'abc', as FIPS 180 prints it"


def test_resident_features_are_those_of_the_used_items(tmp_path: Path) -> None:
    prepared_folder, _ = small_world.build(tmp_path, small_world.config())
    prepared, cpu = load_prepared(prepared_folder), torch.device("cpu")
    features = HandwritingFeatures(load_weights())
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
