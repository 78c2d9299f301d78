"""Models that train one linear layer on fixed features: few noisy weights, cheap rounds.

Under subject-level privacy the noise on the average gradient is equally large in every coordinate, so fewer coordinates
mean less noise. The features depend on one item at a time and on no private data. They are part of the input: a run
computes them once (``DeviceDataset``), and a round is a few matrix products.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from subjectdp.errors import ModelError, expected
from subjectdp.models import handwriting
from subjectdp.models.handwriting import HandwritingNet, PublicFeatures, StrokeNets, load_weights
from subjectdp.models.scattering import Scattering, random_curves
from subjectdp.noise.keys import Purpose, numpy_generator

_FLAT = 1e-6  # a coefficient map whose spread is below this is an image of one colour
_CURVES = 1000  # images of random curves that principal components are those of
_POWER = 0.25  # of a component's variance, which it is divided by


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
        computed = items.dim() == 2 and items.is_floating_point()  # images have four dimensions, text is int64
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


class PrincipalComponents(nn.Module):
    """``width`` features: the leading principal components of the scattering coefficients of random curves.

    The curves' mean is subtracted, and each component is divided by the fourth root of its variance on them (the
    square root would whiten). The mean square norm on the curves is 1. Curves are drawn from a fixed seed, so that the
    projection is a public constant and depends on no data. It is computed once a process, in about two seconds.
    """

    def __init__(self, scales: int, angles: int, width: int) -> None:
        super().__init__()
        self.features, self.width = NormalisedScattering(scales, angles), width
        _check_width("components", width, min(self.features.width, _CURVES - 1))
        mean, projection = _components_of_curves(scales, angles, width)
        self.register_buffer("mean", mean, persistent=False)
        self.register_buffer("projection", projection, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = (self.features(images) - self.get_buffer("mean")) @ self.get_buffer("projection")
        return projected


@cache
@torch.no_grad()
def _components_of_curves(scales: int, angles: int, width: int) -> tuple[Tensor, Tensor]:
    """Mean (p,) and projection (p, width), float32. Scattering is normalised, so the levels of ink do not matter."""
    coefficients = NormalisedScattering(scales, angles)(random_curves(_CURVES)).double()
    mean = coefficients.mean(dim=0)
    centred = coefficients - mean
    # the images' inner products have the covariance's eigenvalues, and are fewer than its entries
    values, vectors = torch.linalg.eigh(centred @ centred.T / len(centred))
    values, vectors = values.flip(0)[:width], vectors.flip(1)[:, :width]
    directions = centred.T @ vectors / (values * len(centred)).sqrt()
    largest = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))
    factors = values**-_POWER / (values ** (1 - 2 * _POWER)).sum().sqrt()
    return mean.float(), (directions * largest.sign() * factors).float()


class RandomDirections(nn.Module):
    """``width`` random combinations of features, which keep squared norms in expectation (Johnson, Lindenstrauss 1984).

    The directions are public constants, the same for every run.
    """

    def __init__(self, features: NormalisedScattering, width: int) -> None:
        super().__init__()
        _check_width("directions", width, features.width)
        self.features, self.width = features, width
        drawn = numpy_generator(0, Purpose.MODEL_INIT, "directions").standard_normal((features.width, width))
        directions = torch.from_numpy((drawn / math.sqrt(width)).astype(np.float32))
        self.register_buffer("directions", directions, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        projected: Tensor = self.features(images) @ self.get_buffer("directions")
        return projected


def _check_width(parameter: str, width: int, most: int) -> None:
    if not 1 <= width <= most:
        allowed = f"0 (all features) or a whole number from 1 to {most}"
        raise expected(f"model.parameters.{parameter}", width, allowed, ModelError)


def scattering_head(
    classes: int, shape: tuple[int, ...], scales: int, angles: int, directions: int, components: int
) -> FixedFeatureModel:
    """A head that starts at zero on wavelet features: (1 + 16 + 64) 7² = 3,969 with two scales and eight angles.

    ``directions``: so many random combinations of them instead, an eighth of the memory and time with 512;
    ``components``: so many principal components of random curves' coefficients instead, which noise hurts less. 0:
    all features; one of the two may be given.
    """
    _check_shape(shape)
    features: NormalisedScattering | RandomDirections | PrincipalComponents
    if components != 0:
        features = PrincipalComponents(scales, angles, components)
    elif directions != 0:
        features = RandomDirections(NormalisedScattering(scales, angles), directions)
    else:
        features = NormalisedScattering(scales, angles)
    return FixedFeatureModel(features, features.width, classes)


def handwriting_head(classes: int, shape: tuple[int, ...], from_synthetic: bool, typefaces: bool) -> FixedFeatureModel:
    """A head on 128 features learned from synthetic characters; 7,936 weights for 62 classes.

    ``from_synthetic``: the head starts from the one fitted to the synthetic characters, which is as public as the
    features; otherwise from zero. ``typefaces``: the characters were drawn with handwritten typefaces too. Raises
    ModelError if the classes are not those of the synthetic characters.
    """
    _check_shape(shape)
    if from_synthetic and classes != handwriting.CLASSES:
        allowed = f"false where there are {classes} classes (the synthetic characters are of {handwriting.CLASSES})"
        raise expected("model.parameters.from_synthetic", True, allowed, ModelError)
    tensors = load_weights(handwriting.TYPEFACES, handwriting.TYPEFACES_SHA256) if typefaces else load_weights()
    start = tensors["head"].float() if from_synthetic else None
    return FixedFeatureModel(PublicFeatures(HandwritingNet, tensors), handwriting.FEATURES, classes, start)


def stroke_head(classes: int, shape: tuple[int, ...]) -> FixedFeatureModel:
    """A head that starts at zero on 48 features learned from random strokes, in which there is no character."""
    _check_shape(shape)
    features = PublicFeatures(StrokeNets, load_weights(handwriting.STROKES, handwriting.STROKES_SHA256))
    return FixedFeatureModel(features, features.get_buffer("projection").shape[1], classes)


def _check_shape(shape: tuple[int, ...]) -> None:
    if shape != (1, 28, 28):
        raise expected("shape of the images", shape, "(1, 28, 28) for this model", ModelError)


def fixed_features(model: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The fixed feature map of a model, to be computed once for each item; None if all layers are trained."""
    return model.features if isinstance(model, FixedFeatureModel) else None
