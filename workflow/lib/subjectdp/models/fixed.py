"""Models that train one linear layer on fixed features: few noisy weights, cheap rounds.

Under subject-level privacy the noise on the average gradient is equally large in every coordinate, so fewer coordinates
mean less noise. The features depend on one item at a time and on no private data. They are part of the input: a run
computes them once (``DeviceDataset``), and a round is a few matrix products.

Scattering has no weights. The others' come with the package, in ``weights``. None depends on protected data, so the
features cost no privacy. ``handwriting``: from characters drawn with printed typefaces; ``typefaces``: with handwritten
ones as well; ``strokes``: from random strokes; ``english``: from the King James Bible (1611), which holds no
Shakespeare, by predicting the next character. ``python -m benchmarks.pretrain`` of commit d061a81 made them, those of
strokes ``benchmarks/strokes.py`` of commit 9a314b60.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from subjectdp.errors import ModelError, expected
from subjectdp.io.atomic import sha256_of
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


class Projected(nn.Module):
    """Public constants of features: (φ(x) - mean) · projection, and a last feature ``constant`` where one is given.

    All tensors are buffers that are not saved with a run; none is trained.
    """

    projection: Tensor
    mean: Tensor | None

    def __init__(
        self, features: nn.Module, projection: Tensor, mean: Tensor | None = None, constant: float | None = None
    ) -> None:
        super().__init__()
        self.features, self.constant = features, constant
        self.width = projection.shape[1] + (constant is not None)
        self.register_buffer("projection", projection, persistent=False)
        self.register_buffer("mean", mean, persistent=False)

    def forward(self, items: Tensor) -> Tensor:
        values: Tensor = self.features(items)
        projected = (values if self.mean is None else values - self.mean) @ self.projection
        if self.constant is None:
            return projected
        return torch.cat([projected, projected.new_full((len(projected), 1), self.constant)], dim=1)


@cache
@torch.no_grad()
def _components_of_curves(scales: int, angles: int, width: int) -> tuple[Tensor, Tensor]:
    """The leading principal components of the scattering coefficients of random curves: (p, width), and mean (p,).

    Each component is divided by the fourth root of its variance on the curves (the square root would whiten); the mean
    square norm on them is 1. Curves are drawn from a fixed seed: both are public constants, computed once a process in
    about two seconds. Scattering is normalised, so the levels of ink do not matter.
    """
    coefficients = NormalisedScattering(scales, angles)(random_curves(_CURVES)).double()
    mean = coefficients.mean(dim=0)
    centred = coefficients - mean
    # the images' inner products have the covariance's eigenvalues, and are fewer than its entries
    values, vectors = torch.linalg.eigh(centred @ centred.T / len(centred))
    values, vectors = values.flip(0)[:width], vectors.flip(1)[:, :width]
    directions = centred.T @ vectors / (values * len(centred)).sqrt()
    largest = directions.gather(0, directions.abs().argmax(dim=0, keepdim=True))
    factors = values**-_POWER / (values ** (1 - 2 * _POWER)).sum().sqrt()
    return (directions * largest.sign() * factors).float(), mean.float()


def _random_directions(features: int, width: int) -> Tensor:
    """(features, width) combinations that keep squared norms in expectation (Johnson, Lindenstrauss 1984)."""
    drawn = numpy_generator(0, Purpose.MODEL_INIT, "directions").standard_normal((features, width))
    return torch.from_numpy((drawn / math.sqrt(width)).astype(np.float32))


def _check_width(parameter: str, width: int, most: int) -> None:
    if not 1 <= width <= most:
        allowed = f"0 (all features) or a whole number from 1 to {most}"
        raise expected(f"model.parameters.{parameter}", width, allowed, ModelError)


WEIGHTS = Path(__file__).parent / "weights" / "handwriting.safetensors"
SHA256 = "17a060ee7eb83d86f133809d341bbdfcdb5beb5429a1cada59f7e2066f58779b"
"""SHA-256 of the file of weights. It is part of the code, so a run's code fingerprint changes with the weights."""

TYPEFACES = WEIGHTS.with_name("typefaces.safetensors")
TYPEFACES_SHA256 = "9766d2237a2ff7aac42c4ed4525adfc6c95d4ef7678328e33ebc17ed35fc3156"

STROKES = WEIGHTS.with_name("strokes.safetensors")
STROKES_SHA256 = "b49b9497f740e068567756dd568152d1d7cadd51143fd77dd5477a1e6ab369fe"

ENGLISH = WEIGHTS.with_name("english.safetensors")
ENGLISH_SHA256 = "597ec9a5189fa92aee69371cc1e4da4f9b8814f0abf5a3ccab469b26a515cc8b"

_CLASSES = 62  # of the synthetic characters
_MARGIN = 2  # pixels of paper around LEAF's characters, which the network crops
_FAINT = 1e-6  # less ink is none
_WIDTHS = (32, 64, 96)


class HandwritingNet(nn.Module):
    """Three convolutions with group normalisation: float (B, 1, 28, 28) of ``DeviceDataset`` to (B, 864)."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = _WIDTHS
        self.layers = nn.Sequential(*_block(1, first, 5), nn.MaxPool2d(2), *_block(first, second, 3), nn.MaxPool2d(2))
        self.layers.extend([*_block(second, third, 3), nn.MaxPool2d(2), nn.Flatten()])

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layers(images[:, :, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN])
        return outputs


class StrokeNets(nn.Module):
    """Networks side by side, on characters that do not lean: float (B, 1, 28, 28) to (B, 864 · count)."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.nets = nn.ModuleList(HandwritingNet() for _ in range(count))

    def forward(self, images: Tensor) -> Tensor:
        straight = upright(images)
        return torch.cat([net(straight) for net in self.nets], 1)


def upright(images: Tensor) -> Tensor:
    """Images (B, 1, S, S) sheared along the rows, by at most a half, until the rows of ink are uncorrelated to columns.

    The paper is an image's least value. It is a function of one item: it costs no privacy.
    """
    paper = images.amin((2, 3), keepdim=True)
    ink, side = (images - paper)[:, 0], images.shape[-1]
    places = torch.linspace(1 / side - 1, 1 - 1 / side, side, device=images.device)  # of pixels, for grid_sample
    mass = ink.sum((1, 2)).clamp_min(_FAINT)
    middle = ink.sum(2) @ places / mass
    down, across = places - middle[:, None], places - (ink.sum(1) @ places / mass)[:, None]
    lean = torch.einsum("bij,bi,bj->b", ink, down, across) / torch.einsum("bij,bi->b", ink, down**2).clamp_min(_FAINT)
    shears = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
    shears[:, 0, 1] = lean.clamp(-0.5, 0.5)
    shears[:, 0, 2] = -shears[:, 0, 1] * middle
    grid = F.affine_grid(shears, list(images.shape), align_corners=False)
    return F.grid_sample(images - paper, grid, align_corners=False) + paper


def _block(channels: int, width: int, kernel: int) -> list[nn.Module]:
    return [nn.Conv2d(channels, width, kernel, padding=kernel // 2, bias=False), nn.GroupNorm(8, width), nn.ReLU()]


def public_features(
    network: Callable[[], nn.Module], tensors: Mapping[str, Tensor], constant: float | None = None
) -> Projected:
    """A network's outputs, centred and projected: mean square norm about 1 on public items.

    The projection divides each principal component of the outputs on them by the fourth root of its variance, those of
    random strokes all by one number.
    """
    with torch.device("meta"):  # draws no weights
        net = network()
    net.load_state_dict({name: tensors[f"net.{name}"].float() for name in net.state_dict()}, assign=True)
    freeze(net)
    return Projected(net, tensors["projection"].float(), tensors["mean"].float(), constant)


def freeze(module: nn.Module) -> None:
    """Turns all parameters into buffers that are neither trained nor saved."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach(), persistent=False)


@cache
def load_weights(path: Path = WEIGHTS, sha256: str = SHA256) -> dict[str, Tensor]:
    """The tensors of a file of weights; ModelError for a missing file or another content."""
    if not path.is_file():
        raise ModelError(f"{path.name} is missing beside the package: install it anew.")
    found = sha256_of(path)
    if found != sha256:
        raise ModelError(f"Expected {path.name} to have the sha256 {sha256[:16]}..., got {found[:16]}...")
    return load_file(path)


_VOCABULARY = 80  # LEAF's symbols
SEEN = 12  # characters before the predicted one that the network reads
CONSTANT = 0.3  # the last feature, in place of a bias
_EMBEDDING, _HIDDEN, _OUTPUTS = 24, 384, 128


class EnglishNet(nn.Module):
    """Characters int64 (B, at least SEEN) to (B, _OUTPUTS), each row normalised to mean 0 and variance 1."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _EMBEDDING)
        first, second = nn.Linear(SEEN * _EMBEDDING, _HIDDEN), nn.Linear(_HIDDEN, _OUTPUTS)
        self.layers = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, characters: Tensor) -> Tensor:
        outputs: Tensor = self.layers(self.embedding(characters[:, -SEEN:]).flatten(1))
        return nn.functional.layer_norm(outputs, (_OUTPUTS,))


def scattering_head(
    classes: int, shape: tuple[int, ...], scales: int, angles: int, directions: int, components: int
) -> FixedFeatureModel:
    """A head that starts at zero on wavelet features: (1 + 16 + 64) 7² = 3,969 with two scales and eight angles.

    ``directions``: so many random combinations of them instead, an eighth of the memory and time with 512;
    ``components``: so many principal components of random curves' coefficients instead, which noise hurts less. 0:
    all features; one of the two may be given.
    """
    _check_shape(shape)
    features = NormalisedScattering(scales, angles)
    if components == directions == 0:
        return FixedFeatureModel(features, features.width, classes)
    if components != 0:
        _check_width("components", components, min(features.width, _CURVES - 1))
        projected = Projected(features, *_components_of_curves(scales, angles, components))
    else:
        _check_width("directions", directions, features.width)
        projected = Projected(features, _random_directions(features.width, directions))
    return FixedFeatureModel(projected, projected.width, classes)


def handwriting_head(classes: int, shape: tuple[int, ...], from_synthetic: bool, typefaces: bool) -> FixedFeatureModel:
    """A head on 128 features learned from synthetic characters; 7,936 weights for 62 classes.

    ``from_synthetic``: the head starts from the one fitted to the synthetic characters, which is as public as the
    features; otherwise from zero. ``typefaces``: the characters were drawn with handwritten typefaces too. Raises
    ModelError if the classes are not those of the synthetic characters.
    """
    _check_shape(shape)
    if from_synthetic and classes != _CLASSES:
        allowed = f"false where there are {classes} classes (the synthetic characters are of {_CLASSES})"
        raise expected("model.parameters.from_synthetic", True, allowed, ModelError)
    tensors = load_weights(TYPEFACES, TYPEFACES_SHA256) if typefaces else load_weights()
    start = tensors["head"].float() if from_synthetic else None
    features = public_features(HandwritingNet, tensors)
    return FixedFeatureModel(features, features.width, classes, start)


def stroke_head(classes: int, shape: tuple[int, ...]) -> FixedFeatureModel:
    """A head that starts at zero on 48 features learned from random strokes, in which there is no character."""
    _check_shape(shape)
    features = public_features(StrokeNets, load_weights(STROKES, STROKES_SHA256))
    return FixedFeatureModel(features, features.width, classes)


def english_head(classes: int, shape: tuple[int, ...], from_public: bool) -> FixedFeatureModel:
    """A head on 129 features learned from public English; 10,320 weights for LEAF's 80 symbols.

    ``from_public``: the head starts from the network's own, which is as public as the features; otherwise from zero.
    Raises ModelError for another vocabulary or windows that are too short.
    """
    if classes != _VOCABULARY or shape[0] < SEEN:
        found = f"{classes} symbols, windows of {shape[0]}"
        allowed = f"{_VOCABULARY} symbols and windows of at least {SEEN} for this model"
        raise expected("the text", found, allowed, ModelError)
    tensors = load_weights(ENGLISH, ENGLISH_SHA256)
    start = tensors["head"].float() if from_public else None
    features = public_features(EnglishNet, tensors, CONSTANT)
    return FixedFeatureModel(features, features.width, classes, start)


def _check_shape(shape: tuple[int, ...]) -> None:
    if shape != (1, 28, 28):
        raise expected("shape of the images", shape, "(1, 28, 28) for this model", ModelError)


def fixed_features(model: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """The fixed feature map of a model, to be computed once for each item; None if all layers are trained."""
    return model.features if isinstance(model, FixedFeatureModel) else None
