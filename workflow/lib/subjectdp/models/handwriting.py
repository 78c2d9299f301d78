"""Fixed features of handwriting, learned from the project's own synthetic characters or from random strokes alone.

Weights come with the package: ``weights/handwriting.safetensors``, of characters drawn with printed typefaces, and
``weights/typefaces.safetensors``, of handwritten ones as well. ``python -m benchmarks.pretrain`` of commit d061a81 made
them from characters that it generates. They depend on no protected data, so the features cost no privacy.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from subjectdp.errors import ModelError
from subjectdp.io.atomic import sha256_of

WEIGHTS = Path(__file__).parent / "weights" / "handwriting.safetensors"
SHA256 = "17a060ee7eb83d86f133809d341bbdfcdb5beb5429a1cada59f7e2066f58779b"
"""SHA-256 of the file of weights. It is part of the code, so a run's code fingerprint changes with the weights."""

TYPEFACES = WEIGHTS.with_name("typefaces.safetensors")
TYPEFACES_SHA256 = "9766d2237a2ff7aac42c4ed4525adfc6c95d4ef7678328e33ebc17ed35fc3156"

STROKES = WEIGHTS.with_name("strokes.safetensors")
STROKES_SHA256 = "b49b9497f740e068567756dd568152d1d7cadd51143fd77dd5477a1e6ab369fe"
"""Of the weights learned from random strokes (``benchmarks/strokes.py``, commit 9a314b60): they saw no character."""

CLASSES = 62
FEATURES = 128
"""Features that a run trains on: the leading principal components of the network's outputs on synthetic characters."""

MARGIN = 2  # pixels of paper around LEAF's characters, which the network crops
_FAINT = 1e-6  # less ink is none
_WIDTHS = (32, 64, 96)
OUTPUTS = _WIDTHS[2] * 9


class HandwritingNet(nn.Module):
    """Three convolutions with group normalisation: float (B, 1, 28, 28) of ``DeviceDataset`` to (B, 864)."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = _WIDTHS
        self.layers = nn.Sequential(*_block(1, first, 5), nn.MaxPool2d(2), *_block(first, second, 3), nn.MaxPool2d(2))
        self.layers.extend([*_block(second, third, 3), nn.MaxPool2d(2), nn.Flatten()])

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layers(images[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN])
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


class PublicFeatures(nn.Module):
    """A network, centred and projected, and a constant where one is given: mean square norm about 1 on public items.

    The projection divides each principal component of the network's outputs on them by the fourth root of its
    variance, those of random strokes all by one number. All tensors are buffers that are not saved with a run; none is
    trained.
    """

    def __init__(
        self, network: Callable[[], nn.Module], tensors: Mapping[str, Tensor], constant: float | None = None
    ) -> None:
        super().__init__()
        self.constant = constant
        with torch.device("meta"):  # draws no weights
            self.net = network()
        self.net.load_state_dict({name: tensors[f"net.{name}"].float() for name in self.net.state_dict()}, assign=True)
        freeze(self.net)
        self.register_buffer("projection", tensors["projection"].float(), persistent=False)
        self.register_buffer("mean", tensors["mean"].float(), persistent=False)

    def forward(self, items: Tensor) -> Tensor:
        projected: Tensor = (self.net(items) - self.get_buffer("mean")) @ self.get_buffer("projection")
        if self.constant is None:
            return projected
        return torch.cat([projected, projected.new_full((len(projected), 1), self.constant)], dim=1)


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
    return _tensors(path)


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path.name} cannot be read ({error}).") from None
