"""Pydantic's errors in the project's form: a line for each, with dotted key, value, what is allowed, file and line."""

import itertools
import re
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from subjectdp.errors import ConfigError, expected, in_words, listed, unknown
from subjectdp.plan.plan import LARGEST_INTEGER

_Model = TypeVar("_Model", bound=BaseModel)
MOST_LINES = 40  # problems that one message lists
_PLAIN = re.compile(r"[\w./:-]{1,60}")  # text that YAML takes without quotes

_WORDS = {  # of the types of JSON schemas, and of their bounds
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a finite number",
    "string": "text",
    "object": "a mapping (key: value)",
    "array": "a list",
}
_BOUNDS = {
    "exclusiveMinimum": "greater than {}",
    "minimum": "at least {}",
    "exclusiveMaximum": "less than {}",
    "maximum": "at most {}",
    "pattern": "matching {}",
    "minLength": "not empty",
    "maxLength": "of at most {} characters",
    "minItems": "of {} or more",
    "maxProperties": "of at most {} entries",
}
_NULL = {"type": "null"}


def validated(model: type[_Model], content: Any, prefix: str = "") -> _Model:
    """``content`` as ``model``. Raises ConfigError with a line for each problem; ``prefix`` goes before every key."""
    try:
        return model.model_validate(content)
    except ValidationError as problem:
        raise _joined(line for details in problem.errors() for line in _lines(details, model, prefix)) from None


def raise_all(problems: Iterable[str]) -> None:
    """Raises one ConfigError of the problems, each once, in order; of very many, the first ones."""
    if lines := list(problems):
        raise _joined(lines)


def _joined(problems: Iterable[str]) -> ConfigError:
    lines = list(itertools.islice(dict.fromkeys(problems), MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        lines[MOST_LINES] = "There are more problems; correct these first."
    return ConfigError("\n".join(lines))


def unknown_key(key: str, siblings: Iterable[str], elsewhere: Iterable[str] = ()) -> ConfigError:
    """An unknown dotted key, with the nearest valid one: a sibling, else a key of another section."""
    siblings = list(siblings)
    near = _nearest(key, siblings) or _nearest(key, list(elsewhere))
    hint = f" Did you mean {near!r}?" if near else ""
    return ConfigError(f"Unknown key {key!r}.{hint}{f' Known: {listed(siblings)}.' if siblings else ''}")


def _nearest(key: str, known: Sequence[str]) -> str | None:
    section, _, name = key.rpartition(".")
    near = get_close_matches(name, dict.fromkeys(one.rpartition(".")[2] for one in known), n=1, cutoff=0.7)
    alike = [one for one in known if near and one.rpartition(".")[2] == near[0]]
    return max(alike, key=lambda one: SequenceMatcher(None, key, one).ratio(), default=None)


def as_nested(key: str, value: object) -> str:
    """How a dotted key of a run is written in a scenario file and on the command line."""
    text = value if isinstance(value, str) and _PLAIN.fullmatch(value) else in_words(value)
    for part in reversed(key.split(".")):
        text = f"{{{part}: {text}}}"
    return f"Write run: {text}; on Snakemake's command line --config 'run={text}'."


@cache
def dotted_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """All keys of ``model``, sections before what they hold: ``("seed", "data", "data.dataset", ...)``."""
    return tuple(key for key, _ in walk_fields(model))


def walk_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """(dotted key, field) of ``model`` and its sections, in the order they are declared."""
    for name, field in model.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        yield key, field
        section = section_of(field)
        if section is not None:
            yield from walk_fields(section, key)


def section_of(field: FieldInfo) -> type[BaseModel] | None:
    """The model class of a field that is a section, else None."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def allowed_text(field: FieldInfo) -> str:
    """What a field accepts, in words: ``a finite number greater than 0, or null``."""
    kinds = _alternatives(field)
    words = " or ".join(_kind_text(kind) for kind in kinds if kind != _NULL)
    return f"{words}, or null" if _NULL in kinds else words


def _alternatives(field: FieldInfo) -> list[dict[str, Any]]:
    """The kinds of a field's value, each as a JSON schema."""
    metadata = [each for each in field.metadata if not isinstance(each, WithJsonSchema)]  # which is for editors
    annotation: Any = Annotated[field.annotation, Field(), *metadata]
    schema = TypeAdapter(annotation).json_schema()
    kinds = schema.get("anyOf", [schema])
    return [schema["$defs"][kind["$ref"].rpartition("/")[2]] if "$ref" in kind else kind for kind in kinds]


def _kind_text(kind: Mapping[str, Any]) -> str:
    if "enum" in kind:
        return f"one of {', '.join(map(str, kind['enum']))}"
    each = kind.get("prefixItems", [kind.get("items", {})])[0]
    if each.get("type") in ("integer", "number"):
        return f"a list of numbers, each {_kind_text(each)}"
    bounds = [(words, kind[name]) for name, words in _BOUNDS.items() if kind.get(name) not in (None, LARGEST_INTEGER)]
    told = (words.format(f"{bound:g}" if isinstance(bound, float) else bound) for words, bound in bounds)
    return f"{_WORDS[kind['type']]} {' and '.join(told)}".rstrip()


def _lines(details: ErrorDetails, model: type[BaseModel], prefix: str) -> list[str]:
    context = details.get("ctx", {})
    inner = context.get("error")
    if isinstance(inner, ConfigError):
        return str(inner).split("\n")
    path = [str(part) for part in details["loc"]]
    field, own_key = _find(model, path)
    key = f"{prefix}.{own_key}" if prefix else own_key
    if details["type"] == "extra_forbidden":
        parent = ".".join(path[:-1])
        known = dotted_keys(model)
        if not parent and path[-1] in known:
            return [f"Unknown key {key!r}. {as_nested(path[-1], details['input'])}"]
        before = f"{prefix}." if prefix else ""
        siblings = [f"{before}{k}" for k in known if k.rpartition(".")[0] == parent]
        return [str(unknown_key(key, siblings, [f"{before}{k}" for k in known]))]
    return [f"{_value_error(details, key, field)}{_right_form(own_key, details, field)}"]


def _find(model: type[BaseModel], path: list[str]) -> tuple[FieldInfo | None, str]:
    field: FieldInfo | None = None
    key = ""
    section: type[BaseModel] | None = model
    for part in path:
        if section is not None:
            key = f"{key}.{part}" if key else part
            field = section.model_fields.get(part)
            section = section_of(field) if field is not None else None
            continue
        origin, args = (None, ()) if field is None else _parts(field)
        if origin not in (dict, list):
            break
        key += f"[{part}]" if origin is list else f".{part}"
        of_keys = path[-1] == "[key]"
        field = FieldInfo.from_annotation(args[0 if of_keys else -1])
        if of_keys:
            break
        section = section_of(field)
    return field, key


def _parts(field: FieldInfo) -> tuple[Any, tuple[Any, ...]]:
    """The kind of a field's value and what is in it; a tuple of sections is a list of them."""
    origin, args = typing.get_origin(field.annotation), typing.get_args(field.annotation)
    sections = origin is tuple and section_of(FieldInfo.from_annotation(args[0])) is not None
    return (list, args[:1]) if sections else (origin, args)


def _value_error(details: ErrorDetails, key: str, field: FieldInfo | None) -> str:
    value, kind = details["input"], details["type"]
    if kind in ("literal_error", "enum") and isinstance(value, str) and field is not None:
        return str(unknown(key, value, _names(field)))
    if kind == "missing":
        return f"Expected {key} to be given."
    return str(expected(key, value, allowed_text(field) if field is not None else "a mapping (key: value)"))


def _right_form(key: str, details: ErrorDetails, field: FieldInfo | None) -> str:
    value = details["input"]
    if details["type"] in ("literal_error", "enum", "missing"):
        return ""
    origin = typing.get_origin(field.annotation) if field is not None else None
    if origin is list and isinstance(value, str):
        return f" Write {key}: [{value[:200]}]."
    if origin is list and isinstance(value, Mapping):
        return f" Write a list: '- ' before its first key, {next(iter(value), 'name')}."
    if origin not in (list, tuple, dict) and isinstance(value, list) and "[" not in key:
        return f" Several values are an axis: sweep: [{{{key}: {in_words(value)}}}]."
    section = section_of(field) if field is not None and isinstance(value, str) else None
    for name, below in section.model_fields.items() if section is not None else ():
        if value in _names(below):
            return f" Write {key.rpartition('.')[2]}: {{{name}: {value}}}."
    return ""


def _names(field: FieldInfo) -> list[str]:
    return [str(name) for kind in _alternatives(field) for name in kind.get("enum", ())]


_KEY = re.compile(r"[a-z_][a-z0-9_]*(?:\[\d+\])?(?:[.:][a-z0-9_-]+(?:\[\d+\])?)*")
_INDEX = re.compile(r"\[\d+\]$")


@contextmanager
def error_located_in(files: Sequence[Path | str | Mapping[str, Any]]) -> Iterator[None]:
    """Adds file and line to each line of a ConfigError of the block, where a file has the key that it is about; a
    mapping is what ``--config`` gave."""
    try:
        yield
    except ConfigError as problem:
        places = [place for file in files for place in _places(file)]
        lines = [f"{line}{_place_of(line, places)}" for line in str(problem).split("\n")]
        raise ConfigError("\n".join(lines)) from None


def _place_of(line: str, places: Sequence[tuple[str, str | None, str]]) -> str:
    """The last place of the first key that has a value which the message shows (of the first: got), or of any."""
    named = re.match(r"Unknown .*? (?:in|of) (\S+) '([^']*)'", line)
    keys = [f"{named[1]}.{named[2]}"] if named else []
    keys += [key for _, key in re.findall(r"""^Unknown key (['"])(.*?)\1\.""", line)]
    keys += re.findall(r"^(?:Expected|Unknown key|Unknown) (?:every key under )?(?:\S+ of )?'?([^\s']+)", line)
    keys += [word for word in _KEY.findall(line) if "." in word]
    parts = [part for word in keys for part in (word, word.rpartition(".")[0]) if part]
    ends = [(end, p) for p in reversed(places) for end in {f".{p[0]}", _INDEX.sub("", f".{p[0]}")}]
    found = [(k, p) for k in parts for end, p in ends if end.endswith(f".{k}")]
    told = {keys[0]: line.rpartition(", got ")[2]} if keys else {}
    shown = [p for k, p in found if p[0] == k or (p[1] and re.search(rf"\b{re.escape(p[1])}\b", told.get(k, line)))]
    return next((f" ({p[2]})" for p in (*shown, *(p for _, p in found))), "")


def _places(file: Path | str | Mapping[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    # dotted key, text of a scalar, and file:line of all that a YAML file holds; nothing of what is no YAML
    try:
        content = yaml.safe_dump(dict(file)) if isinstance(file, Mapping) else Path(file).read_text(encoding="utf-8")
        root = yaml.compose(content, Loader=yaml.SafeLoader)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return
    waiting = [] if root is None else [("", root)]
    while waiting:
        prefix, node = waiting.pop(0)
        if isinstance(node, yaml.MappingNode):
            children = [(f"{prefix}.{key.value}".lstrip("."), key, value) for key, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            children = [(f"{prefix}[{number}]", value, value) for number, value in enumerate(node.value)]
        else:
            continue
        for key, start, value in children:
            text = str(value.value) if isinstance(value, yaml.ScalarNode) else None
            yield key, text, "--config" if isinstance(file, Mapping) else f"{file}:{start.start_mark.line + 1}"
            waiting.append((key, value))
