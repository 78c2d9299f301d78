"""Sizes, operations and errors of the networks, and what their catalogue says of them."""

import inspect
from importlib import import_module

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ModelError
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import MODELS, SHAPES, ModelSpec, model_names
from subjectdp.models.fixed import fixed_features


@pytest.mark.parametrize(
    ("name", "kind", "classes", "parameters"),
    [
        # computed by hand, as LEAF's documentation does: 5·5·32+32, 5·5·32·64+64, 3136·2048+2048, 2048·62+62
        ("leaf_cnn", "image", 62, 832 + 51_264 + 6_424_576 + 127_038),
        # LEAF: 817,872 with one bias a gate; torch keeps two; the papers add a linear layer of 256 x 256
        ("leaf_lstm", "text", 80, 817_872 + 2 * 4 * 256 + 256 * 256 + 256),
        ("small_cnn", "image", 62, 40_510),
        ("tanh_cnn", "image", 10, 26_010),
    ],
)
def test_models_have_the_published_number_of_parameters(name: str, kind: str, classes: int, parameters: int) -> None:
    assert sum(p.numel() for p in build_model(name, classes, kind, 0).parameters()) == parameters


@pytest.mark.parametrize("name", ["leaf_cnn", "small_cnn", "tanh_cnn", "logistic"])
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 20, 36)])
def test_images_of_any_size_and_in_colour(name: str, shape: tuple[int, ...]) -> None:
    model = build_model(name, 5, "image", 0, shape=shape)
    assert model(torch.rand(3, *shape)).shape == (3, 5)


def test_vectors_and_text() -> None:
    for name in ("linear", "mlp"):
        assert build_model(name, 4, "vector", 0, shape=(7,))(torch.rand(3, 7)).shape == (3, 4)
    assert build_model("leaf_lstm", 62, "text", 0)(torch.randint(0, 62, (3, 80))).shape == (3, 62)


def test_weights_come_from_the_seed_and_leave_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    first, again, other = (build_model("small_cnn", 62, "image", seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), state)
    vectors = [torch.nn.utils.parameters_to_vector(m.parameters()) for m in (first, again, other)]
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[0], vectors[2])


ALL_OR = " to be 0 .all features. or a whole number from 1 to "


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("leaf_cnn", {"depth": 3}, r"model.parameters that 'leaf_cnn' takes, got {'depth': 3}"),
        ("small_lstm", {"hidden": -1}, r"'small_lstm' takes, got {'hidden': -1}"),
        ("small_lstm", {"hidden": 10**12}, r"'small_lstm' takes, got {'hidden': 1000000000000}: .*memory"),
        ("small_cnn", {"width": 1.5}, r"'small_cnn' takes, got {'width': 1.5}"),
        *(("logistic", {"pool": pool}, "a divisor of 28") for pool in (0, 3, 29)),
        *(("scattering_head", {"directions": number}, f"directions{ALL_OR}3969") for number in (-1, 3970)),
        *(("scattering_head", {"components": number}, f"components{ALL_OR}999") for number in (-1, 1000)),
        ("scattering_head", {"scales": 1, "angles": 1, "components": 393}, "a whole number from 1 to 392"),
        ("handwriting_head", {"classes": 5}, r"from_synthetic to be false where there are 5 classes .*, got True"),
        ("english_head", {"classes": 5}, "80 symbols and windows of at least 12 .* '5 symbols, windows of 80'"),
        *((f"{kind}_head", None, "shape of the images") for kind in ("scattering", "handwriting", "stroke")),
    ],
)
def test_models_that_cannot_be(name: str, sizes: dict[str, float] | None, message: str) -> None:
    """For none of the sizes, with other classes, or (None) for images in colour."""
    shape, sizes = (3, 32, 32) if sizes is None else None, dict(sizes or {})
    classes = int(sizes.pop("classes", 62))
    with pytest.raises(ModelError, match=message):
        build_model(name, classes, MODELS[name].kind, 0, sizes, shape)


@pytest.mark.parametrize("name", MODELS)
def test_the_catalogue_describes_the_models(name: str) -> None:
    """Every parameter is stated, and a fixed feature map is one that needs no gradient."""
    facts = MODELS[name]
    model = build_model(name, 80 if facts.kind == "text" else 62, facts.kind, 0)
    assert (fixed_features(model) is not None) == facts.fixed_features
    builder = getattr(import_module(f"subjectdp.models.{facts.builder.split('.')[0]}"), facts.builder.split(".")[1])
    assert set(inspect.signature(builder).parameters) == {"classes", "shape", *facts.parameters}


@pytest.mark.parametrize(
    ("name", "classes", "parameters", "width"),
    [
        ("scattering_head", 62, {}, 3969),
        ("scattering_head", 62, {"scales": 1, "angles": 2, "components": 20}, 20),
        ("handwriting_head", 62, {"from_synthetic": False}, 128),
        ("stroke_head", 7, {}, 48),
        ("english_head", 80, {"from_public": False}, 129),
    ],
)
def test_features_look_at_one_item(name: str, classes: int, parameters: dict[str, int], width: int) -> None:
    """And the head alone is trained."""
    kind = MODELS[name].kind
    model = build_model(name, classes, kind, 0, parameters)
    assert [(name, tuple(p.shape)) for name, p in model.named_parameters()] == [("head.weight", (classes, width))]
    assert list(model.state_dict()) == ["head.weight"] and not model.head.weight.any()  # type: ignore[union-attr]
    generator, features = torch.Generator().manual_seed(0), fixed_features(model)
    image, text = torch.rand(5, 1, 28, 28, generator=generator), torch.randint(0, 80, (5, 80), generator=generator)
    items = image if kind == "image" else text
    assert features is not None
    whole = features(items)
    torch.testing.assert_close(whole[3:4], features(items[3:4]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(items), model(whole))


def test_names_by_kind() -> None:
    assert "leaf_cnn" in model_names("image") and "mlp" in {*model_names("vector")}.difference(model_names("image"))


DATASET = {"image": "femnist", "text": "shakespeare", "vector": "acs_income"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_operations_are_those_of_torchs_own_counter_on_tensors_without_data(name: str) -> None:
    facts = DATASETS[DATASET[MODELS[name].kind]]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, {}, shape)
    item = torch.zeros((1, *shape), dtype=torch.int64 if facts.kind == "text" else torch.float32)
    features = fixed_features(model)
    with torch.no_grad():
        item = item if features is None else features(item)
        with FlopCounterMode(display=False) as counter:
            model.to("meta")(item.to("meta"))
    assert counter.get_total_flops() == MODELS[name].forward_flops


@pytest.mark.parametrize("builder", ["linear.Min", "mine.Mine"])
def test_a_builder_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, builder: str) -> None:
    monkeypatch.setitem(MODELS, "mine", ModelSpec("image", builder, {}, 1))
    with pytest.raises(
        ModelError, match=f"builder of model mine to be a class or function of .*linear.*, got '{builder}'"
    ):
        build_model("mine", 10, "image", 0)
