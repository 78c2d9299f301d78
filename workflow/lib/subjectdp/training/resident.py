"""The prepared data as resident tensors: loading a mini-batch is an index into memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.data.store import PreparedData

# Ink is 1 and paper 0 (LEAF stores paper as 1), then shifted and scaled by public constants: a DP run may not take
# the mean of its private data.
INK_SHIFT, INK_SCALE = 0.17, 0.33


class ResidentData:
    """All items of a prepared data set on a device, addressed as in the prepared format.

    Images come out as float32 (n, 1, 28, 28), text as int64 (n, window); labels as int64 (n,).
    """

    def __init__(self, prepared: PreparedData, device: torch.device) -> None:
        self.kind = prepared.kind
        self.window = prepared.window
        self.device = device
        self.features = torch.from_numpy(np.array(prepared.features)).to(device)
        self.labels = torch.from_numpy(np.array(prepared.labels)).to(device)
        grey = torch.arange(256, dtype=torch.float32, device=device)
        self._shade = ((255.0 - grey) / 255.0 - INK_SHIFT) / INK_SCALE
        self._positions = torch.arange(self.window, device=device)

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The items at these addresses and their labels; none gives empty tensors."""
        where = torch.from_numpy(np.ascontiguousarray(addresses, dtype=np.int64)).to(self.device)
        if self.kind == "image":
            images = self._shade[self.features[where].int()].unsqueeze(1)
            return images, self.labels[where].long()
        windows = self.features[where.unsqueeze(1) + self._positions]
        return windows.long(), self.features[where + self.window].long()

    def batches(self, addresses: NDArray[np.int32], size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The items at these addresses, in order, ``size`` at a time."""
        for start in range(0, len(addresses), size):
            yield self.batch(addresses[start : start + size])
