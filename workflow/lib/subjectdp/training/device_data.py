"""The prepared data as tensors on the device, and fixed features of all items, kept on disk for the runs that use them.

Features depend on the items and the model's fixed part only. A file carries the hash of its content; one that is
missing or changed is computed anew, in the same portions as without a cache, so that results have the same bits.
"""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.config.fingerprint import fingerprint
from subjectdp.data.store import PreparedData
from subjectdp.io.atomic import atomic_open

_DIGEST = 32  # bytes of a sha256, at the head of a file


class FeatureCache:
    """One file: the float32 (items, width) features of a data set, with these hashes, by a model's fixed part."""

    def __init__(self, folder: Path | str, data: Mapping[str, Any], model: Mapping[str, Any]) -> None:
        content = {
            "data": dict(data),
            "model": dict(model),
            "code": fingerprint(f"model:{model['name']}"),  # the hash of learned weights is in the code
            "torch": torch.__version__,
            "processor": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
        }
        key = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
        self.path = Path(folder) / f"features-{key[:32]}.bin"

    def table(self, items: int, compute: Callable[[], Tensor]) -> Tensor:
        """The kept features of ``items`` items, or those of ``compute()``, a CPU tensor, which are then kept."""
        if (kept := self._read(items)) is not None:
            return torch.from_numpy(kept)
        made = compute()
        content = made.contiguous().numpy().data.cast("B")
        with atomic_open(self.path) as stream:
            stream.write(hashlib.sha256(content).digest())
            stream.write(content)
        return made

    def _read(self, items: int) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        try:
            with open(self.path, "rb") as stream:
                digest = stream.read(_DIGEST)
                if hashlib.file_digest(stream, "sha256").digest() != digest:
                    return None
        except OSError:
            return None
        return np.memmap(self.path, np.float32, mode="c", offset=_DIGEST).reshape(items, -1)


# Levels from 0 for the background to 1 are shifted and scaled by public constants: a DP run may not take the mean of
# its private data.
INK_SHIFT, INK_SCALE = 0.17, 0.33
_FEATURES_AT_ONCE = 256


@dataclass(frozen=True)
class FixedFeatures:
    """The features that a model computes from items alone, before anything is trained."""

    compute: Callable[[Tensor], Tensor]  # items (n, ...) to features float32 (n, width)
    used: NDArray[np.int32] | None = None  # addresses of the items whose features are needed; None: all
    kept: FeatureCache | None = None  # for other runs, then of all items; None: computed for this run


class DeviceDataset:
    """All items of a prepared data set on a device, addressed as in the prepared format.

    On the CPU the features stay a memory map, whose pages processes share. Images come out as float32 (n, channels,
    height, width), vectors as float32 (n, numbers), text as int64 (n, window); labels as int64 (n,), or float32 where
    they are numbers. With ``features`` items come out as these, float32 (n, width), computed here once.
    """

    def __init__(self, prepared: PreparedData, device: torch.device, features: FixedFeatures | None = None) -> None:
        self.kind, self.window, self.device = prepared.kind, prepared.window, device
        self.features = _read_only(prepared.features).to(device)
        self.labels = _read_only(prepared.labels).to(device)
        grey = torch.arange(256, dtype=torch.float32, device=device)
        light = 255.0 - grey if prepared.dark_on_light else grey
        self._shade = (light / 255.0 - INK_SHIFT) / INK_SCALE
        self._computed = None if features is None else self._table(features)

    def batch(self, addresses: NDArray[np.int32] | NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """The items at these addresses and their labels; none gives empty tensors."""
        return self.at(to_device(np.ascontiguousarray(addresses, dtype=np.int64), self.device))

    def at(self, where: Tensor) -> tuple[Tensor, Tensor]:
        if self._computed is not None:
            return self._computed.index_select(0, where), self._targets(where)
        return self._items(where)

    def _targets(self, where: Tensor) -> Tensor:
        if self.kind == "text":
            return self.features[where + self.window].long()
        labels = self.labels.index_select(0, where)
        return labels if labels.is_floating_point() else labels.long()

    def _count(self) -> int:
        return len(self.features) - self.window if self.kind == "text" else len(self.labels)

    def _items(self, where: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind == "image":
            pixels = self.features.index_select(0, where)
            levels = self._shade.index_select(0, pixels.view(-1).int()).view(pixels.shape)
            channels_first = levels.unsqueeze(1) if levels.dim() == 3 else levels.permute(0, 3, 1, 2)
            return channels_first.contiguous(), self._targets(where)
        if self.kind == "vector":
            return self.features[where], self._targets(where)
        windows = self.features.unfold(0, self.window, 1)  # a view, whose row k starts at character k
        return windows.index_select(0, where).long(), self._targets(where)

    def _table(self, features: FixedFeatures) -> Tensor:
        every, used = np.arange(self._count()), features.used
        if features.kept is not None:
            return features.kept.table(len(every), partial(self._of_items, features.compute, every))
        return self._of_items(features.compute, every if used is None else np.unique(used))

    @torch.no_grad()
    def _of_items(self, features: Callable[[Tensor], Tensor], used: NDArray[np.integer[Any]]) -> Tensor:
        """The features (n, width) of the used items, sorted, at their addresses; zeros elsewhere cost no memory.

        Portions start at multiples of their size and are computed whole: features have the same bits whatever else is
        used.
        """
        count, table = self._count(), None
        for portion in np.unique(used // _FEATURES_AT_ONCE):
            start = int(portion) * _FEATURES_AT_ONCE
            end = min(start + _FEATURES_AT_ONCE, count)
            items, _ = self._items(torch.arange(start, end, device=self.device))
            rows = features(items)
            if table is None:
                table = torch.zeros((count, rows.shape[1]), device=self.device)
            first, last = np.searchsorted(used, (start, end))
            inside = to_device(used[first:last].astype(np.int64), self.device)
            table[inside] = rows[inside - start]
        return torch.zeros((count, 0), device=self.device) if table is None else table


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """The array's values on the device, without waiting for it; on the CPU they share the array's memory."""
    values = torch.from_numpy(array)
    if device.type != "cuda":
        return values.to(device)
    # torch keeps pinned memory until copies from it have ended
    return values.pin_memory().to(device, non_blocking=True)


def _read_only(array: NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.asarray(array))
