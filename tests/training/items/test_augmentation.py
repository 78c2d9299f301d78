"""Views of an item: warps against scipy's, features with and without cache, whole runs, and what is refused."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from subjectdp.accounting.plan_run import plan_run
from subjectdp.accounting.statements import privacy_report_text, privacy_statements
from subjectdp.config import load_run
from subjectdp.data.content import Content
from subjectdp.data.partition import load_partition
from subjectdp.data.store import load_prepared, write_prepared
from subjectdp.errors import ConfigError
from subjectdp.models.build import build_model
from subjectdp.models.fixed import fixed_features
from subjectdp.training.items.augmentation import Warp, warped, warps
from subjectdp.training.items.device_data import FixedFeatures, ResidentData
from subjectdp.training.items.feature_cache import FeatureCache
from subjectdp.training.run import train_run
from training import small_world
from training.items.test_feature_cache import features
from training.outcomes import outcome
from training.test_resume import World, resumed_after

CPU = torch.device("cpu")
WARP = {"name": "warp", "views": 3}
PAPER = -0.5
SIZES = (1.0, 1.0, math.radians(8), 0.08, 0.08)  # of the documentation


# --- warps -----------------------------------------------------------------------------------------------------------


def pictures(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 28, 28, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize(
    "warp",
    [
        Warp(0.0, 0.0, 0.0, 0.0, 0.0),
        Warp(2.0, -1.0, 0.0, 0.0, 0.0),
        Warp(0.3, -0.7, 0.5, 0.0, 0.0),
        Warp(0.0, 0.0, 0.0, -0.3, 0.4),
        Warp(-1.2, 0.4, -0.2, 0.25, -0.3),
    ],
)
def test_a_warp_is_scipys_affine_map(warp: Warp) -> None:
    """Ink goes through the forward map of the docstring, written out again; scipy interpolates at its inverse."""
    growth, (cosine, sine) = math.exp(warp.growth), (math.cos(warp.turn), math.sin(warp.turn))
    forward = growth * np.array([[cosine, -sine], [sine, cosine]]) @ np.array([[1, 0], [-warp.slant, 1]])
    inverse, centre = np.linalg.inv(forward), np.array([13.5, 13.5])
    offset = centre - inverse @ (centre + [warp.down, warp.right])
    images = pictures(3)
    found = warped(images, warp, PAPER)
    for image, seen in zip(images[:, 0].double().numpy(), found[:, 0].double().numpy(), strict=True):
        wanted = ndimage.affine_transform(
            image, inverse, offset, order=1, mode="grid-constant", cval=PAPER, output_shape=(28, 28)
        )
        np.testing.assert_allclose(seen, wanted, atol=2e-5)


def test_positive_numbers_of_a_warp_move_ink_as_they_say() -> None:
    """Down, right, counter-clockwise, larger, leaning to the right."""

    def place(warp: Warp, row: int, column: int) -> tuple[float, float]:
        image = torch.zeros(1, 1, 28, 28)
        image[0, 0, row, column] = 1.0
        ink = warped(image, warp, 0.0)[0, 0].double()
        lines = torch.arange(28, dtype=torch.float64)
        return float((ink.sum(1) @ lines) / ink.sum()), float((ink.sum(0) @ lines) / ink.sum())

    assert place(Warp(2, 0, 0, 0, 0), 10, 10) == pytest.approx((12, 10))
    assert place(Warp(0, 3, 0, 0, 0), 10, 10) == pytest.approx((10, 13))
    assert place(Warp(0, 0, math.pi / 2, 0, 0), 13, 20) == pytest.approx((7, 13), abs=1e-5)
    assert place(Warp(0, 0, 0, math.log(2), 0), 13, 20)[1] == pytest.approx(26.5, abs=0.3)
    above, below = place(Warp(0, 0, 0, 0, 0.5), 3, 13), place(Warp(0, 0, 0, 0, 0.5), 24, 13)
    assert above[1] > 17 and below[1] < 9


@pytest.mark.parametrize("magnitude", [0.5, 2.0])
def test_warps_are_opposite_pairs_within_their_magnitude(magnitude: float) -> None:
    found = np.array([astuple(warp) for warp in warps(65, magnitude)]) / np.array(SIZES)
    assert np.abs(found).max() <= magnitude
    assert (found[0::2] == -found[1::2]).all()
    assert np.abs(found).mean(axis=0) == pytest.approx(np.full(5, magnitude / 2), rel=0.15), "of all sizes"
    assert np.abs(np.corrcoef(found.T) - np.eye(5)).max() < 0.3, (
        "numbers of a warp have little to do with each other"
    )
    assert warps(4, magnitude) == warps(65, magnitude)[:3]
    assert warps(1, magnitude) == ()


@pytest.mark.parametrize(
    ("views", "magnitude", "text"),
    [(0, 1.0, "views of an item"), (4, 0.0, "size of warps"), (4, math.nan, "size of warps")],
)
def test_warps_that_make_no_sense_are_refused(views: int, magnitude: float, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        warps(views, magnitude)


# --- resident data and cache -----------------------------------------------------------------------------------------


def test_views_come_item_by_item_the_plain_one_first(tmp_path: Path) -> None:
    prepared = load_prepared(small_world.build(tmp_path, small_world.config())[0])
    shown = warps(3, 1.0)
    data, plain = ResidentData(prepared, CPU, warps=shown), ResidentData(prepared, CPU)
    addresses = np.array([7, 2, 7], dtype=np.int32)
    inputs, labels = data.augmented(addresses)
    images, wanted = plain.batch(addresses)
    assert data.copies == 3 and plain.copies == 1
    assert labels.tolist() == [int(label) for label in wanted for _ in range(3)]
    blank = float(ResidentData(prepared, CPU).batch(addresses)[0].min())
    for place in range(3):
        views = inputs[3 * place : 3 * place + 3]
        assert torch.equal(views[0], images[place])
        for view, warp in zip(views[1:], shown, strict=True):
            alone = warped(images[place : place + 1], warp, blank)[0]
            assert torch.equal(view, alone), "to the bit, whatever other items there are"
            assert not torch.equal(view, images[place])
            assert float(view[0, 0, 0]) == pytest.approx(blank), "what comes in from outside is paper"
    assert torch.equal(data.batch(addresses)[0], images), "plain items stay what they are"
    empty = data.augmented(addresses[:0])
    assert empty[0].shape == (0, 1, 28, 28) and empty[1].shape == (0,)


def test_features_of_views_are_the_same_to_the_bit_with_without_and_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subjectdp.training.items.device_data._FEATURES_AT_ONCE", 16)
    prepared = load_prepared(small_world.build(tmp_path, small_world.config())[0])
    cache = FeatureCache(tmp_path / "cache", prepared.meta["sha256"], {"name": "handwriting_head"})
    used, trained = np.array([3, 40, 100], dtype=np.int32), np.array([40, 100], dtype=np.int32)
    shown = warps(3, 1.0)
    alone, first, second = (
        ResidentData(prepared, CPU, FixedFeatures(features, used, trained, kept), shown)
        for kept in (None, cache, cache)
    )
    found = alone.augmented(trained)[0]
    assert torch.equal(first.augmented(trained)[0], found) and torch.equal(
        second.augmented(trained)[0], found
    )
    images = ResidentData(prepared, CPU, warps=shown).augmented(trained)[0]
    assert torch.allclose(found, features(images), atol=1e-6)
    plain = ResidentData(prepared, CPU, FixedFeatures(features, used))
    assert torch.equal(alone.batch(used)[0], plain.batch(used)[0])
    assert not alone.augmented(used[:1])[0][1:].any(), "warped only where it is trained on"
    assert len(list((tmp_path / "cache").iterdir())) == 3, "a file a view"


def test_a_view_has_its_file_by_its_warp_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer views share the files of more, plain items that of runs without views; other code of warps has others."""
    cache = FeatureCache(tmp_path, {"x": "1"}, {"name": "handwriting_head"})
    assert cache.of_warp(None).path == cache.path
    paths = {cache.of_warp(warp).path for size in (1.0, 2.0) for warp in (*warps(9, size), *warps(4, size))}
    assert len(paths) == 16 and cache.path not in paths
    other = FeatureCache(tmp_path, {"x": "2"}, {"name": "handwriting_head"})
    first = warps(2, 1.0)[0]
    assert other.of_warp(first).path != cache.of_warp(first).path
    assert (
        cache.of_warp(first).of_warp(replace(first, down=0.0)).path
        == cache.of_warp(replace(first, down=0.0)).path
    )
    monkeypatch.setattr(
        "subjectdp.training.items.feature_cache.fingerprint", lambda stage: f"changed {stage}"
    )
    assert cache.of_warp(first).path not in paths


@pytest.mark.slow
@pytest.mark.parametrize("name", ["handwriting_head", "scattering_head"])
def test_features_of_a_view_are_those_of_the_warped_image(name: str, tmp_path: Path) -> None:
    prepared = load_prepared(small_world.build(tmp_path, small_world.config())[0])
    model = build_model(name, 62, "image", 0)
    used, shown = np.arange(5, dtype=np.int32), warps(2, 2.0)
    found = ResidentData(prepared, CPU, FixedFeatures(fixed_features(model), used), shown).augmented(used)[0]
    images = ResidentData(prepared, CPU, warps=shown).augmented(used)[0]
    with torch.no_grad():
        assert torch.allclose(found, model.features(images), atol=1e-4)  # type: ignore[operator, union-attr]
    assert float((found[0::2] - found[1::2]).abs().max()) > 0.01


# --- runs ------------------------------------------------------------------------------------------------------------

SOUND = {"mode": "sound", "epsilon": 8.0, "delta": 1e-3}
HEAD: dict[str, Any] = {"model": {"name": "handwriting_head", "parameters": {}}}
RELEASE: dict[str, Any] = {
    "algorithm": "subject_release",
    "privacy": SOUND,
    "training": {"local_steps": None, "augmentation": WARP},
}
RUNS: dict[str, dict[str, Any]] = {
    "a release, features": {**RELEASE, **HEAD},
    "updates, pixels": {
        **RELEASE,
        "subject": {"contribution": "update"},
        "training": {"local_steps": 2, "augmentation": WARP},
    },
    "items, pixels": {"training": {"local_steps": 1, "augmentation": WARP}},
}


def trained(folder: Path, name: str, output: str, cached: bool = True, **performance: Any) -> Path:
    run = small_world.config(**RUNS[name], performance=performance)
    prepared, partition = small_world.build(folder, run)
    cache = folder / "cache" if cached else None
    train_run(run, prepared, partition, folder / output, cache, lambda line: None)
    return folder / output


@pytest.mark.long
def test_a_run_ends_the_same_with_without_and_from_the_cache_and_in_two_processes(tmp_path: Path) -> None:
    name = "a release, features"
    first = outcome(trained(tmp_path, name, "first"))
    assert outcome(trained(tmp_path, name, "from the cache")) == first
    assert outcome(trained(tmp_path, name, "two", processes=2)) == first
    alone = outcome(trained(tmp_path, name, "alone", cached=False))
    parts = ("model", "steps", "rounds")  # the manifest names the cache
    assert [alone[part] for part in parts] == [first[part] for part in parts]


@pytest.mark.long
@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_views_killed_twice_ends_bit_identical(name: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    undisturbed = world.train("undisturbed", every=0, **RUNS[name])
    world.killed("killed", 2, **RUNS[name])
    world.killed("killed", 4, **RUNS[name])
    folder = world.train("killed", **RUNS[name])
    assert outcome(folder) == outcome(undisturbed)
    assert resumed_after(folder) == [1, 3]
    training = {**RUNS[name]["training"], "augmentation": {"name": "none"}}
    plain = world.train("plain", every=0, **{**RUNS[name], "training": training})
    assert outcome(plain)["model"] != outcome(undisturbed)["model"], "views must matter"
    assert outcome(plain)["steps"].count("\n") == outcome(undisturbed)["steps"].count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("changes", [RELEASE, RUNS["items, pixels"]])
def test_views_cost_nothing_and_are_stated(changes: dict[str, Any], tmp_path: Path) -> None:
    """The plan has the same noise, divisors and ε with and without views; card and assumptions tell of them."""
    prepared, folder = small_world.build(tmp_path, small_world.config())
    assert prepared.is_dir()
    without = {**changes, "training": {**changes["training"], "augmentation": {"name": "none"}}}
    plans = [
        plan_run(load_run(small_world.config(**run)), load_partition(folder), tmp_path)
        for run in (changes, without)
    ]
    assert plans[0].settings.views == 3 and plans[1].settings.views == 1
    assert replace(plans[0], settings=plans[1].settings) == plans[1]
    statements = [privacy_statements(plan, over_rounds=False) for plan in plans]
    told = "the views of an item are fixed public functions of that item alone"
    for unit in ("item", "subject"):
        one, other = (statement["sound"][unit] for statement in statements)
        assert one["epsilon"] == other["epsilon"] is not None
        assert any(line.startswith(told) for line in one["assumptions"])
        assert not any(line.startswith(told) for line in other["assumptions"])
    cards = [privacy_report_text(plan, statement) for plan, statement in zip(plans, statements, strict=True)]
    line = next(line for line in cards[0].splitlines() if line.startswith("views of an item"))
    assert "3, whose mean gradient is the item's before anything is clipped" in line
    assert "views" not in cards[1]


# --- refused ---------------------------------------------------------------------------------------------------------

REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"data": {"dataset": "shakespeare"}, "training": {"augmentation": WARP}},
        ["training.augmentation.name", "'warp'", "none when data.dataset is shakespeare"],
    ),
    ({"training": {"augmentation": {"name": "flip"}}}, ["training.augmentation.name", "'flip'", "warp"]),
    (
        {"training": {"augmentation": {"name": "warp", "views": 1}}},
        ["training.augmentation.views", "at least 2"],
    ),
    (
        {"training": {"augmentation": {"name": "warp", "views": True}}},
        ["training.augmentation.views", "True"],
    ),
    (
        {"training": {"augmentation": {"name": "warp", "magnitude": 0}}},
        ["training.augmentation.magnitude", "greater than 0"],
    ),
]


@pytest.mark.parametrize(("content", "fragments"), REFUSED, ids=[" ".join(f) for _, f in REFUSED])
def test_refused_before_anything_runs(content: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_run(content)
    assert "\n" not in str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_text_has_no_warps(tmp_path: Path) -> None:
    text = Content(
        "shakespeare",
        "text",
        np.zeros(200, np.uint8),
        np.zeros(100, np.uint8),
        ["a", "b"],
        ["", ""],
        np.array([0, 50], np.int64),
        np.array([50, 50], np.int64),
        80,
    )
    write_prepared(tmp_path / "text", text, "leaf_json", [], 0.1)
    with pytest.raises(ConfigError, match=r"training.augmentation.name.*none for text data"):
        ResidentData(load_prepared(tmp_path / "text"), CPU, warps=warps(2, 1.0))
