"""Partial run configurations: merging them, and refusing keys that no run has."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.messages import (
    MOST_LINES,
    as_nested,
    dotted_keys,
    join_errors,
    section_form,
    section_of,
    unknown_key,
    walk_fields,
)
from subjectdp.config.rules import VARIANTS_OF_ALGORITHM
from subjectdp.config.run import RunConfig
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import expected, unknown

RUN_KEYS = dotted_keys(RunConfig)
"""Every dotted key of a run."""

_SECTION_MODELS = {
    key: found for key, field in walk_fields(RunConfig) if (found := section_of(field)) is not None
}
_SECTIONS = frozenset(_SECTION_MODELS)
_TEXT_ALLOWED = frozenset({"algorithm", "model"})
_FREE = ("model.parameters.", "data.expected.")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on ``base``: mappings merge, anything else replaces; neither argument is changed."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def normalised(partial: Mapping[str, Any]) -> dict[str, Any]:
    """``partial`` with the shorthands ``algorithm: name:variant`` and ``model: name`` written out."""
    content = dict(partial)
    if isinstance(content.get("algorithm"), str):
        content["algorithm"] = algorithm_mapping(content["algorithm"])
    if isinstance(content.get("model"), str):
        content["model"] = {"name": content["model"]}
    return content


def algorithm_mapping(text: str) -> dict[str, Any]:
    """``name:variant`` as a mapping; without a variant, the variant is reset to its default."""
    name, _, variant = text.partition(":")
    return {"name": name, "variant": variant or None}


def set_dotted(content: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of ``content`` with the dotted ``key`` set; a mapping merges with what is there."""
    name, _, rest = key.partition(".")
    if name in _TEXT_ALLOWED and not rest and isinstance(value, str):
        value = normalised({name: value})[name]
    changed = dict(content)
    below = changed.get(name)
    if rest:
        changed[name] = set_dotted(below if isinstance(below, Mapping) else {}, rest, value)
    elif isinstance(value, Mapping) and isinstance(below, Mapping):
        changed[name] = merge(below, value)
    else:
        changed[name] = value
    return changed


def check_overrides(
    run: Mapping[str, Any],
    datasets: Mapping[str, Any],
    algorithms: Mapping[str, Any],
    sweep: list[dict[str, Any]],
) -> None:
    """Refuses unknown keys in these parts of a scenario; raises ConfigError with a line for each."""
    found = itertools.chain(
        _unknown_keys(run, "run"),
        _check_datasets(datasets, "datasets"),
        _check_algorithms(algorithms),
        (problem for number, block in enumerate(sweep) for problem in _check_block(block, number)),
    )
    problems = list(itertools.islice(found, 2 * MOST_LINES))
    if problems:
        raise join_errors(problems)


def _unknown_keys(
    partial: Any, prefix: str, path: str = "", nested: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Problems with the keys of ``partial``: at ``prefix`` in the scenario, for the section ``path`` of a run."""
    if not isinstance(partial, Mapping):
        if not (path in _TEXT_ALLOWED and isinstance(partial, str)):
            form = section_form(path or prefix, partial, _SECTION_MODELS.get(path))
            yield f"{expected(prefix, partial, 'a mapping (key: value)')}{form}"
        return
    siblings = [key.rpartition(".")[2] for key in RUN_KEYS if key.rpartition(".")[0] == path]
    for name, value in partial.items():
        key = f"{path}.{name}" if path else name
        if not path and name in nested:
            continue
        if not path and name in RUN_KEYS and name not in siblings:
            yield f"Unknown key '{prefix}.{name}'. {as_nested(name, value)}"
        elif name not in siblings:
            base = prefix[: len(prefix) - len(path) - 1] if path else prefix
            yield str(unknown_key(f"{prefix}.{name}", [f"{prefix}.{s}" for s in siblings], _under(base)))
        elif key in _SECTIONS:
            yield from _unknown_keys(value, f"{prefix}.{name}", key)


def _under(prefix: str) -> list[str]:
    return [f"{prefix}.{key}" for key in RUN_KEYS]


def _check_datasets(partials: Any, prefix: str) -> Iterator[str]:
    if not isinstance(partials, Mapping):
        yield str(expected(prefix, partials, "a mapping from data set to partial run configuration"))
        return
    for name, partial in partials.items():
        if name not in DATASETS:
            yield str(unknown(f"data set in {prefix}", name, DATASETS))
            continue
        yield from _unknown_keys(partial, f"{prefix}.{name}")
        yield from _decided_elsewhere(partial, f"{prefix}.{name}", "data", "dataset")


def _check_algorithms(partials: Mapping[str, Any]) -> Iterator[str]:
    for key, partial in partials.items():
        name, _, variant = key.partition(":")
        if name not in ALGORITHMS:
            yield str(unknown("algorithm in algorithms", name, ALGORITHMS))
            continue
        if ":" in key and variant not in VARIANTS_OF_ALGORITHM.get(name, ()):
            yield str(
                unknown(f"variant of {name} in algorithms", variant, VARIANTS_OF_ALGORITHM.get(name, ()))
            )
            continue
        yield from _unknown_keys(partial, f"algorithms.{key}", nested=frozenset({"datasets"}))
        if isinstance(partial, Mapping):
            yield from _decided_elsewhere(partial, f"algorithms.{key}", "algorithm")
            yield from _decided_elsewhere(partial, f"algorithms.{key}", "data", "dataset")
            yield from _check_datasets(partial.get("datasets", {}), f"algorithms.{key}.datasets")


def _decided_elsewhere(partial: Any, prefix: str, section: str, name: str | None = None) -> Iterator[str]:
    """An override chosen by data set or algorithm cannot change which one that is."""
    below = partial.get(section) if isinstance(partial, Mapping) else None
    if below is not None and (name is None or (isinstance(below, Mapping) and name in below)):
        key = section if name is None else f"{section}.{name}"
        yield str(expected(f"{prefix}.{key}", below, "absent (set it in run or sweep)"))


def _check_block(block: Mapping[str, Any], number: int) -> Iterator[str]:
    prefix = f"sweep[{number}]"
    for key, values in block.items():
        if key == "name":
            if not isinstance(values, str):
                yield str(expected(f"{prefix}.name", values, "text (a label)"))
        elif key not in RUN_KEYS and not key.startswith(_FREE):
            yield str(
                unknown_key(f"{prefix}.{key}", [f"{prefix}.{known}" for known in _near_axes(key)], RUN_KEYS)
            )
        elif isinstance(values, list) and not values:
            yield str(expected(f"{prefix}.{key}", values, "a value or a list with at least one value"))
        elif isinstance(values, list) and any(isinstance(value, list) for value in values):
            yield str(expected(f"{prefix}.{key}", values, "a value or a list of values, not of lists"))
        elif key in _SECTIONS:
            for value in values if isinstance(values, list) else [values]:
                yield from _unknown_keys(value, f"{prefix}.{key}", key)


def _near_axes(key: str) -> list[str]:
    """The keys to list for an unknown axis: those of its section where there is one, else the top level."""
    section = key.rpartition(".")[0]
    if section in _SECTIONS:
        return [known for known in RUN_KEYS if known.rpartition(".")[0] == section]
    return [known for known in RUN_KEYS if "." not in known]
