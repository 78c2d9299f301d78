"""Scenario files as layers: each is applied as a whole, a later file over an earlier one.

A run is built by merging, later over earlier, what each file says: ``run``, ``datasets.<data set>``,
``algorithms.<name>``, ``algorithms.<name:variant>`` (each with its own ``datasets.<data set>`` right after it) and, for
the file that gives the sweep, the values of the run's place in it (docs/decisions/0023-later-file-wins.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.config.messages import MOST_LINES, config_error, dotted_keys, join_errors, unknown_key
from subjectdp.config.run import VARIANTS_OF_ALGORITHM
from subjectdp.config.sections import RunSections
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import expected, unknown
from subjectdp.io.printing import flattened

RUN_KEYS = dotted_keys(RunSections)
"""Every dotted key of a run."""

_MAPPINGS = ("model.parameters.", "data.expected.")  # whose keys are no keys of a run
_DECIDING = ("data", "algorithm")  # sections that choose among datasets and algorithms


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on ``base``: mappings merge, anything else replaces; neither argument is changed."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            value = merge(below, value)
        merged[key] = value
    return merged


def normalised(partial: Mapping[str, Any]) -> dict[str, Any]:
    """``partial`` with the shorthands ``algorithm: name:variant`` and ``model: name`` written out."""
    content = dict(partial)
    if isinstance(content.get("algorithm"), str):
        name, _, variant = content["algorithm"].partition(":")
        content["algorithm"] = {"name": name, "variant": variant or None}  # None: the default one again
    if isinstance(content.get("model"), str):
        content["model"] = {"name": content["model"]}
    return content


def set_dotted(content: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of ``content`` with the dotted ``key`` set; a mapping merges with what is there."""
    *sections, last = key.split(".")
    over: dict[str, Any] = {last: value} if sections else normalised({last: value})
    for section in reversed(sections):
        over = {section: over}
    return merge(content, over)


@dataclass(frozen=True)
class Layer:
    """What one file says about runs."""

    run: Mapping[str, Any]
    datasets: Mapping[str, Any]
    algorithms: Mapping[str, Any]
    has_sweep: bool

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Layer:
        """What a file says about runs."""
        run, datasets, algorithms = (_mapping(content.get(key)) for key in ("run", "datasets", "algorithms"))
        return cls(run, datasets, algorithms, "sweep" in content)

    def overrides(self, dataset: str, name: str, variant: str | None) -> Iterator[Mapping[str, Any]]:
        """Partial configurations for a run of the data set and algorithm, later over earlier."""
        yield self.run
        yield _mapping(self.datasets.get(dataset))
        for key in (name, f"{name}:{variant}"):
            override = dict(_mapping(self.algorithms.get(key)))
            nested = _mapping(override.pop("datasets", {}))
            yield override
            yield _mapping(nested.get(dataset))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def overlaid(contents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The files as one mapping: mappings merge, anything else is the later file's.

    Selections choose among the runs that a file knows: a later file with a sweep drops them, and one that sets a key
    drops that key from them.
    """
    merged: dict[str, Any] = {}
    for content in contents:
        if isinstance(below := merged.get("selections"), Mapping):
            merged["selections"] = {} if "sweep" in content else _still_apply(below, _keys_set(content))
        merged = merge(merged, content)
    return merged


def _keys_set(content: Mapping[str, Any]) -> set[str]:
    layer = Layer.of(content)
    partials = [layer.run, *layer.datasets.values()]
    for partial in layer.algorithms.values():
        partials += [partial, *_mapping(_mapping(partial).get("datasets")).values()]
    return {key for partial in partials for key, _ in flattened(dict(_mapping(partial)))}


def _still_apply(selections: Mapping[str, Any], changed: set[str]) -> dict[str, Any]:
    def is_changed(key: str) -> bool:
        return any(f"{one}.".startswith(f"{key}.") or f"{key}.".startswith(f"{one}.") for one in changed)

    return {
        figure: {key: value for key, value in chosen.items() if not is_changed(key)}
        if isinstance(chosen, Mapping)
        else chosen
        for figure, chosen in selections.items()
    }


class RunBuilder:
    """Builds the mapping of each run. Runs of one data set and algorithm share what is merged for these."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        last = max((i for i, layer in enumerate(layers) if layer.has_sweep), default=len(layers) - 1)
        self._below, self._above = layers[: last + 1], layers[last + 1 :]
        self._merged: dict[tuple[str, str, str | None], tuple[dict[str, Any], dict[str, Any]]] = {}

    def content(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """The nested mapping of the run at one place of the sweep."""
        content, above = self._around(assignment)
        for key, value in assignment.items():
            content = set_dotted(content, key, value)
        return merge(content, above)

    def overrules(self, key: str, assignment: Mapping[str, Any]) -> bool:
        """Whether a file after the sweep sets a key of the top level, whatever the sweep says."""
        return key in self._around(assignment)[1]

    def _around(self, assignment: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        choices = self._choices(assignment)
        if choices not in self._merged:
            self._merged[choices] = _merged(self._below, choices), _merged(self._above, choices)
        return self._merged[choices]

    def _choices(self, assignment: Mapping[str, Any]) -> tuple[str, str, str | None]:
        chosen: dict[str, Any] = {}
        for layer in self._below:
            chosen = merge(chosen, _deciding(layer))
        for key, value in assignment.items():
            if key.partition(".")[0] in _DECIDING:
                chosen = set_dotted(chosen, key, value)
        for layer in self._above:
            chosen = merge(chosen, _deciding(layer))
        data, found = (_mapping(chosen.get(key)) for key in _DECIDING)
        name, variant = found.get("name", "fed_avg"), found.get("variant")
        if variant is None and isinstance(name, str) and name in ALGORITHMS:
            variant = algorithm(name).variants[0]
        usual = "table" if data.get("source") == "table" else "femnist"
        return str(data.get("dataset", usual)), str(name), variant if isinstance(variant, str) else None


def _deciding(layer: Layer) -> dict[str, Any]:
    run = normalised(layer.run)
    return {key: run[key] for key in _DECIDING if isinstance(run.get(key), Mapping)}


def _merged(layers: Sequence[Layer], choices: tuple[str, str, str | None]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for layer in layers:
        for partial in layer.overrides(*choices):
            content = merge(content, normalised(partial))
    return content


def check_overrides(
    run: Mapping[str, Any],
    datasets: Mapping[str, Any],
    algorithms: Mapping[str, Any],
    sweep: Sequence[Mapping[str, Any]],
) -> None:
    """Refuses unknown keys and values out of range, whether a run reads them or not.

    Raises ConfigError with a line for each.
    """
    found = itertools.chain(
        _of_partial(run, "run"),
        _of_datasets(datasets, "datasets"),
        *(_of_algorithm(key, partial) for key, partial in algorithms.items()),
        *(_of_block(block, f"sweep[{number}]") for number, block in enumerate(sweep)),
    )
    problems = list(itertools.islice(found, 2 * MOST_LINES))
    if problems:
        raise join_errors(problems)


def _of_partial(partial: Any, prefix: str, *decided_elsewhere: str) -> Iterator[str]:
    if not isinstance(partial, Mapping):
        yield str(expected(prefix, partial, "a mapping (key: value)"))
        return
    try:
        RunSections.model_validate(normalised(partial))
    except ValidationError as problem:
        yield from str(config_error(problem, RunSections, prefix)).split("\n")
    for key in decided_elsewhere:
        below: Any = partial
        for part in key.split("."):
            below = _mapping(below).get(part)
        if below is not None:
            yield str(expected(f"{prefix}.{key}", below, "absent (set it in run or sweep)"))


def _of_datasets(partials: Any, prefix: str) -> Iterator[str]:
    if not isinstance(partials, Mapping):
        yield str(expected(prefix, partials, "a mapping from data set to partial run configuration"))
        return
    for name, partial in partials.items():
        if name in DATASETS:
            yield from _of_partial(partial, f"{prefix}.{name}", "data.dataset")
        else:
            yield str(unknown(f"data set in {prefix}", name, DATASETS))


def _of_algorithm(key: str, partial: Any) -> Iterator[str]:
    name, _, variant = key.partition(":")
    variants = VARIANTS_OF_ALGORITHM.get(name, ())
    if name not in ALGORITHMS:
        yield str(unknown("algorithm in algorithms", name, ALGORITHMS))
    elif ":" in key and variant not in variants:
        yield str(unknown(f"variant of {name} in algorithms", variant, variants))
    elif isinstance(partial, Mapping):
        own = {name: value for name, value in partial.items() if name != "datasets"}
        yield from _of_partial(own, f"algorithms.{key}", "algorithm", "data.dataset")
        yield from _of_datasets(partial.get("datasets", {}), f"algorithms.{key}.datasets")
    else:
        yield from _of_partial(partial, f"algorithms.{key}")


def _of_block(block: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, values in block.items():
        axis = f"{prefix}.{key}"
        if key == "name":
            if not isinstance(values, str):
                yield str(expected(axis, values, "text (a label)"))
        elif key not in RUN_KEYS and not key.startswith(_MAPPINGS):
            yield str(unknown_key(axis, [f"{prefix}.{known}" for known in _near_axes(key)], RUN_KEYS))
        elif isinstance(values, list) and not values:
            yield str(expected(axis, values, "a value or a list with at least one value"))
        elif isinstance(values, list) and any(isinstance(value, list) for value in values):
            yield str(expected(axis, values, "a value or a list of values, not of lists"))


def _near_axes(key: str) -> list[str]:
    section = key.rpartition(".")[0]
    return [known for known in RUN_KEYS if known.rpartition(".")[0] == section] or [
        known for known in RUN_KEYS if "." not in known
    ]
