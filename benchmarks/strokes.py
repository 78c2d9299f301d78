"""``python -m benchmarks.strokes FILE``: learns the features of ``stroke_head`` from random strokes, and writes them.

A glyph is one to four random strokes between points of a grid: lines, bows, waves and rings, most of which begin where
another does. Two networks of three convolutions learn to tell thousands of them apart, whoever writes them: each image
is the glyph with other proportions, slant, pen and shaky corners. Images from random processes teach features that help
private learning and cost no privacy (Baradad et al. 2021, arXiv 2106.05963; Tang et al. 2023, "Differentially private
image classification by learning priors from random processes", arXiv 2306.06076). No character and no typeface is
drawn. About half an hour on one core; torch's version and the processor decide the last bits.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

from subjectdp.models.handwriting import OUTPUTS, StrokeNets
from subjectdp.training.device_data import INK_SCALE, INK_SHIFT

SEEDS = 20_261_127, 20_261_137  # one for each network
GLYPHS, IMAGES, EMBEDDING, FEATURES = 3000, 700_000, 128, 48
_CURVES, _POINTS, _SIDE = 6, 20, 28  # at most in a glyph; of a curve; pixels
_BATCH, _RATE, _SCALE = 128, 4e-3, 16.0
_PUBLIC = 4000  # images of other glyphs that the features are centred and scaled on
_RING = 4 / 3  # of the radius, from an end of half a ring to its corner
_HEIGHTS = (-1.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.0)  # of the grid's points, as often as they are taken


Points = NDArray[np.float64]


def _bezier(time: float) -> Points:
    """What each of four corners counts at a time from 0 to 1."""
    rest = 1 - time
    return np.array([rest**3, 3 * time * rest**2, 3 * time**2 * rest, time**3])


_TIMES = torch.tensor(np.stack([_bezier(time) for time in np.linspace(0, 1, _POINTS)]), dtype=torch.float32)


class Glyphs:
    """Random glyphs: corners (glyphs, 6, 4, 2) of cubic Bézier curves, of which ``drawn`` (glyphs, 6) says the used."""

    def __init__(self, count: int, seed: int) -> None:
        draws = np.random.default_rng(seed)
        glyphs = [_glyph(draws) for _ in range(count)]
        used = torch.tensor([len(glyph) for glyph in glyphs])
        self._draws = torch.Generator().manual_seed(seed)
        self.drawn = torch.arange(_CURVES) < used[:, None]
        corners = np.zeros((count, _CURVES, 4, 2))
        for place, glyph in enumerate(glyphs):
            corners[place, : len(glyph)] = glyph
        self.corners = _fitted(torch.from_numpy(corners).float(), self.drawn)

    def images(self, glyphs: Tensor) -> Tensor:
        """Each glyph (B,) as another hand writes it: ink float32 (B, 1, 28, 28) from 0 to 1."""
        count, corners, drawn = len(glyphs), self.corners[glyphs], self.drawn[glyphs]
        x, y = corners.unbind(-1)
        bends = torch.stack([x * x, x * y, y * y, x**3, x * x * y, x * y * y, y**3], -1)
        corners = corners + torch.einsum("bskn,bnd->bskd", bends, 0.10 * self._normal(count, 7, 2))
        corners = corners + 0.06 * self._normal(count, _CURVES, 4, 2)
        turned = 0.12 * self._normal(count)
        rotation = torch.stack([turned.cos(), -turned.sin(), turned.sin(), turned.cos()], 1).view(-1, 2, 2)
        sheared = torch.eye(2) + 0.22 * self._normal(count, 2, 2) * torch.tensor([[0.7, 1.2], [0.5, 0.7]])
        points = torch.einsum("tk,bij,bskj->bsti", _TIMES, rotation @ sheared, corners)
        size = (0.70 + 0.07 * self._normal(count, 1, 1, 1)).clamp(0.5, 0.9)
        points = _fitted(points, drawn) * size + 0.06 * self._normal(count, 1, 1, 2)
        points[~drawn] = 50.0  # off the paper
        pens = (0.085 + 0.035 * self._normal(count, 1)).clamp(0.03, 0.2)
        return torch.sigmoid((pens - _distances(points.flatten(1, 2))) / 0.035).view(count, 1, _SIDE, _SIDE)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._draws)


def _glyph(draws: np.random.Generator) -> list[Points]:
    """One to four strokes, as at most six curves of four corners (4, 2); most begin on an earlier one."""
    width = draws.uniform(0.45, 0.95)
    curves: list[Points] = []
    for _ in range(draws.choice([1, 2, 2, 3, 3, 4])):
        touched = [_bezier(time) @ curve for curve in curves for time in (0.0, 0.5, 1.0)]
        joined = bool(touched) and draws.random() < 0.75
        start = touched[draws.integers(len(touched))] if joined else _grid_point(draws, width)
        stroke = _ring(draws, start, width) if draws.random() < 0.17 else [_curve(draws, start, width)]
        if len(curves) + len(stroke) <= _CURVES:
            curves += stroke
    return curves


def _grid_point(draws: np.random.Generator, width: float) -> Points:
    return np.array([width * draws.integers(-1, 2), draws.choice(_HEIGHTS)])


def _ring(draws: np.random.Generator, start: Points, width: float) -> list[Points]:
    """Two halves of an ellipse, whose top, bottom, left or right is ``start``."""
    across = width * draws.uniform(0.4, 1.0)
    high = across * draws.uniform(0.8, 1.3) if draws.random() < 0.5 else draws.uniform(0.35, 1.0)
    turn = draws.integers(4) * np.pi / 2
    out = np.array([across * np.cos(turn), high * np.sin(turn)])  # from the middle to the start
    along = _RING * np.array([-across * np.sin(turn), high * np.cos(turn)])
    end = start - 2 * out
    return [np.stack([start, start + along, end + along, end]), np.stack([end, end - along, start - along, start])]


def _curve(draws: np.random.Generator, start: Points, width: float) -> Points:
    """From ``start`` to a point of the grid that is not close: a line, a bow, or a wave."""
    chord = np.zeros(2)
    while np.hypot(*chord) < 0.6:
        chord = _grid_point(draws, width) - start
    kind, side = draws.random(), draws.choice([-1.0, 1.0])
    bend = 0.0 if kind < 0.5 else side * draws.uniform(0.35, 1.1)
    back = -bend if kind > 0.9 else bend
    normal = np.array([-chord[1], chord[0]])
    corners: Points = start + np.stack([0 * chord, chord / 3 + bend * normal, 2 * chord / 3 + back * normal, chord])
    return corners


def _fitted(points: Tensor, drawn: Tensor) -> Tensor:
    """Moved and scaled so that the longer side of what is drawn goes from -1 to 1."""
    hidden = ~drawn[:, :, None, None]
    low = points.masked_fill(hidden, torch.inf).amin((1, 2), keepdim=True)
    high = points.masked_fill(hidden, -torch.inf).amax((1, 2), keepdim=True)
    return (points - (low + high) / 2) / ((high - low).amax(3, keepdim=True) / 2).clamp_min(0.3)


def _distances(points: Tensor) -> Tensor:
    """(B, 784) of each pixel to the nearest of ``points`` (B, n, 2); the paper goes from -1.35 to 1.35."""
    side = (torch.arange(_SIDE) - 13.5) / 10.0
    pixels = torch.cartesian_prod(side, side).flip(1)
    return torch.cdist(pixels.expand(len(points), -1, -1), points).amin(2)


def learn(glyphs: Glyphs, images: int, draws: torch.Generator) -> tuple[StrokeNets, nn.Linear]:
    """A network and the projection whose outputs' angles tell the glyphs apart."""
    net, projection, count = StrokeNets(1), nn.Linear(OUTPUTS, EMBEDDING), len(glyphs.drawn)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    directions = nn.Parameter(torch.randn(count, EMBEDDING))
    optimizer = torch.optim.Adam([*net.parameters(), *projection.parameters(), directions])
    steps = images // _BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    for step in range(steps):
        labels = torch.randint(0, count, (_BATCH,), generator=draws)
        inks = shaded(glyphs.images(labels)).contiguous(memory_format=torch.channels_last)
        angles = F.normalize(projection(net(inks)), dim=1) @ F.normalize(directions, dim=1).t()
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


def learned(seed: int, images: int) -> dict[str, Tensor]:
    """A network's weights in half precision, and the ``projection`` (864, features) on its leading components."""
    torch.manual_seed(seed)
    net, projection = learn(Glyphs(GLYPHS, seed), images, torch.Generator().manual_seed(seed))
    _, kept = _leading(_outputs(net, Glyphs(_PUBLIC, seed + 1)), projection.weight.detach().double().t())
    return _halves(net.state_dict() | {"projection": kept})


def together(networks: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The file's tensors: networks side by side, and mean and projection on leading components of theirs."""
    weights = {
        name.replace("nets.0", f"nets.{place}"): value.float()
        for place, network in enumerate(networks)
        for name, value in network.items()
        if name != "projection"
    }
    nets = StrokeNets(len(networks))
    nets.load_state_dict(weights)
    parts = (network["projection"].double() for network in networks)
    projections = torch.block_diag(*parts)  # type: ignore[no-untyped-call]
    mean, projection = _leading(_outputs(nets, Glyphs(_PUBLIC, SEEDS[0] + 2)), projections)
    named = {f"net.{name}": value for name, value in weights.items()}
    return _halves(named | {"mean": mean, "projection": projection})


@torch.no_grad()
def _outputs(nets: StrokeNets, glyphs: Glyphs) -> Tensor:
    """On one image of each glyph, float64."""
    parts = torch.split(torch.arange(len(glyphs.drawn)), 256)
    return torch.cat([nets(shaded(glyphs.images(some))) for some in parts]).double()


def _leading(outputs: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Mean, and ``weight`` (outputs, n) on the leading components of the product, of mean square norm 1 together."""
    mean = outputs.mean(0)
    _, lengths, directions = torch.linalg.svd((outputs - mean) @ weight / len(outputs) ** 0.5, full_matrices=False)
    return mean, weight @ directions[:FEATURES].t() / lengths[:FEATURES].norm()


def _halves(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.half().contiguous() for name, value in tensors.items()}


def main(arguments: list[str] | None = None) -> int:
    """Learns and writes the file; its metadata say how."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.strokes", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--images", type=int, default=IMAGES, help="that the network sees (default: %(default)s)")
    options = parser.parse_args(arguments)
    tensors = together([learned(seed, options.images) for seed in SEEDS])
    made = {"seeds": SEEDS, "glyphs": GLYPHS, "images": options.images, "torch": torch.__version__}
    save_file(tensors, options.file, {"provenance": json.dumps(made)})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
