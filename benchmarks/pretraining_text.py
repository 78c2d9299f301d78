"""Trains features of English on a public text, for ``python -m benchmarks.pretrain --text``.

The package's weights come from the King James Bible, as Debian's ``bible -l70 gen1:1-rev22:21`` (package bible-kjv)
prints it. A network learns to predict the next character; its outputs give the projection. All randomness is keyed and
one thread is used: the same machine gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from benchmarks.pretraining import project
from subjectdp.data.shakespeare import VOCABULARY, encode
from subjectdp.errors import expected
from subjectdp.io.atomic import write_bytes
from subjectdp.models.english import CONSTANT, OUTPUTS, SEEN, EnglishNet
from subjectdp.models.handwriting import half
from subjectdp.noise.keys import Purpose, key_bytes, numpy_generator
from subjectdp.noise.torch_keys import keyed_generator

_LEAST = 1000  # characters
_PROJECTED = 60_000  # windows that the projection is computed from
_LINE = (34, 50)  # characters of a line of verse
_TURN = 0.05  # chance that a line ends a passage of verse or of prose
_VERSE = 0.7  # share of passages that are verse
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class TextSettings:
    """Settings of a pretraining on text; ``power``: as of :class:`benchmarks.pretraining.Settings`."""

    steps: int = 8000
    batch_size: int = 512
    learning_rate: float = 3e-3
    weight_decay: float = 0.01
    power: float = 0.25
    seed: int = 20_261_122


def pretrain_text(settings: TextSettings, text: Path, target: Path) -> None:
    """Trains on a text file and writes the weights with their provenance (safetensors, float16).

    Raises:
        ConfigError: a text that is too short.
    """
    torch.set_num_threads(1)  # sums in one order, on any machine
    raw = text.read_bytes()
    symbols = torch.from_numpy(encode(as_verse(plain(raw.decode("utf-8")), settings.seed)).astype(np.int64))
    if len(symbols) < _LEAST:
        raise expected(f"text of {text}", f"{len(symbols)} characters", f"at least {_LEAST} characters long")
    net, head, accuracy = train_net(symbols, settings)
    places = _places(symbols, _PROJECTED, keyed_generator(key_bytes(settings.seed, Purpose.PRETRAINING, "outputs")))
    with torch.no_grad():
        outputs = torch.cat([net(_windows(symbols, part)[:, :-1]) for part in torch.split(places, 5000)])
    projection, mean = project(outputs, settings.power)
    tensors = half({f"net.{name}": value for name, value in net.state_dict().items()})
    tensors |= half({"projection": projection, "mean": mean, "head": head_of_features(head, projection, mean)})
    found = {"text_sha256": hashlib.sha256(raw).hexdigest(), "training_accuracy": round(accuracy, 4)}
    made = {**asdict(settings), **found, "torch": torch.__version__}
    write_bytes(target, save(tensors, {"provenance": json.dumps(made, sort_keys=True)}))


def plain(text: str) -> str:
    """The text without numbers of verses, without symbols that LEAF lacks, its runs of blanks and lines made one."""
    numberless = re.sub(r"(?m)^\s*\d+\s", " ", text)
    return "".join(symbol for symbol in re.sub(r"\s+", " ", numberless) if symbol in VOCABULARY)


def as_verse(text: str, seed: int) -> str:
    """The text with a capital at the start of most lines, as verse is printed; where lines end is drawn at random."""
    generator = numpy_generator(seed, Purpose.PRETRAINING, "verse")
    words, verse, left = text.split(" "), True, 0
    for index, word in enumerate(words):
        if left <= 0:
            left = int(generator.integers(*_LINE))
            words[index] = word[:1].upper() + word[1:] if verse else word
            verse = generator.random() < _VERSE if generator.random() < _TURN else verse
        left -= len(word) + 1
    return " ".join(words)


def train_net(symbols: Tensor, settings: TextSettings) -> tuple[EnglishNet, nn.Linear, float]:
    """The network and its head, trained on windows of ``symbols`` (n,), and its accuracy over the last tenth."""
    generator = keyed_generator(key_bytes(settings.seed, Purpose.PRETRAINING, "train text"))
    with torch.random.fork_rng(devices=[]):
        torch.random.set_rng_state(
            keyed_generator(key_bytes(settings.seed, Purpose.PRETRAINING, "init text")).get_state()
        )
        net, head = EnglishNet(), nn.Linear(OUTPUTS, len(VOCABULARY))
    parameters = [*net.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, settings.learning_rate, total_steps=settings.steps, pct_start=0.1
    )
    right = []
    for step in range(settings.steps):
        windows = _windows(symbols, _places(symbols, settings.batch_size, generator))
        logits = head(net(windows[:, :-1]))
        loss = F.cross_entropy(logits, windows[:, -1])
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        schedule.step()
        right.append(float((logits.argmax(1) == windows[:, -1]).float().mean()))
        if step % 1000 == 999:
            _LOG.info("step %d of %d: accuracy %.3f", step + 1, settings.steps, np.mean(right[-1000:]))
    return net, head, float(np.mean(right[-max(1, settings.steps // 10) :]))


def head_of_features(head: nn.Linear, projection: Tensor, mean: Tensor) -> Tensor:
    """Weights (symbols, OUTPUTS + 1) on the features that give the logits of ``head`` on the outputs."""
    weight, bias = head.weight.detach(), head.bias.detach()
    projected = weight @ torch.linalg.pinv(projection).T
    return torch.cat([projected, ((bias + weight @ mean) / CONSTANT)[:, None]], dim=1)


def _places(symbols: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, len(symbols) - SEEN, (count,), generator=generator)


def _windows(symbols: Tensor, places: Tensor) -> Tensor:
    return symbols[places[:, None] + torch.arange(SEEN + 1)]
