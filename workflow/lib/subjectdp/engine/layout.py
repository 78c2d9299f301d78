"""Which of a model's layers have fast rules, and where its items are in all else: learned from three passes.

A rule serves a layer that runs once, on one tensor with the items first, and whose parameters nothing else reads. All
other parameters are followed function by function (:mod:`subjectdp.engine.uses`): exact, and slower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subjectdp.engine import convolution, recurrent
from subjectdp.engine.batches import Inputs, call, forwards, number_of, taken
from subjectdp.engine.generators import seed_all
from subjectdp.engine.rules import LayerRule, embedding, linear, normalisation
from subjectdp.engine.uses import Alone, Key, NotFollowed, Places, Uses, learned
from subjectdp.errors import ModelError, SubjectDPError

_RULES: dict[type[nn.Module], LayerRule] = {
    nn.Linear: LayerRule(linear),
    nn.Embedding: LayerRule(embedding),
    nn.GroupNorm: LayerRule(normalisation),
    nn.LayerNorm: LayerRule(normalisation),
    nn.LSTM: LayerRule(recurrent.captured, recurrent.forward),
    nn.Conv2d: LayerRule(convolution.captured, convolution.forward),
}
_FEWEST = 2  # items of the smallest pass


@dataclass(frozen=True)
class Layout:
    """Trained parameters, layers with rules, places of items in all else, and modules that items pass alone."""

    trained: frozenset[str]
    ruled: frozenset[str]
    places: Mapping[Key, Places] = field(default_factory=dict)
    alone: tuple[str, ...] = ()


def rule_of(module: nn.Module) -> LayerRule | None:
    """The rule of a layer's class; None where there is none."""
    hooks = [each for each in module._forward_pre_hooks.values() if not getattr(each, "changes_nothing", False)]
    if "forward" in vars(module) or hooks:
        return None
    beyond = type(module) is nn.LSTM and not recurrent.supports(module)
    beyond = beyond or (type(module) is nn.Conv2d and not convolution.supports(module))
    return None if beyond else _RULES.get(type(module))


def ruled_layers(model: nn.Module, names: Collection[str]) -> dict[str, tuple[nn.Module, LayerRule]]:
    """The layers of these names, each with the rule of its class."""
    layers = ((name, model.get_submodule(name)) for name in sorted(names))
    return {name: (layer, rule) for name, layer in layers if (rule := rule_of(layer)) is not None}


def only_input(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], items: int) -> Tensor | None:
    """What a rule serves: the layer's only input, a tensor with the items first, of some LSTMs second; else None."""
    given = [*inputs, *(each for each in options.values() if each is not None)]
    place = int(isinstance(module, nn.RNNBase) and not module.batch_first)
    fits = len(given) == 1 and isinstance(given[0], Tensor) and given[0].shape[place : place + 1] == (items,)
    return given[0] if fits else None


def plain_layout(model: nn.Module) -> Layout:
    """Without a pass, where all parameters are trained, each in a layer with a rule; ModelError for others."""
    parameters = dict(model.named_parameters())
    layers = _candidates(model, parameters)
    if without := parameters.keys() - {own for name in layers for own, _ in layers[name].named_parameters(name)}:
        raise ModelError(f"Expected each parameter in a layer with a rule, {', '.join(sorted(without))} are in none.")
    return Layout(frozenset(parameters), frozenset(layers))


def layout_of(model: nn.Module, trained: Collection[str], inputs: Inputs) -> Layout:
    """Learns from at least three items that differ, in the mode that the model is in; ``trained`` names parameters.

    The model has no dropout; what it keeps of a pass is changed (:func:`subjectdp.engine.probe.find_layout`). Raises
    ModelError for a model that mixes items, or that takes another path for other numbers of items.
    """
    if (items := number_of(inputs)) <= _FEWEST:
        raise ModelError(f"Expected at least {_FEWEST + 1} items to try the model on, got {items}.")
    alone: tuple[str, ...] = ()
    first: NotFollowed | None = None
    while True:
        try:
            return _learned(model, frozenset(trained), inputs, alone)
        except NotFollowed as problem:
            first = first or problem
            if "" in alone:
                raise first from None
            alone = _wider(alone, problem.parameters)


def _wider(alone: tuple[str, ...], parameters: Iterable[str]) -> tuple[str, ...]:
    """The modules that hold the parameters as well, each within none of the others."""
    every = set(alone)
    for name in parameters:
        owner = name.rpartition(".")[0]
        around = [other for other in alone if owner == other or _within(owner, other)]
        every.add(around[0].rpartition(".")[0] if around else owner)
    return tuple(sorted(name for name in every if not any(_within(name, other) for other in every - {name})))


def _within(name: str, other: str) -> bool:
    return not other or name.startswith(f"{other}.")


def kept_alone(model: nn.Module, names: Iterable[str]) -> AbstractContextManager[None]:
    """Each item goes through these modules by itself, in the passes of the block that ``Uses`` sees."""
    modules = {name: model.get_submodule(name) for name in names}
    return forwards(modules, lambda name, module: Alone(name, module).forward)


def _learned(model: nn.Module, trained: frozenset[str], inputs: Inputs, alone: tuple[str, ...]) -> Layout:
    items = number_of(inputs)
    parameters = {name: p for name, p in model.named_parameters() if name in trained}
    layers = {
        name: module
        for name, module in _candidates(model, parameters).items()
        if not any(name == other or _within(name, other) for other in alone)
    }
    constants = [*(p for name, p in model.named_parameters() if name not in trained), *model.buffers()]
    passes = []
    for part in ([*range(_FEWEST)], [*range(items)], [items - 1, *range(items - 1)]):
        uses = Uses(parameters, constants, len(part))
        seed_all()  # one coin for the batch, and one draw of the weights, are the same in each
        with torch.no_grad(), kept_alone(model, alone), _watched(layers, uses) as unfit, uses:
            call(model, taken(inputs, part))
        passes.append((uses, unfit))
    ruled = frozenset(name for name in layers if not any(_outside(name, uses, unfit, model) for uses, unfit in passes))
    owned = {own for name in ruled for own, _ in layers[name].named_parameters(name)}
    followed = [uses.without(owned) for uses, _ in passes]
    places = learned(*followed)
    with torch.no_grad():
        followed[1].check_by_items(places)
    return Layout(trained, ruled, places, alone)


@contextmanager
def in_words(what: str) -> Iterator[None]:
    """Turns what a module of anyone's raises in the block into a ModelError that says what could not be trained."""
    try:
        yield
    except (SubjectDPError, torch.OutOfMemoryError):
        raise
    except Exception as problem:
        first = (str(problem).splitlines() or [""])[0][:200]
        hint = (
            "any number of items as the loader has them: all of a batch but the targets, by position, those of a "
            "mapping by name; several targets are one tuple"
        )
        text = f"{what} cannot be trained privately: {type(problem).__name__}: {first}. It is given {hint}."
        raise ModelError(text) from problem


def refuse_by_name(model: nn.Module) -> None:
    """Raises ModelError for layers that no rule and no other way can train."""
    for name, module in model.named_modules():
        problem = None
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            problem = (
                "mixes the items of a batch, so that no item can be bounded: use GroupNorm (fix=True in the settings "
                "does that) or LayerNorm, or keep a frozen one in eval() after train()"
            )
        elif isinstance(module, nn.RNNBase) and module.dropout and module.training:
            problem = "draws numbers between its layers: set dropout=0, or stack layers with nn.Dropout between them"
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            options = ("max_norm", "scale_grad_by_freq", "sparse")
            beyond = next((name for name in options if getattr(module, name) not in (None, False)), None)
            problem = f"has {beyond}, which acts beyond an item's own gradient: leave it out" if beyond else None
        if problem is not None:
            raise ModelError(f"Layer {name!r} is {type(module).__name__}: it {problem}.")


@contextmanager
def batch_norm_replaced(model: nn.Module, wanted: bool) -> Iterator[list[str]]:
    """Puts GroupNorm, with the same scale and shift, in place of each BatchNorm that mixes items; gives their names.
    Where the block raises, the model is as it was."""
    replaced, before = [], []
    for name, module in list(model.named_modules()) if wanted else []:
        if not isinstance(module, _BatchNorm) or not name or not (module.training or module.running_mean is None):
            continue
        channels = module.num_features
        few = isinstance(module, nn.BatchNorm1d)  # perhaps one number a channel: a group of one would be 0
        groups = 1 if few else max(n for n in range(1, 33) if channels % n == 0 and (n == 1 or channels // n > 3))
        normed = nn.GroupNorm(groups, channels, module.eps, module.affine).train(module.training)
        normed.weight, normed.bias = module.weight, module.bias
        parent, _, own = name.rpartition(".")
        before.append((model.get_submodule(parent), own, module))
        setattr(before[-1][0], own, normed)
        replaced.append(f"{name} ({groups} groups)")
    try:
        yield replaced
    except BaseException:
        for owner, own, module in before:
            setattr(owner, own, module)
        raise


def _candidates(model: nn.Module, parameters: Mapping[str, Tensor]) -> dict[str, nn.Module]:
    """Layers with a rule whose parameters are all trained, each under one name."""
    names = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    found = {}
    for name, module in model.named_modules():
        own = dict(module.named_parameters(name))
        alone = all(each in parameters and names[id(p)] == 1 for each, p in own.items())
        if own and alone and rule_of(module) is not None:
            found[name] = module
    return found


@contextmanager
def _watched(layers: Mapping[str, nn.Module], uses: Uses) -> Iterator[Counter[str]]:
    """Counts the runs of each layer in the block; one that its rule does not serve counts twice."""
    runs: Counter[str] = Counter()

    def run(name: str, module: nn.Module, forward: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        alone = only_input(module, inputs, options, uses.items)
        runs[name] += 2 if alone is None or uses.is_shared(alone) or uses.is_ragged(alone) else 1
        uses.inside.append(name)
        try:
            output = forward(*inputs, **options)
        finally:
            uses.inside.pop()
        return (output[0], _Unread(output[1], runs, name)) if isinstance(module, nn.LSTM) else output

    with forwards(layers, lambda name, module: partial(run, name, module, module.forward)):
        yield runs


class _Unread(tuple[Tensor, ...]):
    """Last states of an LSTM, which its rule does not give: reading them counts as a run."""

    def __new__(cls, states: Any, runs: Counter[str], name: str) -> _Unread:
        made = super().__new__(cls, states)
        made.read = lambda: runs.update({name: 2})  # type: ignore[attr-defined]
        return made

    def __iter__(self) -> Iterator[Tensor]:
        self.read()  # type: ignore[attr-defined]
        return super().__iter__()

    def __getitem__(self, place: Any) -> Any:
        self.read()  # type: ignore[attr-defined]
        return super().__getitem__(place)


def _outside(name: str, uses: Uses, runs: Counter[str], model: nn.Module) -> bool:
    """Whether something else than one run of the layer reads its parameters."""
    own = model.get_submodule(name).named_parameters(name)
    return runs[name] != 1 or any(uses.owners.get(each, {name}) != {name} for each, _ in own)
