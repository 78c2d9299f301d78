"""Fixed features of all items of a data set, kept on disk for the runs that use them.

They depend on the items and the model's fixed part only: every run of a data set needs the same ones. A file carries
the hash of its content; one that is missing, truncated or changed is computed anew.
Features are computed in the same portions with and without a cache
(``training.items.device_data``), so that results have the same bits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from subjectdp.config.fingerprint import fingerprint
from subjectdp.io.atomic import atomic_open

_DIGEST = 32  # bytes of a sha256, at the head of a file


class FeatureCache:
    """One file: the features float32 (items, width) that one fixed part of a model makes of a data set.

    Args:
        folder: where files are kept.
        data: hashes of the prepared data.
        model: name and all parameters of the model.
    """

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
        found = self._read(items)
        if found is not None:
            return torch.from_numpy(found)
        made = compute()
        content = made.contiguous().numpy().data.cast("B")
        with atomic_open(self.path) as stream:
            stream.write(hashlib.sha256(content).digest())
            stream.write(content)
        return made

    def _read(self, items: int) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        """The kept features as a private map of the file: all processes of a machine share its pages."""
        try:
            with open(self.path, "rb") as stream:
                digest = stream.read(_DIGEST)
                if hashlib.file_digest(stream, "sha256").digest() != digest:
                    return None
        except OSError:
            return None
        return np.memmap(self.path, np.float32, mode="c", offset=_DIGEST).reshape(items, -1)
