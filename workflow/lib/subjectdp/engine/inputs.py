"""What a model takes: one tensor, several (a tuple or list), or named ones (a mapping), items first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from subjectdp.errors import ModelError

Inputs = Any
"""A tensor (B, ...), or a tuple, list or mapping of such; other values in it are the same for all items."""


def call(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output for some items."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    return model(laid_out(inputs))


def laid_out(inputs: Tensor) -> Tensor:
    """Images channels-last, as the fast convolution kernels read them."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def of_items(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The inputs with each of their tensors changed, such as ``lambda tensor: tensor[:3]``."""
    plain = dict(inputs) if isinstance(inputs, Mapping) else inputs
    return tree_map(lambda each: change(each) if isinstance(each, Tensor) else each, plain)


def number_of(inputs: Inputs) -> int:
    """B. Raises ModelError where tensors do not agree on it."""
    plain = dict(inputs) if isinstance(inputs, Mapping) else inputs
    tensors = [each for each in tree_leaves(plain) if isinstance(each, Tensor)]
    sizes = {tuple(each.shape[:1]) for each in tensors}
    if len(sizes) != 1 or () in sizes:
        shapes = ", ".join(str(tuple(each.shape)) for each in tensors) or "no tensor"
        raise ModelError(
            f"Expected inputs whose tensors have the items in their first dimension, got {shapes}."
        )
    return len(tensors[0])
