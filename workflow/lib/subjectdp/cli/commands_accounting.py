"""``subjectdp account``, ``calibrate`` and ``table1``: the commands that the accounting package brings."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MODULE = "subjectdp.accounting.commands"


def add_parsers(commands: Any) -> None:
    """Adds the accounting package's commands; they import what they need when they run."""
    if find_spec(_MODULE) is not None:
        import_module(_MODULE).add_parsers(commands)
