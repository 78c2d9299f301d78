"""Scenario files: a name, partial run configurations, axes to sweep and the figures to draw.

Each file is a layer that is applied as a whole, a later file over an earlier one. A run is built by merging, later over
earlier, what each file says: ``run``, ``datasets.<data set>``, ``algorithms.<name>``, ``algorithms.<name:variant>``
(each with its own ``datasets.<data set>`` right after it) and, for the file that gives the sweep, the values of the
run's place in it (docs/decisions/0023-later-file-wins.md).
"""

import ast
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, WithJsonSchema

from subjectdp.algorithms.registry import ALGORITHMS, algorithm, is_private
from subjectdp.config import messages
from subjectdp.config.run import VARIANTS_OF_ALGORITHM, RunConfig, load_run
from subjectdp.config.sections import DataConfig, RunSections, Section, normalised
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError, expected, listed, unknown
from subjectdp.io.printing import flattened
from subjectdp.io.yaml_files import check_tree, parse_yaml, read_yaml
from subjectdp.places import LIBRARY
from subjectdp.plan.plan import NaturalNumber

RUN_KEYS = messages.dotted_keys(RunSections)  # every dotted key of a run
_MAPPINGS = ("model.parameters.", "data.expected.")  # whose keys are no keys of a run

# A figure has a caption: this package may not import theirs.
_FIGURES = sorted(caption.stem for caption in (LIBRARY / "subjectdp" / "figures" / "captions").glob("*.rst"))
_PATTERN = f"^({'|'.join(_FIGURES)})(-[a-z0-9_]+)?$"  # a label: drawn again, with a selection of its own
Figure = Annotated[str, WithJsonSchema({"type": "string", "pattern": _PATTERN})]
LARGEST_SWEEP = 100_000  # runs of the largest scenario
RESERVED_NAMES = ("bench", "benchmarks", "cache", "data", "logs", "partitions", "runs")
"""Folders under ``results`` that no scenario may be called."""


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on ``base``: mappings merge, anything else replaces; neither argument is changed.

    Another algorithm or model has nothing of the one below: no variant, no parameters. Data from another source have no
    size of generated data from below, and privacy with a noise multiplier of its own no ε.
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            another = key in ("algorithm", "model") and value.get("name", below.get("name")) != below.get("name")
            usual = below.get("source", "embedded")
            moved = key == "data" and value.get("source", usual) != usual
            given = key == "privacy" and value.get("noise_multiplier") is not None
            gone = {"embedded": moved, "epsilon": given}
            below = {name: each for name, each in below.items() if not (another or gone.get(name))}
            value = merge(below, value)
        merged[key] = value
    return merged


def set_dotted(content: Mapping[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy of ``content`` with the dotted ``key`` set; a mapping merges with what is there."""
    *sections, last = key.split(".")
    over: dict[str, Any] = {last: value} if sections else normalised({last: value})
    for section in reversed(sections):
        over = {section: over}
    return merge(content, over)


def _mapping(value: Any) -> Mapping[str, Any]:
    # nothing where it is no mapping: it is refused later, or a later file replaces it
    return value if isinstance(value, Mapping) else {}


def _overrides(layer: Mapping[str, Any], dataset: str, name: str, variant: str | None) -> Iterator[Mapping[str, Any]]:
    # what one file says about a run of the data set and algorithm, later over earlier
    run, datasets, algorithms = (_mapping(layer.get(key)) for key in ("run", "datasets", "algorithms"))
    yield run
    yield _mapping(datasets.get(dataset))
    for key in (name, f"{name}:{variant}"):
        override = dict(_mapping(algorithms.get(key)))
        nested = _mapping(override.pop("datasets", {}))
        yield override
        yield _mapping(nested.get(dataset))


def overlaid(contents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The files as one mapping: mappings merge, anything else is the later file's.

    Selections choose among the runs that a file knows: a later file with a sweep drops them, and one that sets a key
    under ``run`` drops that key from them.
    """
    merged: dict[str, Any] = {}
    for content in contents:
        changed = {key for key, _ in flattened(dict(_mapping(content.get("run"))))}
        for figure, chosen in _mapping(merged.pop("selections", {})).items():
            if "sweep" not in content:
                if isinstance(chosen, Mapping):
                    chosen = {key: value for key, value in chosen.items() if key not in changed}
                merged.setdefault("selections", {})[figure] = chosen
        merged = merge(merged, content)
    return merged


def run_content(layers: Sequence[Mapping[str, Any]], assignment: Mapping[str, Any]) -> dict[str, Any]:
    """The nested mapping of the run at one place of the sweep: ``assignment`` lies over the layer that gives it."""
    last = _layer_of_the_sweep(layers)

    def applied(partials: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for number, layer in enumerate(layers):
            for partial in partials(layer):
                content = merge(content, normalised(partial))
            for key, value in _sections_first(assignment) if number == last else ():
                content = set_dotted(content, key, value)
        return content

    choices = _choices(applied(lambda layer: [_mapping(layer.get("run"))]))
    return applied(lambda layer: _overrides(layer, *choices))


def _choices(content: Mapping[str, Any]) -> tuple[str, str, str | None]:
    # data set, algorithm and variant that the overrides are chosen by; the values are not checked yet
    data, chosen = _mapping(content.get("data")), _mapping(content.get("algorithm"))
    name, variant = chosen.get("name", "fed_avg"), chosen.get("variant")
    if variant is None and isinstance(name, str) and name in ALGORITHMS:
        variant = algorithm(name).variants[0]
    usual = "table" if data.get("source") == "table" else "femnist"
    return str(data.get("dataset", usual)), str(name), variant if isinstance(variant, str) else None


def _sections_first(assignment: Mapping[str, Any]) -> list[tuple[str, Any]]:
    first = ("data.source", "privacy.noise_multiplier")  # they drop what lies below, not what another axis sets
    return sorted(assignment.items(), key=lambda axis: (axis[0].count("."), axis[0] not in first))


def values_of_axis(value: Any) -> list[Any]:
    """An axis is a list of values, or one value."""
    return value if isinstance(value, list) else [value]


def _require_one_source(data: DataConfig, first: DataConfig) -> None:
    # runs that share prepared data also share path and expected counts
    for key in ("path", "expected"):
        value, other = getattr(data, key), getattr(first, key)
        if value != other:
            raise expected(f"data.{key}", value, f"the same as that of the other runs ({other!r})")


class AuditConfig(Section):
    """How the algorithms are audited (rule ``audit``)."""

    size: Literal["small", "full"] = "full"
    """full: the papers' number of steps, ten minutes; small: few steps and runs, up to four minutes."""
    seed: NaturalNumber = 0
    """Root seed of the audits."""


class Scenario(Section):
    """A checked scenario; its runs are resolved, in a stable order, each once."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    """Name of the folder under results; lower case letters, digits, - and _."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """What the scenario is for."""
    synthetic_note: Annotated[str, Field(max_length=2000)] | None = None
    """Text shown beside results that rest on generated data."""
    run: dict[str, Any] = {}
    """Partial run configuration, over the defaults."""
    datasets: dict[str, Any] = {}
    """Per data set: partial run configuration, over run."""
    algorithms: dict[str, Any] = {}
    """Per algorithm (name or name:variant): partial run configuration, over datasets; may hold datasets again, for one
    algorithm on one data set."""
    sweep: list[dict[str, Any]] = []
    """Blocks; the runs of a block are all combinations of its axes (dotted key: value or list of values). A block's
    name is a label only. No block: one run."""
    figures: list[Figure] = []
    """Figures that the scenario draws; NAME-LABEL draws NAME again, with a selection of its own. One that its runs
    cannot give is refused before anything starts."""
    selections: dict[Figure, dict[str, Any]] = {}
    """Per figure: the runs it shows, as dotted key: value (or list of values); null selects what is null. A figure
    without an entry shows all runs; an entry of a figure that is not drawn does nothing."""

    audit: AuditConfig = AuditConfig()
    """The audits of the algorithms, made where a figure wants them."""
    _layers: tuple[Mapping[str, Any], ...] = PrivateAttr(default=())

    @cached_property
    def runs(self) -> tuple[RunConfig, ...]:
        """All runs, resolved, each once."""
        return tuple(self.runs_by_id.values())

    @cached_property
    def runs_by_id(self) -> dict[str, RunConfig]:
        """Run id -> run, in the order of the sweep; raises ConfigError with a line for each problem."""
        blocks = self.sweep or [{}]
        axes = [{key: values_of_axis(value) for key, value in block.items() if key != "name"} for block in blocks]
        total = sum(math.prod(map(len, block.values())) for block in axes)
        if total > LARGEST_SWEEP:
            raise expected("number of runs in sweep", total, f"at most {LARGEST_SWEEP}")
        runs, problems, sources = dict[str, RunConfig](), dict[str, None](), dict[str, DataConfig]()
        for block in axes:
            for values in itertools.product(*block.values()):
                try:
                    run = load_run(run_content(self._layers, dict(zip(block, values, strict=True))))
                    _require_one_source(run.data, sources.setdefault(run.data_key, run.data))
                    runs[run.run_id] = run
                except ConfigError as problem:
                    problems.update(dict.fromkeys(str(problem).split("\n")))
                if len(problems) > messages.MOST_LINES:
                    break
        messages.raise_all(problems)
        return runs

    def runs_of_figure(self, figure: str) -> tuple[RunConfig, ...]:
        """The runs that ``figure`` shows, by the scenario's selections; all runs without a selection."""
        selections: dict[str, dict[str, Any]] = {str(name): value for name, value in self.selections.items()}
        return tuple(run for run in self.runs if _fits(run, selections.get(figure, {})))

    def require_figure(self, figure: str) -> None:
        """Raises ConfigError for a figure that the scenario does not draw."""
        if figure not in self.figures:
            drawn = ", ".join(self.figures) or "no figure"
            raise expected("the figure", figure, f"one of the scenario {self.name} ({drawn}), or listed under figures")

    @cached_property
    def datasets_by_key(self) -> dict[str, DataConfig]:
        """Data key -> data section of the first run that uses it, in the order of the runs."""
        datasets: dict[str, DataConfig] = {}
        for run in self.runs:
            datasets.setdefault(run.data_key, run.data)
        return datasets

    @cached_property
    def partitions_by_id(self) -> dict[str, RunConfig]:
        """Partition id -> a run that trains on it; its seed, data and partition determine the partition."""
        return {run.partition_id: run for run in self.runs}


def load_scenario(paths: Sequence[Path | str] | Path | str, given: Mapping[str, Any] | None = None) -> Scenario:
    """Reads, checks and expands scenario files, each an overlay over those before it; ``given`` is a last overlay.

    Raises ConfigError as :func:`load_scenario_from_mapping`, with file and line.
    """
    files = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not files:
        raise ConfigError("Expected at least one scenario file.")
    contents = [read_yaml(file) for file in files]
    with messages.error_located_in([*files, given or {}]):
        return load_scenario_from_mapping(*contents, *([given] if given else []))


def given_values(entries: Iterable[str], texts: Mapping[str, Any]) -> dict[str, Any]:
    """The values of Snakemake's ``--config``, read as those of a file. Raises ConfigError as a file does.

    ``entries``: KEY=VALUE. ``texts``: what Snakemake read, in whose mappings and lists all numbers and null are text.
    """
    nested = {key for key, text in texts.items() if isinstance(text, (Mapping, list))}
    given = {key: None if text == "null" else text for key, text in texts.items() if key not in nested}
    for key, _, value in (entry.partition("=") for entry in entries):
        if key in nested:
            text = value.strip("'\"")
            read = parse_yaml(f"{key}:\n{indent(text, ' ')}", f"--config {key}")
            with suppress(ValueError, SyntaxError):  # a profile's mapping, as Python prints it: None is null
                read = {key: ast.literal_eval(text)}
            given = merge(given, read)
    return given


def load_scenario_from_mapping(*contents: Mapping[str, Any]) -> Scenario:
    """Checks and expands scenario files that were read already; ConfigError with a line for each problem in any run."""
    for content in contents:
        if not isinstance(content, Mapping):
            raise expected("the scenario", type(content).__name__, "a mapping (key: value)")
        check_tree(dict(content), "the scenario")
    content = overlaid(contents)
    _check_top_level(content)
    scenario = messages.validated(Scenario, content)
    scenario._layers = tuple(contents)
    if scenario.name in RESERVED_NAMES:
        raise expected("name", scenario.name, f"none of {', '.join(RESERVED_NAMES)}")
    _check_overrides(scenario)
    _ = scenario.runs  # checks each run
    _check_overrides_are_read(scenario)
    _check_selections(scenario)
    return scenario


def _check_top_level(content: Mapping[str, Any]) -> None:
    problems = []
    for key in content:
        inside = key.removeprefix("run.")
        if inside in RUN_KEYS:
            problems.append(f"Unknown key {key!r}. {messages.as_nested(inside, content[key])}")
        elif key not in Scenario.model_fields:
            problems.append(str(messages.unknown_key(key, Scenario.model_fields, RUN_KEYS)))
    for key, kind in (("figures", list), ("selections", Mapping)):
        names = [*found] if isinstance(found := content.get(key), kind) else []
        for name in dict.fromkeys(each for each in names if isinstance(each, str)):
            if not re.fullmatch(_PATTERN, name):
                problems.append(_no_figure(key, name))
            elif names.count(name) > 1:
                problems.append(f"Expected {key} to have {name} once. {name}-LABEL draws it again.")
    messages.raise_all(problems)


def _no_figure(key: str, name: str) -> str:
    figure, _, label = name.partition("-")
    if figure not in _FIGURES:
        return str(unknown(f"figure in {key}", figure, _FIGURES))
    return str(expected(f"the label of {figure} in {key}", label, f"lower case letters, digits and _: {figure}-small"))


def _check_overrides(scenario: Scenario) -> None:
    # unknown keys and values out of range, whether a run reads them or not
    problems = itertools.chain(
        _of_partial(scenario.run, "run"),
        _of_datasets(scenario.datasets, "datasets"),
        *(_of_algorithm(key, partial) for key, partial in scenario.algorithms.items()),
        *(_of_block(block, f"sweep[{number}]") for number, block in enumerate(scenario.sweep)),
    )
    messages.raise_all(itertools.islice(problems, 2 * messages.MOST_LINES))


def _check_overrides_are_read(scenario: Scenario) -> None:
    """Files below the one that gives the sweep may serve other sweeps too: they are not looked at."""
    runs = {(run.data.dataset, run.algorithm.name, run.algorithm.variant) for run in scenario.runs}
    datasets = {dataset for dataset, _, _ in runs}
    of = {key: {run[0] for run in runs if key in (run[1], f"{run[1]}:{run[2]}")} for key in scenario.algorithms}
    problems = []
    for layer in scenario._layers[_layer_of_the_sweep(scenario._layers) :]:
        read = {f"datasets.{name}": name in datasets for name in _mapping(layer.get("datasets"))}
        for key, partial in _mapping(layer.get("algorithms")).items():
            read[f"algorithms.{key}"] = bool(of[key])
            nested = _mapping(_mapping(partial).get("datasets")) if of[key] else {}
            read |= {f"algorithms.{key}.datasets.{name}": name in of[key] for name in nested}
        unread = [key for key, is_read in read.items() if not is_read]
        problems += [f"Expected {key} to be of a run of the sweep, got none." for key in unread]
    messages.raise_all(problems)


def _layer_of_the_sweep(layers: Sequence[Mapping[str, Any]]) -> int:
    return max((number for number, layer in enumerate(layers) if "sweep" in layer), default=len(layers) - 1)


def _of_partial(partial: Any, prefix: str, *decided_elsewhere: str) -> Iterator[str]:
    if not isinstance(partial, Mapping):
        yield str(expected(prefix, partial, "a mapping (key: value)"))
        return
    try:
        messages.validated(RunSections, partial, prefix)
    except ConfigError as problem:
        yield from str(problem).split("\n")
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
    axes: dict[str, str] = {}  # what sets each key
    for key, values in block.items():
        axis = f"{prefix}.{key}"
        if key == "name":
            if not isinstance(values, str):
                yield str(expected(axis, values, "text (a label)"))
        elif key not in RUN_KEYS and not key.startswith(_MAPPINGS):
            yield str(messages.unknown_key(axis, [f"{prefix}.{known}" for known in _near_axes(key)], RUN_KEYS))
        elif isinstance(values, list) and not values:
            yield str(expected(axis, values, "a value or a list with at least one value"))
        elif isinstance(values, list) and any(isinstance(value, list) for value in values):
            section, _, last = key.rpartition(".")
            several = f" (several lists: {section}: [{{{last}: [...]}}, {{{last}: [...]}}])" if section else ""
            yield str(expected(axis, values, f"a value or a list of values, not of lists{several}"))
        else:
            nested = (flattened(set_dotted({}, key, value)) for value in values_of_axis(values))
            for inner in {inner for pairs in nested for inner, value in pairs if value is not None}:
                if axes.setdefault(inner, key) != key:
                    yield str(expected(axis, values, f"without {inner}, which the axis {axes[inner]} sets"))


def _near_axes(key: str) -> list[str]:
    section = key.rpartition(".")[0]
    near = [known for known in RUN_KEYS if known.rpartition(".")[0] == section]
    return near or [known for known in RUN_KEYS if "." not in known]


def _check_selections(scenario: Scenario) -> None:
    # one of a figure that is not drawn has no effect: an overlay may draw fewer figures than the scenario below it
    problems: list[str] = []
    for figure, selection in scenario.selections.items():
        prefix = f"selections.{figure}"
        keys = [key for key in selection if key not in RUN_KEYS and not key.startswith(_MAPPINGS)]
        wrong = [str(messages.unknown_key(f"{prefix}.{key}", RUN_KEYS)) for key in keys]
        wrong += [
            f"Expected {prefix}.{key} to be values of one key, got a section. Write dotted keys: {key}.KEY: VALUE."
            for key, value in selection.items()
            if isinstance(value, Mapping) or (key in RunSections.model_fields and key not in ("algorithm", "seed"))
        ]
        if figure in scenario.figures and not wrong:
            wrong = _of_no_run(scenario, figure)
            if not wrong and not _shows_what_it_selects(scenario, figure):
                wrong = [str(expected(prefix, dict(selection), "a selection that fits at least one run"))]
        problems.extend(wrong)
    messages.raise_all(problems)


def _of_no_run(scenario: Scenario, figure: Figure) -> list[str]:
    # a value that no run has would leave out what is meant, without a word
    problems = []
    for key, wanted in scenario.selections[figure].items():
        found = [_value(run, key) for run in scenario.runs]
        words = listed({":".join(value) if key == "algorithm" else str(value) for value in found})
        for value, accepted in zip(values_of_axis(wanted), _accepted(key, wanted), strict=True):
            if accepted not in found:
                problems.append(str(expected(f"selections.{figure}.{key}", value, f"of a run ({words})")))
    return problems


def _shows_what_it_selects(scenario: Scenario, figure: Figure) -> bool:
    """Whether a run fits; for keys of the section privacy one that reads them, if the scenario has any."""
    shown, keys = scenario.runs_of_figure(figure), scenario.selections[figure]
    if any(key.startswith("privacy.") for key in keys) and any(is_private(run.algorithm.name) for run in scenario.runs):
        return any(is_private(run.algorithm.name) for run in shown)
    return bool(shown)


def _fits(run: RunConfig, selection: Mapping[str, Any]) -> bool:
    """A baseline, which claims no privacy, fits whatever is selected of the section privacy."""
    plain = not is_private(run.algorithm.name)
    return all(
        _value(run, key) in _accepted(key, wanted) or (plain and key.startswith("privacy."))
        for key, wanted in selection.items()
    )


def _accepted(key: str, wanted: Any) -> list[Any]:
    values = values_of_axis(wanted)
    return [tuple(str(value).split(":")) for value in values] if key == "algorithm" else values


def _value(run: RunConfig, key: str) -> Any:
    if key == "algorithm":
        parts = (run.algorithm.name, run.algorithm.variant)
        return tuple(part for part in parts if part is not None)
    value: Any = run
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else getattr(value, part)
    return value
