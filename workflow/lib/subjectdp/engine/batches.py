"""What a model takes: one tensor, several (a tuple or list), or named ones (a mapping), items first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from subjectdp.errors import ModelError

Inputs = Any
"""A tensor (B, ...), a tuple, list or mapping of such, or a :class:`Call`; other values are the same for all items."""


class Call(NamedTuple):
    """Arguments of a model as a loop gives them."""

    arguments: tuple[Any, ...]
    named: dict[str, Any]


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output for some items."""
    with _uncheckpointed():
        if isinstance(inputs, Call):
            return model(*map(laid_out, inputs.arguments), **inputs.named)
        if isinstance(inputs, Mapping):
            return model(**inputs)
        if isinstance(inputs, tuple | list):
            return model(*inputs)
        return model(laid_out(inputs))


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


def leaves_of(values: Any) -> list[Any]:
    """All values of a structure."""
    return tree_leaves(dict(values) if isinstance(values, Mapping) else values)


def tensors_in(values: Any) -> list[Tensor]:
    """All tensors of a structure."""
    return [each for each in leaves_of(values) if isinstance(each, Tensor)]


def of_items(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The inputs with each of their tensors changed."""
    plain = dict(inputs) if isinstance(inputs, Mapping) else inputs
    return tree_map(lambda each: change(each) if isinstance(each, Tensor) else each, plain)


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


def autocast_on(device: torch.device) -> bool:
    """Whether torch computes in mixed precision here."""
    return torch.is_autocast_enabled(device.type)


@contextmanager
def _uncheckpointed() -> Iterator[None]:
    """Parts under torch's gradient checkpoints run plainly in the block.

    Run again in the backward pass they would not be recorded as before; what the engine needs of them it keeps anyway.
    """
    plain = {"_checkpoint_without_reentrant_generator": _once, "CheckpointFunction": _PlainFunction}
    own = {name: vars(torch.utils.checkpoint)[name] for name in plain if name in vars(torch.utils.checkpoint)}
    for name in own:
        setattr(torch.utils.checkpoint, name, plain[name])
    try:
        yield
    finally:
        for name, each in own.items():
            setattr(torch.utils.checkpoint, name, each)


def _once(*_: Any, **__: Any) -> Iterator[None]:
    yield


class _PlainFunction:
    @staticmethod
    def apply(function: Callable[..., Any], preserve: bool, *arguments: Any) -> Any:
        return function(*arguments)
