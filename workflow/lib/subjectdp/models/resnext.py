"""ResNeXt for 32 x 32 colour images, frozen: features for a linear model (Xie et al., CVPR 2017).

The joint-noise paper takes a ResNeXt-29 (8 x 64) that was trained on CIFAR-100. This is that network in the variant and
with the names of its checkpoint (github.com/bearpaw/pytorch-classification), without the last layer. Blocks, widths and
groups follow from the checkpoint's shapes, so that a test's network may be small.
"""

import io
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.errors import ModelError, expected

FEATURES = 1024
STAGES = (1, 2, 2)  # stride of each stage's first block
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Of the colour channels, in [0, 1], as the network was trained."""

_AT_ONCE = 128  # images
_NORM = ("weight", "bias", "running_mean", "running_var")
_BLOCK = {"conv_reduce": "bn_reduce", "conv_conv": "bn", "conv_expand": "bn_expand"}

Weights = Mapping[str, Tensor]


def load_checkpoint(path: Path) -> dict[str, Tensor]:
    """The network's weights in a checkpoint: a dictionary with ``state_dict``, as the training script saves it.

    Only tensors and plain containers are read, no code. Raises ModelError for another content, a network that is not a
    ResNeXt of three stages, and numbers that are not finite.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).split("\n")[0][:200]
        raise ModelError(f"{path} is no checkpoint that can be read ({reason}).") from None
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise expected(f"{path}: state_dict", type(state).__name__, "a dictionary", ModelError)
    weights = {str(name).removeprefix("module."): value for name, value in state.items()}
    _check(path, weights)
    return weights


def _check(path: Path, weights: Mapping[str, Any]) -> None:
    wanted = set(_names(weights))
    if missing := sorted(wanted - weights.keys()):
        raise ModelError(f"{path} lacks {missing[0]} and {len(missing) - 1} more: expected a ResNeXt of three stages.")
    if not all(isinstance(weights[name], Tensor) and torch.isfinite(weights[name]).all() for name in wanted):
        raise ModelError(f"{path}: expected finite numbers in all layers.")
    if len(weights[f"{_blocks(weights, 3)[-1]}.bn_expand.weight"]) != FEATURES:
        raise expected(f"{path}: features", "another number", str(FEATURES), ModelError)


def _names(weights: Weights) -> Iterator[str]:
    yield "conv_1_3x3.weight"
    yield from (f"bn_1.{part}" for part in _NORM)
    for stage in (1, 2, 3):
        for block in _blocks(weights, stage) or [_block_name(stage, 0)]:
            for convolution, norm in _BLOCK.items():
                yield f"{block}.{convolution}.weight"
                yield from (f"{block}.{norm}.{part}" for part in _NORM)


def _block_name(stage: int, number: int) -> str:
    return f"stage_{stage}.stage_{stage}_bottleneck_{number}"


def _blocks(weights: Weights, stage: int) -> list[str]:
    names: list[str] = []
    while f"{(name := _block_name(stage, len(names)))}.conv_reduce.weight" in weights:
        names.append(name)
    return names


def extract(images: NDArray[np.uint8], checkpoint: Path) -> NDArray[np.float32]:
    """(n, 1024) features of (n, 3, 32, 32) bytes by a checkpoint's network, on a GPU where there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    weights = {name: value.to(device) for name, value in load_checkpoint(checkpoint).items()}
    with torch.inference_mode():
        parts = [
            features(weights, torch.from_numpy(images[start : start + _AT_ONCE]).to(device)).cpu().numpy()
            for start in range(0, len(images), _AT_ONCE)
        ]
    return np.concatenate(parts)


def features(weights: Weights, images: Tensor) -> Tensor:
    """(n, 1024) features of bytes (n, 3, 32, 32); an image's do not depend on the others."""
    scale = torch.tensor(STD, device=images.device).view(3, 1, 1)
    shift = torch.tensor(MEAN, device=images.device).view(3, 1, 1)
    x = (images.float() / 255 - shift) / scale
    x = F.relu(_norm(weights, "bn_1", F.conv2d(x, weights["conv_1_3x3.weight"], padding=1)))
    for stage, stride in enumerate(STAGES, start=1):
        for number, name in enumerate(_blocks(weights, stage)):
            x = _block(weights, name, x, stride if number == 0 else 1)
    return x.mean((2, 3))


def _block(weights: Weights, name: str, x: Tensor, stride: int) -> Tensor:
    """relu(shortcut(x) + expand(grouped(reduce(x)))), each with batch normalisation."""
    y = F.relu(_norm(weights, f"{name}.bn_reduce", F.conv2d(x, weights[f"{name}.conv_reduce.weight"])))
    kernel = weights[f"{name}.conv_conv.weight"]
    y = F.conv2d(y, kernel, stride=stride, padding=1, groups=y.shape[1] // kernel.shape[1])
    y = F.relu(_norm(weights, f"{name}.bn", y))
    y = _norm(weights, f"{name}.bn_expand", F.conv2d(y, weights[f"{name}.conv_expand.weight"]))
    shortcut = f"{name}.shortcut.shortcut"
    if f"{shortcut}_conv.weight" in weights:
        x = _norm(weights, f"{shortcut}_bn", F.conv2d(x, weights[f"{shortcut}_conv.weight"], stride=stride))
    return F.relu(x + y)


def _norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    """Batch normalisation with the means and variances of the training."""
    scale, shift, mean, variance = (weights[f"{name}.{part}"] for part in _NORM)
    return F.batch_norm(x, mean, variance, scale, shift)


def random_weights(seed: int, widths: tuple[int, int, int], groups: int) -> dict[str, Tensor]:
    """Weights of a network with one block a stage, for generated data and tests: drawn, not learned.

    ``widths``: channels of the grouped convolution of each stage, multiples of ``groups``.
    """
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, Tensor] = {}

    def layer(convolution: str, norm: str, outputs: int, inputs: int, side: int) -> None:
        drawn = torch.randn(outputs, inputs, side, side, generator=generator)
        weights[f"{convolution}.weight"] = drawn * (2 / (inputs * side * side)) ** 0.5
        for part, value in zip(_NORM, (1.0, 0.0, 0.0, 1.0), strict=True):
            weights[f"{norm}.{part}"] = torch.full((outputs,), value)

    layer("conv_1_3x3", "bn_1", 64, 3, 3)
    inputs = 64
    for stage, width in enumerate(widths, start=1):
        name, outputs = _block_name(stage, 0), FEATURES >> (3 - stage)
        layer(f"{name}.conv_reduce", f"{name}.bn_reduce", width, inputs, 1)
        layer(f"{name}.conv_conv", f"{name}.bn", width, width // groups, 3)
        layer(f"{name}.conv_expand", f"{name}.bn_expand", outputs, width, 1)
        layer(f"{name}.shortcut.shortcut_conv", f"{name}.shortcut.shortcut_bn", outputs, inputs, 1)
        inputs = outputs
    return weights


def checkpoint_bytes(weights: Weights) -> bytes:
    """A checkpoint as the training script saves it: the names are those of a model on several GPUs."""
    saved = io.BytesIO()
    torch.save({"state_dict": {f"module.{name}": value for name, value in weights.items()}}, saved)
    return saved.getvalue()
