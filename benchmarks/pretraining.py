"""Trains features of handwriting on synthetic characters, for ``python -m benchmarks.pretrain``.

The data are an embedded data set (:mod:`subjectdp.data.embedded`), prepared like that of any run, or the same writers
with handwritten typefaces (:mod:`benchmarks.typefaces`). No scenario uses these seeds, so even runs on
embedded data share no writer with them. A network is trained to classify the 62 characters under
random warps. Its outputs on warped characters give the projection, and a linear head fitted to the projected characters
is the start of a run's head. With typefaces, features want variety and are learned from all of them; the head wants
letters that look like those of a form and is fitted to characters of some. All randomness is keyed and one thread is
used: the same machine gives the same bytes.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load, save
from torch import Tensor, nn

from benchmarks.typefaces import typefaces
from subjectdp.config.sections import DataConfig, EmbeddedConfig
from subjectdp.data.embedded.glyphs import StrokeFields, stroke_fields
from subjectdp.data.embedded.handwriting import WriterItems, draw_writer
from subjectdp.data.images import SIDE
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.store import load_prepared
from subjectdp.errors import expected
from subjectdp.io.atomic import write_bytes
from subjectdp.models.handwriting import CLASSES, FEATURES, OUTPUTS, HandwritingFeatures, HandwritingNet, half
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.noise.torch_keys import keyed_generator
from subjectdp.training.device_data import INK_SCALE, INK_SHIFT, DeviceDataset

_PAPER = -INK_SHIFT / INK_SCALE  # value of paper in ``DeviceDataset``
_SIDES, _LANCZOS = (SIDE, SIDE), Image.Resampling.LANCZOS
_CHUNK = 250
_FEWEST_STEPS = 20  # the schedule warms up over a tenth of them
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """Settings of a pretraining; ConfigError for sizes that are too small to generate or to train.

    ``power``: principal components are divided by this power of their variance.
    """

    writers: int = 1000
    items_per_writer: int = 100
    epochs: int = 5
    batch_size: int = 128
    learning_rate: float = 4e-3
    weight_decay: float = 0.02
    label_smoothing: float = 0.05
    power: float = 0.25
    head_decay: float = 1e-4
    seed: int = 20_260_517

    def __post_init__(self) -> None:
        for name, least in (("writers", 2), ("items_per_writer", 5), ("epochs", 1), ("batch_size", 1)):
            if getattr(self, name) < least:
                raise expected(name, getattr(self, name), f"at least {least}")


OF_TYPEFACES = Settings(writers=4000, items_per_writer=80, seed=20_261_123)
"""Settings of the package's weights that were learned from handwritten typefaces."""


def of_head(settings: Settings) -> Settings:
    """Settings of the characters that the head is fitted to with handwritten typefaces: other and fewer writers."""
    return replace(settings, writers=max(2, settings.writers * 3 // 10), seed=settings.seed + 1)


def pretrain(settings: Settings, target: Path, folder: Path | None = None) -> None:
    """Generates the data, trains, and writes the weights with their provenance (safetensors, float16).

    ``folder``: where npm installed handwritten typefaces; None: the writers are those of an embedded data set.

    Raises:
        ConfigError: a typeface is missing or another one.
    """
    torch.set_num_threads(1)  # sums in one order, on any machine
    if folder is None:
        images, labels = synthetic_characters(settings)
    else:
        heads = typefaces(folder, of_head=True)  # before the hour of training, should a file be missing
        images, labels = characters_of(stroke_fields(typefaces(folder)), settings)
    net, accuracy = train_net(images, labels, settings)
    projection, mean = project(outputs_of(net, images, settings), settings.power)
    tensors = half({f"net.{name}": value for name, value in net.state_dict().items()})
    tensors |= half({"projection": projection, "mean": mean})
    features = HandwritingFeatures(tensors)
    made = {**asdict(settings), "training_accuracy": round(accuracy, 4), "torch": torch.__version__}
    if folder is not None:
        settings = of_head(settings)
        images, labels = characters_of(stroke_fields(heads), settings)
        # As a run reads them: convolutions of the training's memory layout round differently.
        features = HandwritingFeatures(load(save(tensors)))
    tensors |= half({"head": fit_head(outputs_of(features, images, settings), labels, settings.head_decay)})
    write_bytes(target, save(tensors, {"provenance": json.dumps(made, sort_keys=True)}))


def synthetic_characters(settings: Settings) -> tuple[Tensor, Tensor]:
    """All characters of the embedded data set: float32 (n, 1, 28, 28) and int64 (n,)."""
    size = EmbeddedConfig(subjects=settings.writers, items_per_subject=settings.items_per_writer, seed=settings.seed)
    data = DataConfig(dataset="femnist", embedded=size)
    with TemporaryDirectory() as name:
        source, prepared = Path(name) / "source", Path(name) / "prepared"
        fetch_sources(data, source)
        prepare_dataset(data, source, prepared)
        resident = DeviceDataset(load_prepared(prepared), torch.device("cpu"))
        return resident.at(torch.arange(len(resident.labels)))


def characters_of(fields: StrokeFields, settings: Settings) -> tuple[Tensor, Tensor]:
    """Characters of writers who choose from these faces, through LEAF's resize: as ``synthetic_characters``."""
    writers = [
        characters(draw_writer(settings.seed, writer, settings.items_per_writer, fields))
        for writer in range(settings.writers)
    ]
    return torch.cat([images for images, _ in writers]), torch.cat([labels for _, labels in writers])


def characters(items: WriterItems) -> tuple[Tensor, Tensor]:
    """One writer's characters through LEAF's resize: float32 (n, 1, 28, 28) and int64 (n,)."""
    paper = (Image.fromarray(~image) for image in items.images)
    grey = np.stack([np.asarray(image.convert("L").resize(_SIDES, _LANCZOS)) for image in paper])
    ink = (1.0 - torch.from_numpy(grey).float() / 255.0 - INK_SHIFT) / INK_SCALE
    return ink.unsqueeze(1), torch.from_numpy(items.labels).long()


def _batches(characters: int, settings: Settings) -> int:
    """Batches of an epoch; raises ConfigError if all epochs together have too few."""
    batches = characters // settings.batch_size
    if settings.epochs * batches < _FEWEST_STEPS:
        allowed = f"so small that all epochs have at least {_FEWEST_STEPS} batches of the {characters} characters"
        raise expected("batch_size", settings.batch_size, allowed)
    return batches


def train_net(images: Tensor, labels: Tensor, settings: Settings) -> tuple[HandwritingNet, float]:
    """The network trained to classify warped characters, and its accuracy over the last epoch."""
    generator = _generator(settings, "train")
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(_generator(settings, "init").get_state())
        net, head = HandwritingNet(), nn.Linear(OUTPUTS, CLASSES)
    model = nn.Sequential(net, head).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    batches = _batches(len(images), settings)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=settings.epochs * batches, pct_start=0.1
    )
    right = torch.zeros(())
    for epoch in range(settings.epochs):
        right.zero_()
        order = torch.randperm(len(images), generator=generator)[: batches * settings.batch_size]
        for chosen in torch.split(order, settings.batch_size):
            logits = model(warped(images[chosen], generator))
            loss = F.cross_entropy(logits, labels[chosen], label_smoothing=settings.label_smoothing)
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
            right += (logits.argmax(1) == labels[chosen]).sum()
        _LOG.info("epoch %d of %d: accuracy %.3f", epoch + 1, settings.epochs, float(right) / len(order))
    return net, float(right) / len(order)


def warped(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each image (B, 1, n, n) under its own random affine map and smooth bend."""
    count, side = images.shape[0], images.shape[-1]

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(count, generator=generator) * (high - low) + low

    scale, aspect = torch.exp(uniform(-0.05, 0.55)), torch.exp(uniform(-0.25, 0.25))
    turn, slant = uniform(-0.2, 0.2), uniform(-0.4, 0.4)
    right, down = uniform(-0.1, 0.1), uniform(-0.1, 0.1)
    cosine, sine = torch.cos(turn), torch.sin(turn)
    first = torch.stack([scale * aspect * cosine, scale * (slant * cosine - sine), right], dim=1)
    second = torch.stack([scale * sine, scale / aspect * (cosine + slant * sine), down], dim=1)
    knots = torch.randn(count, 2, 5, 5, generator=generator) * 0.06
    bend = F.interpolate(knots, size=(side, side), mode="bicubic", align_corners=True)
    grid = F.affine_grid(torch.stack([first, second], dim=1), list(images.shape), align_corners=False)
    grid = grid + bend.permute(0, 2, 3, 1)
    return F.grid_sample(images - _PAPER, grid, align_corners=False) + _PAPER


@torch.no_grad()
def outputs_of(module: nn.Module, images: Tensor, settings: Settings) -> Tensor:
    """Outputs of ``module`` for the images, each warped once; every call uses the same warps."""
    generator = _generator(settings, "outputs")
    return torch.cat([module(warped(part, generator)) for part in torch.split(images, _CHUNK)])


def project(outputs: Tensor, power: float) -> tuple[Tensor, Tensor]:
    """Projection (p, FEATURES) and mean (p,): features are ``(outputs - mean) @ projection``.

    The principal components of ``outputs`` (n, p) with the largest variances λ, each divided by λ^power and all scaled
    to a mean square norm of 1. With power 0 strong directions hide the others from gradient descent, with 1/2
    (whitening) noise drowns the weak ones; what lies between is better than both.
    """
    mean = outputs.double().mean(0)
    values, vectors = torch.linalg.eigh(torch.cov(outputs.double().T))
    values, vectors = values.flip(0)[:FEATURES].clamp_min(0.0), vectors.flip(1)[:, :FEATURES]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    scales = (values + 1e-3 * values.mean()) ** -power
    scales = scales / (values * scales**2).sum().sqrt()
    return (vectors * largest.sign() * scales).float(), mean.float()


def fit_head(features: Tensor, labels: Tensor, decay: float) -> Tensor:
    """Weights (CLASSES, p) of the logistic regression of the labels on the features, with an L2 penalty."""
    weight = torch.zeros(CLASSES, features.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=40, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(features @ weight.T, labels) + decay / 2 * weight.square().sum()
        torch.autograd.backward(value)
        return value

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return weight.detach()


def _generator(settings: Settings, part: str) -> torch.Generator:
    return keyed_generator(key_bytes(settings.seed, Purpose.PRETRAINING, part))
