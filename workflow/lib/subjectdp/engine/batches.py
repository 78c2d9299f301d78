"""What a model takes: one tensor, several (a tuple or list), or named ones (a mapping), items first; groups of items.

A group is clipped as one. Its gradient is the sum over its items, so that a layer rule for T positions serves a group
of m items with m·T positions. Items of a part are sorted by the size of their group; groups of equal size form a
:class:`Run`.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils._pytree import SUPPORTED_NODES, tree_leaves, tree_map

from subjectdp.errors import ModelError, PrivacyError, expected

Inputs = Any
"""A tensor (B, ...), a tuple, list or mapping of such, or a :class:`Call`; other values are the same for all items."""


class Call(NamedTuple):
    """Arguments of a model as a loop gives them."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output for some items."""
    # what torch.compile made runs as it was written: nothing sees into its code
    eager: Any = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with eager, _replaced(torch.utils.checkpoint, _PLAIN), _replaced(Tensor, {"view": _any_view}):
        if isinstance(inputs, Call):
            return model(*map(laid_out, inputs.arguments), **inputs.named)
        if isinstance(inputs, Mapping) and _takes(model, (), inputs):
            return model(**inputs)
        if isinstance(inputs, tuple | list) and _takes(model, inputs, {}):
            return model(*inputs)
        return model(laid_out(inputs))


def _takes(model: nn.Module, arguments: Iterable[Any], named: Mapping[str, Any]) -> bool:
    """Whether the model's ``forward`` takes the parts as arguments of their own; else it takes all of them as one."""
    try:
        inspect.signature(type(model).forward).bind(model, *arguments, **named)
    except (TypeError, ValueError):  # they do not fit, or torch shows no signature
        return False
    return True


@contextmanager
def forwards(modules: Mapping[str, nn.Module], run: Callable[[str, nn.Module], Callable[..., Any]]) -> Iterator[None]:
    """``run(name, module)`` in place of each module's ``forward`` in the block; an own one comes back."""
    own: dict[str, Any] = {name: vars(module).get("forward") for name, module in modules.items()}
    for name, module in modules.items():
        module.forward = run(name, module)
    try:
        yield
    finally:
        for name, module in modules.items():
            del module.forward
            if own[name] is not None:
                module.forward = own[name]


def laid_out(inputs: Any) -> Any:
    """Images channels-last, as the fast convolution kernels read them."""
    image = isinstance(inputs, Tensor) and inputs.dim() == 4
    return inputs.contiguous(memory_format=torch.channels_last) if image else inputs


def _in_dicts(values: Any) -> Any:
    """A structure with a dict in place of each mapping that torch does not know, such as those of tokenizers."""
    plain = dict(values) if isinstance(values, Mapping) and type(values) not in SUPPORTED_NODES else values
    return tree_map(lambda each: _in_dicts(each) if isinstance(each, Mapping) else each, plain)


def leaves_of(values: Any) -> list[Any]:
    """All values of a structure."""
    return [values] if isinstance(values, Tensor) else tree_leaves(_in_dicts(values))  # one tensor is frequent


def tensors_in(values: Any) -> list[Tensor]:
    """All tensors of a structure. Raises ModelError for some whose items cannot be taken apart."""
    found = [each for each in leaves_of(values) if isinstance(each, Tensor)]
    if any(each.is_nested or each.is_quantized or each.layout is not torch.strided for each in found):
        raise ModelError("Expected dense tensors, got nested, sparse or quantised ones: make them dense before.")
    return found


def of_items(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The inputs with each of their tensors changed."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    return tree_map(lambda each: change(each) if isinstance(each, Tensor) else each, _in_dicts(inputs))


def plain(values: Any) -> Any:
    """The values with torch's own tensors in place of subclasses, whose functions nobody follows (MONAI's)."""
    odd = any(type(each) is not Tensor for each in tensors_in(values))
    return of_items(values, lambda each: each.as_subclass(Tensor)) if odd else values


def taken(inputs: Inputs, items: Any) -> Any:
    """Some of the items: numbers, a mask or a slice."""
    return of_items(inputs, lambda tensor: tensor[items])


def number_of(inputs: Inputs) -> int:
    """B. Raises ModelError where tensors do not agree on it."""
    tensors = tensors_in(inputs)
    sizes = {tuple(each.shape[:1]) for each in tensors}
    if len(sizes) != 1 or () in sizes:
        shapes = ", ".join(str(tuple(each.shape)) for each in tensors) or "no tensor"
        raise ModelError(f"Expected inputs whose tensors have the items in their first dimension, got {shapes}.")
    return len(tensors[0])


def shapes_of(values: Any) -> str:
    """Of all tensors, for messages."""
    return ", ".join(str(tuple(each.shape)) for each in tensors_in(values)) or "without tensors"


def autocast_on(device: torch.device) -> bool:
    """Whether torch computes in mixed precision here."""
    return torch.is_autocast_enabled(device.type)


def edges_of(tensors: Iterable[Tensor], where: str) -> list[GradientEdge]:
    """Where the tensors are in torch's graph. ModelError for one that torch does not differentiate."""
    found = list(tensors)
    if not all(each.requires_grad for each in found):
        raise ModelError(
            f"Expected torch to differentiate {where} by its parameters: they are read under torch.no_grad or in an "
            "autograd.Function of one's own. Freeze them (requires_grad_(False)), or let torch see what they do."
        )
    return [get_gradient_edge(each) for each in found]


@contextmanager
def _replaced(owner: Any, names: Mapping[str, Any]) -> Iterator[None]:
    own = {name: getattr(owner, name) for name in names if hasattr(owner, name)}
    for name in own:
        setattr(owner, name, names[name])
    try:
        yield
    finally:
        for name, each in own.items():
            setattr(owner, name, each)


_view: Any = Tensor.view


def _any_view(tensor: Tensor, *shape: Any) -> Any:
    """``Tensor.view`` of channels-last images as it would be of those that the loop gave."""
    try:
        return _view(tensor, *shape)
    except RuntimeError:
        return tensor.reshape(*shape)  # copies; raises again where the numbers do not fit


def _once(*_: Any, **__: Any) -> Iterator[None]:
    yield


class _PlainFunction:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *arguments: Any) -> Any:
        return function(*arguments)


# Parts under torch's gradient checkpoints run plainly: run again in the backward pass they would not be recorded as
# before, and what the engine needs of them it keeps anyway.
_PLAIN = {"_checkpoint_without_reentrant_generator": _once, "CheckpointFunction": _PlainFunction}


@dataclass(frozen=True)
class Run:
    """Consecutive groups of equal size, in a part whose items are sorted."""

    start: int  # first item
    groups: int
    size: int  # items of each group

    @property
    def items(self) -> slice:
        """The items of all its groups."""
        return slice(self.start, self.start + self.groups * self.size)


@dataclass(frozen=True)
class Grouping:
    """The groups of a part, in the order of its items."""

    runs: tuple[Run, ...]

    @classmethod
    def of_items(cls, items: int) -> Grouping:
        """Each item is its own group."""
        return cls((Run(0, items, 1),))

    @property
    def count(self) -> int:
        return sum(run.groups for run in self.runs)

    def to_items(self, values: Tensor) -> Tensor:
        """(groups,) values, repeated for each item of their group: (items,)."""
        if all(run.size == 1 for run in self.runs):
            return values
        of_runs = torch.split(values, [run.groups for run in self.runs])
        return torch.cat([each.repeat_interleave(run.size) for each, run in zip(of_runs, self.runs, strict=True)])


@dataclass(frozen=True)
class Part:
    """The items that go through the model at once, and their groups."""

    items: Tensor | slice  # positions in the batch
    groups: Tensor | slice  # numbers of the groups, in the grouping's order
    grouping: Grouping


def item_parts(items: int, capacity: int) -> Iterator[Part]:
    """A batch of ``items`` single items in parts of at most ``capacity`` and of nearly equal size."""
    if items == 0:
        return
    size = -(-items // -(-items // capacity))  # the batch over the number of passes, rounded up
    for start in range(0, items, size):
        where = slice(start, min(start + size, items))
        yield Part(where, where, Grouping.of_items(where.stop - where.start))


def group_numbers(groups: Tensor, items: int) -> Tensor:
    """The group of each item (items,) int64 on the CPU. PrivacyError: another shape, not whole numbers, or below 0."""
    if groups.shape != (items,):
        raise expected("groups", tuple(groups.shape), f"one number an item, shape ({items},)", PrivacyError)
    if groups.is_floating_point() or groups.is_complex() or groups.dtype is torch.bool:
        raise expected("type of groups", str(groups.dtype), "a type of whole numbers", PrivacyError)
    numbers = groups.to("cpu", torch.int64)
    if items and int(numbers.min()) < 0:
        raise expected("groups", int(numbers.min()), "numbers from 0 on", PrivacyError)
    return numbers


def group_parts(numbers: Tensor, capacity: int) -> Iterator[Part]:
    """A batch (``numbers``: (items,) int64 on the CPU) in parts of whole groups, of ``capacity`` items or one larger
    group."""
    sizes = torch.bincount(numbers)
    by_size = torch.sort(sizes, stable=True).indices
    by_size = by_size[sizes[by_size] > 0]
    rank = torch.empty_like(sizes)
    rank[by_size] = torch.arange(len(by_size))
    order = torch.sort(rank[numbers], stable=True).indices
    first_group = first_item = 0
    counts: list[int] = sizes[by_size].tolist()
    for groups in _packed(counts, capacity):
        chosen = slice(first_group, first_group + groups)
        items = slice(first_item, first_item + sum(counts[chosen]))
        yield Part(order[items], by_size[chosen], Grouping(tuple(_runs(counts[chosen]))))
        first_group, first_item = chosen.stop, items.stop


def _packed(sizes: list[int], capacity: int) -> Iterator[int]:
    groups = items = 0
    for size in sizes:
        if groups and items + size > capacity:
            yield groups
            groups = items = 0
        groups, items = groups + 1, items + size
    if groups:
        yield groups


def _runs(sizes: list[int]) -> Iterator[Run]:
    start = 0
    for size, groups in sorted(Counter(sizes).items()):
        yield Run(start, groups, size)
        start += groups * size
