"""Where in the scenario files the key of an error message stands: ``(my.yaml:12)`` at the end of the message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from subjectdp.errors import ConfigError

_KEY = re.compile(r"'?((?:[a-z][a-z0-9_]*)(?:\[\d+\])?(?:[.:][a-z0-9_]+(?:\[\d+\])?)*)'?")
_INDEX = re.compile(r"\[\d+\]$")


@dataclass(frozen=True)
class _Place:
    """A key or a list's entry in a file; ``key`` is dotted, ``value`` the text of a scalar."""

    key: str
    value: str | None
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@contextmanager
def error_located_in(files: Sequence[Path | str]) -> Iterator[None]:
    """Adds file and line to each line of a ConfigError of the block, where a file has the key that it is about."""
    try:
        yield
    except ConfigError as problem:
        places = [place for file in files for place in _places(file)]
        lines = [_with_place(line, places) for line in str(problem).split("\n")]
        raise ConfigError("\n".join(lines)) from None


def _with_place(line: str, places: Sequence[_Place]) -> str:
    place = next((found for key in _keys(line) if (found := _find(key, line, places)) is not None), None)
    return line if place is None else f"{line} ({place})"


def _keys(line: str) -> Iterator[str]:
    """The words of a message that may be keys: the one it is about, then others that it names."""
    if names_value := re.match(r"Unknown .*? (?:in|of) (\S+) '([^']*)'", line):
        yield f"{names_value[1]}.{names_value[2]}"
    if about := re.match(
        r"(?:Expected|Unknown key|Unknown) (?:every key under )?(?:\S+ of )?'?([^\s']+)", line
    ):
        yield about[1]
    yield from (word for word in _KEY.findall(line) if "." in word)


def _find(key: str, line: str, places: Sequence[_Place]) -> _Place | None:
    """The last place of ``key`` or its section (``algorithm: name``), first one with a value that the message shows."""
    parts = key.split(".")
    for wanted in (key, ".".join(parts[:-1])):
        matching = [p for p in places if wanted and (p.key == wanted or p.key.endswith(f".{wanted}"))]
        matching += [
            p for p in places if wanted and _INDEX.sub("", p.key).endswith(wanted) and _INDEX.search(p.key)
        ]
        shown = [p for p in matching if p.value is not None and re.search(rf"\b{re.escape(p.value)}\b", line)]
        if matching:
            return (shown or matching)[-1]
    return None


def _places(file: Path | str) -> Iterator[_Place]:
    """Every key of a YAML file with its line, in the file's order; nothing of a file that is not YAML."""
    try:
        root = yaml.compose(Path(file).read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return
    if root is not None:
        yield from _below(root, "", str(file))


def _below(node: yaml.Node, prefix: str, file: str) -> Iterator[_Place]:
    children: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        children = [
            (f"{prefix}.{key.value}" if prefix else str(key.value), key, value) for key, value in node.value
        ]
    elif isinstance(node, yaml.SequenceNode):
        children = [(f"{prefix}[{number}]", value, value) for number, value in enumerate(node.value)]
    for name, start, value in children:
        text = str(value.value) if isinstance(value, yaml.ScalarNode) else None
        yield _Place(name, text, file, start.start_mark.line + 1)
        yield from _below(value, name, file)
