"""JSON with a checksum of its own content, so that any change is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

SEAL = "seal"
"""The key of the hash."""


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with its hash; keys are text and values JSON-able."""
    return {**content, SEAL: _digest(content)}


def is_intact(content: Any) -> bool:
    """Whether ``content``, read from a file, is a mapping whose checksum fits."""
    return isinstance(content, Mapping) and content.get(SEAL) == _digest(content)


def _digest(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != SEAL}
    # through JSON once, as a reader gets it: tuples become lists, keys text
    text = json.dumps(json.loads(json.dumps(rest)), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
