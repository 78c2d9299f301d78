"""Models of any shape: clipped sums of items and of subjects beside a float64 loop over single items."""

import gc
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointFunction, checkpoint

import subjectdp
from engine.oracle import Code, check_clip_sum, tried_already
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.probe import find_layout
from subjectdp.engine.uses import Uses
from subjectdp.errors import ModelError

pytestmark = pytest.mark.slow

ITEMS, STEPS, WIDTH, CLASSES = 6, 7, 8, 4
TARGETS = torch.arange(ITEMS) % CLASSES


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(3)


def sequences() -> Tensor:
    return torch.randn(ITEMS, STEPS, WIDTH)


class Headed(nn.Module):
    """A body over (B, T, WIDTH), the mean over time, and a head."""

    def __init__(self, body: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.body(inputs)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        result: Tensor = self.head(hidden.mean(1))
        return result


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(0.5 * torch.randn(*shape))


def attention(**options: Any) -> nn.MultiheadAttention:
    return nn.MultiheadAttention(WIDTH, 2, batch_first=True, **options)


def encoder(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True, **options)


def with_class_token(m: Any, x: Tensor) -> Tensor:
    x = torch.cat([m.cls.expand(len(x), -1, -1), x], 1) + m.positions
    x *= m.temperature.exp()
    result: Tensor = m.layer(x)
    return result


def in_windows(m: Any, x: Tensor) -> Tensor:
    windows = m.first(x[:, :6].reshape(len(x) * 3, 2, WIDTH))
    return m.attend(windows, windows, windows)[0].reshape(len(x), 6, WIDTH)


def wide_and_deep(m: Any, x: Tensor) -> Tensor:
    x = x.mean(1)
    return (m.wide(x) - m.second(torch.relu(m.first(x)))).unsqueeze(1)


def unused(m: Any, x: Tensor) -> Tensor:
    """A layer that never runs, one whose output is not used and one that is cut off from the loss."""
    hidden = torch.tanh(m.first(x) + m.cut(x).detach())
    m.unread(hidden)
    return hidden


def square() -> nn.Linear:
    return nn.Linear(WIDTH, WIDTH)


def added(*layers: nn.Module) -> nn.Module:
    """All layers are handed one gradient tensor."""
    parts = {f"layer{n}": layer for n, layer in enumerate(layers)}
    return Code(lambda m, x: torch.tanh(sum(getattr(m, name)(x) for name in parts)), **parts)


def batch_second(m: Any, x: Tensor) -> Tensor:
    _, last = m.rnn(m.first(x.transpose(0, 1)))
    return last[-1].unsqueeze(1)


def cell(m: Any, x: Tensor) -> Tensor:
    state = m.start.expand(len(x), -1)
    for t in range(x.shape[1]):
        state = m.cell(x[:, t], state)
    return state.unsqueeze(1)


def written(m: Any, x: Tensor) -> Tensor:
    """Of a tensor, of a part of it and of a copy."""
    hidden: Tensor = m.first(x)
    hidden.mul_(m.scale).addcmul_(m.shift, x)
    hidden[:, 0].sub_(m.one)
    late, other = hidden[:, 3:], torch.zeros_like(hidden)
    late *= m.one
    other.add_(m.shift)
    return hidden * other


def lstm_cell(m: Any, x: Tensor) -> Tensor:
    state = m.start.expand(2, len(x), -1).unbind()
    for t in range(x.shape[1]):
        state = m.cell(x[:, t], state)
    return state[0].unsqueeze(1)


BODIES: dict[str, Callable[[], nn.Module]] = {
    "GRU": lambda: nn.GRU(WIDTH, WIDTH, batch_first=True, num_layers=2),
    "RNN": lambda: nn.RNN(WIDTH, WIDTH, batch_first=True),
    "LSTM": lambda: nn.LSTM(WIDTH, WIDTH, batch_first=True),
    "LSTM with projection": lambda: nn.LSTM(WIDTH, 12, batch_first=True, proj_size=WIDTH),
    "batch second, last states": lambda: Code(batch_second, rnn=nn.GRU(WIDTH, WIDTH), first=square()),
    "a cell, a learned start": lambda: Code(cell, cell=nn.GRUCell(WIDTH, WIDTH), start=parameter(1, WIDTH)),
    "a cell with two states": lambda: Code(lstm_cell, cell=nn.LSTMCell(WIDTH, WIDTH), start=parameter(1, WIDTH)),
    "layers whose outputs change in place": lambda: nn.Sequential(
        *(square(), nn.ReLU(inplace=True), square(), nn.LeakyReLU(inplace=True)),
        Code(lambda m, x: F.linear(x, m.first, m.shift).mul_(2), first=parameter(WIDTH, WIDTH), shift=parameter(WIDTH)),
    ),
    "changes in place that nobody assigns": lambda: Code(
        written, first=square(), scale=parameter(WIDTH), shift=parameter(STEPS, WIDTH), one=parameter(WIDTH)
    ),
    "attention": lambda: Code(lambda m, x: m.attend(x, x, x)[0], attend=attention()),
    "attention to others": lambda: Code(
        lambda m, x: m.attend(x, m.keys.expand(len(x), -1, -1), x[:, :3])[0],
        attend=attention(add_bias_kv=True),
        keys=parameter(1, 3, WIDTH),
    ),
    "encoder": lambda: nn.TransformerEncoder(encoder(norm_first=True), 2, enable_nested_tensor=False),
    "class token, positions, temperature": lambda: Code(
        with_class_token,
        cls=parameter(1, 1, WIDTH),
        positions=parameter(1, STEPS + 1, WIDTH),
        temperature=nn.Parameter(torch.tensor(0.3)),
        layer=encoder(),
    ),
    "windows folded into the batch": lambda: Code(in_windows, first=nn.Linear(WIDTH, WIDTH), attend=attention()),
    "a layer twice": lambda: Code(lambda m, x: m.layer(m.layer(x).relu()), layer=nn.Linear(WIDTH, WIDTH)),
    "a matrix": lambda: Code(
        lambda m, x: x @ m.matrix.t() + m.shift, matrix=parameter(WIDTH, WIDTH), shift=parameter(WIDTH)
    ),
    "the sum of a parameter": lambda: Code(
        lambda m, x: m.layer(x) * m.scale.sum(), layer=nn.Linear(WIDTH, WIDTH), scale=parameter(WIDTH)
    ),
    "weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "1-d convolutions": lambda: nn.Sequential(
        nn.Conv1d(STEPS, STEPS, 3, padding=1), nn.ConvTranspose1d(STEPS, STEPS, 1), nn.PReLU()
    ),
    "mixture of experts": lambda: Code(
        lambda m, x: torch.einsum("btd,ede,bte->bte", x, m.experts, m.gate(x).softmax(-1)),
        experts=parameter(WIDTH, WIDTH, WIDTH),
        gate=nn.Linear(WIDTH, WIDTH),
    ),
    "two outputs of a layer": lambda: Code(
        lambda m, x: torch.add(*torch.unbind(x.unsqueeze(0) * m.scales, 0)), scales=parameter(2, 1, 1, WIDTH)
    ),
    "another forward": lambda: replaced(),
    "three layers added": lambda: added(square(), square(), square()),
    "linear and layer norm added": lambda: added(square(), nn.LayerNorm(WIDTH)),
    "generic and linear added": lambda: added(nn.PReLU(), square()),
    "convolutions added": lambda: added(nn.Conv1d(STEPS, STEPS, 3, padding=1), nn.Conv1d(STEPS, STEPS, 1)),
    "wide and deep": lambda: Code(wide_and_deep, wide=square(), first=square(), second=square()),
    "unused layers": lambda: Code(
        unused, first=square(), cut=square(), unread=nn.LayerNorm(WIDTH), never=nn.Linear(50, 50)
    ),
}  # fmt: skip


def replaced() -> nn.Module:
    module = nn.Linear(WIDTH, WIDTH)
    module.forward = types.MethodType(lambda own, x: 2 * F.linear(x, own.weight), module)  # type: ignore[method-assign]
    return module


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str) -> None:
    check_clip_sum(Headed(BODIES[name]()), sequences(), TARGETS)


PLAIN = [
    *(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.LPPool2d(2, 2), nn.AdaptiveMaxPool2d(3), nn.AdaptiveAvgPool2d(3)),
    *(nn.ReLU(inplace=True), nn.GELU(), nn.SiLU(), nn.Softplus(), nn.Hardswish(), nn.ELU(), nn.Softmax(1), nn.GLU(1)),
    *(nn.ReflectionPad2d(1), nn.ZeroPad2d(1), nn.Upsample(scale_factor=2), nn.PixelShuffle(2), nn.Unfold(2)),
    *(nn.LocalResponseNorm(2), nn.InstanceNorm2d(4), nn.Dropout2d(0.3), nn.FractionalMaxPool2d(2, output_size=3)),
]


@pytest.mark.parametrize("layer", PLAIN, ids=str)
def test_layers_without_parameters(layer: nn.Module) -> None:
    """Beside a followed parameter."""
    body = Code(lambda m, x: m.layer(m.conv(x) * m.scale), layer=layer, conv=nn.Conv2d(1, 4, 3), scale=parameter(1))
    model = nn.Sequential(body, nn.Flatten(), nn.LazyLinear(CLASSES))
    inputs = torch.randn(ITEMS, 1, 8, 8)
    model(inputs)
    if isinstance(layer, nn.FractionalMaxPool2d):  # draws numbers in every mode: a loop over items would see others
        assert subjectdp.clip_sum(model, inputs, TARGETS, 1.0)
    else:
        check_clip_sum(model.eval() if isinstance(layer, nn.Dropout2d) else model, inputs, TARGETS)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weight_norm_by_hooks() -> None:
    """Its weight is no leaf, which copy.deepcopy refuses."""
    model = Headed(nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH)))
    inputs = sequences()
    assert "body.weight_g" in subjectdp.clip_sum(model, inputs, TARGETS, 1.0)
    with torch.no_grad():
        model(inputs)  # as a leaf the loop below can copy it
    check_clip_sum(model, inputs, TARGETS)


def test_both_directions() -> None:
    model = Headed(nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=True), 2 * WIDTH)
    check_clip_sum(model, sequences(), TARGETS)


def tied_by_hand(m: Any, x: Tensor) -> Tensor:
    return F.linear(torch.tanh(m.words(x)), m.words.weight).mean(1)


def tied_as_modules(m: Any, x: Tensor) -> Tensor:
    result: Tensor = m.head(torch.tanh(m.words(x) + m.places(torch.arange(x.shape[1])))).mean(1)
    return result


def two_tables(m: Any, x: Tensor) -> Tensor:
    result: Tensor = m.head(torch.tanh(m.words(x) + m.others(x))).mean(1)
    return result


@pytest.mark.parametrize("steps", [3, 5, ITEMS], ids=["other", "as many as are tried", "as many as items"])
@pytest.mark.parametrize("run", [tied_by_hand, tied_as_modules, two_tables])
def test_words(run: Any, steps: int) -> None:
    """Tied tables, and positions that all items share, whatever the numbers of items and of steps."""
    words, head = nn.Embedding(11, WIDTH, padding_idx=0), nn.Linear(WIDTH, 11, bias=False)
    parts: dict[str, nn.Module] = {"words": words}
    if run is two_tables:
        parts |= {"others": nn.Embedding(11, WIDTH), "head": head}
    else:
        head.weight = words.weight
    if run is tied_as_modules:
        parts |= {"places": nn.Embedding(9, WIDTH), "head": head}
    check_clip_sum(Code(run, **parts), torch.randint(0, 11, (ITEMS, steps)), torch.arange(ITEMS))


def folded(m: Any, x: Tensor) -> Tensor:
    """As GPT-2's layers: all positions of all items in one dimension; then attention, which has the batch second."""
    flat = torch.addmm(m.shift, m.words(x).view(-1, WIDTH), m.matrix).view(*x.shape, WIDTH)
    result: Tensor = m.head(m.attend(flat, flat, flat)[0].mean(1))
    return result


def test_lengths_may_change_after_the_places_are_learned() -> None:
    parts = {"words": nn.Embedding(11, WIDTH), "matrix": parameter(WIDTH, WIDTH), "shift": parameter(WIDTH)}
    model = Code(folded, **parts, attend=attention(), head=nn.Linear(WIDTH, CLASSES))
    short, long = torch.randint(0, 11, (ITEMS, STEPS)), torch.randint(0, 11, (4, 10))
    targets = torch.arange(4)
    wanted = subjectdp.clip_sum(model, long, targets, 0.1)
    layout = find_layout(model, [name for name, _ in model.named_parameters()], short)
    flat = FlatParameters(model)
    total, _ = ClippingEngine(flat, layout=layout).clipped_sum(long, targets, 0.1)
    for name, value in flat.views(total).items():
        assert torch.allclose(value, wanted[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("trained", ["head", "bias", "body.layers.1"])
def test_parts_of_a_model(trained: str) -> None:
    """Head, biases (BitFit), the last layer: the others are frozen."""
    model = Headed(nn.TransformerEncoder(encoder(), 2, enable_nested_tensor=False))
    for name, each in model.named_parameters():
        each.requires_grad_(trained in name)
    check_clip_sum(model, sequences(), TARGETS)


class Several(nn.Module):
    """Words, a mask and numbers (of another model), by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.numbers = nn.Embedding(11, WIDTH), nn.Linear(3, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, words: Tensor, mask: Tensor, model: Tensor | None = None) -> Tensor:
        hidden = (self.words(words) * mask.unsqueeze(2)).sum(1) / mask.sum(1, keepdim=True)
        result: Tensor = self.head(hidden if model is None else hidden + self.numbers(model))
        return result


class Whole(Several):
    """The same, of one structure."""

    def forward(self, parts: Any) -> Tensor:  # type: ignore[override]
        return super().forward(*(parts.values() if isinstance(parts, dict) else parts))


@pytest.mark.parametrize("kind", [Several, Whole])
@pytest.mark.parametrize("form", [dict, tuple, list])
def test_inputs_of_several_tensors(form: Any, kind: type[nn.Module]) -> None:
    mask = (torch.arange(STEPS) < torch.tensor([7, 3, 5, 1, 2, 7]).unsqueeze(1)).float()
    given = {"words": torch.randint(0, 11, (ITEMS, STEPS)), "mask": mask, "model": torch.randn(ITEMS, 3)}
    inputs = given if form is dict else form(given.values())
    check_clip_sum(kind(), inputs, TARGETS)


SIZES = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 32, "max_position_embeddings": 20}
GPT2 = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 1, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
LABELS = {**SIZES, "num_labels": CLASSES, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
HUGGING_FACE = {
    "Bert": ("BertForSequenceClassification", LABELS, False),
    "Roberta": ("RobertaForSequenceClassification", {**LABELS, "pad_token_id": 1}, False),
    "GPT2": ("GPT2LMHeadModel", GPT2, True),
    "GPTJ": ("GPTJForCausalLM", {**GPT2, "rotary_dim": 4}, True),
    "GPTNeoX": ("GPTNeoXForCausalLM", SIZES, True),
    "Llama": ("LlamaForCausalLM", {**SIZES, "num_key_value_heads": 1, "tie_word_embeddings": True}, True),
    "Qwen2": ("Qwen2ForCausalLM", {**SIZES, "num_key_value_heads": 1}, True),
    "Mixtral": (
        "MixtralForCausalLM",
        {**SIZES, "num_key_value_heads": 1, "num_local_experts": 3, "experts_implementation": "eager"},
        True,
    ),
    "Mamba": ("MambaForCausalLM", {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4}, True),
}


@pytest.mark.parametrize("name", HUGGING_FACE)
@pytest.mark.parametrize("lora", [False, True], ids=["all weights", "LoRA"])
def test_transformers_as_they_are(name: str, lora: bool) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra [encoder]")
    peft = pytest.importorskip("peft") if lora else None
    kind, options, next_symbol = HUGGING_FACE[name]
    model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**options))
    if peft is not None:
        layers = {"Mamba": ["x_proj"], "Mixtral": ["q_proj", "v_proj"]}.get(name, "all-linear")
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=layers))
    words = torch.randint(2, 50, (ITEMS, STEPS))
    mask = (torch.arange(STEPS) < torch.tensor([7, 3, 5, 6, 4, 7]).unsqueeze(1)).long()
    check_clip_sum(model, {"input_ids": words, "attention_mask": mask}, words if next_symbol else TARGETS)


def packed_rows(m: Any, x: Tensor) -> Tensor:
    lengths = (x.abs().sum(2) > 0).sum(1)
    rows = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, last = m.rnn(rows)
    padded = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0]
    return torch.cat([padded.sum(1), last[0][-1] if isinstance(last, tuple) else last[-1]], 1).unsqueeze(1)


def routed(m: Any, x: Tensor) -> Tensor:
    """Each position goes to its best two of four experts, as Mixtral's code does."""
    flat = x.reshape(-1, WIDTH)
    weights, chosen = m.gate(flat).softmax(-1).topk(2)
    total = torch.zeros_like(flat)
    for number, expert in enumerate(m.experts):
        rows, places = torch.where(chosen == number)
        if len(rows):
            total = total.index_add(0, rows, (expert(flat[rows]) * weights[rows, places, None]).to(total.dtype))
    return total.view_as(x)


ALONE = {
    "packed LSTM": lambda: Code(packed_rows, rnn=nn.LSTM(WIDTH, WIDTH, 2, batch_first=True)),
    "packed GRU, both directions": lambda: Code(
        packed_rows, rnn=nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
    ),
    "routed experts": lambda: Code(
        routed, gate=nn.Linear(WIDTH, 4), experts=nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
    ),
    "experts under two names": lambda: Code(
        routed, gate=nn.Linear(WIDTH, 4), experts=nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)] * 2)
    ),
}


@pytest.mark.parametrize(
    ("name", "lengths"),
    [*((name, (7, 3, 5, 1, 2, 6)) for name in ALONE), *((name, (7,) * ITEMS) for name in ALONE if "packed" in name)],
)
def test_modules_through_which_items_go_alone(name: str, lengths: tuple[int, ...]) -> None:
    """With one length the packed rows look as if each item had its own; that the function does not run alone shows."""
    inputs = sequences()
    for item, length in enumerate(lengths):
        inputs[item, length:] = 0.0
    width = WIDTH + WIDTH // 2 if "both" in name else 2 * WIDTH if "packed" in name else WIDTH
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, bias=False), Headed(ALONE[name](), width))
    check_clip_sum(model, inputs, TARGETS)
    layout = find_layout(model, [n for n, _ in model.named_parameters()], inputs)
    assert layout.alone == ("1.body",) and {"0", "1.head"} <= layout.ruled, "that module alone is slow"


def packed(m: Any, x: Tensor) -> Tensor:
    lengths = torch.arange(1, len(x) + 1).clamp(max=x.shape[1])
    rows = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(m.rnn(rows)[0], batch_first=True)[0]


@pytest.mark.parametrize(
    "body",
    [
        lambda: Code(packed, rnn=nn.GRU(WIDTH, WIDTH, batch_first=True)),
        lambda: nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH)),
        lambda: nn.GRU(WIDTH, WIDTH, 2, batch_first=True, dropout=0.5),
    ],
    ids=["packed", "spectral norm", "dropout between layers"],
)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_is_not_supported_is_refused_and_never_ends_bare(body: Any) -> None:
    inputs = sequences()
    with pytest.raises(ModelError):
        subjectdp.clip_sum(Headed(body()), inputs, TARGETS, 1.0)


def without_padding(m: Any, x: Tensor, own: bool = True) -> Tensor:
    valid = x.abs().sum(2) > 0
    hidden = torch.zeros_like(x)
    hidden[valid] = torch.tanh(F.linear(m.layer(x[valid]), m.matrix) if own else m.layer(x[valid]))
    return hidden


def joined(m: Any, x: Tensor) -> Tensor:
    lengths = (x.abs().sum(2) > 0).sum(1).tolist()
    rows = torch.cat([row[:length] for row, length in zip(x, lengths, strict=True)])
    return torch.stack([part.sum(0) for part in torch.tanh(m.layer(rows) @ m.matrix).split(lengths)]).unsqueeze(1)


def picked(choose: Callable[[Tensor], Any], m: Any, x: Tensor) -> Tensor:
    """As :func:`without_padding`, where ``choose`` gives the places of the rows."""
    flat = x.reshape(-1, WIDTH)
    places = choose(flat.abs().sum(1) > 0)
    hidden = torch.zeros_like(flat)
    hidden[places] = torch.tanh(F.linear(m.layer(flat[places]), m.matrix))
    return hidden.view_as(x)


CHOICES: dict[str, Callable[[Tensor], Any]] = {
    "a list": lambda valid: [n for n in range(len(valid)) if valid[n]],
    "numpy's mask": lambda valid: valid.numpy(),
    "numpy's numbers": lambda valid: torch.from_numpy(np.flatnonzero(np.asarray(valid))),
    "a slice": lambda valid: torch.argsort(~valid, stable=True)[: int(valid.sum())],
    "another order": lambda valid: torch.argsort(~valid, stable=True),
    "by name": lambda valid: torch.masked_select(mask=valid, input=torch.arange(len(valid))),
}
ROWS = [without_padding, partial(without_padding, own=False), joined]


@pytest.mark.parametrize("body", [*ROWS, *(partial(picked, each) for each in CHOICES.values())])
@pytest.mark.parametrize("rows", [STEPS, 1])
def test_rows_that_values_choose_are_not_split_evenly(rows: int, body: Any) -> None:
    """The items tried have equally many. With the other one the rows are a multiple of the items: 36 or 12."""
    model, inputs = Headed(Code(body, layer=square(), matrix=parameter(WIDTH, WIDTH))), sequences()
    inputs[:, rows:] = 0.0
    inputs[3] = torch.randn(STEPS, WIDTH)
    inputs[3, 1 if rows > 1 else STEPS :] = 0.0
    check_clip_sum(model, inputs, TARGETS)


def minor(m: Any, x: Tensor) -> Tensor:
    """A factor of each position, folded with the items second: alike wherever no position is masked."""
    mask = (x.abs().sum(2) > 0).float().t().reshape(-1, 1)
    result: Tensor = (mask * m.shift).view(x.shape[1], len(x), WIDTH).transpose(0, 1) + x
    return result


def test_items_that_are_alike_where_it_matters_are_not_guessed_apart() -> None:
    """By a guess item-major, an item's gradient would be of another's mask once there is one."""
    model, inputs = Headed(Code(minor, shift=parameter(WIDTH))), sequences()
    with pytest.raises(ModelError, match="Expected items that differ"):
        subjectdp.clip_sum(model, inputs, TARGETS, 1.0)
    for item in range(ITEMS):
        inputs[item, : item % STEPS] = 0.0
    check_clip_sum(model, inputs, TARGETS)


@pytest.mark.parametrize("start", ["zeros", "inputs"])
def test_a_parameter_written_into_a_tensor_is_refused(start: str) -> None:
    def assigned(m: Any, x: Tensor) -> Tensor:
        into = torch.zeros(len(x), STEPS, WIDTH) if start == "zeros" else x.clone()
        into[:, 0] = m.first
        return into + x

    model = Headed(Code(assigned, first=parameter(WIDTH)))
    with pytest.raises(ModelError, match="first.*(writes into a tensor|in place)"):
        subjectdp.clip_sum(model, sequences(), TARGETS, 0.1)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_gradient_checkpoints(reentrant: bool) -> None:
    inputs = sequences()
    if reentrant:  # torch itself trains nothing there unless the inputs require a gradient
        inputs.requires_grad_()

    def run(m: Any, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(lambda h: m.layer(m.first(h).tanh()), x, use_reentrant=reentrant)
        return result

    check_clip_sum(Headed(Code(run, first=square(), layer=encoder())), inputs, TARGETS)
    assert CheckpointFunction.__module__ == "torch.utils.checkpoint", "put back"


def adapted() -> nn.Module:
    """A frozen half-precision layer beside a trained product of low rank, as LoRA has it."""
    base, down = nn.Linear(WIDTH, WIDTH).bfloat16().requires_grad_(False), nn.Linear(WIDTH, 2, bias=False)
    return Code(lambda m, x: m.base(x) + m.up(m.down(x)), base=base, down=down, up=nn.Linear(2, WIDTH, bias=False))


MIXED: dict[str, Callable[[], nn.Module]] = {
    "LoRA on bfloat16": adapted,
    "encoder": BODIES["encoder"],
    "class token": BODIES["class token, positions, temperature"],
    "weight norm": BODIES["weight norm"],
    "LSTM": BODIES["LSTM"],
    "GRU": BODIES["GRU"],
    "a matrix": BODIES["a matrix"],
    "convolution": lambda: Code(lambda m, x: m.conv(x.unsqueeze(1))[:, 0], conv=nn.Conv2d(1, 1, 3, padding=1)),
    "norms": lambda: nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GroupNorm(1, STEPS)),
    "routed experts": ALONE["routed experts"],
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_precision(name: str) -> None:
    """As float32 to the 8 bits of bfloat16; and whatever those round, an item moves the float32 sum by at most C."""
    model = Headed(MIXED[name]())
    inputs, clip_norm = sequences(), 0.05
    with torch.autocast("cpu", torch.bfloat16):
        try:
            model(inputs)
        except RuntimeError as problem:  # torch has no LSTM of bfloat16 for a processor without AVX-512
            pytest.skip(f"plain torch cannot either: {problem}")
        total = subjectdp.clip_sum(model, inputs, TARGETS, clip_norm)
        with tried_already():
            without = subjectdp.clip_sum(model, inputs[1:], TARGETS[1:], clip_norm)
    assert all(value.dtype is torch.float32 for value in total.values())
    moved = torch.cat([(total[name] - without[name]).flatten() for name in total]).double()
    assert 0.9 * clip_norm < float(moved.norm()) < 1.0001 * clip_norm
    plain = subjectdp.clip_sum(model.float(), inputs, TARGETS, clip_norm)
    one, other = (torch.cat([value.flatten() for value in each.values()]) for each in (total, plain))
    assert 0 < float((one - other).norm()) < 0.1 * float(other.norm())


def test_masks_that_a_module_holds_choose_no_rows() -> None:
    """Columns and pairs chosen once for all: the layers behind keep their rules."""

    def chosen(m: Any, x: Tensor) -> Tensor:
        pairs = (x[:, :, None] * x[:, None])[:, m.pairs]
        return m.layer(x[:, :, m.columns]) + pairs.sum(1, keepdim=True)[..., :WIDTH] * m.scale

    model = Code(chosen, layer=nn.Linear(WIDTH - 1, WIDTH), scale=parameter(WIDTH))
    model.register_buffer("columns", torch.arange(WIDTH) != 1)
    model.pairs = torch.ones(STEPS, STEPS, dtype=torch.bool).tril()
    headed = Headed(model)
    assert not find_layout(headed, [name for name, _ in headed.named_parameters()], sequences()).alone
    check_clip_sum(headed, sequences(), TARGETS)


def test_the_tensors_of_a_pass_are_freed_with_it() -> None:
    """Not by the collector of cycles, which torch's memory does not wake: models of 25 million parameters took five
    times the memory of plain SGD."""
    gc.collect()
    gc.disable()
    try:
        subjectdp.clip_sum(Headed(encoder()), sequences(), TARGETS, 1.0)
        assert not [each for each in gc.get_objects() if type(each) is Uses]
    finally:
        gc.enable()


def as_groups(m: Any, x: Tensor) -> Tensor:
    """One convolution over all items, each a group of channels."""
    items, steps, width = x.shape
    channels = x.transpose(1, 2).reshape(1, items * width, steps)
    hidden = F.conv1d(channels, m.kernel.repeat(items, 1, 1), padding=1, groups=items)
    return torch.tanh(hidden).view(items, width, steps).transpose(1, 2)


def test_a_function_that_counts_the_items_goes_item_by_item() -> None:
    model = Headed(Code(as_groups, kernel=parameter(WIDTH, WIDTH, 3)))
    assert find_layout(model, [name for name, _ in model.named_parameters()], sequences()).alone == ("body",)
    check_clip_sum(model, sequences(), TARGETS)
