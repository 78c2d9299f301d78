"""Models that train one linear layer on fixed features: few noisy weights, cheap rounds.

Under subject-level privacy the noise on the average gradient is equally large in every coordinate, so fewer coordinates
mean less noise. The features depend on one item at a time and on no private data. They are part of the input: a run
computes them once (``ResidentData``), and a round is a few matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from subjectdp.errors import ModelError, expected
from subjectdp.models.handwriting import (
    CLASSES,
    FEATURES,
    TYPEFACES,
    TYPEFACES_SHA256,
    HandwritingFeatures,
    load_weights,
)
from subjectdp.models.scattering import Scattering
from subjectdp.noise.keys import Purpose, numpy_generator

_FLAT = 1e-6  # a coefficient map whose spread is below this is an image of one colour


class FixedFeatureModel(nn.Module):
    """Logits W φ(x), no bias: (B, classes) of items, or of their features float (B, ``width``).

    Attributes:
        features: φ, without parameters; a public function of one item, of mean square norm about 1.
        width: features of an item.
        head: the trained linear layer; starts at zero, or at ``start`` (classes, width).
    """

    def __init__(self, features: nn.Module, width: int, classes: int, start: Tensor | None = None) -> None:
        super().__init__()
        self.features, self.width = features, width
        self.head = nn.Linear(width, classes, bias=False)
        with torch.no_grad():
            self.head.weight.copy_(torch.zeros(()) if start is None else start)

    def forward(self, items: Tensor) -> Tensor:
        computed = (
            items.dim() == 2 and items.is_floating_point()
        )  # images have four dimensions, text is int64
        logits: Tensor = self.head(items if computed else self.features(items))
        return logits


class NormalisedScattering(nn.Module):
    """Scattering coefficients of one item; each order is shifted and scaled to mean 0 and mean square norm 1/3.

    The orders differ by factors of ten, and so do strokes of thin and of thick pens. Each item is normalised by itself.
    """

    def __init__(self, scales: int, angles: int) -> None:
        super().__init__()
        self.transform = Scattering(scales, angles)
        channels = self.transform.channels
        self.orders = [1, scales * angles, channels - 1 - scales * angles]
        self.width = channels * self.transform.side**2

    def forward(self, images: Tensor) -> Tensor:
        parts = [part.flatten(1) for part in self.transform(images).split(self.orders, dim=1)]
        return torch.cat([_standardised(part) for part in parts if part.shape[1] > 0], dim=1) / math.sqrt(3)


def _standardised(rows: Tensor) -> Tensor:
    centred = rows - rows.mean(dim=1, keepdim=True)
    lengths: Tensor = torch.linalg.vector_norm(centred, dim=1, keepdim=True).clamp_min(_FLAT)
    return centred / lengths


class RandomDirections(nn.Module):
    """``width`` random combinations of features, which keep squared norms in expectation (Johnson, Lindenstrauss 1984).

    The directions are public constants, the same for every run.
    """

    def __init__(self, features: NormalisedScattering, width: int) -> None:
        super().__init__()
        if not 1 <= width <= features.width:
            allowed = f"0 (all features) or a whole number from 1 to {features.width}"
            raise expected("model.parameters.directions", width, allowed, ModelError)
        self.features, self.width = features, width
        drawn = numpy_generator(0, Purpose.MODEL_INIT, "directions").standard_normal((features.width, width))
        directions = torch.from_numpy((drawn / math.sqrt(width)).astype(np.float32))
        self.register_buffer("directions", directions, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = self.features(images) @ self.get_buffer("directions")
        return projected


def scattering_head(
    classes: int, shape: tuple[int, ...], scales: int, angles: int, directions: int
) -> FixedFeatureModel:
    """A head that starts at zero on wavelet features: (1 + 16 + 64) 7² = 3,969 with two scales and eight angles.

    ``directions``: so many random combinations of them instead, an eighth of the memory and time with 512; 0: all.
    """
    _check_shape(shape)
    scattering = NormalisedScattering(scales, angles)
    features = scattering if directions == 0 else RandomDirections(scattering, directions)
    return FixedFeatureModel(features, features.width, classes)


def handwriting_head(
    classes: int, shape: tuple[int, ...], from_synthetic: bool, typefaces: bool
) -> FixedFeatureModel:
    """A head on 128 features learned from synthetic characters; 7,936 weights for 62 classes.

    ``from_synthetic``: the head starts from the one fitted to the synthetic characters, which is as public as the
    features; otherwise from zero. ``typefaces``: the characters were drawn with handwritten typefaces too. Raises
    ModelError if the classes are not those of the synthetic characters.
    """
    _check_shape(shape)
    for name, value in (("from_synthetic", from_synthetic), ("typefaces", typefaces)):
        if type(value) is not bool:
            raise expected(f"model.parameters.{name}", value, "true or false", ModelError)
    if from_synthetic and classes != CLASSES:
        allowed = f"false where there are {classes} classes (the synthetic characters are of {CLASSES})"
        raise expected("model.parameters.from_synthetic", True, allowed, ModelError)
    tensors = load_weights(TYPEFACES, TYPEFACES_SHA256) if typefaces else load_weights()
    start = tensors["head"].float() if from_synthetic else None
    return FixedFeatureModel(HandwritingFeatures(tensors), FEATURES, classes, start)


def _check_shape(shape: tuple[int, ...]) -> None:
    if shape != (1, 28, 28):
        raise expected("shape of the images", shape, "(1, 28, 28) for this model", ModelError)


def fixed_features(model: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The fixed feature map of a model, to be computed once for each item; None if all layers are trained."""
    return model.features if isinstance(model, FixedFeatureModel) else None
