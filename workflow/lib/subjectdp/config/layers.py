"""Scenario files as layers: each is applied as a whole, a later file over an earlier one.

A run is built by merging, later over earlier, what each file says: ``run``, ``datasets.<data set>``,
``algorithms.<name>``, ``algorithms.<name:variant>`` (each with its own ``datasets.<data set>`` right after it) and, for
the file that gives the sweep, the values of the run's place in it (docs/decisions/0023-later-file-wins.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.config.overrides import merge, normalised, set_dotted
from subjectdp.io.printing import flattened

_SECTIONS = ("run", "datasets", "algorithms")
_DECIDING = ("data", "algorithm")


@dataclass(frozen=True)
class Layer:
    """What one file says about runs."""

    run: Mapping[str, Any]
    datasets: Mapping[str, Any]
    algorithms: Mapping[str, Any]
    has_sweep: bool

    def overrides(self, dataset: str, name: str, variant: str | None) -> Iterator[dict[str, Any]]:
        """Partial configurations for a run of the data set and algorithm, later over earlier."""
        yield normalised(self.run)
        yield normalised(_mapping(self.datasets.get(dataset)))
        for key in (name, f"{name}:{variant}"):
            override = dict(_mapping(self.algorithms.get(key)))
            nested = _mapping(override.pop("datasets", {}))
            yield normalised(override)
            yield normalised(_mapping(nested.get(dataset)))


def layer_of(content: Mapping[str, Any]) -> Layer:
    """What a file says about runs."""
    run, datasets, algorithms = (_mapping(content.get(name)) for name in _SECTIONS)
    return Layer(run, datasets, algorithms, "sweep" in content)


def _mapping(value: Any) -> Mapping[str, Any]:
    """``value``, or nothing where it is no mapping: it is refused later, or a later file replaces it."""
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
    """Dotted keys of a run that a file sets for all runs or for some."""
    layer = layer_of(content)
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
        last = max(
            (number for number, layer in enumerate(layers) if layer.has_sweep), default=len(layers) - 1
        )
        self._below, self._above = layers[: last + 1], layers[last + 1 :]
        self._chosen_below, self._chosen_above = _deciding(self._below), _deciding(self._above)
        self._merged: dict[tuple[str, str, str | None], tuple[dict[str, Any], dict[str, Any]]] = {}

    def content(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """The nested mapping of the run at one place of the sweep."""
        content, above = self._around(assignment)
        for key, value in assignment.items():
            content = set_dotted(content, key, value)
        return merge(content, above) if above else content

    def overrules(self, key: str, assignment: Mapping[str, Any]) -> bool:
        """Whether a file after the sweep sets a key of the top level, whatever the sweep says."""
        return key in self._around(assignment)[1]

    def _around(self, assignment: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What lies below and above the values of the sweep."""
        choices = self._choices(assignment)
        if choices not in self._merged:
            self._merged[choices] = _merged(self._below, choices), _merged(self._above, choices)
        return self._merged[choices]

    def _choices(self, assignment: Mapping[str, Any]) -> tuple[str, str, str | None]:
        """(data set, algorithm, variant) that the overrides are chosen by; the values are not checked yet."""
        chosen = self._chosen_below
        for key, value in assignment.items():
            if key.partition(".")[0] in _DECIDING:
                chosen = set_dotted(chosen, key, value)
        chosen = merge(chosen, self._chosen_above)
        data, found = (value if isinstance(value := chosen.get(key), Mapping) else {} for key in _DECIDING)
        name, variant = found.get("name", "fed_avg"), found.get("variant")
        if variant is None and isinstance(name, str) and name in ALGORITHMS:
            variant = algorithm(name).variants[0]
        usual = "table" if data.get("source") == "table" else "femnist"
        return str(data.get("dataset", usual)), str(name), variant if isinstance(variant, str) else None


def _deciding(layers: Sequence[Layer]) -> dict[str, Any]:
    """The sections that decide data set and algorithm, as ``run`` of the layers says."""
    chosen: dict[str, Any] = {}
    for layer in layers:
        run = normalised(layer.run)
        chosen = merge(chosen, {key: run[key] for key in _DECIDING if isinstance(run.get(key), Mapping)})
    return chosen


def _merged(layers: Sequence[Layer], choices: tuple[str, str, str | None]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for layer in layers:
        for partial in layer.overrides(*choices):
            content = merge(content, partial)
    return content
