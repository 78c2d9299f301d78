"""Reads LEAF's JSON piece by piece: a file of gigabytes is never in memory as a whole, only one user of it.

LEAF's files are one object ``{users, num_samples, user_data: {user: {x, y}}, ...}``. The reader walks its
keys, and the users of ``user_data`` one by one. Strings and brackets are followed byte by byte (by one
regular expression), so that a value's end is known before the value is parsed by the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

from subjectdp.errors import DataError

_CHUNK = 1 << 22
_LARGEST_VALUE = 1 << 30
_SPACE = b" \t\r\n"
# A whole string, a bracket, or the quote of a string that the buffer does not hold whole.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]"]', re.DOTALL)
_SCALAR_END = re.compile(rb"[,}\]\s]")


class Readable(Protocol):
    """What the reader needs of a binary stream."""

    def read(self, size: int = -1, /) -> bytes:
        """Up to ``size`` bytes; b'' at the end."""
        ...


class _Reader:
    """A buffer over a binary stream that gives whole JSON values."""

    def __init__(self, stream: Readable, name: str):
        self._stream, self._name = stream, name
        self._buffer = b""
        self._at = 0

    def fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self._name}: {problem}. Expected LEAF's JSON; get or make the file again.")

    def _more(self) -> bool:
        chunk = self._stream.read(_CHUNK)
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        if len(self._buffer) > _LARGEST_VALUE:
            self.fail(f"a single value is longer than {_LARGEST_VALUE} bytes")
        return bool(chunk)

    def peek(self) -> bytes:
        """The next byte that is not white space; b'' at the end."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in _SPACE:
                    return self._buffer[self._at : self._at + 1]
                self._at += 1
            if not self._more():
                return b""

    def take(self, allowed: bytes) -> bytes:
        """Takes the next byte, which must be one of ``allowed``."""
        byte = self.peek()
        if byte == b"":
            self.fail("the file ends too early (truncated)")
        if byte not in allowed:
            self.fail(f"found {byte!r} where one of {allowed!r} belongs: not valid JSON")
        self._at += 1
        return byte

    def value(self) -> Any:
        """Parses the next value whole."""
        first = self.peek()
        if first == b"":
            self.fail("the file ends too early (truncated)")
        end = self._end_of_nested() if first in b'{["' else self._end_of_scalar()
        raw = self._buffer[self._at : end]
        self._at = end
        try:
            return json.loads(raw, parse_constant=self._refuse_constant)
        except (ValueError, RecursionError) as error:
            self.fail(f"a value cannot be read ({error})")

    def _refuse_constant(self, name: str) -> NoReturn:
        self.fail(f"a number is {name}")

    def _end_of_nested(self) -> int:
        depth, place = 0, self._at
        while True:
            for token in _TOKEN.finditer(self._buffer, place):
                if token[0] == b'"':
                    place = token.start()
                    break
                place = token.end()
                first = self._buffer[token.start()]
                depth += (first in b"{[") - (first in b"}]")
                if depth == 0:
                    return place
            done = place - self._at
            if not self._more():
                self.fail("the file ends inside of a value (truncated)")
            place = self._at + done

    def _end_of_scalar(self) -> int:
        place = self._at
        while (found := _SCALAR_END.search(self._buffer, place)) is None:
            done = len(self._buffer) - self._at
            if not self._more():
                return len(self._buffer)
            place = self._at + done
        return found.start()

    def members(self, kind: str) -> Iterator[str]:
        """Walks an object's keys, each there once and called ``kind``; the caller takes each value before the next."""
        seen: set[str] = set()
        self.take(b"{")
        if self.peek() == b"}":
            self.take(b"}")
            return
        while True:
            if self.peek() != b'"':
                self.take(b'"')
            key = str(self.value())
            self.take(b":")
            if key in seen:
                self.fail(f"{kind} {key!r} comes twice")
            seen.add(key)
            yield key
            if self.take(b",}") == b"}":
                return


def read_users(stream: Readable, name: str, header: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields (user, value) of ``user_data``; the other top-level keys are put into ``header`` as they come.

    ``header`` is complete when the iteration ends. DataError for anything but one whole JSON object with a
    ``user_data`` object, each key once, and nothing behind it.
    """
    reader = _Reader(stream, name)
    if reader.peek() in (b"", b"<"):
        reader.fail("the file is empty" if reader.peek() == b"" else "the file is a web page or XML")
    seen: list[str] = []
    for key in reader.members("key"):
        seen.append(key)
        if key == "user_data":
            yield from _users(reader)
        else:
            header[key] = reader.value()
    if reader.peek() != b"":
        reader.fail("there is more after the end of the object")
    if "user_data" not in seen:
        reader.fail(f"key 'user_data' is missing (found: {', '.join(sorted(seen)) or 'none'})")


def _users(reader: _Reader) -> Iterator[tuple[str, Any]]:
    if reader.peek() not in (b"{", b""):
        reader.fail("user_data is not an object")
    for user in reader.members("user"):
        yield user, reader.value()
