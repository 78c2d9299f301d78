"""Reads YAML files as plain data, with each key once and ``1e-5`` as a number.

Snakemake has loaded the files before; it takes the last of equal keys and reads ``1e-5`` (YAML 1.1) as text.
"""

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from subjectdp.errors import ConfigError, expected, in_words

LARGEST_TREE = 200_000  # values of the largest configuration, counting what aliases repeat

_DEEPEST = 32
_MERGE = "tag:yaml.org,2002:merge"
_CODE = "__use_yte__"
_PLAIN = (str, int, float, bool, type(None))
_FLOAT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$")


class _Loader(yaml.SafeLoader):
    """SafeLoader (no tag runs code) with unique keys and all floats of JSON."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = _MERGE if key_node.tag == _MERGE else loader.construct_object(key_node)
        if isinstance(key, Hashable) and key in seen:
            problem = f"the key {in_words(key)} is given twice"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
        if isinstance(key, Hashable):
            seen.add(key)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def _whole(loader: _Loader, node: yaml.ScalarNode) -> Any:
    digits = str(node.value).lstrip("+-")
    if ":" in digits or (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()):
        raise yaml.MarkedYAMLError(
            problem=f"{node.value} is read in base 8 or 60 by YAML 1.1: write a decimal number, or text in quotes",
            problem_mark=node.start_mark,
        )
    return yaml.SafeLoader.construct_yaml_int(loader, node)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def read_yaml(path: Path | str) -> dict[str, Any]:
    """The mapping in a YAML file; ConfigError, with the line where there is one, for anything else."""
    try:
        content = Path(path).read_bytes()
        text = content.decode("utf-8")
    except OSError as problem:
        raise ConfigError(f"Expected {path} to be a readable file: {problem.strerror}.") from None
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        wrong = content[problem.start]
        raise ConfigError(
            f"Expected {path} to be UTF-8 text, got the byte 0x{wrong:02x} in line {line}: save the file as UTF-8."
        ) from None
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> dict[str, Any]:
    """The mapping that ``text`` holds; messages call it ``name``."""
    try:
        content = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as problem:
        where = "" if problem.problem_mark is None else f"line {problem.problem_mark.line + 1}: "
        what = " ".join(f"{problem.context or ''} {problem.problem or ''}".split())[:300]
        raise ConfigError(f"Expected {name} to be plain YAML: {where}{what}.") from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as problem:
        raise ConfigError(f"Expected {name} to be plain YAML: {type(problem).__name__}.") from None
    if not isinstance(content, dict):
        kind = "nothing" if content is None else f"a {type(content).__name__}"
        raise expected(name, kind, "a mapping (key: value)")
    if _CODE in content:
        allowed = "absent: Snakemake runs code in such files, and a scenario is plain data"
        raise expected(f"{name}: {_CODE}", content[_CODE], allowed)
    check_tree(content, name)
    return content


def check_tree(content: Any, name: str) -> None:
    """ConfigError unless ``content`` is a tree of plain values with text as keys, of bounded size and depth."""
    waiting: list[tuple[Any, str, int]] = [(content, "", 0)]
    visited = 0
    while waiting:
        value, key, depth = waiting.pop()
        visited += 1
        if visited > LARGEST_TREE or depth > _DEEPEST:
            allowed = f"a tree of at most {LARGEST_TREE} values, {_DEEPEST} levels deep"
            raise expected(name, f"more at {key or 'the top'}", allowed)
        if isinstance(value, dict):
            for inner, below in value.items():
                if not isinstance(inner, str):
                    raise expected(f"every key under {key or name}", inner, "text")
                waiting.append((below, f"{key}.{inner}"[-80:] if key else inner[:80], depth + 1))
        elif isinstance(value, list):
            waiting.extend((below, key, depth + 1) for below in value)
        elif not isinstance(value, _PLAIN):
            raise expected(key or name, value, "text, a number, true, false, null, a list or a mapping")
