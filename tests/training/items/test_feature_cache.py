"""Features kept for other runs: the same to the bit with, without and from the cache; never from a broken file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from subjectdp.data.store import load_prepared
from subjectdp.training.device_data import FeatureCache, FixedFeatures, ResidentData
from training import small_world

CPU = torch.device("cpu")
MODEL = {"name": "handwriting_head", "parameters": {}}


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
        ResidentData(prepared, CPU, FixedFeatures(features, used, kept=kept)) for kept in (None, cache, cache)
    )
    assert cache.path.is_file()
    wanted = alone.batch(used)[0]
    assert wanted.any()
    assert torch.equal(first.batch(used)[0], wanted) and torch.equal(second.batch(used)[0], wanted)
    every = np.arange(len(prepared.labels), dtype=np.int32)
    assert torch.equal(
        ResidentData(prepared, CPU, FixedFeatures(features)).batch(every)[0], second.batch(every)[0]
    )


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


@pytest.mark.parametrize(
    "other",
    [
        {"data": {"x": "2"}},
        {"model": {**MODEL, "name": "scattering_head"}},
        {"model": {**MODEL, "parameters": {"a": 1}}},
    ],
)
def test_other_data_and_models_have_other_files(tmp_path: Path, other: dict[str, dict[str, object]]) -> None:
    asked = {"data": {"x": "1"}, "model": MODEL}
    assert FeatureCache(tmp_path, **asked).path != FeatureCache(tmp_path, **{**asked, **other}).path  # type: ignore[arg-type]


def test_other_learned_weights_have_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash of the weights is a constant of the code, whose fingerprint is part of the key."""
    before = FeatureCache(tmp_path, {}, MODEL).path
    monkeypatch.setattr("subjectdp.training.device_data.fingerprint", lambda stage: f"changed {stage}")
    assert FeatureCache(tmp_path, {}, MODEL).path != before
