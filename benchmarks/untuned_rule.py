"""Constants of the rule "Without tuning" (docs/own-algorithms.md), from generated writers alone: no private item, no ε.

    npm ci --prefix workflow/envs/typefaces --ignore-scripts
    python -m benchmarks.untuned_rule workflow/envs/typefaces/node_modules

Federations of 180 generated writers, whose typefaces the package's head was not fitted to, are trained as
SubjectRelease trains: each writer's gradient, or each of its 16 parts, counts by its direction alone, and Gaussian
noise is added to their mean. What the noise of N subjects at an ε does depends on S = N μ alone. Every candidate for
the rule is trained at every S; the one with the greatest mean test accuracy over all S, spreads and federations is
taken.
"""

from __future__ import annotations

import argparse
import itertools
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from benchmarks.pretraining import characters
from benchmarks.typefaces import typefaces
from subjectdp.data.embedded.glyphs import stroke_fields
from subjectdp.data.embedded.handwriting import draw_writer
from subjectdp.models.handwriting import TYPEFACES, TYPEFACES_SHA256, HandwritingFeatures, load_weights
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.noise.torch_keys import keyed_generator

WRITERS, ITEMS = 180, 154  # as many as LEAF's 180 writers have
TRAINING = 0.64  # of a writer's items
SIGNALS = tuple(10.0 * 2**power for power in range(10))  # S: 45 subjects at ε = 1 have 12, 3,500 at ε = 8 have 6,000
SPREADS = (1, 16)  # parts of a writer
FEDERATIONS = range(4)
SEED = 20_261_124  # of the first federation
NONE = -1  # label of an item that fills a part up
LARGEST = (0.5, 1.0, 2.0)
NOISES = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LEAST_ROUNDS = (10, 20, 40)
LONGEST = (20.0, 40.0, 80.0)


@dataclass(frozen=True)
class Rule:
    """κ = min(largest, noise √(S/p)) and R = max(least_rounds, κ S / longest)."""

    largest: float
    noise: float
    least_rounds: int
    longest: float

    def schedule(self, signal: float, weights: int) -> tuple[float, int]:
        """κ and R at S for p weights."""
        noise = min(self.largest, self.noise * math.sqrt(signal / weights))
        return round(noise, 4), max(self.least_rounds, int(noise * signal / self.longest))


RULES = tuple(itertools.starmap(Rule, itertools.product(LARGEST, NOISES, LEAST_ROUNDS, LONGEST)))


@dataclass(frozen=True)
class Federation:
    """Features (parts, items, p) and labels (parts, items) that train; features (n, p) and labels (n,) that test."""

    features: Tensor
    labels: Tensor
    test_features: Tensor
    test_labels: Tensor
    name: str  # in the keys of its noise


class Row(NamedTuple):
    """One trained head; S = 0 is the head that the runs start from."""

    federation: int
    spread: int
    signal: float
    noise: float
    rounds: int
    accuracy: float


def generated_writers(folder: Path, federation: int) -> tuple[list[Tensor], list[Tensor]]:
    """Each writer's features (n, p) and labels (n,); ``folder`` as in ``typefaces``, whose ConfigError it raises."""
    seen = {face.file for face in typefaces(folder, of_head=True)}
    strokes = stroke_fields(tuple(face for face in typefaces(folder) if face.file not in seen))
    net = HandwritingFeatures(load_weights(TYPEFACES, TYPEFACES_SHA256))
    features, labels = [], []
    for writer in range(WRITERS):
        images, classes = characters(draw_writer(SEED + federation, writer, ITEMS, strokes))
        with torch.no_grad():
            features.append(net(images))
        labels.append(classes)
    return features, labels


def federation_of(features: list[Tensor], labels: list[Tensor], spread: int, name: str) -> Federation:
    """The first items of every writer train, dealt into ``spread`` parts; the others test."""
    kept = [round(TRAINING * len(classes)) for classes in labels]
    dealt = [
        (x[:n][part::spread], y[:n][part::spread])
        for x, y, n in zip(features, labels, kept, strict=True)
        for part in range(spread)
    ]
    parts = [(x, y) for x, y in dealt if len(y) > 0]
    return Federation(
        pad_sequence([x for x, _ in parts], batch_first=True),
        pad_sequence([y for _, y in parts], batch_first=True, padding_value=NONE),
        torch.cat([x[n:] for x, n in zip(features, kept, strict=True)]),
        torch.cat([y[n:] for y, n in zip(labels, kept, strict=True)]),
        name,
    )


def mean_direction(federation: Federation, products: Tensor, head: Tensor) -> Tensor:
    """Mean of g/|g| over the parts' gradients g of the cross-entropy: (classes, p) like ``head``.

    ``products``: inner products of each part's items, (parts, items, items).
    """
    errors = (federation.features @ head.T).softmax(dim=2)
    there = federation.labels != NONE
    errors.scatter_add_(2, federation.labels.clamp_min(0).unsqueeze(2), torch.full_like(errors[..., :1], -1.0))
    errors *= there.unsqueeze(2)
    norms = ((errors @ errors.mT) * products).sum(dim=(1, 2)).clamp_min(1e-12).sqrt()
    errors /= norms[:, None, None] * len(norms)
    return errors.flatten(0, 1).T @ federation.features.flatten(0, 1)


def trained(federation: Federation, start: Tensor, signal: float, noise: float, rounds: int) -> Tensor:
    """Mean head of the last half of the rounds, at κ = ``noise``; the same draws for every κ, others elsewhere."""
    generator = keyed_generator(key_bytes(SEED, Purpose.NOISE, federation.name, str(signal), rounds))
    products = federation.features @ federation.features.mT
    length = noise * signal / rounds  # rate times clip norm
    head, mean = start.clone(), torch.zeros_like(start)
    for step in range(rounds):
        drawn = torch.randn(head.shape, generator=generator) * (math.sqrt(rounds) / signal)
        head -= length * (mean_direction(federation, products, head) + drawn)
        if step >= rounds // 2:
            mean += head / (rounds - rounds // 2)
    return mean


def accuracy(federation: Federation, head: Tensor) -> float:
    """Share of the test items that a head has right."""
    right = (federation.test_features @ head.T).argmax(dim=1) == federation.test_labels
    return float(right.double().mean())


def accuracies(folder: Path, federation: int) -> list[Row]:
    """Every schedule that some rule has somewhere, trained on one generated federation: a row each."""
    torch.set_num_threads(1)
    features, labels = generated_writers(folder, federation)
    start = load_weights(TYPEFACES, TYPEFACES_SHA256)["head"].float()
    rows: list[Row] = []
    for spread in SPREADS:
        made = federation_of(features, labels, spread, f"{federation}, {spread}")
        rows.append(Row(federation, spread, 0.0, 0.0, 0, accuracy(made, start)))
        for signal in SIGNALS:
            schedules = {rule.schedule(signal, start.numel()) for rule in RULES}
            for schedule in sorted(schedules):
                reached = accuracy(made, trained(made, start, signal, *schedule))
                rows.append(Row(federation, spread, signal, *schedule, reached))
    return rows


def table_of(rows: pd.DataFrame, weights: int) -> pd.DataFrame:
    """Each rule's test accuracy (%), mean over S, spreads and federations, the best first."""
    means = rows.groupby(["signal", "noise", "rounds"]).accuracy.mean()
    found = [
        (
            *astuple(rule),
            100 * sum(means[(signal, *rule.schedule(signal, weights))] for signal in SIGNALS) / len(SIGNALS),
        )
        for rule in RULES
    ]
    names = [field.name for field in fields(Rule)]
    return pd.DataFrame(found, columns=[*names, "accuracy"]).sort_values("accuracy", ascending=False)


def main() -> None:
    """Trains all candidates, writes a row for each head, and prints the rules, the best first."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("typefaces", type=Path, help="node_modules that npm ci filled")
    options.add_argument("--output", type=Path, default=Path("results/bench/untuned_rule.csv"))
    options.add_argument("--processes", type=int, default=2)
    chosen = options.parse_args()
    with ProcessPoolExecutor(chosen.processes) as pool:
        rows = list(itertools.chain(*pool.map(partial(accuracies, chosen.typefaces), FEDERATIONS)))
    frame = pd.DataFrame(rows, columns=Row._fields)
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(chosen.output, index=False)
    start = load_weights(TYPEFACES, TYPEFACES_SHA256)["head"]
    print(f"the head that the runs start from: {100 * frame[frame.rounds == 0].accuracy.mean():.2f} %")
    print(table_of(frame[frame.rounds > 0], start.numel()).head(20).to_string(index=False))


if __name__ == "__main__":
    main()
