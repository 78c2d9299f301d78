"""What the trial of a model and a loss finds: those that mix items are refused, by name where that is known."""

import copy
import random
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subjectdp
from engine.oracle import Code, clipped_sum, per_item_gradients, relative
from subjectdp.engine.clipping import cross_entropy
from subjectdp.engine.probe import check_model, items_in_a_pass, saved_values
from subjectdp.errors import ConfigError, ModelError
from subjectdp.models.build import build_model


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(2)


def layer_drop(m: Any, inputs: Tensor) -> Tensor:
    """A layer runs in some passes only."""
    hidden = torch.tanh(m.first(inputs))
    if not m.training or random.random() < 0.5:
        hidden = hidden + m.middle(hidden)
    result: Tensor = m.last(hidden)
    return result


def flipped(m: Any, inputs: Tensor) -> Tensor:
    """A coin for each item, which falls alike for all now and then."""
    coins = torch.rand(len(inputs), 1) < 0.5
    result: Tensor = m.last(torch.where(coins, -inputs, inputs) if m.training else inputs)
    return result


def grown(m: Any, inputs: Tensor) -> Tensor:
    """A buffer that the first pass fills, of the sizes alone."""
    if m.steps is None:
        m.steps = torch.arange(inputs.shape[1]) / 10
    result: Tensor = m.last(inputs + m.steps)
    return result


def keeping(m: Any, inputs: Tensor) -> Tensor:
    """Hidden values, with their graph, to look at."""
    result: Tensor = m.last(inputs)
    m.seen = {"outputs": [result]}
    return result


def kept() -> nn.Module:
    module = Code(keeping, last=nn.Linear(6, 3))
    module(torch.randn(2, 6))
    return module


def growing() -> nn.Module:
    module = Code(grown, last=nn.Linear(6, 3))
    module.register_buffer("steps", None)
    return module


@pytest.mark.parametrize(
    "module",
    [
        Code(flipped, last=nn.Linear(6, 3)),
        growing(),
        kept(),
        Code(layer_drop, first=nn.Linear(6, 6), middle=nn.Linear(6, 6), last=nn.Linear(6, 3)),
        nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 3)),
        nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Tanh(), nn.AlphaDropout(0.3)), nn.Linear(8, 3)),
    ],
    ids=["coins", "a buffer that grows", "values that are kept", "layer drop", "dropout", "alpha dropout"],
)
def test_random_models_pass_and_the_probe_leaves_no_trace(module: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "manual_seed_all", None)  # seeds a device that is not in use for later
    inputs, targets = torch.randn(5, 6), torch.tensor([0, 0, 1, 2, 1])
    before = copy.deepcopy(module.state_dict())
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert check_model(module, cross_entropy, inputs, targets) == []
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]
    assert np.random.get_state()[1].tolist() == states[2]  # noqa: NPY002
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training and all("forward" not in vars(each) for each in module.modules())


def test_gradients_that_are_all_zero_are_no_mixing() -> None:
    linear, inputs, targets = nn.Linear(6, 3, bias=False), torch.zeros(5, 6), torch.arange(5) % 3
    assert check_model(linear, lambda *given: 1e9 * cross_entropy(*given), inputs, targets) == []


def first_mean(module: nn.Module, hidden: Tensor) -> Tensor:
    """The mean of the first mini-batch, kept in a plain attribute."""
    module.mean = getattr(module, "mean", hidden.mean(0).detach())
    return hidden - module.mean


def largest_so_far(module: nn.Module, hidden: Tensor) -> Tensor:
    """Divided by the largest number of all passes."""
    module.top = max(getattr(module, "top", 0.0), float(hidden.detach().abs().max()))
    return hidden / module.top


def last_kept(module: nn.Module, hidden: Tensor) -> Tensor:
    """A buffer of another size in each pass, with what the items gave."""
    if not hasattr(module, "values"):
        module.register_buffer("values", None)
    module.values = hidden.detach()
    return hidden


def kept_mean(module: nn.Module, hidden: Tensor) -> Tensor:
    """A running mean in a plain attribute."""
    old = getattr(module, "mean", torch.zeros(6))
    if module.training:
        module.mean = 0.5 * old + 0.5 * hidden.mean(0).detach()
    return hidden - old


def mixed_up(module: nn.Module, hidden: Tensor) -> Tensor:
    return 0.7 * hidden + 0.3 * hidden[torch.randperm(len(hidden))] if module.training else hidden


MIXING = {
    "centred": lambda module, hidden: hidden - hidden.mean(0),
    "centred, statistics cut off": lambda module, hidden: hidden - hidden.mean(0).detach(),
    "in training alone": lambda module, hidden: hidden - hidden.mean(0) if module.training else hidden,
    "mixup in training": mixed_up,
    "mixup now and then": lambda module, hidden: mixed_up(module, hidden) if float(torch.rand(())) < 0.1 else hidden,
    "mixup by Python's coin": lambda module, hidden: mixed_up(module, hidden) if random.random() < 0.1 else hidden,
    "the first mean": first_mean,
    "the largest so far": largest_so_far,
    "the last pass in a buffer": last_kept,
    "a neighbour": lambda module, hidden: hidden + 0.1 * hidden.roll(1, 0),
    "the size of the batch": lambda module, hidden: hidden / len(hidden),
    "softmax over the batch": lambda module, hidden: hidden * torch.softmax(hidden, 0),
    "a running mean": kept_mean,
    "dropout, and the mean": lambda module, hidden: F.dropout(hidden, 0.3, module.training) - hidden.mean(0),
    "dropout, the mean in training": lambda module, hidden: (
        F.dropout(hidden, 0.3, module.training) - module.training * hidden.mean(0)
    ),
    "dropout, the mean in training's gradient": lambda module, hidden: (
        F.dropout(hidden, 0.3, module.training) + module.training * (hidden.mean(0) - hidden.mean(0).detach())
    ),
    "the mean in the gradient of some passes": lambda module, hidden: (
        hidden + (module.training and float(torch.rand(())) < 0.5) * (hidden.mean(0) - hidden.mean(0).detach())
    ),
}


@pytest.mark.parametrize(("name", "scale"), [*((name, 1.0) for name in MIXING), ("centred", 1e-4)])
def test_models_that_mix_items_are_refused(name: str, scale: float) -> None:
    def run(m: Any, inputs: Tensor) -> Tensor:
        """A layer, a function of its output, a head."""
        result: Tensor = scale * m.last(MIXING[name](m, m.first(inputs)))
        return result

    model = Code(run, first=nn.Linear(6, 6), last=nn.Linear(6, 3))
    inputs, targets = torch.randn(12, 6), torch.arange(12) % 3
    with pytest.raises(ModelError, match="one by one|keep nothing"):
        subjectdp.clip_sum(copy.deepcopy(model), inputs, targets, 1.0)
    with pytest.raises(ModelError, match="one by one|keep nothing"):
        check_model(model, cross_entropy, inputs[:5], targets[:5])


class FirstMean:
    """Losses over the mean of the first that it saw."""

    mean: Any = None

    def __call__(self, out: Tensor, wanted: Tensor) -> Tensor:
        losses = F.cross_entropy(out, wanted, reduction="none")
        self.mean = losses.detach().mean() if self.mean is None else self.mean
        return losses / self.mean


@pytest.mark.parametrize(
    "criterion",
    [
        FirstMean(),
        lambda out, y: F.cross_entropy(out.roll(1, 0) if random.random() < 0.1 else out, y, reduction="none"),
    ],
    ids=["the first mean", "now and then"],
)
def test_losses_that_keep_or_seldom_mix_items_are_refused(criterion: Any) -> None:
    inputs, targets = torch.randn(12, 6), torch.arange(12) % 3
    with pytest.raises(ModelError, match="one by one|keep nothing"):
        subjectdp.clip_sum(nn.Linear(6, 3), inputs, targets, 1.0, criterion=criterion)


def test_losses_that_draw_for_each_item_are_taken_and_wrong_ones_named() -> None:
    inputs, targets = torch.randn(12, 6), torch.arange(12) % 3

    def sampled(out: Tensor, wanted: Tensor) -> Tensor:
        others = torch.randint(0, 3, (len(wanted), 2))
        return out.gather(1, others).logsumexp(1) - out.gather(1, wanted[:, None])[:, 0]

    def sums(criterion: Any, **more: Any) -> Any:
        return subjectdp.clip_sum(nn.Linear(6, 3), inputs, targets, 1.0, criterion=criterion, **more)

    assert sums(sampled)["weight"].isfinite().all()
    with pytest.raises(ModelError, match="result of the criterion .*got 'tuple'"):
        sums(lambda out, wanted: (out, wanted))
    with pytest.raises(ConfigError, match="an instance of a loss, got 'CrossEntropyLoss'"):
        sums(nn.CrossEntropyLoss)
    with pytest.raises(ConfigError, match="clip_norm to be above 1e-18"):  # 2 C were left of long items
        subjectdp.clip_sum(nn.Linear(6, 3), inputs, targets, 1e-30)


def spread(m: Any, x: Tensor) -> Tensor:
    """One draw for the batch."""
    result: Tensor = F.linear(x, m.last.weight + 0.1 * torch.randn(3, 6) * m.spread)
    return result


def sampled_code(m: Any, x: Tensor) -> Tensor:
    """The reparametrised code of a variational encoder, through code without a rule."""
    code = torch.distributions.Normal(x, m.spread.exp()[:1]).rsample()
    result: Tensor = F.linear(F.dropout(code, 0.2, True), m.last.weight * 1.0)
    return result


def diffused(m: Any, x: Tensor) -> Tensor:
    """A step of diffusion for each item, and its noise."""
    step = torch.randint(0, 3, (len(x),))
    noised = x + step.sqrt().unsqueeze(1) * torch.randn_like(x)
    result: Tensor = F.linear(noised + m.spread[step], m.last.weight * 1.0)
    return result


def masked(m: Any, x: Tensor) -> Tensor:
    """Half of each item's values, in an order of its own, as in a masked autoencoder."""
    order = torch.rand(x.shape).argsort(1)
    kept = order[:, :3]
    result: Tensor = (m.last.weight.t() * 1.0)[kept].mul(x.gather(1, kept).unsqueeze(2)).sum(1) * m.spread.sum()
    return result


@pytest.mark.parametrize("body", [spread, sampled_code, diffused, masked])
def test_what_is_drawn_in_evaluation_too_is_taken(body: Any) -> None:
    inputs, targets = torch.randn(12, 6), torch.arange(12) % 3
    model = Code(body, last=nn.Linear(6, 3, bias=False), spread=nn.Parameter(torch.ones(3, 6)))
    torch.manual_seed(5)
    found = subjectdp.clip_sum(model, inputs, targets, 1.0)
    torch.manual_seed(5)
    losses, parameters = F.cross_entropy(model(inputs), targets, reduction="none"), dict(model.named_parameters())
    wanted = dict.fromkeys(parameters, torch.zeros(()))
    for loss in losses:
        gradients = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
        factor = min(1.0, 1 / float(torch.cat([each.flatten() for each in gradients]).norm()))
        wanted = {name: wanted[name] + factor * each for name, each in zip(parameters, gradients, strict=True)}
    assert all(relative(found[name], wanted[name]) < 1e-4 for name in parameters)


def test_rows_that_an_items_own_draws_choose_are_refused() -> None:
    def dropped(m: Any, x: Tensor) -> Tensor:
        kept = torch.rand(x.shape) < 0.5
        return torch.zeros(*x.shape, 3).masked_scatter(kept.unsqueeze(2), x[kept].unsqueeze(1) @ m.row).sum(1)

    with pytest.raises(ModelError, match="in training alone: ask self.training"):
        subjectdp.clip_sum(
            Code(dropped, row=nn.Parameter(torch.ones(1, 3))), torch.randn(12, 6), torch.arange(12) % 3, 1.0
        )


def test_a_gradient_that_rounding_alone_makes_is_not_missed() -> None:
    def pooled(m: Any, x: Tensor) -> Tensor:
        result: Tensor = m.last((m.score(x).softmax(1) * x).sum(1))  # the bias moves all scores alike
        return result

    for seed in range(8):
        torch.manual_seed(seed)
        model = Code(pooled, score=nn.Linear(6, 1), last=nn.Linear(6, 3))
        sums = subjectdp.clip_sum(model, torch.randn(12, 7, 6), torch.arange(12) % 3, 1.0)
        assert sums["score.bias"].abs() < 1e-6 < sums["score.weight"].norm()


@torch.jit.script
def scripted(x: Tensor, weight: Tensor) -> Tensor:
    """A function that nothing looks into."""
    return torch.tanh(x @ weight.t())


def test_code_that_cannot_be_looked_into_is_named_and_functions_are_copied() -> None:
    inputs, targets = torch.randn(12, 6), torch.arange(12) % 3
    reads = Code(lambda m, x: scripted(x, m.last.weight), last=nn.Linear(6, 3, bias=False))
    with pytest.raises(ModelError, match=r"functions of torch to bring 'last\.weight' .*code of torch\.jit"):
        subjectdp.clip_sum(reads, inputs, targets, 1.0)
    holds = Code(lambda m, x: m.last(m.act(x, torch.eye(6))), last=nn.Linear(6, 3))
    holds.act = scripted
    assert subjectdp.clip_sum(holds, inputs, targets, 1.0)["last.weight"].norm() > 0
    with pytest.raises(ModelError, match="reduction can be set to none"):
        subjectdp.clip_sum(nn.Linear(6, 3), inputs, targets, 1.0, criterion=torch.jit.script(nn.CrossEntropyLoss()))


WORDS = torch.arange(12).view(12, 1) % 9
NAMED: dict[str, tuple[Any, Any, str]] = {
    "max_norm": (lambda: nn.Sequential(nn.Embedding(9, 3, max_norm=0.5), nn.Flatten()), WORDS, "'0' .*max_norm"),
    "scale_grad_by_freq": (
        lambda: nn.Sequential(nn.Embedding(9, 3, scale_grad_by_freq=True), nn.Flatten()),
        WORDS,
        "'0' .*scale_grad_by_freq",
    ),
    "sparse": (lambda: nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten()), WORDS, "'0' .*sparse"),
    "script": (lambda: torch.jit.script(nn.Sequential(nn.Linear(6, 3))), None, "torch.jit"),
    "frozen": (lambda: nn.Linear(6, 3).requires_grad_(False), None, "require a gradient"),
}


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("make", "inputs", "message"), NAMED.values(), ids=NAMED)
def test_layers_that_are_refused_by_name(make: Any, inputs: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        subjectdp.clip_sum(make(), torch.randn(12, 6) if inputs is None else inputs, torch.arange(12) % 3, 1.0)


@pytest.mark.parametrize(
    ("outputs", "criterion"),
    [
        *((1, criterion) for criterion in (nn.MSELoss(), nn.L1Loss(), nn.HuberLoss())),
        (1, lambda out, y: (out - y).square()),
        (3, lambda out, y: F.cross_entropy(out, y.long(), reduction="none") * torch.softmax(y, 0)),
        (3, lambda out, y: F.cross_entropy(out, y.long(), reduction="none") / y.mean().clamp_min(0.1)),
        (3, lambda out, y: F.cross_entropy(out, y.long(), reduction="none").square().mean().sqrt()),
        (3, lambda out, y: -torch.log_softmax(out @ out.T, 1).diagonal()),
    ],
)
def test_losses_that_mix_items_are_refused(outputs: int, criterion: Any) -> None:
    """Targets sorted, so that the first ones are equal."""
    targets = torch.cat([torch.zeros(16), torch.ones(16)])
    with pytest.raises(ModelError, match="one by one|one for each item|weighs or compares"):
        subjectdp.clip_sum(nn.Linear(6, outputs), torch.randn(32, 6), targets, 1.0, criterion=criterion)


@pytest.mark.slow
@pytest.mark.parametrize(
    "criterion",
    [
        *(nn.MSELoss(), nn.L1Loss(), nn.BCEWithLogitsLoss(), lambda found, wanted: (found - wanted).square().mean(1)),
        *(nn.MSELoss(reduction="sum"), nn.KLDivLoss(reduction="batchmean")),
    ],
)
@pytest.mark.parametrize("layers", [1, 2])
def test_any_loss_of_output_and_target(criterion: Any, layers: int) -> None:
    """Several numbers an item are averaged or summed over the item, as the criterion does with one item."""
    module = nn.Linear(6, 2) if layers == 1 else nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    inputs, targets = torch.randn(7, 6), torch.rand(7, 2)
    gradients = per_item_gradients(module, inputs, targets, lambda found, wanted: criterion(found, wanted).reshape(1))
    for clip_norm in (0.1, 1e6):
        found = subjectdp.clip_sum(module, inputs, targets, clip_norm, criterion=criterion).values()
        assert relative(torch.cat([value.flatten() for value in found]), clipped_sum(gradients, clip_norm)) < 1e-4


def test_leafs_networks_keep_the_fewest_and_a_linear_head_takes_a_mini_batch_at_once() -> None:
    image = torch.zeros(1, 1, 28, 28)
    cnn = items_in_a_pass(saved_values(build_model("leaf_cnn", 62, "image", 0, {}), image), "cpu")
    head = items_in_a_pass(saved_values(nn.Linear(3969, 62), torch.zeros(1, 3969)), "cpu")
    assert cnn == 192
    assert head >= 1024
    assert saved_values(nn.Linear(3969, 62), torch.zeros(512, 3969)[:1]) == 3969, "an item of a mini-batch alone"


def test_memory_of_a_pass_is_bounded_and_a_gpu_takes_at_least_as_many() -> None:
    for saved in (1, 1000, 10_000, 100_000):
        items = items_in_a_pass(saved, "cpu")
        assert items == 192 or items * saved <= 1 << 23
        assert items_in_a_pass(saved, "cuda") >= max(items, 1024)
