"""Which runs a figure shows, where a scenario makes runs for several figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from subjectdp.config.messages import join_errors, unknown_key
from subjectdp.config.overrides import RUN_KEYS
from subjectdp.errors import expected

if TYPE_CHECKING:
    from subjectdp.config.models import RunConfig
    from subjectdp.config.scenario import Scenario


def runs_of_figure(scenario: Scenario, figure: str) -> tuple[RunConfig, ...]:
    """The runs that a figure of the scenario shows: those its selection fits, all without one."""
    selections: dict[str, dict[str, Any]] = {str(name): value for name, value in scenario.selections.items()}
    selection = selections.get(figure, {})
    return tuple(run for run in scenario.runs if fits(run, selection))


def fits(run: RunConfig, selection: Mapping[str, Any]) -> bool:
    """Whether each dotted key of ``selection`` has (one of) its values in the resolved ``run``."""
    return all(_value(run, key) in _accepted(key, wanted) for key, wanted in selection.items())


def check_selections(scenario: Scenario) -> None:
    """Refuses selections by unknown keys, and those of drawn figures that fit no run.

    A selection of a figure that is not drawn does nothing: an overlay may draw fewer figures than what it lies over.
    """
    problems: list[str] = []
    for figure, selection in scenario.selections.items():
        prefix = f"selections.{figure}"
        wrong = [str(unknown_key(f"{prefix}.{key}", RUN_KEYS)) for key in selection if key not in RUN_KEYS]
        problems.extend(wrong)
        if figure in scenario.figures and not wrong and not runs_of_figure(scenario, figure):
            problems.append(str(expected(prefix, dict(selection), "a selection that fits at least one run")))
    if problems:
        raise join_errors(problems)


def _accepted(key: str, wanted: Any) -> list[Any]:
    values = wanted if isinstance(wanted, list) else [wanted]
    if key != "algorithm":
        return values
    return [tuple(str(value).split(":")) for value in values]


def _value(run: RunConfig, key: str) -> Any:
    """The value of ``key``; an algorithm is compared by name, with its variant where it has one."""
    if key == "algorithm":
        parts = (run.algorithm.name, run.algorithm.variant)
        return tuple(part for part in parts if part is not None)
    value: Any = run
    for part in key.split("."):
        value = getattr(value, part)
    return value
