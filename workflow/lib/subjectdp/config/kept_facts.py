"""Facts about files, kept by a hash of what they were read from, so that each content is read once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from subjectdp.errors import StorageError
from subjectdp.io.atomic import write_bytes
from subjectdp.io.checksummed_json import is_intact, sealed

_MOST = 2000  # facts in the file; above, those that nobody asked for are dropped


class KeptFacts:
    """JSON-able facts in one file; without the file, or where it cannot be written, they are computed.

    Args:
        path: of the file. Its folder is made.
        made_by: what computes the facts; others' facts do not count.
    """

    def __init__(self, path: Path, made_by: str) -> None:
        self._path, self._made_by = path, made_by
        self._facts, self._asked, self._new = self._read(), set[str](), False

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(self._path.read_bytes())
            own = is_intact(content) and content["made_by"] == self._made_by
            return dict(content["facts"]) if own else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def fact(self, source: bytes, compute: Callable[[], Any]) -> Any:
        """The fact that ``compute`` reads from ``source``."""
        key = hashlib.sha256(source).hexdigest()
        self._asked.add(key)
        if key not in self._facts:
            self._facts[key], self._new = compute(), True
        return self._facts[key]

    def write(self) -> None:
        """Keeps new facts for other processes, if there are any."""
        if not self._new:
            return
        if len(self._facts) > _MOST:
            self._facts = {key: self._facts[key] for key in self._asked}
        content = sealed({"made_by": self._made_by, "facts": self._facts})
        try:
            write_bytes(self._path, json.dumps(content).encode())
        except (OSError, StorageError):
            return  # a library that cannot be written to
        self._new = False
