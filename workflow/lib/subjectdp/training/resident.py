"""The prepared data as resident tensors: loading a mini-batch is an index into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.data.store import PreparedData

# Ink is 1 and paper 0 (LEAF stores paper as 1), then shifted and scaled by public constants: a DP run may not take
# the mean of its private data.
INK_SHIFT, INK_SCALE = 0.17, 0.33
_FEATURES_AT_ONCE = 256


class ResidentData:
    """All items of a prepared data set on a device, addressed as in the prepared format.

    On the CPU the features stay the memory map that they are: all processes of a machine share its pages. Images come
    out as float32 (n, 1, 28, 28), text as int64 (n, window); labels as int64 (n,).

    Where the model has fixed features, items come out as these: float32 (n, width), computed here, once, for the items
    that are ``used`` (addresses; None: all).
    """

    def __init__(
        self,
        prepared: PreparedData,
        device: torch.device,
        features: Callable[[Tensor], Tensor] | None = None,
        used: NDArray[np.int32] | None = None,
    ) -> None:
        self.kind = prepared.kind
        self.window = prepared.window
        self.device = device
        self.features = _read_only(prepared.features).to(device)
        self.labels = _read_only(prepared.labels).to(device)
        grey = torch.arange(256, dtype=torch.float32, device=device)
        self._shade = ((255.0 - grey) / 255.0 - INK_SHIFT) / INK_SCALE
        self._positions = torch.arange(self.window, device=device)
        self._computed: Tensor | None = None
        if features is not None:
            every = np.arange(len(prepared.labels)) if used is None else np.unique(used)
            self._computed = self._of_items(features, to_device(every.astype(np.int64), device))

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The items at these addresses and their labels; none gives empty tensors."""
        return self.at(to_device(np.ascontiguousarray(addresses, dtype=np.int64), self.device))

    def at(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """The same for addresses int64 (n,) that lie on the device; does not wait for it."""
        if self._computed is not None:
            return self._computed[where], self.labels[where].long()
        return self._items(where)

    def _items(self, where: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind == "image":
            images = self._shade[self.features[where].int()].unsqueeze(1)
            return images, self.labels[where].long()
        windows = self.features[where.unsqueeze(1) + self._positions]
        return windows.long(), self.features[where + self.window].long()

    @torch.no_grad()
    def _of_items(self, features: Callable[[Tensor], Tensor], used: Tensor) -> Tensor:
        """The features (n, width) of the used items, at their addresses; zeros elsewhere, which cost no memory."""
        parts = [features(self._items(part)[0]) for part in torch.split(used, _FEATURES_AT_ONCE)]
        found = torch.cat(parts)
        table = torch.zeros((len(self.labels), found.shape[1]), device=self.device)
        return table.index_copy_(0, used, found)


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array's values on the device, without waiting for it; on the CPU they share the array's memory."""
    values = torch.from_numpy(array)
    if device.type != "cuda":
        return values.to(device)
    # torch keeps pinned memory until copies from it have ended
    return values.pin_memory().to(device, non_blocking=True)


def _read_only(array: NDArray[Any]) -> Tensor:
    """A tensor on the array's own memory, which nobody writes to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))
