"""A cache of accounting results: in memory, and on disk (one JSON file each) when a folder is given."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from subjectdp.io import atomic

REVISION = 1  # raise when a calibration's result changes for the same inputs
_memory: dict[str, Any] = {}


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """The versions that a result depends on (Opacus: where it is installed)."""
    wanted = ("dp-accounting", "opacus", "scipy")
    installed = {each.name.lower() for name in wanted for each in metadata.distributions(name=name)}
    return {name: metadata.version(name) for name in wanted if name in installed}


def key_of(kind: str, inputs: Mapping[str, Any]) -> str:
    """A hash of the inputs and of the versions of the libraries that compute the result."""
    content = {"kind": kind, "inputs": inputs, "versions": versions(), "revision": REVISION}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cached(kind: str, inputs: Mapping[str, Any], folder: str | None, compute: Callable[[], Any]) -> Any:
    """The stored result for these inputs, or ``compute()`` (JSON-able), which is then stored.

    A file that is corrupt (each carries a hash of its result) or that belongs to other inputs is replaced.
    """
    key = key_of(kind, inputs)
    if key in _memory:
        value = _memory[key]
        if folder is not None and not _path(folder, key).exists():
            _store(folder, key, kind, inputs, value)
        return value
    value = None if folder is None else _load(_path(folder, key), inputs)
    if value is None:
        value = compute()
        if folder is not None:
            _store(folder, key, kind, inputs, value)
    _memory[key] = value
    return value


def forget() -> None:
    """Empties the cache in memory."""
    _memory.clear()


def _path(folder: str, key: str) -> Path:
    return Path(folder) / f"{key[:32]}.json"


def _store(folder: str, key: str, kind: str, inputs: Mapping[str, Any], value: Any) -> None:
    content = {
        "kind": kind,
        "inputs": inputs,
        "versions": versions(),
        "value": value,
        "sha256": _digest(value),
    }
    atomic.write_json(_path(folder, key), content)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _load(path: Path, inputs: Mapping[str, Any]) -> Any:
    try:
        content = json.loads(path.read_text())
        same = content["inputs"] == json.loads(json.dumps(inputs))
        return content["value"] if same and content["sha256"] == _digest(content["value"]) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
