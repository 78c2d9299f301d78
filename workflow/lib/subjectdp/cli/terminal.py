"""What depends on the terminal: a line that is written again, and colours."""

from __future__ import annotations

import os
import shutil
import time
from typing import IO

EVERY_SECONDS_IN_A_LOG = 30.0

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "grey": 90}


def coloured(text: str, colour: str, stream: IO[str]) -> str:
    """``text`` in a colour where ``stream`` is a terminal and NO_COLOR (no-color.org) is not set."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m"


class Line:
    """One line that is written again on a terminal; elsewhere a new one every half minute, if it changed."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._last, self._at = "", -EVERY_SECONDS_IN_A_LOG

    def show(self, text: str) -> None:
        """Shows ``text`` in place of the last one."""
        if self._terminal:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[2K{text[:width]}")
        elif text != self._last and time.monotonic() - self._at >= EVERY_SECONDS_IN_A_LOG:
            self._stream.write(f"{text}\n")
            self._at = time.monotonic()
        self._last = text
        self._stream.flush()

    def end(self, text: str) -> None:
        """Shows ``text`` for good; nothing is left of an empty one."""
        if not text and not self._terminal:
            return
        self._stream.write(f"\r\x1b[2K{text}{chr(10) if text else ''}" if self._terminal else f"{text}\n")
        self._stream.flush()
