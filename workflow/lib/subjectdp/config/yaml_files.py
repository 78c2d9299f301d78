"""Reading scenario files: plain data only, one document, sane size, no key twice, numbers as numbers."""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from subjectdp.errors import ConfigError, expected

LARGEST_FILE = 1 << 20
"""Bytes of the largest scenario file that is read."""

LARGEST_TREE = 200_000
"""Values of the largest scenario once its aliases are written out."""

_FLOAT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")


class _Loader(yaml.SafeLoader):
    """SafeLoader (no tag runs code) that refuses a repeated key and reads ``1e-5`` as a number."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        if isinstance(key, Hashable) and key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} is given twice", key_node.start_mark
            )
        if isinstance(key, Hashable):
            seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def read_yaml(path: Path | str) -> dict[str, Any]:
    """The mapping in a YAML file; raises ConfigError for anything else."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE:
            raise expected(f"size of {path}", size, f"at most {LARGEST_FILE} bytes")
        text = path.read_bytes().decode()
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
    """Refuses a tree with keys that are not text, or that is too large or too deep (aliases written out)."""
    waiting: list[tuple[Any, str, int]] = [(content, "", 0)]
    visited = 0
    while waiting:
        value, key, depth = waiting.pop()
        visited += 1
        if visited > LARGEST_TREE:
            raise expected(
                f"number of values in {name}", f"more than {LARGEST_TREE}", f"at most {LARGEST_TREE}"
            )
        if depth > 32:
            raise expected(f"depth of {name}", f"more than 32 at {key[:80]}", "at most 32")
        if isinstance(value, dict):
            for inner, below in value.items():
                if not isinstance(inner, str):
                    raise expected(f"every key under {key or name}", inner, "text")
                waiting.append((below, f"{key}.{inner}" if key else inner, depth + 1))
        elif isinstance(value, list):
            waiting.extend((below, key, depth + 1) for below in value)


def _kind(content: Any) -> str:
    return "nothing" if content is None else f"a {type(content).__name__}"


def _one_line(problem: yaml.YAMLError) -> str:
    return " ".join(str(problem).split())[:300]
