"""Recurrent networks for next-character prediction: inputs int64 (B, 80), outputs logits (B, classes)."""

from __future__ import annotations

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
