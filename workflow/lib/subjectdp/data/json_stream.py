"""Reads LEAF's JSON user by user, because a parsed file takes seven times its size in memory.

LEAF's files are one object ``{users, num_samples, user_data: {user: {x, y}}, ...}``. The standard library parses each
value from a buffer; where the buffer ends within a value, more is read and the value parsed again. (``ijson`` would
need a pass over the file for each key, drops repeated keys and replaces lone surrogates in names.)
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn

from subjectdp.data.archives import Readable
from subjectdp.errors import DataError, in_words

_CHUNK = 1 << 22
_LARGEST_VALUE = 1 << 26  # characters; a user of the real data sets has at most 8 million
_AFTER_NUMBER = tuple(",}] \t\r\n")
_NO_SPACE = re.compile(r"[^ \t\r\n]")


class _Reader:
    """A text buffer over a binary stream that gives whole JSON values."""

    def __init__(self, stream: Readable, name: str) -> None:
        self._stream, self._name = stream, name
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._json = json.JSONDecoder(object_pairs_hook=self._object, parse_constant=self._refuse_constant)
        self._buffer, self._at = "", 0

    def fail(self, problem: str) -> NoReturn:
        raise DataError(f"{self._name}: {problem}. Expected LEAF's JSON; get or make the file again.")

    def peek(self) -> str:
        """The next character that is not white space; '' at the end."""
        while (found := _NO_SPACE.search(self._buffer, self._at)) is None:
            self._at = len(self._buffer)
            if not self._more():
                return ""
        self._at = found.start()
        return found[0]

    def take(self, allowed: str) -> str:
        """Take the next character, which must be one of ``allowed``."""
        character = self.peek()
        if character == "":
            self.fail("the file ends too early (truncated)")
        if character not in allowed:
            self.fail(f"found {character!r} where one of {allowed!r} belongs: not valid JSON")
        self._at += 1
        return character

    def value(self) -> Any:
        """Parse the next value."""
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if not self._more():
                    self.fail(f"a value cannot be read ({error.msg}): truncated, or not valid JSON")
            except DataError:
                raise
            except (ValueError, RecursionError) as error:
                self.fail(f"a value cannot be read ({error})")
            else:
                if self._buffer[end - 1] in '"]}' or self._buffer[end : end + 1] in _AFTER_NUMBER:
                    self._at = end
                    return value
                if not self._more():  # a number at the end of the buffer may go on
                    self._at = len(self._buffer)
                    return value

    def members(self, kind: str) -> Iterator[str]:
        """Yield an object's keys, each of which may occur once; the caller takes each value before the next key."""
        seen: set[str] = set()
        self.take("{")
        if self.peek() == "}":
            self.take("}")
            return
        while True:
            if self.peek() != '"':
                self.take('"')
            key = str(self.value())
            self.take(":")
            if key in seen:
                self.fail(f"{kind} {in_words(key)} comes twice")
            seen.add(key)
            yield key
            if self.take(",}") == "}":
                return

    def _more(self) -> bool:
        """Drop what has been parsed and read on; reads twice as much each time, since parsing restarts."""
        rest = self._buffer[self._at :]
        if len(rest) > _LARGEST_VALUE:
            self.fail(f"a single value is longer than {_LARGEST_VALUE} characters, or is not valid JSON")
        chunk = self._stream.read(max(_CHUNK, len(rest)))
        try:
            self._buffer, self._at = rest + self._decode(chunk, final=chunk == b""), 0
        except UnicodeDecodeError as error:
            self.fail(f"a value cannot be read ({error})")
        return chunk != b""

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) != len(pairs):
            self.fail("an object has the same key twice")
        return content

    def _refuse_constant(self, name: str) -> NoReturn:
        self.fail(f"a number is {name}")


def read_users(stream: Readable, name: str, header: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield (user, value) of ``user_data``; put the other top-level keys into ``header`` on the way.

    ``header`` is complete when the iteration ends. DataError unless the file is one whole JSON object with a
    ``user_data`` object, each key once, and nothing after it.
    """
    reader = _Reader(stream, name)
    if reader.peek() in ("", "<"):
        reader.fail("the file is empty" if reader.peek() == "" else "the file is a web page or XML")
    seen: list[str] = []
    for key in reader.members("key"):
        seen.append(key)
        if key == "user_data":
            yield from _users(reader)
        else:
            header[key] = reader.value()
    if reader.peek() != "":
        reader.fail("there is more after the end of the object")
    if "user_data" not in seen:
        reader.fail(f"key 'user_data' is missing (found: {', '.join(sorted(seen)) or 'none'})")


def _users(reader: _Reader) -> Iterator[tuple[str, Any]]:
    if reader.peek() not in ("{", ""):
        reader.fail("user_data is not an object")
    for user in reader.members("user"):
        yield user, reader.value()
