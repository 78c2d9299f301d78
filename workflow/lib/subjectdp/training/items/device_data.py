"""The prepared data as resident tensors: loading a mini-batch is an index into memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.data.store import PreparedData
from subjectdp.errors import ConfigError, expected
from subjectdp.training.items.augmentation import Warp
from subjectdp.training.items.augmentation import warped as warped_images

if TYPE_CHECKING:
    from subjectdp.training.items.feature_cache import FeatureCache

# Ink is 1 and paper 0 (LEAF stores paper as 1), then shifted and scaled by public constants: a DP run may not take
# the mean of its private data.
INK_SHIFT, INK_SCALE = 0.17, 0.33
_FEATURES_AT_ONCE = 256


class ResidentData:
    """All items of a prepared data set on a device, addressed as in the prepared format.

    On the CPU the features stay the memory map that they are: all processes of a machine share its pages. Images come
    out as float32 (n, 1, 28, 28), text as int64 (n, window); labels as int64 (n,).

    Where the model has fixed features, items come out as these: float32 (n, width), computed here, once, for the items
    that are ``used`` (addresses; None: all), or for all of them where they are ``kept`` for other runs.

    An item has a view for each of ``warps`` beside the plain one. Views of images are made whenever they are asked
    for; features of the views are computed once, those of a warp for the items that are ``warped`` (None: ``used``).

    Raises:
        ConfigError: warps of items that are no images.
    """

    def __init__(
        self,
        prepared: PreparedData,
        device: torch.device,
        features: Callable[[Tensor], Tensor] | None = None,
        used: NDArray[np.int32] | None = None,
        kept: FeatureCache | None = None,
        warps: Sequence[Warp] = (),
        warped: NDArray[np.int32] | None = None,
    ) -> None:
        if warps and prepared.kind != "image":
            raise expected(
                "training.augmentation.name", "warp", f"none for {prepared.kind} data", ConfigError
            )
        self.kind = prepared.kind
        self.window = prepared.window
        self.device = device
        self.features = _read_only(prepared.features).to(device)
        self.labels = _read_only(prepared.labels).to(device)
        grey = torch.arange(256, dtype=torch.float32, device=device)
        self._shade = ((255.0 - grey) / 255.0 - INK_SHIFT) / INK_SCALE
        self._positions = torch.arange(self.window, device=device)
        self._views: tuple[Warp | None, ...] = (None, *warps)
        self._computed: list[Tensor] = []
        if features is not None:
            seen = [used, *[used if warped is None else warped] * len(warps)]
            for view, items in zip(self._views, seen, strict=True):
                self._computed.append(self._table(features, items, kept, view))

    @property
    def views(self) -> int:
        """Views of each item, the plain one among them."""
        return len(self._views)

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The items at these addresses and their labels; none gives empty tensors."""
        return self.at(to_device(np.ascontiguousarray(addresses, dtype=np.int64), self.device))

    def at(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """The same for addresses int64 (n,) that lie on the device; does not wait for it."""
        if self._computed:
            return self._computed[0][where], self.labels[where].long()
        return self._items(where)

    def all_views(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """All views of the items at these addresses, item by item: inputs (n · views, ...), labels (n · views,)."""
        where = to_device(np.ascontiguousarray(addresses, dtype=np.int64), self.device)
        if self._computed:
            seen = [table[where] for table in self._computed]
            labels = self.labels[where].long()
        else:
            plain, labels = self._items(where)
            seen = [self._view(plain, view) for view in self._views]
        return torch.stack(seen, dim=1).flatten(0, 1), labels.repeat_interleave(self.views)

    def _view(self, items: Tensor, view: Warp | None) -> Tensor:
        return items if view is None else warped_images(items, view, float(self._shade[255]))

    def _items(self, where: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind == "image":
            images = self._shade[self.features[where].int()].unsqueeze(1)
            return images, self.labels[where].long()
        windows = self.features[where.unsqueeze(1) + self._positions]
        return windows.long(), self.features[where + self.window].long()

    def _table(
        self,
        features: Callable[[Tensor], Tensor],
        used: NDArray[np.int32] | None,
        kept: FeatureCache | None,
        view: Warp | None,
    ) -> Tensor:
        """The features (items, width) of one view, kept for other runs or of the used items alone."""
        every = np.arange(len(self.labels))
        if kept is not None:
            compute = partial(self._of_items, features, every, view)
            return kept.of_view(view).table(len(every), compute)
        return self._of_items(features, every if used is None else np.unique(used), view)

    @torch.no_grad()
    def _of_items(
        self, features: Callable[[Tensor], Tensor], used: NDArray[np.integer[Any]], view: Warp | None
    ) -> Tensor:
        """The features (n, width) of the used items, at their addresses; zeros elsewhere, which cost no memory.

        Portions lie at multiples of their size and are computed whole: an item's features are the same to the bit
        whatever other items are used.
        """
        count, table = len(self.labels), None
        for portion in np.unique(used // _FEATURES_AT_ONCE):
            start = int(portion) * _FEATURES_AT_ONCE
            end = min(start + _FEATURES_AT_ONCE, count)
            items, _ = self._items(torch.arange(start, end, device=self.device))
            found = features(self._view(items, view))
            if table is None:
                table = torch.zeros((count, found.shape[1]), device=self.device)
            inside = to_device(used[(start <= used) & (used < end)].astype(np.int64), self.device)
            table[inside] = found[inside - start]
        return torch.zeros((count, 0), device=self.device) if table is None else table


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
