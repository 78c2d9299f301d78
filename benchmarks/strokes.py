"""``python -m benchmarks.strokes FILE``: learns the features of ``stroke_head`` from random strokes, and writes them.

A glyph is one to three random strokes; a network of three convolutions learns to tell a thousand of them apart, whoever
writes them: each image is the glyph with other proportions, slant, pen and shaky corners. Images from random processes
teach features that help private learning and cost no privacy (Baradad et al. 2021, arXiv 2106.05963; Tang et al. 2023,
"Differentially private image classification by learning priors from random processes", arXiv 2306.06076). No character
and no typeface is drawn. About ten minutes on one core; torch's version and the processor decide the last bits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from subjectdp.models.handwriting import OUTPUTS, HandwritingNet
from subjectdp.training.device_data import INK_SCALE, INK_SHIFT

SEED, GLYPHS, IMAGES, EMBEDDING, FEATURES = 20_261_126, 1000, 240_000, 128, 64
_STROKES, _POINTS, _SIDE = 3, 32, 28  # at most; of a stroke; pixels
_BATCH, _RATE, _SCALE = 128, 4e-3, 16.0
_PUBLIC = 4000  # images of other glyphs that the features are centred and scaled on
_POWER = 0.25  # of a component's variance, which it is divided by


class Glyphs:
    """Random glyphs: corners (glyphs, 3, 4, 2) of cubic Bézier curves in [-1, 1], of which the first few are drawn."""

    def __init__(self, count: int, draws: torch.Generator) -> None:
        self._draws = draws
        first = 1.8 * self._uniform(count, _STROKES, 1, 2) - 0.9
        steps = 0.75 * self._normal(count, _STROKES, 3, 2)
        corners = torch.cat([first, first + steps.cumsum(2)], 2)
        time = torch.linspace(0, 1, 4)[:, None]
        straight = self._uniform(count, _STROKES, 1, 1) < 0.35
        corners = torch.where(straight, corners[:, :, :1] * (1 - time) + corners[:, :, 3:] * time, corners)
        closed = (self._uniform(count, _STROKES, 1) < 0.15) & ~straight[..., 0]
        corners[:, :, 3] = torch.where(closed, corners[:, :, 0], corners[:, :, 3])
        self._join(corners)
        self.strokes = 1 + torch.multinomial(torch.tensor([0.35, 0.4, 0.25]), count, True, generator=draws)
        self.corners = self._fitted(corners, self.strokes)

    def images(self, glyphs: Tensor) -> Tensor:
        """Each glyph (B,) as another hand writes it: ink float32 (B, 1, 28, 28) from 0 to 1."""
        count, strokes = len(glyphs), self.strokes[glyphs]
        corners = self.corners[glyphs] + 0.12 * self._normal(count, _STROKES, 4, 2)
        turned = 0.12 * self._normal(count)
        rotation = torch.stack([turned.cos(), -turned.sin(), turned.sin(), turned.cos()], 1).view(-1, 2, 2)
        sheared = torch.eye(2) + 0.22 * self._normal(count, 2, 2) * torch.tensor([[0.7, 1.2], [0.5, 0.7]])
        points = torch.einsum("tk,bij,bskj->bsti", _bezier(torch.linspace(0, 1, _POINTS)), rotation @ sheared, corners)
        size = (0.70 + 0.07 * self._normal(count, 1, 1, 1)).clamp(0.5, 0.9)
        points = self._fitted(points, strokes) * size + 0.06 * self._normal(count, 1, 1, 2)
        points[torch.arange(_STROKES) >= strokes[:, None]] = 50.0  # off the paper
        pens = (0.085 + 0.035 * self._normal(count, 1)).clamp(0.03, 0.2)
        return torch.sigmoid((pens - _distances(points.flatten(1, 2))) / 0.035).view(count, 1, _SIDE, _SIDE)

    def _join(self, corners: Tensor) -> None:
        """Half of the later strokes start on the first."""
        for stroke in range(1, _STROKES):
            times, joined = self._uniform(len(corners)), self._uniform(len(corners), 1) < 0.5
            touched = torch.einsum("bk,bkd->bd", _bezier(times), corners[:, 0])
            corners[:, stroke] += ((touched - corners[:, stroke, 0]) * joined)[:, None]

    def _fitted(self, points: Tensor, strokes: Tensor) -> Tensor:
        """Moved and scaled so that the longer side of what is drawn goes from -1 to 1."""
        hidden = (torch.arange(_STROKES) >= strokes[:, None])[:, :, None, None]
        low = points.masked_fill(hidden, torch.inf).amin((1, 2), keepdim=True)
        high = points.masked_fill(hidden, -torch.inf).amax((1, 2), keepdim=True)
        return (points - (low + high) / 2) / ((high - low).amax(3, keepdim=True) / 2).clamp_min(0.3)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self._draws)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._draws)


def _bezier(times: Tensor) -> Tensor:
    rest = 1 - times
    return torch.stack([rest**3, 3 * times * rest**2, 3 * times**2 * rest, times**3], 1)


def _distances(points: Tensor) -> Tensor:
    """(B, 784) of each pixel to the nearest of ``points`` (B, n, 2); the paper goes from -1.35 to 1.35."""
    side = (torch.arange(_SIDE) - 13.5) / 10.0
    pixels = torch.cartesian_prod(side, side).flip(1)
    return torch.cdist(pixels.expand(len(points), -1, -1), points).amin(2)


def learn(glyphs: Glyphs, images: int, draws: torch.Generator) -> tuple[HandwritingNet, nn.Linear]:
    """The network and the projection whose outputs' angles tell the glyphs apart."""
    net, projection, count = HandwritingNet(), nn.Linear(OUTPUTS, EMBEDDING), len(glyphs.strokes)
    directions = nn.Parameter(torch.randn(count, EMBEDDING))
    optimizer = torch.optim.Adam([*net.parameters(), *projection.parameters(), directions])
    steps = images // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    for step in range(steps):
        labels = torch.randint(0, count, (_BATCH,), generator=draws)
        angles = F.normalize(projection(net(shaded(glyphs.images(labels)))), dim=1) @ F.normalize(directions, dim=1).t()
        loss = F.cross_entropy(_SCALE * angles, labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step % 100 == 99:
            right = float((angles.argmax(1) == labels).float().mean())
            print(f"step {step + 1} of {steps}: loss {loss.item():.3f}, right {right:.2f}", flush=True)
    return net, projection


def shaded(ink: Tensor) -> Tensor:
    """As ``DeviceDataset`` gives images."""
    return (ink - INK_SHIFT) / INK_SCALE


@torch.no_grad()
def tensors_of(net: HandwritingNet, projection: nn.Linear, glyphs: Glyphs, features: int) -> dict[str, Tensor]:
    """The file's tensors: the network, and mean and projection of ``PublicFeatures`` on one image of each glyph."""
    count = len(glyphs.strokes)
    outputs = torch.cat([net(shaded(glyphs.images(some))) for some in torch.split(torch.arange(count), 256)]).double()
    mean, weight = outputs.mean(0), projection.weight.double()
    _, lengths, directions = torch.linalg.svd((outputs - mean) @ weight.t() / count**0.5, full_matrices=False)
    kept, variances = directions[:features], lengths[:features] ** 2
    factors = variances**-_POWER / (variances ** (1 - 2 * _POWER)).sum().sqrt()
    named = {f"net.{name}": value for name, value in net.state_dict().items()}
    named |= {"mean": mean.float(), "projection": (weight.t() @ kept.t() * factors).float()}
    return {name: value.half().contiguous() for name, value in named.items()}


def main(arguments: list[str] | None = None) -> int:
    """Learns and writes the file; its metadata say how."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strokes", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES, help="that the network sees (default: %(default)s)")
    options = parser.parse_args(arguments)
    torch.manual_seed(SEED)
    draws = torch.Generator().manual_seed(SEED)
    net, projection = learn(Glyphs(GLYPHS, draws), options.images, draws)
    tensors = tensors_of(net, projection, Glyphs(_PUBLIC, draws), FEATURES)
    made = {"seed": SEED, "glyphs": GLYPHS, "images": options.images, "torch": torch.__version__}
    save_file(tensors, options.file, {"provenance": json.dumps(made)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
