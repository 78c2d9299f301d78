"""Reading scenario files: plain data only, one document, sane size, no key twice, numbers as numbers."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from subjectdp.errors import ConfigError, expected, in_words

LARGEST_FILE = 1 << 18
"""Bytes of the largest scenario file that is read (the largest one here has 5 kB)."""

LARGEST_TREE = 200_000
"""Values of the largest scenario once its aliases are written out."""

LARGEST_TEXT = 1 << 20
"""Characters of all texts in the largest scenario once its aliases are written out."""

_MERGE = "tag:yaml.org,2002:merge"
_CODE = "__use_yte__"
_PLAIN = (str, int, float, bool, type(None))
_FLOAT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")


class _Loader(yaml.SafeLoader):
    """SafeLoader (no tag runs code) that refuses a repeated key and reads ``1e-5`` as a number.

    Merge keys (``<<``) copy what they merge, so that a few lines of merges of merges would fill any memory: their
    number is bounded.
    """

    merged = 0

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Writes out the merge keys of ``node``; ConstructorError once all of them together are too many."""
        for key_node, value in node.value:
            if key_node.tag != _MERGE:
                continue
            for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(part, yaml.MappingNode):
                    self.flatten_mapping(part)
                    self.merged += len(part.value) + 1
                if self.merged > LARGEST_TREE:
                    raise yaml.constructor.ConstructorError(
                        None,
                        None,
                        f"its merge keys stand for more than {LARGEST_TREE} values",
                        node.start_mark,
                    )
        super().flatten_mapping(node)


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = _MERGE if key_node.tag == _MERGE else loader.construct_object(key_node)
        if not isinstance(key, Hashable):
            continue
        if key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {in_words(key)} is given twice", key_node.start_mark
            )
        seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def read_yaml(path: Path | str) -> dict[str, Any]:
    """The mapping in a YAML file; raises ConfigError for anything else."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise expected(f"size of {path}", "more", f"at most {LARGEST_FILE} bytes")
        text = content.decode()
    except OSError as problem:
        raise ConfigError(f"Expected {path} to be a readable file: {problem.strerror}.") from problem
    except UnicodeDecodeError as problem:
        raise ConfigError(
            f"Expected {path} to be UTF-8 text, got byte {problem.start} that is not."
        ) from problem
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """The mapping that ``text`` holds; ``name`` is how messages call it."""
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as problem:
        raise ConfigError(f"Expected {name} to be plain YAML: {_one_line(problem)}.") from problem
    except (RecursionError, ValueError, OverflowError) as problem:
        raise ConfigError(f"Expected {name} to be plain YAML: {type(problem).__name__}.") from problem
    if not isinstance(content, dict):
        raise expected(name, _kind(content), "a mapping (key: value)")
    check_tree(content, name)
    return content


def check_tree(content: Any, name: str) -> None:
    """Refuses what is no tree of plain values: too large or too deep (aliases written out), keys that are not text,
    values of other types (dates, sets, bytes), and code that Snakemake would run (``__use_yte__``)."""
    if isinstance(content, dict) and _CODE in content:
        raise expected(
            f"{name}: {_CODE}",
            content[_CODE],
            "absent: Snakemake runs code in such files, and a scenario is plain data",
        )
    waiting: list[tuple[Any, str, int]] = [(content, "", 0)]
    visited = characters = 0
    while waiting:
        value, key, depth = waiting.pop()
        visited += 1
        characters += len(value) if isinstance(value, str) else 0
        if characters > LARGEST_TEXT:
            raise expected(f"length of all texts in {name}", "more", f"at most {LARGEST_TEXT} characters")
        if visited > LARGEST_TREE:
            raise expected(
                f"number of values in {name}", f"more than {LARGEST_TREE}", f"at most {LARGEST_TREE}"
            )
        if depth > 32:
            raise expected(f"depth of {name}", f"more than 32 at {key}", "at most 32")
        if isinstance(value, dict):
            for inner, below in value.items():
                if not isinstance(inner, str):
                    raise expected(f"every key under {key or name}", inner, "text")
                characters += len(inner)
                waiting.append((below, f"{key}.{inner}"[-80:] if key else inner[:80], depth + 1))
        elif isinstance(value, list):
            waiting.extend((below, key, depth + 1) for below in value)
        elif not isinstance(value, _PLAIN):
            raise expected(key or name, value, "text, a number, true, false, null, a list or a mapping")


def _kind(content: Any) -> str:
    return "nothing" if content is None else f"a {type(content).__name__}"


def _one_line(problem: yaml.YAMLError) -> str:
    return " ".join(str(problem).split())[:300]
