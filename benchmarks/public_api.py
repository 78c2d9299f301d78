"""The public API as people use it (secure noise, loader, people clipped) beside plain SGD and Opacus' PrivacyEngine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from opacus.validators import ModuleValidator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

import subjectdp
from benchmarks.methods import CLASSES, WINDOW, made_private
from benchmarks.processes import growth, peak_bytes, unmeasurable
from benchmarks.steps import peers_may_fail
from benchmarks.timing import Outcome, interleave
from subjectdp.models.build import build_model

_EPOCH, _OF_A_PERSON = 20, 4  # mini-batches of the data set; items
_WIDTH, _WORDS, _LENGTH = 384, 1000, 64  # of the encoder with LoRA, as MiniLM's


class Encoder(nn.Module):
    """Two transformer layers of width 128 over 64 symbols, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.words, self.places = nn.Embedding(CLASSES["text"], 128), nn.Parameter(0.02 * torch.randn(1, _LENGTH, 128))
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(128, 80)

    def forward(self, symbols: Tensor) -> Tensor:
        result: Tensor = self.head(self.layers(self.words(symbols) + self.places).mean(1))
        return result


class Adapted(nn.Module):
    """A frozen linear layer with a trained product of rank 8 (LoRA)."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(_WIDTH, _WIDTH).requires_grad_(False)
        self.down, self.up = nn.Linear(_WIDTH, 8, bias=False), nn.Linear(8, _WIDTH, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        result: Tensor = self.base(hidden) + self.up(self.down(hidden))
        return result


class AdaptedLayer(nn.Module):
    """A transformer layer of MiniLM's size: queries and values are adapted, the rest is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.keys, self.out = nn.Linear(_WIDTH, _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.wide, self.narrow = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Linear(4 * _WIDTH, _WIDTH)
        self.first, self.second = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.requires_grad_(False)
        self.queries, self.values = Adapted(), Adapted()

    def forward(self, hidden: Tensor) -> Tensor:
        projected = (each(hidden).unflatten(2, (12, -1)).transpose(1, 2) for each in self._projections)
        mixed = F.scaled_dot_product_attention(*projected).transpose(1, 2).flatten(2)
        hidden = self.first(hidden + self.out(mixed))
        result: Tensor = self.second(hidden + self.narrow(F.gelu(self.wide(hidden))))
        return result

    @property
    def _projections(self) -> tuple[nn.Module, nn.Module, nn.Module]:
        return self.queries, self.keys, self.values


def _with_lora() -> nn.Module:
    words = nn.Embedding(_WORDS, _WIDTH).requires_grad_(False)
    return nn.Sequential(words, *(AdaptedLayer() for _ in range(6)), _Mean(), nn.Linear(_WIDTH, CLASSES["text"]))


class _Mean(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return hidden.mean(1)


@dataclass(frozen=True)
class Trained:
    """A model, its items and the size of its mini-batches; ``opacus``: modes of its PrivacyEngine."""

    model: Callable[[], nn.Module]
    items: Callable[[int], Tensor]
    classes: int
    batch: int
    opacus: tuple[str, ...] = ("hooks", "ghost")


def _symbols(length: int, words: int = CLASSES["text"]) -> Callable[[int], Tensor]:
    return lambda items: torch.randint(0, words, (items, length))


TRAINED = {
    "public_cnn": Trained(
        lambda: build_model("leaf_cnn", 62, "image", 0), lambda n: torch.rand(n, 1, 28, 28), CLASSES["image"], 64
    ),
    "public_head": Trained(lambda: nn.Linear(4096, 62), lambda n: torch.randn(n, 4096), CLASSES["image"], 512),
    "public_encoder": Trained(Encoder, _symbols(_LENGTH), CLASSES["text"], 32),
    "public_lstm": Trained(lambda: build_model("leaf_lstm", 80, "text", 0), _symbols(WINDOW), CLASSES["text"], 32, ()),
    "public_lora": Trained(_with_lora, _symbols(_LENGTH, _WORDS), CLASSES["text"], 16),
}
"""Workload -> what trains. Opacus replaces an nn.LSTM by code of its own, ten times as slow: see the workload lstm."""


def time_public(workload: str, rounds: int) -> dict[str, Outcome]:
    """Seconds of a step of each way to train, and the peak memory of plain SGD and of this project."""
    trained = TRAINED[workload]
    ways = ["sgd", "subjectdp_public", *(f"opacus_{mode}" for mode in trained.opacus)]
    outcomes, steps = {name: Outcome() for name in ways}, {}
    for name in ways:
        with peers_may_fail(name, outcomes[name]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step = stepping(name, trained)
            step()
            steps[name] = step
    for name, timed in interleave(steps, rounds, warm_up=2).items():
        outcomes[name].cpu, outcomes[name].wall = timed.cpu, timed.wall
    return outcomes


def measure_public(workload: str) -> dict[str, int]:
    """Peak bytes of plain SGD's and of this project's steps; empty where that cannot be measured."""
    names = ("sgd", "subjectdp_public") if unmeasurable() is None else ()
    return {name: peak_bytes(_peak, name, workload) for name in names}


def _peak(name: str, workload: str) -> int:
    """After steps of a small model, so that code pages and the compiler do not count."""
    warnings.simplefilter("ignore")
    small = Trained(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2)), lambda n: torch.randn(n, 8), 2, 8)
    stepping(name, small)()
    return growth(stepping(name, TRAINED[workload]))


class _Items(TensorDataset):
    """A mini-batch at once where the tensors are on a GPU: item by item it would wait for as many copies."""

    def __getitems__(self, positions: list[int]) -> Any:
        rows = torch.tensor(positions, device=self.tensors[0].device)
        return self[rows] if self.tensors[0].is_cuda else [self[position] for position in positions]


def _batch(items: Any) -> Any:
    return items if isinstance(items, tuple) else default_collate(items)


def stepping(name: str, trained: Trained, device: str = "cpu") -> Callable[[], None]:
    """One step after another; its mini-batches come from a loader."""
    torch.manual_seed(0)
    model, items = trained.model().train().to(device), _EPOCH * trained.batch
    data = _Items(trained.items(items).to(device), torch.randint(0, trained.classes, (items,)).to(device))
    collate = _batch if data.tensors[0].is_cuda else None
    loader, criterion = DataLoader(data, trained.batch, shuffle=True, collate_fn=collate), nn.CrossEntropyLoss()
    if name.startswith("opacus"):
        model = ModuleValidator.fix(model)
    optimiser: Any = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.01)
    batches: Any = _again(loader)
    if name == "subjectdp_public":
        people = [item // _OF_A_PERSON for item in range(items)]
        settings = subjectdp.PrivacySettings(noise_multiplier=1.0, max_items_per_subject=_OF_A_PERSON)
        model, optimiser, criterion, own = subjectdp.SubjectPrivacyEngine().make_private(  # type: ignore[assignment]
            model, optimiser, criterion, loader, people, settings
        )
        batches = own.take(1_000_000)
    elif name.startswith("opacus"):
        model, optimiser, criterion, own = made_private(model, optimiser, loader, name.removeprefix("opacus_"))
        batches = _again(own)

    def step() -> None:
        inputs, labels = next(batches)
        optimiser.zero_grad()
        criterion(model(inputs), labels).backward()
        optimiser.step()

    return step


def _again(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader
