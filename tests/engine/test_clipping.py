"""The clipping engine against a float64 loop over items."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from engine import oracle
from engine.oracle import Code
from subjectdp.engine import convolution
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.probe import find_layout
from subjectdp.errors import ModelError
from subjectdp.models.build import build_model


def every_layer() -> nn.Module:
    """Strided, dilated and grouped convolutions, LayerNorm, a linear layer along positions, PReLU (generic rule)."""
    strided = nn.Conv2d(1, 6, 3, stride=2, padding=1, dilation=2)
    along = [nn.Conv2d(6, 6, 3, groups=3, bias=False), nn.Tanh(), nn.LayerNorm(11), nn.Linear(11, 4)]
    return nn.Sequential(strided, *along, nn.PReLU(6), nn.Flatten(), nn.Linear(6 * 11 * 4, 62))


def words() -> nn.Module:
    """A large embedding with padding, pooled, and one LSTM without bias."""
    parts = {"embedding": nn.Embedding(500, 5, padding_idx=0), "lstm": nn.LSTM(5, 7, bias=False)}
    return Code(lambda m, x: m.last(m.lstm(m.embedding(x).transpose(0, 1))[0].mean(0)), **parts, last=nn.Linear(7, 80))


def late_convolutions() -> nn.Module:
    """As at the end of a residual network: large weights, few positions (49 and 9), gradients that are not kept."""
    maps = [nn.Conv2d(1, 64, 3, stride=4), nn.Tanh(), nn.Conv2d(64, 320, 3, padding=1), nn.Tanh(), nn.MaxPool2d(3, 2)]
    return nn.Sequential(*maps, nn.Conv2d(320, 48, 3, padding=1, bias=False), nn.Flatten(), nn.Linear(48 * 9, 62))


class Head(nn.Module):
    """One linear layer on pixels: in closed form as it is, through autograd with something after it or along rows."""

    def __init__(self, then: str) -> None:
        super().__init__()
        self.head = nn.Linear(28 if then == "along" else 784, 62)
        self.then = then

    def forward(self, images: Tensor) -> Tensor:
        if self.then == "along":
            rows: Tensor = self.head(images[:, 0])
            return rows.mean(1)
        logits: Tensor = self.head(images.flatten(1))
        if self.then == "scaled":
            return 2 * logits
        if self.then == "viewed":
            return logits.view(-1).view(-1, 62)
        return logits.mul_(2) if self.then == "scaled in place" else logits


def model_of(name: str) -> nn.Module:
    torch.manual_seed(11)
    if name in OWN:
        return OWN[name]()
    if name.startswith("head"):
        return Head(name.removeprefix("head").strip())
    if name in TEXT:
        return build_model(name, 80, "text", 3, TEXT[name])
    return build_model(name, 62, "image", 3, {"hidden": 64} if name == "leaf_cnn" else {})


OWN = {"every_layer": every_layer, "words": words, "late convolutions": late_convolutions}
TEXT = {"leaf_lstm": {"hidden": 24, "dense": 16}, "char_ngram": {"singles": 3, "pairs": 1}}
PRODUCTS = {"mm", "bmm", "addmm", "addmm_", "baddbmm", "baddbmm_", "mv", "addmv", "convolution", "convolution_backward"}


def engine_of(name: str, capacity: int = 192) -> ClippingEngine:
    """Of layers without rules a layout says where the items are."""
    model, layout = model_of(name), None
    if name == "every_layer":
        layout = find_layout(model, dict(model.named_parameters()), data_of(name, 3)[0])
    return ClippingEngine(FlatParameters(model), capacity, layout=layout)


def data_of(name: str, items: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    labels = torch.randint(0, 62, (items,), generator=generator)
    if name == "words" or name in TEXT:
        return torch.randint(0, 80, (items, 30), generator=generator), labels
    return torch.rand(items, 1, 28, 28, generator=generator), labels


def along(outputs: Tensor, wanted: Tensor) -> Tensor:
    """A loss of each item whose gradients by the outputs are ``wanted``."""
    return (outputs * wanted).flatten(1).sum(1)


def flat_in_order(engine: ClippingEngine, vector: Tensor) -> Tensor:
    return torch.cat([view.flatten() for view in engine.flat.views(vector).values()]).double()


NAMES = ["leaf_cnn", "small_cnn", "logistic", *TEXT, *OWN]
NAMES += ["head", "head scaled", "head scaled in place", "head viewed", "head along"]


@pytest.mark.parametrize("capacity", [3, 100])
@pytest.mark.parametrize("name", NAMES)
def test_clipped_sum_is_that_of_the_float64_loop(name: str, capacity: int) -> None:
    """And so is the plain sum; in parts of 3, 3 and 1: nothing of a batch is left behind in the layers."""
    inputs, labels = data_of(name, 7)
    model = model_of(name)
    rows = oracle.per_item_gradients(model, inputs, labels)
    engine = engine_of(name, capacity)
    weights = torch.rand(7, generator=torch.Generator().manual_seed(1))
    for clip_norm, factors in ((0.01, weights), (1.0, weights), (1.0, None), (math.inf, weights)):
        total, norms = engine.clipped_sum(inputs, labels, clip_norm, factors)
        assert oracle.relative(flat_in_order(engine, total), oracle.clipped_sum(rows, clip_norm, factors)) < 1e-5
        assert norms.double().tolist() == pytest.approx(rows.norm(dim=1).tolist(), rel=1e-5)
    for factors in (torch.tensor([0.5, 0.0, 1.0, -1.0, 2.0, 0.25, 1.0]), None):
        found = flat_in_order(engine, engine.gradient_sum(inputs, labels, factors))
        assert oracle.relative(found, oracle.clipped_sum(rows, math.inf, factors)) < 1e-5


@pytest.mark.parametrize("name", ["leaf_lstm", "head", "small_cnn"])
def test_an_algorithm_s_own_factor_is_that_of_each_norm_and_keeps_the_bound(name: str) -> None:
    inputs, labels = data_of(name, 7)
    model = model_of(name)
    rows = oracle.per_item_gradients(model, inputs, labels)
    engine = ClippingEngine(FlatParameters(model))
    clip_norm = float(rows.norm(dim=1).median())
    own = oracle.clipped_sum(rows, math.inf, 1 / (rows.norm(dim=1) / clip_norm + 0.1))
    total, _ = engine.clipped_sum(inputs, labels, clip_norm, factor=lambda norm: 1 / (norm + 0.1))
    assert oracle.relative(flat_in_order(engine, total), own) < 1e-5
    for factor in (lambda norm: 1e9 * norm, lambda norm: norm * math.nan, lambda norm: -norm):
        for i in range(7):
            total, _ = engine.clipped_sum(inputs[i : i + 1], labels[i : i + 1], clip_norm, factor=factor)
            assert float(total.double().norm()) <= clip_norm
    with pytest.raises(IndexError):  # of all norms together: an item would change the others' factors
        engine.clipped_sum(inputs, labels, clip_norm, factor=lambda norms: 1 / norms[0])


@pytest.mark.parametrize(
    ("name", "backward"), [("head", False), ("logistic", False), ("head scaled", True), ("head viewed", True)]
)
def test_one_linear_layer_needs_no_backward_pass(name: str, backward: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: calls.append(1) or original(*a, **k))
    engine = ClippingEngine(FlatParameters(model_of(name)))
    engine.clipped_sum(*data_of(name, 4), 1.0)
    engine.gradient_sum(*data_of(name, 4))
    assert bool(calls) == backward


@pytest.mark.parametrize("items", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_empty_and_single_batches(name: str, items: int) -> None:
    inputs, labels = data_of(name, items)
    engine = engine_of(name)
    for groups, numbers in ((None, items), (torch.full((items,), 2), 3 * items)):
        total, norms = engine.clipped_sum(inputs, labels, 0.1, groups=groups)
        assert norms.shape == (numbers,)
        assert float(total.norm()) == pytest.approx(0.1 * items, rel=1e-4)
    assert float(engine.gradient_sum(inputs, labels).norm()) == pytest.approx(float(norms.sum()), rel=1e-4)


@contextmanager
def shortening(precision: str) -> Iterator[None]:
    """What training scripts allow for speed."""
    kinds: tuple[Any, ...] = (torch.backends.mkldnn.conv, torch.backends.mkldnn.matmul)
    for kind in kinds:
        kind.fp32_precision = precision
    try:
        yield
    finally:
        for kind in kinds:
            kind.fp32_precision = "none"


class Shortened(TorchDispatchMode):
    """A device that shortens the factors of products to bfloat16 where torch's settings allow it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        backend = torch.backends.mkldnn.conv if "convolution" in func.name() else torch.backends.mkldnn.matmul
        if func.overloadpacket.__name__ in PRODUCTS and backend.fp32_precision == "bf16":
            args = tree_map_only(Tensor, lambda value: value.bfloat16().float(), args)
        return func(*args, **(kwargs or {}))


def keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No convolution's gradients: norms and sums are made apart."""
    for name in ("_KEPT", "_SMALL"):
        monkeypatch.setattr(convolution, name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", ["leaf_cnn", "small_cnn", *OWN, "head along"])
def test_products_that_are_shortened_lengthen_no_sum(name: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As training scripts allow it: the model's passes may be shortened, norms and sums may not; nor may rounding."""
    inputs, labels = data_of(name, 16)
    engine = engine_of(name)
    if not kept:
        keep_nothing(monkeypatch)
    with shortening("bf16"), Shortened():
        sums = [engine.clipped_sum(inputs[i : i + 1], labels[i : i + 1], 0.01)[0] for i in range(16)]
        assert torch.backends.mkldnn.conv.fp32_precision == torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    assert max(float(total.double().norm()) for total in sums) <= 0.01


@pytest.mark.parametrize(("inner", "side", "kept"), [(64, 8, True), (64, 4, True), (64, 2, False)])
def test_gradients_are_kept_where_products_take_longer(
    inner: int, side: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The products' way through a 64-channel map of 8x8 takes 1.6 times as long."""
    engine = ClippingEngine(
        FlatParameters(nn.Conv2d(inner, 64, 3, padding=1)), item_loss=lambda out, _: out.sum((1, 2, 3))
    )
    again = []
    plain = convolution.ConvolutionCaptured._plain_weight_gradient
    monkeypatch.setattr(
        convolution.ConvolutionCaptured, "_plain_weight_gradient", lambda *given: again.append(1) or plain(*given)
    )
    engine.clipped_sum(torch.rand(8, inner, side, side), torch.zeros(8), 1.0)
    assert bool(again) is not kept


@pytest.mark.parametrize("items", [2, 4, 6])
@pytest.mark.parametrize("side", [1, 2, 14])
def test_what_rounding_leaves_of_gradients_that_cancel_is_clipped(
    items: int, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums that are made apart from their norms round apart: 1.6 C were left of a group whose items cancel to 1e-8."""
    keep_nothing(monkeypatch)
    layer = nn.Conv2d(32, 64, 3, padding=1, bias=False)
    engine = ClippingEngine(FlatParameters(layer), item_loss=along)
    signs = torch.tensor([1.0, -1.0]).repeat(items // 2).view(-1, 1, 1, 1)
    for seed in range(8):
        drawn = torch.Generator().manual_seed(seed)
        inputs = torch.rand(1, 32, side, side, generator=drawn).repeat(items, 1, 1, 1)
        wanted = torch.rand(1, 64, side, side, generator=drawn) * signs
        inputs *= 1 + 1e-8 * torch.randn(inputs.shape, generator=drawn)
        wanted *= 1 + 1e-8 * torch.randn(wanted.shape, generator=drawn)
        one = torch.zeros(items, dtype=torch.int64)
        for part in (0.1, 1.0):
            clip_norm = part * 2.0**-25 * float(inputs[0].norm() * wanted[0].norm())
            total, _ = engine.clipped_sum(inputs, wanted, clip_norm, groups=one)
            assert float(total.double().norm()) <= clip_norm


@pytest.mark.parametrize("items", [6, 40])
def test_what_rounding_leaves_of_biases_that_cancel_is_clipped(items: int) -> None:
    engine = ClippingEngine(FlatParameters(nn.Conv2d(2, 3, 1)), item_loss=along)
    for seed in range(50):
        wanted = torch.rand(items, 3, 2, 2, generator=torch.Generator().manual_seed(seed))
        wanted[1::2] = -wanted[::2].roll(1, 0) * (1 + 1e-7)
        clip_norm = 2.0**-26 * float(wanted.norm())
        given = torch.zeros(items, 2, 2, 2), wanted
        total, _ = engine.clipped_sum(*given, clip_norm, groups=torch.zeros(items, dtype=torch.int64))
        assert float(total.double().norm()) <= clip_norm


CANCELLING: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "one position": (nn.Linear(6, 4), (6,)),
    "many positions": (nn.Linear(6, 4), (40, 6)),
    "a small table": (nn.Embedding(5, 4), (9,)),
    "a normalisation": (nn.LayerNorm(6), (6,)),
    "a convolution in one dimension": (nn.Conv1d(2, 3, 2), (2, 7)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CANCELLING)
@pytest.mark.parametrize("rest", [1e-4, 1e-5, 1e-6, 1e-7])
def test_whatever_the_layer_what_cancels_lengthens_no_sum(kind: str, rest: float) -> None:
    """38 C were left of two items of one person whose gradients cancel to 1e-7 in a linear layer."""
    layer, shape = CANCELLING[kind]
    layout = find_layout(layer, ["weight", "bias"], torch.rand(3, *shape)) if isinstance(layer, nn.Conv1d) else None
    engine = ClippingEngine(FlatParameters(layer), item_loss=along, layout=layout)
    for seed in range(20):
        drawn = torch.Generator().manual_seed(seed)
        inputs = torch.randint(0, 5, (1, *shape), generator=drawn)
        inputs = inputs if isinstance(layer, nn.Embedding) else inputs + torch.rand(1, *shape, generator=drawn)
        wanted = torch.rand(layer(inputs).shape, generator=drawn)
        clip_norm = 0.2 * rest * float(engine.clipped_sum(inputs, wanted, 1.0)[1])
        both = torch.cat([inputs, inputs]), torch.cat([wanted, (rest - 1.0) * wanted])
        total, _ = engine.clipped_sum(*both, clip_norm, groups=torch.zeros(2, dtype=torch.int64))
        assert float(total.double().norm()) <= 1.002 * clip_norm


def longest(layer: nn.Module, inputs: Tensor, wanted: Tensor) -> float:
    """Of sums of one item at clip norms from a 2^16th to a 2^4th of what its positions add up to, in clip norms."""
    engine = ClippingEngine(FlatParameters(layer), item_loss=along)
    lengths = torch.ones(1) if isinstance(layer, nn.Embedding) else inputs.double().norm(dim=2)
    added_up = float((wanted.double().norm(dim=2) * lengths).sum())
    clip_norms = [added_up * 2.0 ** (-halves / 2) for halves in range(8, 33)]
    return max(float(engine.clipped_sum(inputs, wanted, c)[0].double().norm()) / c for c in clip_norms)


@pytest.mark.parametrize(
    ("layer", "positions"),
    [(nn.Embedding(5000, 64), 2), (nn.Embedding(5000, 64), 40), (nn.Linear(256, 256, False), 40)],
)
def test_short_entries_beside_a_long_one_that_cancels_are_clipped(layer: nn.Module, positions: int) -> None:
    """Inner products lost them: 2.3 C were left of a token that an item reads twice, 4.5 C of a linear layer."""
    width = 64 if isinstance(layer, nn.Embedding) else 256
    rows = torch.full((1, positions, width), math.sqrt(0.98 * 2.0**-24))
    rows[:, ::2, 0], rows[:, 1::2, 0] = math.sqrt(1.5), -math.sqrt(1.5)
    if isinstance(layer, nn.Embedding):
        assert longest(layer, torch.ones(1, positions, dtype=torch.int64), rows) <= 1.00001
    else:
        assert longest(layer, rows, torch.eye(256)[:1].expand(1, positions, 256)) <= 1.00001


@pytest.mark.slow
@pytest.mark.parametrize("rest", [2.0**-7, -(2.0**-7), 2.0**-8, 2.0**-10])
@pytest.mark.parametrize("layer", [nn.Embedding(80, 4), nn.Linear(8, 1), nn.Linear(1, 8)])
def test_many_short_steps_between_two_long_ones_that_cancel_are_clipped(layer: nn.Module, rest: float) -> None:
    """One after another they are lost beside the sum so far: 3.4 C were left of 20,000 equal tokens."""
    steps, drawn = 60_000, 1 + torch.rand(8, generator=torch.Generator().manual_seed(1))
    inputs = torch.ones(1, steps, dtype=torch.int64)
    if isinstance(layer, nn.Linear):
        inputs = drawn[: layer.in_features].expand(1, steps, -1)
    for long, short in ((1.0, 0.98), (1.7, 0.98 * 2), (1.7, 1.3 * 2)):  # nearly half of a last place, and more
        shares = torch.full((1, steps, 1), -short * 2.0**-25)
        shares[:, 0] = long
        shares[:, -1] -= shares.double().sum().float() + rest
        assert longest(layer, inputs, shares * drawn[: layer(inputs).shape[2]]) <= 1.004


@pytest.mark.slow
def test_one_item_more_does_not_change_how_all_later_ones_are_rounded() -> None:
    """Above 1,024 clip norms a float32 keeps no step of 5e-5, which moves one below: 1.1 C between two long sums."""
    engine = ClippingEngine(FlatParameters(nn.Linear(1, 1, False)), 1, lambda out, wanted: (out * wanted).squeeze(1))
    wanted = torch.cat([torch.full((1025, 1), 2.0), torch.full((1000, 1), -5e-5)])
    with_one, without = (
        engine.clipped_sum(torch.ones_like(each), each, 1.0)[0].double() for each in (wanted, wanted[1:])
    )
    assert float((with_one - without).abs()) <= 1.001


@pytest.mark.parametrize("name", ["leaf_cnn", "head"])
@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_an_item_that_is_not_finite_contributes_nothing(name: str, number: float) -> None:
    inputs, labels = data_of(name, 4)
    engine = ClippingEngine(FlatParameters(model_of(name)))
    expected, right = engine.clipped_sum(inputs[1:], labels[1:], 1.0)
    inputs[0, 0, 3, 3] = number
    total, norms = engine.clipped_sum(inputs, labels, 1.0)
    assert not math.isfinite(float(norms[0])) and torch.allclose(norms[1:], right)
    assert oracle.relative(total, expected) < 1e-6


@pytest.mark.parametrize("shape", [(1, 3), (1, 40, 3)])
def test_weights_that_hide_a_norm_lengthen_no_sum(shape: tuple[int, ...]) -> None:
    """A server of a federation sends any: hidden values of 1e17, gradients whose squares are below every float32."""
    hidden, output = nn.Linear(3, 300, bias=False), nn.Linear(300, 300)
    nn.init.constant_(hidden.weight, 1e17)
    nn.init.zeros_(output.weight)
    output.bias.data = torch.tensor([53.0, *[0.0] * 299])
    engine = ClippingEngine(
        FlatParameters(nn.Sequential(hidden, output)),
        item_loss=lambda logits, _: -logits.reshape(1, -1, 300).log_softmax(2)[:, :, 0].sum(1),
    )
    total, norms = engine.clipped_sum(torch.ones(shape), torch.zeros(1, dtype=torch.long), 1e-6)
    assert norms[0] > 1e-5 and total.double().norm() <= 1e-6


def test_items_that_go_alone_are_rounded_by_themselves() -> None:
    """Huge terms of a server's weights cancel: what is left is rounding, which depends on a mini-batch's size."""
    torch.manual_seed(1)
    model = nn.Linear(5, 4)
    model.weight.data, model.bias.data = (1e9 * torch.randn(5)).expand(4, 5), torch.zeros(4)
    inputs, labels = torch.randn(1, 5) + 0.01 * torch.randn(12, 5), torch.zeros(12, dtype=torch.long)
    engine = ClippingEngine(FlatParameters(model), physical_batch_size=1)
    whole, without = (engine.clipped_sum(inputs[n:], labels[n:], 1.0)[0] for n in range(2))
    assert (whole - without).norm() <= 1 + 1e-5, "4.1 in one pass, on one processor"


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(6), nn.BatchNorm1d(6, affine=False)])
def test_batch_norm_is_refused(norm: nn.Module) -> None:
    with pytest.raises(ModelError, match=r"'1' is BatchNorm1d: it mixes the items"):
        ClippingEngine(FlatParameters(nn.Sequential(nn.Linear(5, 6), norm, nn.Linear(6, 3))))


def test_a_layer_used_twice_is_refused() -> None:
    twice = Code(lambda m, x: m.layer(m.layer(x.flatten(1))), layer=nn.Linear(784, 784))
    engine = ClippingEngine(FlatParameters(twice))
    with pytest.raises(ModelError, match="Layer 'layer' to run once"):
        engine.clipped_sum(*data_of("leaf_cnn", 2), clip_norm=1.0)


@pytest.mark.parametrize("first", [True, False])
def test_outputs_that_are_changed_in_place(first: bool) -> None:
    """The gradient of a layer's output is that of what the layer gave, not of what was written over it."""
    torch.manual_seed(2)
    layers = [nn.Linear(5, 7), nn.ReLU(first), nn.Linear(7, 6), nn.ReLU(True), nn.Linear(6, 3)]
    model, inputs, labels = nn.Sequential(*layers), torch.randn(8, 5), torch.arange(8) % 3
    rows = oracle.per_item_gradients(model, inputs, labels)
    total, norms = ClippingEngine(FlatParameters(model)).clipped_sum(inputs, labels, 0.7)
    assert norms.tolist() == pytest.approx(rows.norm(dim=1).tolist(), rel=1e-5)
    assert oracle.relative(total, oracle.clipped_sum(rows, 0.7)) < 1e-5


def test_inputs_that_are_changed_in_place_are_refused() -> None:
    def residual(m: Any, inputs: Tensor) -> Tensor:
        hidden: Tensor = m.first(inputs)
        hidden += m.last(hidden)
        return hidden

    engine = ClippingEngine(FlatParameters(Code(residual, first=nn.Linear(5, 5), last=nn.Linear(5, 5))))
    with pytest.raises(ModelError, match="those of 'last' were changed in place"):
        engine.clipped_sum(torch.randn(3, 5), torch.arange(3), 1.0)


def test_memory_of_a_step() -> None:
    """What torch has asked for at a time: the sum comes once the model's activations are gone."""
    inputs, labels = data_of("leaf_cnn", 32)
    engine = ClippingEngine(FlatParameters(build_model("leaf_cnn", 62, "image", 0, {})))
    engine.clipped_sum(inputs, labels, 1.0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as seen:
        engine.clipped_sum(inputs, labels, 1.0)
    held = most = 0
    for event in sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    model = 4 * engine.flat.size
    assert model < most < 1.4 * model, "plain SGD: 1.39"


def test_layers_without_a_rule_need_a_layout() -> None:
    with pytest.raises(ModelError, match="0.weight_hh_l0.* are in none"):
        ClippingEngine(FlatParameters(nn.Sequential(nn.LSTM(3, 4, proj_size=2))))


def test_the_model_still_works_after_recording() -> None:
    inputs, labels = data_of("leaf_lstm", 3)
    model = model_of("leaf_lstm")
    before = model(inputs)
    ClippingEngine(FlatParameters(model)).clipped_sum(inputs, labels, 1.0)
    assert torch.allclose(model(inputs), before, atol=1e-6)
