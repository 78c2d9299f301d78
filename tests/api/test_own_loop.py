"""What a loop of anyone's does around the private step: honoured as plain torch would, or refused by name."""

from __future__ import annotations

import copy
import io
import pickle
import random
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import register_pytree_node
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset, WeightedRandomSampler, default_collate

import subjectdp
from api.loops import DATA, INPUTS, ITEMS, NOISE, TARGETS, Loop
from engine.oracle import Code
from subjectdp.api import engine
from subjectdp.engine.probe import check_model, own_copy
from subjectdp.errors import ConfigError, DataError, ModelError, PrivacyError

pytestmark = pytest.mark.slow


def gradient(term: Callable[[nn.Module], Tensor]) -> Tensor:
    """Of the plain loss, changed, at the start, in float64."""
    torch.manual_seed(0)
    module = nn.Linear(6, 3).double()
    found = torch.autograd.grad(term(module), list(module.parameters()))
    return torch.cat([each.flatten() for each in found]).float()


def plain(module: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(module(INPUTS.double()), TARGETS)


CHANGES: dict[str, tuple[Any, Any]] = {
    "0.1 * loss": (lambda loss, _: 0.1 * loss, lambda m: 0.1 * plain(m)),
    "loss / 4": (lambda loss, _: loss / 4, lambda m: plain(m) / 4),
    "0 * loss": (lambda loss, _: loss * 0, lambda m: 0 * plain(m)),
    "-loss": (lambda loss, _: -loss, lambda m: -plain(m)),
    "FedProx": (
        lambda loss, loop: loss + 2.0 * (loop.module.weight - 1).square().sum(),
        lambda m: plain(m) + 2.0 * (m.weight - 1).square().sum(),
    ),
    "penalty, minus": (
        lambda loss, loop: 3 * loss - loop.module.weight.abs().sum(),
        lambda m: 3 * plain(m) - m.weight.abs().sum(),
    ),
    "sum of a list": (
        lambda loss, loop: sum([loss, loop.module.bias.square().sum()]),
        lambda m: plain(m) + m.bias.square().sum(),
    ),
}


@pytest.mark.parametrize(("change", "term"), CHANGES.values(), ids=CHANGES)
def test_factors_and_terms_without_items_are_honoured(change: Any, term: Any, without_noise: None) -> None:
    loop = Loop()
    before = loop.vector()
    loop.step(change)
    assert torch.allclose(before - loop.vector(), gradient(term), atol=1e-5)


def test_a_factor_scales_the_items_before_they_are_clipped(without_noise: None) -> None:
    loop = Loop(settings={"clip_norm": 1e-3})
    before = loop.vector()
    loop.step(lambda loss, _: 1000 * loss)
    assert float((before - loop.vector()).norm()) <= 1e-3 * (1 + 1e-5)


@pytest.mark.parametrize(
    "factor",
    [
        lambda loss, loop: float(loss),
        lambda loss, loop: 1 / (3 + loop.engine.steps),
        lambda loss, loop: loop.engine.steps,
    ],
)
def test_a_factor_that_changes_is_refused(factor: Callable[[Any, Loop], float]) -> None:
    """It may be read from the items, such as len(inputs): then one person changes what all others add."""
    loop = Loop()
    loop.step(lambda loss, own: loss * factor(loss, own))
    with pytest.raises(PrivacyError, match="the same number in each step.*change the learning rate"):
        loop.step(lambda loss, own: loss * factor(loss, own))
    assert loop.engine.steps == 1, "nothing was released"


def test_a_model_in_eval_mode_is_told_to_train() -> None:
    loop = Loop(nn.Linear(6, 3).eval())
    with pytest.raises(PrivacyError, match=r"call model.train\(\) before the loop"):
        loop.step(lambda loss, _: 0.5 * loss)
    assert loop.engine.steps == 0
    with torch.no_grad():
        shown = loop.loss(loop.private(INPUTS), TARGETS)  # a validation loss is a number like any other
    assert f"{shown:.2f}" == f"{shown.item():.2f}" == f"{float(torch.stack([shown, shown]).mean()):.2f}"
    assert type(copy.deepcopy(shown).cpu().numpy() * 2) is not Tensor and sum([shown, shown]) > shown


def test_items_without_a_finite_loss_are_told_of_and_add_nothing() -> None:
    inputs = INPUTS.clone()
    inputs[3:] = torch.nan
    loop, known = (Loop(data_loader=DataLoader(TensorDataset(each, TARGETS), ITEMS)) for each in (inputs, INPUTS))
    with pytest.warns(UserWarning, match="Losses of items are not finite: such items add nothing"):
        loop.step()
    assert loop.vector().isfinite().all() and not torch.equal(loop.vector(), known.vector())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        known.step()


def test_a_layer_replaced_in_mid_training_is_refused() -> None:
    loop = Loop(nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 3)))
    loop.step()
    loop.module[1] = nn.Linear(4, 3)
    with pytest.raises(PrivacyError, match="'1.weight' was replaced since: make a new engine"):
        loop.step()


class MayMix(nn.Module):
    """Mixes items where a flag says so."""

    def __init__(self) -> None:
        super().__init__()
        self.mixes = False

    def forward(self, values: Tensor) -> Tensor:
        return values - values.mean(0) if self.mixes else values


class Experts(nn.Module):
    """Two experts, by the sign of a number, that take six items each at most: the first ones of a mini-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, rows: Tensor) -> Tensor:
        routed = rows[:, 0] > 0
        outputs = [
            expert(rows) * (own & (own.cumsum(0) <= 6)).unsqueeze(1)
            for expert, own in zip(self.experts, (routed, ~routed), strict=True)
        ]
        return outputs[0] + outputs[1]


class Sized(nn.Linear):
    """Divides by a number of items above ten."""

    def __init__(self) -> None:
        super().__init__(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows / max(10, len(rows)))


class Shared(Sized):
    """Hands the gradients of more than ten items to all of them."""

    def forward(self, rows: Tensor) -> Tensor:
        outputs = nn.Linear.forward(self, rows)
        return outputs if len(rows) <= 10 else outputs + outputs.mean(0) - outputs.mean(0).detach()


def mean_of_many(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none") / max(10, len(targets))


def hardest(outputs: Tensor, targets: Tensor) -> Tensor:
    """Losses of the hardest items alone, where there are more than ten."""
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses if len(losses) <= 10 else losses * (losses >= losses.topk(10).values[-1])


@pytest.mark.parametrize("draw", [torch.randn_like, torch.rand_like, lambda x: torch.randint(3, (len(x), 1))])
def test_what_draws_may_not_depend_on_the_number_of_items(draw: Callable[[Tensor], Tensor]) -> None:
    apart = Loop(Code(lambda m, x: m.head(x + 0.1 * draw(x)), head=nn.Linear(6, 3)))
    apart.step()
    sized = Loop(Code(lambda m, x: m.head((x + 0.1 * draw(x)) * len(x)), head=nn.Linear(6, 3)))
    own = partial(nn.functional.cross_entropy, reduction="none")
    compared = Loop(criterion=lambda x, y: own(x + 0.1 * draw(x), y) * len(x))
    for each in (sized, compared):
        with pytest.raises(ModelError, match="treat items one by one"):
            each.step()


@pytest.mark.parametrize(
    ("kind", "criterion"),
    [
        *((module, nn.CrossEntropyLoss()) for module in (Experts, Sized, Shared)),
        *((lambda: nn.Linear(6, 3), criterion) for criterion in (hardest, mean_of_many)),
    ],
)
def test_what_mixes_items_in_large_mini_batches_alone_is_seen_before_the_first_step(kind: Any, criterion: Any) -> None:
    torch.manual_seed(1)
    module = kind()
    loop = Loop(copy.deepcopy(module), criterion=criterion)
    with pytest.raises(ModelError, match="treat items one by one"):
        loop.step()
    assert loop.engine.steps == 0
    with pytest.raises(ModelError, match="treat items one by one"):
        subjectdp.clip_sum(module, INPUTS, TARGETS, 1.0, criterion=criterion)


def test_a_mini_batch_that_is_larger_than_those_before_is_tried() -> None:
    mixing = Code(lambda m, x: m.head(x - x.mean(0) if len(x) > 9 else x), head=nn.Linear(6, 3))
    loop = Loop(mixing, data_loader=DataLoader(DATA, 6))
    sizes = list[int]()
    with pytest.raises(ModelError, match="treat items one by one"):
        for inputs, targets in loop.loader.take(100):
            sizes.append(len(inputs))
            loop.loss(loop.private(inputs), targets).backward()
            loop.optimizer.step()
    assert max(sizes[:-1]) <= 9 < sizes[-1] and len(sizes) - 1 not in (0, 1, 10, 100)


def test_what_mixes_items_in_the_largest_part_of_a_mini_batch_alone_is_seen() -> None:
    settings = {"clip": "subject", "sample": "subjects"}
    people = [item > 3 for item in range(ITEMS)]  # parts of 4 and of 20 items
    loop = Loop(Sized(), settings=settings, data_loader=DataLoader(DATA, 2), subjects=[*map(int, people)])
    with pytest.raises(ModelError, match="treat items one by one"):
        loop.step()
    assert [len(INPUTS[part.items]) for part in loop.private._step._draw.parts] == [4, 20]


@pytest.mark.parametrize(
    "change",
    [
        lambda criterion: setattr(criterion, "weight", torch.tensor([1.0, 2.0, 3.0])),
        lambda criterion: criterion.weight.mul_(2),
        lambda criterion: setattr(criterion, "label_smoothing", 0.1),
    ],
    ids=["weight", "in place", "number"],
)
def test_a_criterion_is_what_it_was_when_its_batch_was_drawn(change: Callable[[Any], Any]) -> None:
    """Class weights of each batch weigh an item by the others; those of a schedule are honoured."""
    criterion = nn.CrossEntropyLoss(weight=torch.ones(3))
    loop = Loop(criterion=criterion)
    rows, targets = next(iter(loop.loader))
    outputs = loop.private(rows)
    change(criterion)
    with pytest.raises(PrivacyError, match="'.+' was changed since: it may have been read from the items"):
        loop.loss(outputs, targets)
    rows, targets = next(iter(loop.loader))
    outputs, of_items = loop.private(rows), copy.copy(criterion)
    of_items.reduction = "none"
    assert float(loop.loss(outputs, targets)) == pytest.approx(float(of_items(outputs, targets).mean()))


class Scaling(nn.Linear):
    """Its inputs divided by a number and a buffer."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.scale, self.factors, self.offset = 1.0, [1.0], torch.zeros(6)
        self.settings, self.powers = SimpleNamespace(slope={"of": 1.0}), np.ones(1)
        self.register_buffer("shift", torch.zeros(6))

    def forward(self, rows: Tensor) -> Tensor:
        factor = self.factors[0] * self.settings.slope["of"] * float(self.powers[0]) * GLOBAL["factor"]
        return super().forward(factor * rows / self.scale - self.shift - self.offset)


GLOBAL, HOOKED = {"factor": 1.0}, [1.0]


@pytest.mark.parametrize(
    "change",
    [
        lambda module, rows: setattr(module, "scale", float(rows.abs().max())),
        lambda module, rows: module.shift.copy_(rows.mean(0)),
        lambda module, rows: setattr(module, "shift", rows.mean(0)),
        lambda module, rows: setattr(module, "offset", rows.mean(0)),
        lambda module, rows: module.offset.copy_(rows.mean(0)),
        lambda module, rows: module.factors.__setitem__(0, float(rows.max())),
        lambda module, rows: module.settings.slope.update(of=float(rows.max())),
        lambda module, rows: module.powers.__setitem__(0, float(rows.max())),
        lambda module, rows: GLOBAL.update(factor=float(rows.max())),
        lambda module, rows: HOOKED.append(float(rows.max())),
        lambda module, rows: nn.init.constant_(module.bias, float(rows.max())),
    ],
    ids=[
        *("number", "buffer", "other buffer", "other tensor", "tensor", "list", "object", "array", "global", "hook"),
        "parameter",
    ],
)
def test_a_module_that_is_set_by_its_batch_is_refused(change: Callable[[Any, Tensor], Any]) -> None:
    scaling = Scaling()
    scaling.register_forward_pre_hook(lambda module, given: (given[0] * HOOKED[0],))
    loop = Loop(scaling)
    for inputs, _ in loop.loader.take(1):
        change(loop.module, inputs)
        with pytest.raises(PrivacyError, match="the module as it was when its batch was drawn, '.+' was changed since"):
            loop.private(inputs)
    loop = Loop(Scaling())
    for step in range(2):
        loop.module.scale = GLOBAL["factor"] = 1.0 + step  # a schedule
        loop.step()
    assert loop.engine.steps == 2


class Weighted:
    """Losses with class weights, of three kinds; it remembers them, as for a curve."""

    def __init__(self) -> None:
        self.weight, self.curve = torch.ones(3), list[float]()

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(outputs, targets, weight=self.weight, reduction="none")
        self.curve.append(float(losses.detach().mean()))
        return losses


class WeightedModule(nn.Module):
    """The same as a module, without a reduction; it keeps its last loss as well."""

    def __init__(self, weighted: Weighted) -> None:
        super().__init__()
        self.weighted, self.last = weighted, torch.zeros(())

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self.weighted(outputs, targets)
        self.last = losses.detach().mean()
        return losses


@pytest.mark.parametrize(
    "kind", [lambda each: each, lambda each: each.__call__, lambda each: lambda o, t: each(o, t), WeightedModule]
)
def test_a_criterion_that_is_set_by_its_batch_is_refused(kind: Callable[[Weighted], Any]) -> None:
    weighted = Weighted()
    loop = Loop(criterion=kind(weighted))
    for _ in range(3):
        weighted.weight = 2.0 * weighted.weight  # a schedule
        loop.step()
    for inputs, targets in loop.loader.take(1):
        outputs = loop.private(inputs)
        weighted.weight = torch.bincount(targets, minlength=3) + 1.0
        with pytest.raises(PrivacyError, match="when its batch was drawn, '.*weight' was changed since"):
            loop.loss(outputs, targets)
    assert loop.engine.steps == 3


def mixed_after(module: nn.Module, given: Any, output: Tensor) -> Tensor:
    return output - output.mean(0) if isinstance(module, MayMix) else output


@pytest.mark.parametrize(
    "change",
    [
        lambda module: setattr(module[1], "mixes", True),
        lambda module: module[1].register_forward_hook(mixed_after),
        lambda module: module[1].register_full_backward_hook(lambda part, into, out: (out[0] - out[0].mean(0),)),
        lambda module: setattr(module[1], "forward", lambda values: values - values.mean(0)),
        lambda module: module.__setitem__(1, nn.BatchNorm1d(6, affine=False)),
        lambda module: nn.modules.module.register_module_forward_hook(mixed_after),
    ],
    ids=["flag", "hook", "backward hook", "forward", "part", "hook of all modules"],
)
def test_what_makes_a_module_mix_after_make_private_is_seen_before_a_step(change: Callable[[Any], Any]) -> None:
    loop = Loop(nn.Sequential(nn.Linear(6, 6), MayMix(), nn.Linear(6, 3)))
    loop.module[1].register_forward_hook(lambda part, given, output: None)  # tried again, and nothing is wrong
    loop.step()
    loop.step()
    handle = change(loop.module)
    try:
        with pytest.raises(ModelError, match="treat items one by one|mixes the items"):
            loop.step()
    finally:
        if hasattr(handle, "remove"):
            handle.remove()
    assert loop.engine.steps == 2


def test_the_delta_of_the_settings_is_that_of_the_answers() -> None:
    loop = Loop(settings={"noise_multiplier": None, "epsilon": 4.0, "delta": 1e-8, "steps": 3})
    loop.step()
    assert loop.engine.get_epsilon(unit="item") == loop.engine.get_epsilon(1e-8, "item")
    assert loop.engine.report().plan.settings.delta == 1e-8
    assert loop.engine.get_epsilon(1e-5, "item") < loop.engine.get_epsilon(unit="item")


def test_a_loop_that_never_zeroes_gradients_trains_on_each_step_alone() -> None:
    left, right = Loop(), Loop()
    left.train(3)
    for inputs, targets in right.loader.take(3):
        right.loss(right.private(inputs), targets).backward()
        right.optimizer.step()
    assert torch.equal(left.vector(), right.vector())


def test_what_the_loop_does_to_the_noisy_gradient_counts() -> None:
    loop = Loop()
    before = loop.vector()
    for inputs, targets in loop.loader.take(1):
        loop.loss(loop.private(inputs), targets).backward()
        nn.utils.clip_grad_norm_(loop.private.parameters(), 1e-4)
        loop.optimizer.step()
    assert float((before - loop.vector()).norm()) == pytest.approx(1e-4, rel=1e-2)


REFUSED: dict[str, tuple[Any, str]] = {
    "square": (lambda loss, loop: loss**2, "weighs an item by the others"),
    "root": (lambda loss, loop: loss.sqrt() + loop.module.bias.sum(), "weighs an item by the others"),
    "its own value": (lambda loss, loop: loss / loss.detach(), "by a number"),
    "where it is large": (lambda loss, loop: torch.where(loss > 0, loss, 0 * loss), "weighs an item by the others"),
    "flooding": (lambda loss, loop: (loss - 0.1).abs() + 0.1, "weighs an item by the others"),
    "a tensor": (lambda loss, loop: loss * torch.tensor(2.0), "by a number"),
    "a weight by name": (lambda loss, loop: loss.mul(other=loop.module.bias[0]), "by a number"),
    "twice": (lambda loss, loop: loss + loss, "numbers to look at"),
    "the module's outputs": (
        lambda loss, loop: loss + loop.module(INPUTS).square().mean(),
        "in the middle of a private step",
    ),
}


@pytest.mark.parametrize(("change", "message"), REFUSED.values(), ids=REFUSED)
def test_factors_and_terms_that_read_items_are_refused(change: Any, message: str) -> None:
    loop = Loop()
    before = loop.vector()
    with pytest.raises((PrivacyError, RuntimeError), match=message):
        loop.step(change)
    assert torch.equal(loop.vector(), before)


def outputs_again(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    outputs = loop.private(inputs)
    (loop.loss(outputs, targets) + outputs.square().mean()).backward()


def hidden_again(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    seen: list[Tensor] = []
    handle = loop.module[0].register_forward_hook(lambda module, given, output: seen.append(output))
    (loop.loss(loop.private(inputs), targets) + seen[-1].square().mean()).backward()
    handle.remove()


def centred(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    outputs = loop.private(inputs)
    loop.loss(outputs - outputs.mean(0), targets).backward()


def centred_in_place(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    outputs = loop.private(inputs)
    with torch.no_grad():
        outputs.sub_(outputs.mean(0))
    loop.loss(outputs, targets).backward()


def float16(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    with torch.autocast("cpu", dtype=torch.float16):
        loop.loss(loop.private(inputs), targets).backward()


def frozen_later(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    loop.module[0].requires_grad_(False)
    loop.loss(loop.private(inputs), targets).backward()


def other_parameters(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    loop.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    loop.loss(loop.private(inputs), targets).backward()
    loop.optimizer.step()


def backward_twice(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    value = loop.loss(loop.private(inputs), targets)
    value.backward(retain_graph=True)
    value.backward()


def passed_in_eval(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    loop.loss(loop.private(inputs), targets).backward()
    plain = nn.functional.cross_entropy(loop.private.eval()(inputs), targets)
    assert float(plain.detach()) > 0, "a pass of it is allowed"
    plain.backward()


def forward_twice(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    loop.private(inputs)
    loop.private(inputs)


def skipped(loop: Loop, inputs: Tensor, targets: Tensor) -> None:
    for again, wanted in loop.loader.take(2):
        loop.loss(loop.private(again), wanted).backward()


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (outputs_again, "private loss alone"),
        (hidden_again, "private loss alone"),
        (lambda loop, x, y: nn.functional.cross_entropy(loop.private(x), y).backward(), "private loss alone"),
        (lambda loop, x, y: loop.loss(loop.module(x), y).backward(), "in the middle of a private step"),
        (centred, "as it is, or a view"),
        (centred_in_place, "as it is, or a view"),
        (lambda loop, x, y: loop.loss(loop.private(0.7 * x + 0.3 * x.flip(0)), y), "inputs that the private loader"),
        (lambda loop, x, y: loop.loss(loop.private(x.flip(0)), y.flip(0)), "inputs that the private loader drew"),
        (lambda loop, x, y: loop.loss(loop.private(x), y.flip(0).contiguous()), "targets that the private loader drew"),
        (lambda loop, x, y: loop.private(x.sub_(x.mean(0))), "inputs that the private loader drew"),
        (lambda loop, x, y: loop.loss(loop.private(x), y.copy_(y.flip(0).clone())), "targets that the private loader"),
        (lambda loop, x, y: loop.loss(loop.private(x)[:1].expand(len(x), 3), y), "as it is, or a view"),
        (passed_in_eval, "in the middle of a private step"),
        (lambda loop, x, _: loop.private.double()(x.double()), "float32 parameters that make_private saw, '0.weight'"),
        (float16, "autocast with bfloat16"),
        (frozen_later, "'0.weight' was frozen"),
        (other_parameters, "parameters alone"),
        (lambda loop, *_: loop.optimizer.step(), "before optimizer.step"),
        (lambda loop, *_: loop.optimizer.step(lambda: 0.0), "before optimizer.step"),
        (lambda loop, *_: loop.optimizer.step(1.0), "or with a closure"),
        (lambda loop, x, y: loop.optimizer.step(lambda: nn.CrossEntropyLoss()(loop.module(x), y).backward()), "middle"),
        (backward_twice, "one backward pass"),
        (forward_twice, "one forward pass"),
        (skipped, "optimizer.step.. for each batch"),
    ],
)
def test_what_would_not_be_private_is_refused(misuse: Callable[..., None], message: str) -> None:
    loop = Loop(nn.Sequential(nn.Linear(6, 3)))
    before = loop.vector()
    inputs, targets = next(loop.loader.take(1))
    with pytest.raises((PrivacyError, ModelError), match=message):
        misuse(loop, inputs, targets)
    assert torch.equal(loop.vector(), before)
    released = misuse in (backward_twice, skipped, other_parameters, outputs_again, hidden_again, passed_in_eval)
    assert loop.engine.steps == released, "a release is counted, and made once"


def test_a_loop_may_move_convert_and_reshape() -> None:
    loop = Loop(
        nn.Sequential(nn.Flatten(), nn.Linear(6, 1)),
        criterion=lambda outputs, targets: nn.functional.mse_loss(
            outputs.reshape(-1), targets.reshape(-1).float(), reduction="none"
        ),
    )
    loop.steps(lambda x, y: loop.loss(loop.private(x.clone().view(-1, 2, 3)).squeeze(1), y.int().unsqueeze(1)), 2)
    assert loop.engine.steps == 2


def test_one_batch_a_step_whatever_its_size() -> None:
    """A subject of 20 items, at a batch of 2: the scheduler moves once a step, and dropout is that of one pass."""
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    subjects = [0] * 20 + [1, 2, 3, 4]
    settings = {"clip": "subject", "sample": "subjects", "subjects_per_step": 3}
    loop = Loop(module, subjects=subjects, settings=settings, data_loader=DataLoader(DATA, 2))
    scheduler = torch.optim.lr_scheduler.StepLR(loop.optimizer, 1)
    for _ in range(6):
        loop.step()
        scheduler.step()
    assert loop.engine.steps == 6 == scheduler.last_epoch


def test_parts_see_the_dropout_of_the_output_that_the_loop_saw(without_noise: None) -> None:
    """A batch in parts has the gradient of its own output: plain autograd under the same generator finds the same."""
    module = nn.Sequential(nn.Linear(6, 40), nn.Dropout(0.5), nn.Linear(40, 3))
    options: Any = {"settings": {"clip": "subject", "sample": "subjects", "subjects_per_step": ITEMS}}
    loop = Loop(module, data_loader=DataLoader(DATA, 2), **options)
    inputs, targets = next(loop.loader.take(1))
    parts, exact = loop.private._step._draw.parts, copy.deepcopy(module)
    assert len(parts) == 6
    torch.manual_seed(8)
    loop.loss(loop.private(inputs), targets).backward()
    torch.manual_seed(8)
    outputs = torch.cat([exact(inputs[part.items]) for part in parts])
    nn.functional.cross_entropy(outputs, targets).backward()
    for own, right in zip(module.parameters(), exact.parameters(), strict=True):
        assert torch.allclose(own.grad, right.grad, atol=1e-6)


def test_two_live_iterators() -> None:
    loop = Loop()
    with pytest.raises(PrivacyError, match="one iterator"):
        for (inputs, targets), _ in zip(loop.loader.take(2), loop.loader.take(2), strict=True):
            loop.loss(loop.private(inputs), targets).backward()
    first, second = loop.loader.take(3), loop.loader.take(3)
    next(second)
    with pytest.raises(PrivacyError, match="one iterator"):
        next(first)


def test_a_checkpoint_loaded_again_uses_no_draw_twice_and_forgets_no_step() -> None:
    loop = Loop(data_loader=DataLoader(DATA, 8))
    loop.step()
    saved = loop.engine.state_dict(), copy.deepcopy(loop.module.state_dict())
    loop.step()
    first, spent = loop.vector(), loop.engine.get_epsilon(unit="item")
    loop.module.load_state_dict(saved[1])
    loop.engine.load_state_dict(saved[0])
    assert loop.engine.steps == 2 and loop.engine.get_epsilon(unit="item") == spent
    loop.step()
    assert loop.engine.steps == 3 and loop.engine.get_epsilon(unit="item") > spent
    noise = NOISE / 8  # of one step; the two differ by the noise of two, and by other items
    assert float((first - loop.vector()).norm()) > 0.5 * noise


def test_an_engine_is_neither_copied_nor_pickled_and_its_module_can_be() -> None:
    loop = Loop()
    for held in (loop.engine, loop.private):
        for action in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(PrivacyError, match="cannot be pickled or copied"):
                action(held)
    with pytest.raises(PrivacyError, match="cannot be pickled"):
        torch.save(loop.private, io.BytesIO())
    torch.save(loop.module, io.BytesIO())
    twin = copy.deepcopy(loop.module)
    next(loop.loader.take(1))
    twin(INPUTS).sum().backward()


def test_a_forked_engine_is_refused() -> None:
    loop = Loop(seed=None)
    loop.engine._process += 1  # as a forked child sees it
    with pytest.raises(PrivacyError, match="in the process that made it"):
        loop.step()
    assert loop.engine.steps == 0


def test_the_module_is_an_ordinary_one_outside_of_private_steps() -> None:
    loop = Loop(nn.Sequential(nn.Linear(6, 3)))
    loop.step()
    nn.Sequential(nn.Linear(6, 3)).load_state_dict(loop.private.state_dict())
    loop.private.load_state_dict(nn.Sequential(nn.Linear(6, 3)).state_dict())
    assert loop.private.append is not None, "attributes are the module's"
    before = loop.vector()
    optimizer = torch.optim.SGD(loop.module.parameters(), lr=1.0)
    nn.functional.cross_entropy(loop.module(INPUTS), TARGETS).backward()
    optimizer.step()
    assert not torch.equal(before, loop.vector())
    with pytest.raises(PrivacyError, match="make a new optimizer"):
        loop.optimizer.step()
    with pytest.raises(ModelError, match="no engine has made private yet"):
        Loop(loop.module)
    Loop(copy.deepcopy(loop.module)).step()
    with pytest.raises(ConfigError, match="steps of the state"):
        loop.engine.load_state_dict({"plan": loop.engine.state_dict()["plan"]})
    with pytest.raises(ConfigError, match="draws of the state"):
        loop.engine.load_state_dict(loop.engine.state_dict() | {"draws": "3"})
    with pytest.raises(PrivacyError, match="the state of an engine"):
        loop.engine.load_state_dict(None)  # type: ignore[arg-type]


def ordered(items: list[Any]) -> Any:
    return default_collate(sorted(items, key=lambda item: float(item[0].sum())))


def mixed(items: list[Any]) -> Any:
    inputs, targets = default_collate(items)
    return 0.5 * inputs + 0.5 * inputs.roll(1, 0), targets


def scaled(items: list[Any]) -> Any:
    inputs, targets = default_collate(items)
    return inputs / inputs.abs().max(), targets


@pytest.mark.parametrize("collate", [ordered, mixed, scaled])
def test_a_collate_fn_that_sorts_or_mixes(collate: Any) -> None:
    with pytest.raises(ModelError, match="collate_fn that keeps the items"):
        Loop(data_loader=DataLoader(DATA, 8, collate_fn=collate))


def test_a_collate_fn_that_leaves_items_out_is_refused() -> None:
    """In training alone: the items tried are whole."""
    inputs = INPUTS.clone()
    inputs[7] = torch.nan

    def whole(items: list[Any]) -> Any:
        return default_collate([each for each in items if not each[0].isnan().any()])

    loop = Loop(data_loader=DataLoader(TensorDataset(inputs, TARGETS), ITEMS, collate_fn=whole))
    with pytest.raises(ModelError, match="drops them.*leave some out by a Subset"):
        loop.step()


class Late:
    """Mixes if a flag says so."""

    mixes = False

    def __call__(self, items: list[Any]) -> Any:
        return mixed(items) if self.mixes else default_collate(items)


LATER: dict[str, Callable[[DataLoader[Any], Any], Any]] = {
    "a flag": lambda loader, collate: setattr(collate, "mixes", True),
    "another function": lambda loader, collate: setattr(loader, "collate_fn", mixed),
}


@pytest.mark.parametrize("change", LATER.values(), ids=LATER)
def test_a_collate_fn_that_mixes_later_is_seen(change: Callable[[DataLoader[Any], Any], Any]) -> None:
    collate = Late()
    loader = DataLoader(DATA, ITEMS, collate_fn=collate)
    loop = Loop(data_loader=loader)
    loop.step()
    change(loader, collate)
    with pytest.raises(ModelError, match="collate_fn that keeps the items"):
        loop.step()
    assert loop.engine.steps == 1


def test_a_collate_fn_that_mixes_large_or_few_batches_is_seen() -> None:
    large = DataLoader(DATA, ITEMS, collate_fn=lambda items: (default_collate, mixed)[len(items) > 8](items))
    loop = Loop(data_loader=large)
    with pytest.raises(ModelError, match="collate_fn that keeps the items"):
        loop.step()
    with pytest.raises(ModelError, match="collate_fn that keeps the items"):
        seldom = lambda items: (default_collate, mixed)[float(torch.rand(())) < 0.1](items)  # noqa: E731
        Loop(data_loader=DataLoader(DATA, 8, collate_fn=seldom))


def test_a_collate_fn_that_draws_for_each_item_is_taken() -> None:
    def masked(items: list[Any]) -> Any:
        inputs, targets = default_collate(items)
        return inputs.masked_fill(torch.rand(inputs.shape) < 0.3, 0.0), targets

    loop = Loop(data_loader=DataLoader(DATA, ITEMS, collate_fn=masked))
    loop.train(2)
    assert loop.engine.steps == 2


def test_a_private_loader_stays_as_it_was_made() -> None:
    loop = Loop()
    for name, value in (("sampler", None), ("batch_size", 2), ("dataset", DATA), ("collate_fn", mixed)):
        with pytest.raises(PrivacyError, match=f"{name} was set: make a new engine"):
            setattr(loop.loader, name, value)
    items = [(INPUTS[i], TARGETS[i]) for i in range(ITEMS)]
    loop = Loop(data_loader=DataLoader(items, ITEMS))  # type: ignore[arg-type]
    del items[9:]
    with pytest.raises(DataError, match="items of the data set to be the 24 that it had.*got 9"):
        loop.step()


def test_a_collate_fn_may_use_up_its_items_and_keeps_none() -> None:
    def popped(items: list[Any]) -> Any:
        targets = torch.stack([item.pop("labels") for item in items])
        return torch.stack([item["rows"].mul_(2.0) for item in items]), targets

    class Named(TensorDataset):
        def __getitem__(self, place: int) -> Any:
            return {"rows": INPUTS[place].clone(), "labels": TARGETS[place]}

    loop = Loop(data_loader=DataLoader(Named(INPUTS), ITEMS, collate_fn=popped))
    loop.train(2)

    class First:
        mean: Any = None

        def __call__(self, items: list[Any]) -> Any:
            inputs, targets = default_collate(items)
            self.mean = inputs.mean(0) if self.mean is None else self.mean
            return inputs - self.mean, targets

    with pytest.raises(ModelError, match="collate_fn that keeps the items"):
        Loop(data_loader=DataLoader(DATA, ITEMS, collate_fn=First()))


def test_a_list_that_logs_is_one_thing_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its module is tried at the list's first entry, the second, fourth and eighth, and after 1 and 10 steps."""
    tried: list[Any] = []

    def counted(*given: Any) -> list[str]:
        tried.append(given)
        return check_model(*given)

    monkeypatch.setattr(engine, "check_model", counted)
    losses: list[float] = []

    def logged(out: Tensor, wanted: Tensor) -> Tensor:
        each = nn.functional.cross_entropy(out, wanted, reduction="none")
        losses.append(float(each.detach().mean()))
        return each

    loop = Loop(nn.Linear(6, 3), criterion=logged)
    loop.train(12)
    assert 5 <= len(tried) <= 8


@pytest.mark.parametrize("coin", [lambda: float(torch.rand(())), random.random])
def test_a_coin_for_the_batch_is_no_mixing(coin: Callable[[], float]) -> None:
    def either(out: Tensor, wanted: Tensor) -> Tensor:
        smooth = 0.1 if coin() < 0.5 else 0.0
        return nn.functional.cross_entropy(out, wanted, reduction="none", label_smoothing=smooth)

    for _ in range(4):
        loop = Loop(nn.Linear(6, 3), criterion=either)
        loop.train(3)
        assert loop.engine.steps == 3


class Switched(nn.Linear):
    """Mixes, or leaves a part out, where a number, an option or a list says so."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.share, self.options, self.off, self.part = 0.0, {"mix": False}, [False], nn.Linear(6, 3, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        if self.training and (self.share or self.options["mix"]):
            rows = 0.7 * rows + 0.3 * rows.roll(1, 0)
        return super().forward(rows) if self.off[0] else super().forward(rows) + self.part(rows)


class Mining:
    """Weighs the worse half of a batch where a number says so."""

    weight = 0.0

    def __call__(self, out: Tensor, wanted: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(out, wanted, reduction="none")
        return losses * (1 + self.weight * (losses > losses.median()))


SWITCHES: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda module, criterion: setattr(module, "share", 0.3),
    "an option": lambda module, criterion: module.options.update(mix=True),
    "the criterion": lambda module, criterion: setattr(criterion, "weight", 1.0),
}


@pytest.mark.parametrize("change", SWITCHES.values(), ids=SWITCHES)
def test_a_module_or_criterion_that_is_switched_to_mixing_is_tried_again(change: Callable[[Any, Any], Any]) -> None:
    module, criterion = Switched(), Mining()
    loop = Loop(module, criterion=criterion)
    loop.train(3)
    change(module, criterion)
    with pytest.raises(ModelError, match="one by one"):
        loop.step()
    assert loop.engine.steps == 3


def test_a_part_that_stops_running_is_said_to_be_trained_by_noise_alone() -> None:
    module = Switched()
    loop = Loop(module)
    loop.step()
    module.off[0] = True
    with pytest.warns(UserWarning, match="does not depend on part.weight: trained by noise alone"):
        loop.step()


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))


class Captioned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(7, 6), nn.Linear(6, 3)

    def forward(self, pictures: Tensor, words: Tensor) -> Tensor:
        result: Tensor = self.last(pictures + self.words(words).mean(1))
        return result


BINARY = (two_layers, nn.BCEWithLogitsLoss(), TensorDataset(INPUTS, TARGETS % 2))
READ = torch.randint(0, 7, (ITEMS, 5), generator=torch.Generator().manual_seed(4))
WORDS = (
    lambda: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)),
    nn.CrossEntropyLoss(ignore_index=0),
    TensorDataset(READ, READ.roll(1, 1)),
)
FORMS: dict[str, tuple[tuple[Callable[[], nn.Module], Any, Any], Callable[..., Tensor]]] = {
    "flattened": (
        (lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(), TensorDataset(INPUTS.view(ITEMS, 1, 2, 3), TARGETS.int())),
        lambda module, loss, x, y: loss(module(x.view(len(x), -1)), y.long()),
    ),
    "bytes": (
        (lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(), TensorDataset((INPUTS * 9).byte(), TARGETS)),
        lambda module, loss, x, y: loss(module(x.float()), y),
    ),
    "pictures beside words": (
        (Captioned, nn.CrossEntropyLoss(), TensorDataset((INPUTS * 9).byte(), READ, TARGETS)),
        lambda module, loss, x, words, y: loss(module(x.float(), words), y),
    ),
    "a channel": (
        (
            lambda: nn.Sequential(nn.Conv2d(1, 3, (2, 3)), nn.Flatten()),
            nn.CrossEntropyLoss(),
            TensorDataset(INPUTS.view(ITEMS, 2, 3), TARGETS),
        ),
        lambda module, loss, x, y: loss(module(x.unsqueeze(1)), y),
    ),
    "rows": (BINARY, lambda module, loss, x, y: loss(module(x).squeeze(), y.float())),
    "a column": (BINARY, lambda module, loss, x, y: loss(module(x), y.view(-1, 1).float())),
    "a number": (
        (two_layers, nn.MSELoss(), TensorDataset(INPUTS, INPUTS.sum(1))),
        lambda module, loss, x, y: loss(module(x)[:, 0], y),
    ),
    "by name": (
        (lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(), [{"image": x, "label": y} for x, y in DATA]),
        lambda module, loss, batch: loss(module(batch["image"]), batch["label"]),
    ),
    "beside names and numbers": (
        (
            lambda: nn.Linear(6, 3),
            nn.CrossEntropyLoss(),
            [{"id": f"p{i}", "image": x, "age": i, "label": y} for i, (x, y) in enumerate(DATA)],
        ),
        lambda module, loss, batch: loss(module(batch["image"]), batch["label"]),
    ),
    "a name last": (
        (lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(), [(x, y, f"p{i}") for i, (x, y) in enumerate(DATA)]),
        lambda module, loss, x, y, name: loss(module(x), y),
    ),
    "a number last": (
        (lambda: nn.Linear(6, 3), nn.CrossEntropyLoss(), TensorDataset(INPUTS, TARGETS, torch.arange(ITEMS))),
        lambda module, loss, x, y, name: loss(module(x), y),
    ),
    "labels first": (
        (lambda: nn.Linear(6, 3), nn.functional.cross_entropy, TensorDataset(TARGETS, INPUTS)),
        lambda module, loss, y, x: loss(module(x), y),
    ),
    "words": (WORDS, lambda module, loss, x, y: loss(module(x).view(-1, 7), y.view(-1))),
    "words' classes second": (WORDS, lambda module, loss, x, y: loss(module(x).transpose(1, 2), y)),
    "masks of numbers": (
        (
            lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 3, 1)),
            nn.CrossEntropyLoss(),
            TensorDataset(INPUTS, (INPUTS > 0).float().view(ITEMS, 1, 2, 3)),
        ),
        lambda module, loss, x, y: loss(module(x), y.squeeze(1).long()),
    ),
    "logits": (
        (
            lambda: Code(lambda own, x: {"logits": own.head(x), "hidden": x}, head=nn.Linear(6, 3)),
            nn.CrossEntropyLoss(),
            DATA,
        ),
        lambda module, loss, x, y: loss(module(x)["logits"], y),
    ),
    "masks without a channel": (
        (
            lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 1, 1)),
            nn.BCEWithLogitsLoss(),
            TensorDataset(INPUTS, (INPUTS > 0).view(ITEMS, 2, 3)),
        ),
        lambda module, loss, x, y: loss(module(x).squeeze(1), y.float()),
    ),
    "inputs": (
        (lambda: nn.Linear(6, 6), nn.MSELoss(), TensorDataset(INPUTS)),
        lambda module, loss, x: loss(module(x), x),
    ),
    "inputs beside labels": (
        (lambda: nn.Linear(6, 6), nn.MSELoss(), DATA),
        lambda module, loss, x, y: loss(module(x), x),
    ),
}


@pytest.mark.parametrize("batch_size", [1, ITEMS])
@pytest.mark.parametrize("form", FORMS)
def test_a_loop_may_give_items_in_another_form(form: str, batch_size: int) -> None:
    (make, criterion, data), body = FORMS[form]
    with warnings.catch_warnings(action="error"):
        loop = Loop(make(), data_loader=DataLoader(data, batch_size), criterion=criterion)
        loop.steps(partial(body, loop.private, loop.loss), 3)
    assert loop.engine.steps == 3


class Odd(Tensor):
    """A tensor with a way of its own, as MONAI's."""

    def new_empty(self, *size: Any, **options: Any) -> Any:
        raise TypeError("size must be given by name")


def halves(outputs: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """A number for each item and channel, (B, C, 1, 1), or their mean."""
    each = (outputs - targets).square().mean((2, 3), keepdim=True)
    return each if reduction == "none" else each.mean()


def test_tensors_of_others_and_losses_of_channels_train(without_noise: None) -> None:
    pictures, found = INPUTS.view(ITEMS, 1, 2, 3), []
    for images, criterion in ((pictures.as_subclass(Odd), halves), (pictures, nn.MSELoss())):
        torch.manual_seed(0)
        data = DataLoader(TensorDataset(images, pictures), ITEMS)
        loop = Loop(nn.Conv2d(1, 1, 3, padding=1), data_loader=data, criterion=criterion, settings={"clip_norm": 0.1})
        assert loop.loader.batch_size == ITEMS
        loop.step()
        found.append(loop.vector())
    assert torch.allclose(*found, atol=1e-6)


def test_words_in_rows_train_as_words_of_items(without_noise: None) -> None:
    found = []
    own = partial(nn.functional.cross_entropy, ignore_index=0)
    for form, change in (("words", None), ("words' classes second", None), ("words", own)):
        (make, criterion, data), body = FORMS[form]
        criterion = criterion if change is None else change
        torch.manual_seed(0)
        loop = Loop(make(), data_loader=DataLoader(data, ITEMS), criterion=criterion, settings={"clip_norm": 0.1})
        loop.steps(partial(body, loop.private, loop.loss))
        found.append(loop.vector())
    assert all(torch.allclose(found[0], other, atol=1e-6) for other in found[1:])


def test_a_criterion_of_one_number_gets_the_words_of_an_item_together(without_noise: None) -> None:
    body, words = FORMS["words"][1], READ.clamp_min(1) * torch.tensor([0, 1, 1, 0, 1])  # as many to read in each
    own = partial(nn.functional.cross_entropy, ignore_index=0)
    found = []
    for criterion in (nn.CrossEntropyLoss(ignore_index=0), lambda x, y: own(x, y)):
        data = DataLoader(TensorDataset(READ, words), ITEMS)
        loop = Loop(WORDS[0](), data_loader=data, criterion=criterion, settings={"clip_norm": 9.0})
        loop.steps(partial(body, loop.private, loop.loss))
        found.append(loop.vector())
    assert torch.allclose(*found, atol=1e-6)


def evidence(outputs: Tensor, targets: Tensor) -> Tensor:
    """Summed over the batch, as in torch's own example of a variational autoencoder."""
    return nn.functional.cross_entropy(outputs, targets, reduction="sum")


@pytest.mark.parametrize("criterion", [lambda x, y: nn.functional.cross_entropy(x, y), evidence])
def test_a_criterion_of_one_number_is_that_of_each_item(criterion: Any, without_noise: None) -> None:
    found = []
    for each in (nn.CrossEntropyLoss(), criterion):
        torch.manual_seed(0)
        loop = Loop(nn.Linear(6, 3), criterion=each, settings={"clip_norm": 0.5})
        loop.step()
        found.append(loop.vector())
    assert torch.allclose(*found, atol=1e-6)


def cox(outputs: Tensor, targets: Tensor) -> Tensor:
    """Each item beside all that come after it."""
    return (outputs[:, 0].logcumsumexp(0) - outputs[:, 0]).mean()


def correlation(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of all items; one alone has none."""
    return -torch.corrcoef(torch.stack([outputs[:, 0], targets.float()]))[0, 1]


def faint(outputs: Tensor, targets: Tensor) -> Tensor:
    """Whose number is that of the items, and whose gradient is not."""
    mixed = outputs.mean(0).square().sum()
    return nn.functional.cross_entropy(outputs, targets) + mixed - mixed.detach()


@pytest.mark.filterwarnings("ignore:cov")
@pytest.mark.parametrize(
    "criterion", [cox, correlation, faint, partial(nn.functional.cross_entropy, weight=torch.tensor([1.0, 2.0, 5.0]))]
)
def test_a_criterion_of_one_number_that_weighs_or_compares_items(criterion: Any) -> None:
    one_number = lambda outputs, targets: criterion(outputs, targets)  # noqa: E731
    with pytest.raises(ModelError, match="it weighs or compares them"):
        Loop(nn.Linear(6, 3), criterion=one_number)


def test_a_criterion_of_one_number_that_counts_its_calls_is_refused() -> None:
    calls = [0]

    def annealed(outputs: Tensor, targets: Tensor) -> Tensor:
        calls[0] += 1  # a step of a schedule for each item
        return nn.functional.cross_entropy(outputs, targets) + 1e-4 * calls[0] * outputs.square().mean()

    with pytest.raises(PrivacyError, match="each item is a call"):
        Loop(nn.Linear(6, 3), criterion=annealed)


LOGGED: dict[str, Callable[[list[Tensor]], Any]] = {
    "a sum": lambda losses: sum(losses[1:], 0.0 + losses[0]),
    "in place": lambda losses: torch.zeros(()).add_(losses[0]).add_(losses[1]).add_(losses[2]),
    "data": lambda losses: sum(each.data for each in losses),
    "stacked": lambda losses: torch.stack(losses).sum(),
    "beside one in evaluation": lambda losses: losses[0].detach() + losses[1] + losses[2],
}


@pytest.mark.parametrize("way", LOGGED)
def test_losses_may_be_added_up_to_look_at(way: str) -> None:
    loop, losses = Loop(), []
    for _ in range(3):
        loop.step(lambda loss, _: losses.append(loss) or loss)
    total = LOGGED[way](losses)
    assert float(total) == pytest.approx(sum(map(float, losses)))
    if way != "data":
        with pytest.raises(PrivacyError):
            total.backward()


def test_rounding_of_autocast_is_no_comparison_of_items() -> None:
    module = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 3))
    loop = Loop(module, criterion=lambda outputs, targets: -outputs[:, 0].mean())
    for inputs, targets in loop.loader.take(3):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loop.loss(loop.private(inputs), targets)
        loss.backward()
        loop.optimizer.step()
    assert loop.engine.steps == 3


def test_losses_of_float64_train_people_too() -> None:
    data = TensorDataset(INPUTS, torch.rand(ITEMS, 3, dtype=torch.float64))
    settings = {"clip": "subject", "max_items_per_subject": 1}
    loop = Loop(data_loader=DataLoader(data, ITEMS), criterion=nn.MSELoss(), settings=settings)
    loop.step()
    assert loop.engine.steps == 1


def test_terms_of_hidden_values_and_lists_of_losses_are_refused_by_name() -> None:
    class Routed(nn.Linear):
        def forward(self, rows: Tensor) -> Tensor:
            shares = super().forward(rows).softmax(1)
            self.balance = shares.mean(0).square().sum()
            return 3 * shares

    def terms(loss: Tensor, loop: Loop) -> Tensor:
        return loss + loop.module.balance

    for change in (terms, lambda _, loop: loop.module.balance):
        with pytest.raises(PrivacyError, match="hidden values are in another term"):
            Loop(Routed(6, 3)).step(change)
    with pytest.raises(PrivacyError, match="its outputs or hidden"):
        rows, targets = next(iter((loop := Loop()).loader))
        outputs = loop.private(rows)
        (loop.loss(outputs, targets) + outputs.square().mean()).backward()
    with pytest.raises(PrivacyError, match="the private loss times one number"):
        Loop().step(lambda loss, _: torch.stack([loss]).mean())


class Fetched(TensorDataset):
    """Items that are also fetched as a whole batch."""

    def __init__(self, change: Callable[[Tensor], Tensor], noise: float = 0.0) -> None:
        super().__init__(INPUTS, TARGETS)
        self.change, self.noise = change, noise

    def __getitem__(self, place: int) -> Any:
        return INPUTS[place] + self.noise * torch.rand(6), TARGETS[place]

    def __getitems__(self, places: list[int]) -> list[Any]:
        return list(zip(self.change(INPUTS[places]), TARGETS[places], strict=True))


def test_a_batch_that_is_fetched_as_a_whole_mixes_no_items(without_noise: None) -> None:
    with pytest.raises(ModelError, match="__getitems__ returns the items of its __getitem__"):
        Loop(data_loader=DataLoader(Fetched(lambda rows: rows - rows.mean(0)), 8))
    plain_loop, several = Loop(), Fetched(lambda rows: rows if len(rows) < ITEMS else rows.roll(1, 0))
    for loop in (plain_loop, Loop(data_loader=DataLoader(several, ITEMS))):
        loop.step()
    assert torch.equal(loop.vector(), plain_loop.vector())  # each item by itself, whatever a large batch would be
    Loop(data_loader=DataLoader(Fetched(torch.neg, noise=0.1), ITEMS)).step()  # of draws nothing can be told


def named(worker: int) -> None:
    torch.utils.data.get_worker_info().dataset.noise = 100.0  # type: ignore[union-attr]


def test_workers_may_set_what_is_their_data_sets() -> None:
    loop = Loop(data_loader=DataLoader(Fetched(lambda rows: rows), ITEMS, num_workers=1, worker_init_fn=named))
    (batch,) = loop.loader.take(1)
    assert float(batch[0].amax()) > 50


class Doubled(DataLoader[Any]):
    def __iter__(self) -> Any:
        return ((2 * inputs, targets) for inputs, targets in super().__iter__())


def test_loaders_and_optimisers_that_cannot_be_honoured() -> None:
    with pytest.raises(ConfigError, match="batches are DataLoader's.*got 'Doubled'"):
        Loop(data_loader=Doubled(DATA, 8))
    weighted = WeightedRandomSampler([1.0] * ITEMS, ITEMS)
    with pytest.raises(ConfigError, match="sampler of the data loader.*Subset"):
        Loop(data_loader=DataLoader(DATA, 8, sampler=weighted))
    module = nn.Linear(6, 3)
    with pytest.raises(ConfigError, match="needs no closure"):
        Loop(module, optimizer=torch.optim.LBFGS(module.parameters()))
    loader = DataLoader(Subset(DATA, range(12)), 4, shuffle=True, num_workers=1, worker_init_fn=print)
    assert Loop(data_loader=loader, subjects=range(12)).loader._loader.worker_init_fn is print


NOBODY = [None, float("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), "", " ", "NA", "nan", "<NA>", "None"]


@pytest.mark.parametrize("value", NOBODY, ids=repr)
def test_an_item_of_nobody_is_refused(value: Any) -> None:
    with pytest.raises(DataError, match="item 3: expected a subject's name"):
        Loop(subjects=[0, 1, 2, value, *range(20)])


def test_nobody_knows_whether_two_spellings_are_one_person() -> None:
    with pytest.raises(DataError, match="'P001' and 'p001' differ in capitals alone"):
        Loop(subjects=["P001", "p001", *map(str, range(22))])


@pytest.mark.parametrize(
    "subjects",
    [
        [torch.tensor(i // 4) for i in range(ITEMS)],
        torch.arange(ITEMS) // 4,
        [np.int64(i // 4) if i % 2 else float(i // 4) for i in range(ITEMS)],
        pd.Series([i // 4 for i in range(ITEMS)], index=range(100, 100 + ITEMS)),
        [["Ren\u00e9", "Rene\u0301"][i % 2] + str(i // 4) for i in range(ITEMS)],
        [(i // 4, 1.0 if i % 2 else 1) for i in range(ITEMS)],
        pd.array([i // 4 for i in range(ITEMS)], dtype="Int64"),
        [f"{i // 4}.0" if i % 2 else i // 4 for i in range(ITEMS)],
        [f"{i // 4:03d}" if i % 2 else i // 4 for i in range(ITEMS)],
    ],
    ids=[
        "0-dim tensors",
        "tensor",
        "numpy and float",
        "Series",
        "Unicode",
        "tuples",
        "Int64",
        "text",
        "zeros in front",
    ],
)
def test_one_person_has_one_name(subjects: Any) -> None:
    loop = Loop(subjects=subjects, settings={"clip": "subject", "max_items_per_subject": 4})
    assert loop.engine.plan.silos[0].subjects == 6


@pytest.mark.parametrize(
    "subjects",
    [
        *(dict.fromkeys(range(ITEMS), 1), set(range(ITEMS)), "a" * ITEMS, np.zeros((ITEMS, 2)), [[1]] * ITEMS),
        (i for i in range(ITEMS)),
    ],
    ids=["dict", "set", "text", "two columns", "lists", "generator"],
)
def test_what_are_no_subjects(subjects: Any) -> None:
    with pytest.raises((ConfigError, DataError), match="[Ee]xpected (a )?subject"):
        Loop(subjects=subjects)


def test_where_subjects_are_drawn_the_number_of_items_sets_nothing() -> None:
    plans = []
    for most in (3, 20):
        subjects = [0] * most + [1 + i % 4 for i in range(ITEMS - most)]
        options: Any = {"settings": {"clip": "subject", "sample": "subjects", "subjects_per_step": 2}}
        plans.append(Loop(subjects=subjects, **options).engine.plan.silos[0])
    assert {(plan.sampling_probability, plan.divisor) for plan in plans} == {(2 / 5, 2.0)}
    default = Loop(subjects=[i % 6 for i in range(ITEMS)], settings={"clip": "subject", "sample": "subjects"})
    assert default.engine.plan.silos[0].sampling_probability == 1.0, "a batch of 24 takes all six subjects"
    with pytest.raises(ConfigError, match="subjects_per_step.*from 1 to the 6 subjects"):
        settings = {"clip": "subject", "sample": "subjects", "subjects_per_step": 7}
        Loop(subjects=[i % 6 for i in range(ITEMS)], settings=settings)


def test_an_epsilon_that_rests_on_the_data_says_so() -> None:
    subjects = [i // 4 for i in range(ITEMS)]
    capped = Loop(subjects=subjects, settings={"max_items_per_subject": 4})
    capped.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        enforced = capped.engine.get_epsilon()
    loose = Loop(subjects=subjects)
    loose.step()
    with pytest.warns(UserWarning, match="conditional"):
        assert loose.engine.get_epsilon() == pytest.approx(enforced)
    assert loose.engine.report().subject.conditional and not capped.engine.report().subject.conditional
    assert "none: the papers" in str(loose.engine.report()), "no claim of a paper"
    assert loose.engine.plan.total_subjects == 6


class Scaled(nn.Linear):
    """A layer with a number and a flag beside its inputs."""

    def __init__(self) -> None:
        super().__init__(6, 3)
        self.passes = 0

    def forward(self, inputs: Tensor, scale: float = 1.0, halve: bool = False) -> Tensor:
        self.passes += 1
        return super().forward(inputs * (0.5 * scale if halve else scale))


def test_numbers_read_from_the_items_are_refused_and_flags_stay_as_they_were() -> None:
    """One item's value would scale the gradients of all others."""
    loop = Loop(Scaled())
    (inputs, targets), *_ = loop.loader.take(1)
    with pytest.raises(PrivacyError, match="may have been read from the items"):
        loop.private(inputs, scale=float(inputs.abs().max()))
    loop.step(halve=True)
    (inputs, targets), *_ = loop.loader.take(1)
    with pytest.raises(PrivacyError, match="same flags in each step"):
        loop.private(inputs, halve=bool(inputs.mean() > 9))
    with pytest.raises(PrivacyError, match="same flags in each step, as arguments, got 'other'"):
        loop.private(inputs, other=True)
    with pytest.raises(PrivacyError, match="same flags in each step"):
        loop.private(inputs)
    outputs = loop.private(inputs, halve=True)
    with pytest.raises(PrivacyError, match="as outputs"):
        loop.loss((outputs, float(inputs.max())), targets)


def test_trying_a_module_leaves_module_and_generators_as_they_are() -> None:
    module = Scaled()
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    subjectdp.clip_sum(module, INPUTS, TARGETS, 1.0)
    assert torch.equal(torch.rand(1), expected) and module.passes == 0
    torch.manual_seed(0)  # as Loop does
    expected = torch.rand(1)
    loop = Loop(module)
    assert torch.equal(torch.rand(1), expected) and module.passes == 0 and loop.engine.steps == 0


class FrozenStatistics(nn.Sequential):
    """Batch statistics that stay as they are in training."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
        self[1].requires_grad_(False)

    def train(self, mode: bool = True) -> FrozenStatistics:
        super().train(mode)
        self[1].eval()
        return self


def test_batch_statistics_may_be_frozen_and_not_thawed() -> None:
    loop = Loop(FrozenStatistics().train())
    loop.step()
    loop.module[1].train()  # type: ignore[index]
    (inputs, _), *_ = loop.loader.take(1)
    with pytest.raises(ModelError, match="mixes the items of a batch"):
        loop.private(inputs)


@pytest.mark.parametrize("batch_size", [ITEMS, 2], ids=["one part", "several parts"])
def test_autocast_in_the_loop(batch_size: int) -> None:
    """The gradient is that of bfloat16, not of float32; norms, sum and noise are float32."""
    found = []
    for mixed in (False, True):
        settings = {"clip": "subject", "sample": "subjects", "subjects_per_step": 8, "noise_multiplier": 1e-5}
        loop = Loop(data_loader=DataLoader(DATA, batch_size), settings=settings, **PEOPLE)
        start = loop.vector()
        for inputs, targets in loop.loader.take(1):
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                outputs = loop.private(inputs)
                assert outputs.dtype is (torch.bfloat16 if mixed else torch.float32)
                loss = loop.loss(outputs, targets)
            loss.backward()
            assert all(p.grad is not None and p.grad.dtype is torch.float32 for p in loop.module.parameters())
            loop.optimizer.step()
        found.append(start - loop.vector())
    plain, mixed_one = found
    assert 1e-4 < float((plain - mixed_one).norm() / plain.norm()) < 0.05


PEOPLE: dict[str, Any] = {"subjects": [item // 3 for item in range(ITEMS)]}


def test_batch_norm_is_replaced_where_that_is_asked_for() -> None:
    layers = [nn.Conv2d(1, 8, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.BatchNorm1d(48), nn.Linear(48, 3)]
    module = nn.Sequential(nn.Unflatten(1, (1, 2, 3)), *layers)
    with pytest.raises(ModelError, match=r"'2' is BatchNorm2d: .*fix=True"):
        Loop(module)
    with pytest.raises(ModelError, match="for each item"), pytest.warns(UserWarning, match="in place of BatchNorm"):
        Loop(module, criterion=lambda outputs, targets: outputs.var(), settings={"fix": True})
    assert isinstance(module[2], nn.BatchNorm2d), "a module that is refused stays as it was"
    scale = module[2].weight
    with pytest.warns(UserWarning, match=r"in place of BatchNorm now: 2 \(2 groups\); 4 \(1 groups\)"):
        loop = Loop(module, settings={"fix": True})
    assert isinstance(module[2], nn.GroupNorm) and module[2].weight is scale
    loop.step()
    assert not torch.equal(module[2].weight, torch.ones(8)), "the optimiser trains it"


def test_what_needs_further_packages_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named 'pandas' for {name}", name="pandas")

    monkeypatch.setattr(subjectdp, "import_module", missing)
    with pytest.raises(ImportError, match=r"SubjectRelease needs pandas: pip install 'subjectdp\[pipeline\]'"):
        _ = subjectdp.__getattr__("SubjectRelease")


def routed(m: Any, rows: Tensor) -> Tensor:
    """Items go through it one by one; with dropout."""
    total = torch.zeros_like(rows)
    for number, expert in enumerate(m.experts):
        (own,) = torch.where((rows[:, 0] > 0) == bool(number))
        total = total.index_add(0, own, expert(rows[own]))
    return nn.functional.dropout(total, 0.5, m.training) * m.scale


def test_dropout_is_that_of_the_forward_pass_where_a_batch_is_run_in_parts() -> None:
    """Where the output of an item is 0 by dropout, its gradient of the scale is 0 too."""
    settings = {"clip": "subject", "sample": "subjects", "subjects_per_step": 8, "noise_multiplier": 1e-5}
    experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
    module = nn.Sequential(Code(routed, experts=experts, scale=nn.Parameter(torch.ones(6))))
    data = DataLoader(DATA, 1)  # parts of two items, or of a person's three

    def squares(outputs: Tensor, _: Tensor) -> Tensor:
        return outputs.square().sum(1) / 2

    loop = Loop(module, data_loader=data, settings=settings, criterion=squares, **PEOPLE)
    for inputs, targets in loop.loader.take(1):
        outputs = loop.private(inputs)
        wanted = outputs.detach().square().sum(0) / 8 / 3  # d/ds of y² s²/2 at s = 1; means of people; 8 people
        loop.loss(outputs, targets).backward()
    assert torch.allclose(module[0].scale.grad, wanted, rtol=1e-3, atol=1e-3)


def test_a_part_of_a_private_module_is_in_its_step_alone() -> None:
    """An auxiliary term of hidden values would be a gradient without clipping and noise, and another engine a new ε."""
    loop = Loop(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 3)))
    with pytest.raises(PrivacyError, match="or a part of it, was called"):
        loop.step(lambda loss, own: loss + own.module[0](INPUTS).square().mean())
    for module in (loop.module[0], nn.Sequential(loop.module[0], nn.Linear(6, 3))):
        with pytest.raises(ModelError, match="no engine has made private yet"):
            Loop(module)
    assert Loop(copy.deepcopy(loop.module)).engine.steps == 0


def test_what_is_faint_or_not_the_modules_own_is_refused() -> None:
    head, twins = nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    twins[1].weight.data = twins[0].weight.data
    mixing = Code(lambda m, x: m.head(x - 1e-3 * x.mean(0)), head=nn.Linear(6, 3))
    penalty = lambda out, y: nn.functional.cross_entropy(out, y, reduction="none") + head.weight.square().sum()  # noqa: E731
    for module, criterion, message in (
        (mixing, nn.CrossEntropyLoss(), "with other items in the batch"),
        (head, penalty, "reads parameters that are trained"),
        (twins, nn.CrossEntropyLoss(), "memory of their own"),
    ):
        with pytest.raises(ModelError, match=message):
            Loop(module, criterion=criterion)


def test_a_small_gradient_is_not_dropped_beside_a_large_one() -> None:
    module = Code(
        lambda m, x: (m.layer(1e5 * x), m.shift.expand(len(x))),
        layer=nn.Linear(6, 3),
        shift=nn.Parameter(torch.ones(1)),
    )

    def both(found: Any, wanted: Tensor) -> Tensor:
        return nn.functional.cross_entropy(found[0], wanted, reduction="none") + (found[1] - wanted).square()

    with pytest.raises(ModelError, match="'shift'"):
        subjectdp.clip_sum(module, INPUTS, TARGETS, 1e9, criterion=both)
    with pytest.raises(ConfigError, match="as many items as targets, 10"):
        subjectdp.clip_sum(nn.Linear(6, 3), INPUTS, TARGETS[:10], 1.0)


def test_the_private_module_sets_what_is_the_modules_own_and_a_mean_is_a_mean() -> None:
    module = Code(lambda m, x: m.head(x) * m.rate, head=nn.Linear(6, 3))
    module.rate = 1.0
    loop = Loop(module)
    loop.private.rate = 0.5
    assert module.rate == 0.5 and not loop.private.eval().training and not module.training
    loop.private.train()
    loop.step(lambda loss, own: loss.mean())
    assert loop.engine.steps == 1


@pytest.mark.filterwarnings("ignore:Losses of items are not finite")
def test_missing_numbers_among_the_inputs_may_be_reshaped() -> None:
    gaps = INPUTS.clone()
    gaps[3, 2] = float("nan")
    loop = Loop(nn.Linear(6, 3), data_loader=DataLoader(TensorDataset(gaps, TARGETS), ITEMS))
    loop.steps(lambda inputs, targets: loop.loss(loop.private(inputs.clone()), targets))
    assert loop.engine.steps == 1 and loop.module.weight.isfinite().all()


def test_batches_in_parts_take_numbers_and_refuse_items_elsewhere() -> None:
    options: Any = {"data_loader": DataLoader(DATA, 2), "subjects": [i // 4 for i in range(ITEMS)]}
    options["settings"] = {"clip": "subject", "sample": "subjects", "subjects_per_step": 6}
    number = Loop(nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), criterion=lambda out, y: (out - y) ** 2, **options)
    number.step()
    scaled = Loop(Scaling(), **options)
    for inputs, targets in scaled.loader.take(1):
        loss = scaled.loss(scaled.private(inputs), targets)
        scaled.module.scale = float(loss)
        with pytest.raises(PrivacyError, match="the first pass of its batch left it, 'scale' was changed since"):
            loss.backward()
    states = Code(lambda m, x: m.layer(x[:, None]), layer=nn.GRU(6, 3, batch_first=True))

    def of_last(out: Any, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(out[0][:, 0], y, reduction="none")

    with pytest.raises(ModelError, match="items in the first dimension where a mini-batch goes in parts"):
        Loop(states, criterion=of_last, **options).step()


def test_images_and_numbers_as_loops_have_them(without_noise: None) -> None:
    """``view`` after a pooling (its images are channels-last here), and float64 that the loop converts."""

    def made() -> nn.Module:
        torch.manual_seed(5)
        return Code(
            lambda m, x: m.head(m.pool(m.first(x)).view(x.size(0), -1)),
            first=nn.Conv2d(2, 3, 2),
            pool=nn.MaxPool2d(2),
            head=nn.Linear(12, 3),
        )

    images, plain_module = torch.randn(ITEMS, 2, 5, 5, dtype=torch.float64), made().double()
    loop = Loop(made(), data_loader=DataLoader(TensorDataset(images, TARGETS), ITEMS))
    before = loop.vector()
    loop.steps(lambda inputs, targets: loop.loss(loop.private(inputs.float()), targets))
    loss = nn.functional.cross_entropy(plain_module(images), TARGETS)
    wanted = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(plain_module.parameters()))])
    assert torch.allclose(before - loop.vector(), wanted.float(), atol=1e-5)


@dataclass
class Fields:
    """An output that torch does not look into."""

    logits: Tensor


def test_outputs_and_parameters_that_torch_does_not_see_are_named() -> None:
    def quiet(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = m.encoder(x)
        return m.head(hidden)

    fields = Code(lambda m, x: Fields(m.head(x)), head=nn.Linear(6, 3))
    losses = lambda out, y: nn.functional.cross_entropy(out.logits, y, reduction="none")  # noqa: E731
    with pytest.raises(ModelError, match="mappings of them, got Fields: return its fields, or a NamedTuple"):
        Loop(fields, criterion=losses)
    with pytest.raises(ModelError, match="'encoder' by its parameters: they are read under torch.no_grad"):
        Loop(Code(quiet, encoder=nn.Linear(6, 6), head=nn.Linear(6, 3)))


def padded(items: list[Any]) -> Any:
    """To the longest, as a mapping in the batch."""
    symbols, labels = (nn.utils.rnn.pad_sequence([x[i] for x in items], True, fill) for i, fill in ((0, 0), (1, -1)))
    return UserDict(symbols=symbols), labels


class Tagger(nn.Module):
    """A class for each symbol; of more than ``reads`` symbols padding is read as well."""

    def __init__(self, reads: int) -> None:
        super().__init__()
        self.words, self.head, self.reads = nn.Embedding(9, 5, padding_idx=0), nn.Linear(5, 3), reads

    def forward(self, symbols: Tensor) -> Tensor:
        hidden: Tensor = self.words(symbols)
        result: Tensor = self.head(hidden + hidden.mean(1, keepdim=True) if symbols.shape[1] > self.reads else hidden)
        return result.transpose(1, 2)


def tagging(lengths: list[int], reads: int) -> tuple[Any, Loop]:
    items = [(torch.arange(n) % 8 + 1, torch.arange(n) % 3) for n in lengths]
    criterion = nn.CrossEntropyLoss(ignore_index=-1)
    loader = DataLoader(items, len(items), collate_fn=padded)  # type: ignore[arg-type]
    return items, Loop(Tagger(reads), data_loader=loader, subjects=range(len(items)), criterion=criterion)


def test_what_torch_keeps_of_a_recurrent_layer_is_not_what_the_loop_changed() -> None:
    """A pass with other weights, as for the gradients of single items, leaves it new lists of weights."""
    loop = Loop(
        Code(
            lambda m, rows: m.head(m.layer(rows[:, None])[0][:, 0]),
            layer=nn.GRU(6, 3, batch_first=True),
            head=nn.Linear(3, 3),
        )
    )
    for inputs, targets in loop.loader.take(2):
        loop.module.eval()
        torch.func.functional_call(loop.module, {n: p.clone() for n, p in loop.module.named_parameters()}, inputs)
        loop.module.train()
        loop.module._current_step = f"step {loop.engine.steps}"  # as a trainer says where it is
        loop.loss(loop.private(inputs), targets).backward()
        loop.optimizer.step()


class Trainer(nn.Module):
    """Has the private model as a part, and its criterion as a method."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = Loop(criterion=self.criterion)
        self.model = self.loop.private

    def criterion(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets, reduction="none")


def test_a_criterion_may_be_a_method_of_what_holds_the_private_model() -> None:
    trainer = Trainer()
    trainer.loop.train(2)
    assert trainer.loop.engine.steps == 2


def test_padding_adds_nothing_to_an_items_gradient(without_noise: None) -> None:
    items, loop = tagging([2, 5, 3, 7, 4, 6], reads=99)
    plain = copy.deepcopy(loop.module)
    for symbols, labels in loop.loader.take(1):
        loop.loss(loop.private(**symbols), labels).backward()
    losses = [nn.functional.cross_entropy(plain(symbols[None]), labels[None]) for symbols, labels in items]
    expected = torch.autograd.grad(torch.stack(losses).mean(), list(plain.parameters()))
    for own, wanted in zip(loop.module.parameters(), expected, strict=True):
        assert torch.allclose(own.grad, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("lengths", "reads"),
    [([2, 5, 3, 7, 4, 6], 0), ([3] * 5 + [9] + [3] * 8, 0), ([2, 3, 4, 3, 3, 12] + [2, 3, 4, 3] * 2, 5)],
    ids=["tried", "one that is not", "of long ones alone"],
)
def test_padding_that_the_module_reads_is_refused(lengths: list[int], reads: int) -> None:
    with pytest.raises(ModelError, match="do not read padding"):
        next(tagging(lengths, reads)[1].loader.take(1))


class ReadsLoss(nn.Linear):
    def forward(self, rows: Tensor) -> Any:
        return {"logits": super().forward(rows)}


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (
            nn.Bilinear(6, 6, 3),
            {"data_loader": DataLoader(DATA, 8)},
            "by position, those of a mapping by name; several targets are one",
        ),
        (nn.Conv1d(4, 3, 1), {}, "to have 4 channels, but got .* any number of items as the loader has them"),
        (ReadsLoss(6, 3), {"criterion": lambda output, _: output["loss"]}, "criterion does not take .*'loss'"),
        (
            nn.Linear(6, 3),
            {
                "data_loader": DataLoader(
                    DATA, 8, collate_fn=lambda items: (default_collate(items)[0].to_sparse(), TARGETS)
                )
            },
            "Expected dense tensors, got nested, sparse",
        ),
        (nn.LazyLinear(3), {}, "'weight' has none yet"),
        (nn.Linear(6, 3, device="meta"), {}, "'weight' is on device meta or sharded"),
        (lambda: torch.export.export(nn.Linear(6, 3), (INPUTS,)).module(), {}, "before torch.jit or torch.export"),
    ],
)
def test_what_does_not_fit_is_told_with_the_remedy(module: Any, options: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Loop(module if isinstance(module, nn.Module) else module(), **options)


class OwnLoss(nn.Linear):
    """As models of transformers are: given labels, they return their own mean loss beside the logits."""

    def forward(self, rows: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(rows)
        return {"logits": logits} | ({} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)})


def test_a_module_that_returns_its_own_loss_too(without_noise: None) -> None:
    loop = Loop(OwnLoss(6, 3), criterion=lambda o, t: nn.functional.cross_entropy(o["logits"], t, reduction="none"))
    before = loop.vector()
    loop.steps(lambda inputs, targets: loop.loss(loop.private(inputs, labels=targets), targets))
    assert not torch.equal(loop.vector(), before)


def test_a_modules_own_mean_loss_is_no_loss_of_items() -> None:
    data = DataLoader(TensorDataset(INPUTS, TARGETS, TARGETS), ITEMS)
    with pytest.raises(ModelError, match="compute it of the logits"):
        Loop(OwnLoss(6, 3), data_loader=data, criterion=lambda output, _: output["loss"])


def test_items_that_cannot_be_put_together_are_told() -> None:
    with pytest.raises(DataError, match="any number of items together, such as items padded"):
        Loop(data_loader=DataLoader([(torch.rand(1 + i % 2), 0) for i in range(ITEMS)], 1))


class ByName(UserDict[str, Tensor]):
    """Named outputs that torch knows, as those of transformers are."""

    def __getattr__(self, name: str) -> Any:
        return self.data[name] if name in vars(self).get("data", ()) else super().__getattribute__(name)


register_pytree_node(
    ByName, lambda each: ([*each.values()], [*each]), lambda values, names: ByName(zip(names, values, strict=True))
)


class Named(nn.Linear):
    """Returns its outputs by name."""

    def forward(self, rows: Tensor) -> Any:
        return ByName(logits=super().forward(rows))


def test_outputs_may_be_read_by_name(without_noise: None) -> None:
    loop = Loop(Named(6, 3), criterion=lambda o, t: nn.functional.cross_entropy(o.logits, t, reduction="none"))
    before = loop.vector()
    loop.step()
    assert not torch.equal(loop.vector(), before)


class OwnScale(nn.Linear):
    """Reads a parameter outside of its own layer."""

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows) * self.bias.exp().sum()


@pytest.mark.parametrize("when", ["before", "after", "the step"])
def test_compiled_modules_and_steps_train_as_they_are(when: str, without_noise: None) -> None:
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module: Any = OwnScale(6, 3)
        loop = Loop(torch.compile(module, backend="eager") if compiled and when == "before" else module)
        if compiled and when == "after":
            loop.private = torch.compile(loop.private, backend="eager")

        def step(inputs: Tensor, targets: Tensor, loop: Loop = loop) -> None:
            loop.loss(loop.private(inputs), targets).backward()
            loop.optimizer.step()

        (torch.compile(step, backend="eager") if compiled and when == "the step" else step)(*next(loop.loader.take(1)))
        found.append(loop.vector())
    assert torch.allclose(*found, atol=1e-6)


def test_a_compiled_criterion_stays_as_it_is() -> None:
    own = nn.CrossEntropyLoss()
    loop = Loop(criterion=torch.compile(own, backend="eager"))
    loop.step()
    assert own.reduction == "mean" and loop.engine.steps == 1


def test_a_closure_is_honoured_once(without_noise: None) -> None:
    """Training frameworks step so; an optimiser may call it at parameters that it has moved."""
    loop = Loop()
    before = loop.vector()

    def closure(inputs: Tensor, targets: Tensor) -> Tensor:
        loop.optimizer.zero_grad()
        value: Tensor = loop.loss(loop.private(inputs), targets)
        value.backward()
        return value

    for batch in loop.loader.take(2):
        assert 0 < float(loop.optimizer.step(partial(closure, *batch))) < 3
        before, moved = loop.vector(), before - loop.vector()
        if loop.engine.steps == 1:
            assert torch.allclose(moved, gradient(plain), atol=1e-5)
    assert loop.engine.steps == 2
    batch = next(loop.loader.take(1))
    twice = torch.optim.LBFGS(loop.module.parameters())
    twice.register_step_pre_hook(loop.private._step.before_optimizer_step)
    with pytest.raises(PrivacyError, match="one training pass"):
        twice.step(partial(closure, *batch))


@pytest.fixture
def two_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of torch.distributed that believes to have another beside it."""
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: 2)
    yield
    monkeypatch.undo()
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("two_processes")
def test_no_process_counts_what_others_release() -> None:
    with pytest.warns(UserWarning, match="Epsilon counts this process alone"):
        loop = Loop()
    loop.step()
    inner = nn.Linear(6, 3)
    with pytest.raises(PrivacyError, match="DistributedDataParallel over several"):
        part = nn.Sequential(nn.parallel.DistributedDataParallel(inner))
        Loop(part, optimizer=torch.optim.SGD(inner.parameters(), 0.1))
    loop.private = nn.parallel.DistributedDataParallel(loop.private)
    with pytest.raises(PrivacyError, match="DistributedDataParallel over several"):
        loop.step()


def test_gradients_of_several_epochs_of_one_batch_are_not_gathered() -> None:
    """The first would count in epsilon and be gone."""
    loop = Loop()
    for inputs, targets in loop.loader.take(1):
        loop.loss(loop.private(inputs), targets).backward()
    with pytest.raises(PrivacyError, match="Steps cannot be skipped or gathered"):
        next(loop.loader.take(1))
    loop.optimizer.step()
    loop.step()
    assert loop.engine.steps == 2


def test_a_data_set_that_grows_or_goes_by_other_keys_is_refused() -> None:
    """Whose an item is goes by its position."""
    items: Any = [*zip(INPUTS, TARGETS, strict=True)]
    loop = Loop(data_loader=DataLoader(items, ITEMS))
    loop.step()
    items.insert(0, items[0])
    with pytest.raises(DataError, match="the 24 that it had.*got 25"):
        loop.step()
    by_name: Any = {f"item {number}": item for number, item in enumerate(items[1:])}
    with pytest.raises(DataError, match="items by position, 0 to 23: reading one gave KeyError.0., got 'dict'"):
        Loop(data_loader=DataLoader(by_name, ITEMS))
    named: Any = [{"x": row, "class": target} for row, target in items[1:]]
    with pytest.raises(DataError, match="a mapping with labels, .*got 'dict of x, class'"):
        Loop(data_loader=DataLoader(named, ITEMS))


class Table(UserDict[str, Tensor]):
    """A mapping that iterates over its rows, as a TensorDict does."""

    def __iter__(self) -> Any:
        return iter(self.data["labels"])

    def keys(self) -> Any:
        return self.data.keys()


def test_a_mapping_is_read_by_its_keys(without_noise: None) -> None:
    rows: Any = [{"input": row, "labels": target} for row, target in zip(INPUTS, TARGETS, strict=True)]
    loop = Loop(data_loader=DataLoader(rows, ITEMS, collate_fn=lambda items: Table(default_collate(items))))
    plain = Loop()
    plain.step()
    loop.steps(lambda batch: loop.loss(loop.private(batch["input"]), batch["labels"]))
    assert torch.equal(loop.vector(), plain.vector())


def test_a_loop_without_gradients_is_told_so() -> None:
    loop = Loop()
    with torch.inference_mode(), pytest.raises(PrivacyError, match="outside of torch.inference_mode"):
        loop.step()


class Wrapping(torch.optim.SGD):
    """As the optimiser of accelerate: one in form alone."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.param_groups = inner.param_groups


def test_an_optimiser_that_wraps_one_is_refused_and_the_module_is_free() -> None:
    module = nn.Linear(6, 3)
    inner = torch.optim.SGD(module.parameters())
    with pytest.raises(ConfigError, match="one of torch, not one that wraps it, got 'Wrapping'"):
        Loop(module, optimizer=Wrapping(inner))
    Loop(module, optimizer=inner).step()


def test_gradients_may_be_asked_for(without_noise: None) -> None:
    loop = Loop()
    for inputs, targets in loop.loader.take(1):
        found = torch.autograd.grad(loop.loss(loop.private(inputs), targets), list(loop.module.parameters()))
    assert torch.allclose(torch.cat([each.flatten() for each in found]), gradient(plain), atol=1e-5)
    assert loop.engine.steps == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"clip_norm": "1"}, "clip_norm to be above 1e-18"),
        ({"clip_norm": torch.tensor(1.0)}, "clip_norm to be above 1e-18"),
        ({"inputs": INPUTS[:0], "targets": TARGETS[:0]}, "at least one item"),
        ({"inputs": INPUTS.to_sparse()}, "Expected dense tensors, got nested, sparse or quantised"),
        ({"inputs": torch.nested.nested_tensor([*INPUTS])}, "Expected dense tensors, got nested, sparse or quantised"),
        ({"module": torch.relu}, "an nn.Module of torch"),
    ],
)
def test_what_clip_sum_cannot_take_is_named(wrong: dict[str, Any], message: str) -> None:
    given = {"module": nn.Linear(6, 3), "inputs": INPUTS, "targets": TARGETS, "clip_norm": 1.0}
    with pytest.raises((ConfigError, ModelError), match=message):
        subjectdp.clip_sum(**given | wrong)


@pytest.mark.parametrize("hold", [lambda *rows: rows, lambda *rows: SimpleNamespace(rows=rows)])
def test_an_item_is_copied_without_the_data_set_that_it_is_a_view_of(hold: Callable[..., Any]) -> None:
    """A copy of each item's data set takes gigabytes: of 20,000 items of 80 MB 6.4 GB in five steps."""
    data = torch.arange(6.0).reshape(3, 2)
    found = own_copy(hold(data[1], data[2]))
    for row, own in zip(data[1:], getattr(found, "rows", found), strict=True):
        assert own.equal(row) and own.untyped_storage().nbytes() == 8
    assert own_copy(held := hold(data.clone().requires_grad_() * 2)) is held, "a graph leads to weights"


class _Rows(list[Tensor]):
    def __deepcopy__(self, memo: Any) -> Any:
        pytest.fail("a copy of all data")


class _Collates(Dataset[Any]):
    """Puts items together itself, and may keep something of them."""

    def __init__(self, keeps: bool) -> None:
        self.rows, self.keeps, self.kept = _Rows(torch.randn(1200, 6)), keeps, torch.zeros(6)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return self.rows[place], place % 3

    def collate(self, items: list[Any]) -> Any:
        rows, targets = default_collate(items)
        before, self.kept = self.kept, rows.mean(0) * self.keeps
        return rows + before, targets


@pytest.mark.parametrize("keeps", [False, True])
def test_no_trial_copies_a_data_set_that_collates(keeps: bool) -> None:
    """Its ``collate_fn`` leads to all data: 100,000 items of 400 MB took 1.6 GB more."""
    data = _Collates(keeps)
    parts = Subset(data, range(1100))
    options = {"data_loader": DataLoader(parts, 8, collate_fn=data.collate), "subjects": range(1100)}
    with pytest.raises(ModelError, match="Expected a collate_fn that keeps") if keeps else nullcontext():
        Loop(**options).train(2)


class _Read(_Collates):
    def __init__(self) -> None:
        super().__init__(keeps=False)
        self.read = list[int]()

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        self.read.append(place)
        return super().__getitem__(place)


def test_items_that_torch_stacks_are_read_once() -> None:
    """Trials read the first mini-batches again and held several of them: 512 rows of 4,096 took 74 MB, now 36."""
    data = _Read()
    loop = Loop(data_loader=DataLoader(data, 8), subjects=range(1200))
    data.read.clear()
    for inputs, targets in loop.loader.take(2):
        loop.loss(loop.private(inputs), targets).backward()
        loop.optimizer.step()
        assert len(data.read) == len(inputs)
        data.read.clear()
