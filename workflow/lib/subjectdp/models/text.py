"""Recurrent networks for next-character prediction: inputs int64 (B, 80), outputs logits (B, classes)."""

import math

import torch
from torch import Tensor, nn


class LeafLSTM(nn.Module):
    """LEAF's stacked LSTM (models/shakespeare/stacked_lstm.py) with the papers' two linear layers at the end.

    Embedding of 8, two LSTM layers of 256, then a hidden linear layer and the output layer on the last time step.
    The papers do not give the size of the hidden linear layer; ``dense`` sets it (D-61).
    """

    def __init__(self, classes: int, shape: tuple[int, ...], embedding: int, hidden: int, dense: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, embedding)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True)
        self.fc1 = nn.Linear(hidden, dense)
        self.fc2 = nn.Linear(dense, classes)

    def forward(self, characters: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(characters))
        logits: Tensor = self.fc2(torch.relu(self.fc1(states[:, -1])))
        return logits


class CharacterNGram(nn.Module):
    """Logits = Σ_t E_t[c_t] / √tables; all tables E_t start at 0.

    Table ``singles[k]`` is indexed by the character k places before the last, ``pairs[k]`` by that character and the
    one before it. There are classes · (singles · classes + pairs · classes²) weights.
    """

    def __init__(self, classes: int, shape: tuple[int, ...], singles: int, pairs: int) -> None:
        super().__init__()
        self.classes, self.scale = classes, 1 / math.sqrt(singles + pairs)
        self.singles, self.pairs = _tables(singles, classes, classes), _tables(pairs, classes**2, classes)

    def forward(self, characters: Tensor) -> Tensor:
        rows = [table(characters[:, -1 - back]) for back, table in enumerate(self.singles)]
        for back, table in enumerate(self.pairs):
            earlier, later = characters[:, -2 - back], characters[:, -1 - back]
            rows.append(table(earlier * self.classes + later))
        logits: Tensor = sum(rows[1:], rows[0])
        return logits * self.scale


def _tables(count: int, rows: int, classes: int) -> nn.ModuleList:
    tables = nn.ModuleList(nn.Embedding(rows, classes) for _ in range(count))
    for table in tables.parameters():
        nn.init.zeros_(table)
    return tables
