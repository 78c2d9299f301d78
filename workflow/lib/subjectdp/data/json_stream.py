"""Reads LEAF's JSON piece by piece: a file of gigabytes is never in memory as a whole, only one user of it.

LEAF's files are one object ``{users, num_samples, user_data: {user: {x, y}}, ...}``. The reader walks its
keys, and the users of ``user_data`` one by one. Strings and brackets are followed byte by byte (by one
regular expression), so that a value's end is known before the value is parsed by the standard library.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from subjectdp.data.archives import Readable
from subjectdp.errors import DataError, in_words

_CHUNK = 1 << 22
_LARGEST_VALUE = 1 << 28  # bytes; a user of the real data sets has at most 8 million
_MOST_CONTAINERS = 4_000_000  # lists and objects in one value; an item of LEAF's is one
_LONGEST_STRETCH = 1 << 26  # bytes without a bracket or the end of a string
_MOST_KEYS = 1_000_000  # users of a file
_DEEPEST = 32  # LEAF's values are two deep
_NO_SPACE = re.compile(rb"[^ \t\r\n]")
# A whole string, a bracket, or the quote of a string that the buffer does not hold whole. Possessive: a string that
# does not end is given up at once, without a way back for each of its characters.
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)
_SCALAR_END = re.compile(rb"[,}\]\s]")


class _Reader:
    """A buffer over a binary stream that gives whole JSON values."""

    def __init__(self, stream: Readable, name: str):
        self._stream, self._name = stream, name
        self._buffer = b""
        self._at = 0

    def fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self._name}: {problem}. Expected LEAF's JSON; get or make the file again.")

    def _more(self) -> bool:
        """Reads on, each time twice as far where one value is long: what is there is looked through again."""
        chunk = self._stream.read(max(_CHUNK, len(self._buffer) - self._at))
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0
        if len(self._buffer) > _LARGEST_VALUE:
            self.fail(f"a single value is longer than {_LARGEST_VALUE} bytes")
        return bool(chunk)

    def peek(self) -> bytes:
        """The next byte that is not white space; b'' at the end."""
        while (found := _NO_SPACE.search(self._buffer, self._at)) is None:
            self._at = len(self._buffer)
            if not self._more():
                return b""
        self._at = found.start()
        return found[0]

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
            return json.loads(
                raw.decode(), parse_constant=self._refuse_constant, object_pairs_hook=self._object
            )
        except (ValueError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            self.fail(f"a value cannot be read ({error})")

    def _refuse_constant(self, name: str) -> NoReturn:
        self.fail(f"a number is {name}")

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            self.fail("an object has the same key twice")
        return content

    def _end_of_nested(self) -> int:
        depth, containers, place = 0, 0, self._at
        while True:
            for token in _TOKEN.finditer(self._buffer, place):
                if token[0] == b'"':
                    place = token.start()
                    break
                place = token.end()
                first = self._buffer[token.start()]
                if first in b"{[":
                    depth, containers = depth + 1, containers + 1
                    if depth > _DEEPEST or containers > _MOST_CONTAINERS:
                        self.fail(f"a value is nested deeper than {_DEEPEST}, or of too many parts")
                elif first in b"}]":
                    depth -= 1
                if depth == 0:
                    return place
            if len(self._buffer) - place > _LONGEST_STRETCH:
                self.fail(f"a text or a list is longer than {_LONGEST_STRETCH} bytes")
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
                self.fail(f"{kind} {in_words(key)} comes twice")
            if len(seen) == _MOST_KEYS:
                self.fail(f"it has more than {_MOST_KEYS} of what is called {kind}")
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
