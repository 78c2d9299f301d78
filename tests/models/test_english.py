"""Features learned from public English: where they come from, what they read, and that only the head is trained."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from subjectdp.data.shakespeare import VOCABULARY, encode, text_content
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import ModelError
from subjectdp.models.build import build_model
from subjectdp.models.english import CONSTANT, ENGLISH, ENGLISH_SHA256, SEEN, EnglishNet
from subjectdp.models.fixed import fixed_features
from subjectdp.models.handwriting import PublicFeatures, load_weights
from subjectdp.training.device_data import DeviceDataset, FeatureCache, FixedFeatures


def windows(text: str) -> torch.Tensor:
    return torch.from_numpy(encode(text)).long()[None]


def test_the_weights_say_how_they_were_made() -> None:
    with safe_open(ENGLISH, framework="pt") as tensors:
        made = json.loads(tensors.metadata()["provenance"])
    assert made["training_accuracy"] > 0.6 and len(made["text_sha256"]) == 64
    assert ENGLISH.stat().st_size < 450_000


def test_the_head_of_the_package_knows_english() -> None:
    model = build_model("english_head", 80, "text", 0)
    for start, following in (("and the lord said unto th", "e"), ("the children of Israe", "l"), ("of the kin", "g")):
        logits = model(windows(start.rjust(80)))
        assert VOCABULARY[int(logits.argmax())] == following


def test_features_read_the_last_characters() -> None:
    features = fixed_features(build_model("english_head", 80, "text", 0))
    assert features is not None
    characters = torch.randint(0, 80, (5, 80), generator=torch.Generator().manual_seed(0))
    whole, other = features(characters), characters.clone()
    assert (whole[:, -1] == CONSTANT).all()
    other[:, :-SEEN] = 0
    assert torch.equal(features(other), whole)
    other[:, -SEEN] = (characters[:, -SEEN] + 1) % 80
    assert not torch.equal(features(other), whole)


def test_another_vocabulary_is_refused() -> None:
    with pytest.raises(ModelError, match="80 symbols and windows of at least 12 .* '5 symbols, windows of 80'"):
        build_model("english_head", 5, "text", 0)


def test_features_of_text_computed_once_are_those_of_its_windows(tmp_path: Path) -> None:
    texts = {"HAMLET": "the time is out of joint " * 8, "OPHELIA": "there is rosemary " * 9}
    write_prepared(tmp_path / "prepared", text_content(texts, ["play", "play"], {}), "upstream", [], 0.2)
    prepared, cpu = load_prepared(tmp_path / "prepared"), torch.device("cpu")
    features = PublicFeatures(EnglishNet, load_weights(ENGLISH, ENGLISH_SHA256), CONSTANT)
    used = np.array([7, len(texts["HAMLET"]) + 3, 0, 7], dtype=np.int32)
    windows_of_text, wanted = DeviceDataset(prepared, cpu).batch(used)
    cache = FeatureCache(tmp_path / "cache", prepared.meta["sha256"], {"name": "english_head"})
    for kept in (None, cache, cache):
        found, labels = DeviceDataset(prepared, cpu, FixedFeatures(features, used, kept=kept)).batch(used)
        torch.testing.assert_close(found, features(windows_of_text), rtol=1e-4, atol=1e-5)
        assert torch.equal(labels, wanted)
