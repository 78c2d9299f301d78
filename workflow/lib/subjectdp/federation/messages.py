"""What server and silos say to each other: public facts as JSON, and one vector, in the bytes of a safetensors file.

Nothing in them is run: a reader meets numbers and text, or refuses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from subjectdp.errors import DataError

_FACTS, _VECTOR = "facts", "vector"
PLAN, ROUND = "plan", "round"
"""Kinds of a request: whether a silo takes part in a plan, and one round of it."""


def pack(facts: Mapping[str, Any], vector: Tensor | None = None) -> bytes:
    """The bytes of a message."""
    tensors = {} if vector is None else {_VECTOR: vector.detach().cpu().contiguous()}
    return bytes(save(tensors, {_FACTS: json.dumps(facts, sort_keys=True, allow_nan=False)}))


def unpack(content: bytes) -> tuple[dict[str, Any], Tensor | None]:
    """Facts and vector of a message; DataError for anything else."""
    try:
        tensors = load(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        facts = json.loads(header["__metadata__"][_FACTS])
    except (SafetensorError, ValueError, KeyError, TypeError) as problem:
        raise DataError(f"Expected a message of a federation, got {problem!r}.") from None
    if not isinstance(facts, dict):
        raise DataError(f"Expected a message with facts, got {type(facts).__name__}.")
    return facts, tensors.get(_VECTOR)


def digest(content: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(content).hexdigest()
