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
    """Logits = (W x + Σ_t E_t[c_t]) / √tables, x one-hot in each of the last ``singles`` characters; all start at 0.

    Table ``pairs[k]`` is indexed by the character k places before the last and the one before it. There are
    classes · (singles · classes + pairs · classes²) weights. Without pairs the model is one linear layer.
    """

    scale: Tensor

    def __init__(self, classes: int, shape: tuple[int, ...], singles: int, pairs: int) -> None:
        super().__init__()
        self.classes = classes
        self.register_buffer("scale", torch.tensor(1 / math.sqrt(singles + pairs)), persistent=False)
        self.singles = nn.Linear(singles * classes, classes, bias=False) if singles else None
        self.pairs = nn.ModuleList(nn.Embedding(classes**2, classes) for _ in range(pairs))
        for weight in self.parameters():
            nn.init.zeros_(weight)

    def forward(self, characters: Tensor) -> Tensor:
        parts = [] if self.singles is None else [self.singles(self._one_hot(characters, self.singles.in_features))]
        for back, table in enumerate(self.pairs):
            earlier, later = characters[:, -2 - back], characters[:, -1 - back]
            parts.append(table(earlier * self.classes + later) * self.scale)
        logits: Tensor = sum(parts[1:], parts[0])
        return logits

    def _one_hot(self, characters: Tensor, inputs: int) -> Tensor:
        """(B, inputs) the last characters, the newest first, each as ``scale`` at its place."""
        starts = torch.arange(0, inputs, self.classes, device=characters.device)
        places = characters[:, -len(starts) :].flip(1) + starts
        return self.scale.new_zeros(len(characters), inputs).scatter(1, places, self.scale.expand(places.shape))
