"""The papers' printed numbers and statements as data: config/targets.csv, read and checked.

One row a target. What each column holds, and the rule behind the tolerances, is in docs/scorecard.md; how a target
is judged is in :mod:`subjectdp.analysis.verdicts`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.errors import ConfigError, expected, unknown

PAPERS = ("v0", "v1", "v3", "joint")
OTHER_DATASETS = ("fashion_mnist", "cifar10", "acs_income")
"""Data sets of the joint-noise paper, which this project does not hold."""
DATASETS = ("", "femnist", "shakespeare", *OTHER_DATASETS)
METRICS = (
    "test_accuracy",
    "test_loss",
    "accuracy_at_equal_rounds",
    "rounds_to_equal_accuracy",
    "rounds_executed",
    "subjects",
    "items_per_subject",
    "subjects_per_batch",
    "largest_group",
    "largest_group_mode",
    "noise_multiplier",
    "noise_ratio",
    "epsilon",
    "excess_loss",
)
_WHOLE = ("subjects", "silos", "rounds", "batch_size")
_REAL = ("alpha", "epsilon", "delta")
_OVERRIDES = ("alpha", "subjects", "batch_size", "local_steps", "horizontal")
_HORIZONTAL = ("", "rounds_over_sqrt_s", "steps_times_s")


class Kind(StrEnum):
    """What a target states."""

    VALUE = "value"  # a number
    RELATIVE = "relative"  # by how many per cent the algorithm is above (or below) another
    ORDER = "order"  # the algorithm is above all others named
    BELOW = "below"  # the algorithm is below a number
    CLAIM = "claim"  # a privacy guarantee
    BOUND = "bound"  # a theorem's upper bound on a loss


@dataclass(frozen=True)
class Setting:
    """What a target's number was obtained with; None where the paper has, or needs, no such thing."""

    dataset: str
    subjects: int | None = None
    silos: int | None = None
    alpha: float | None = None
    rounds: int | None = None
    batch_size: int | None = None
    local_steps: str | None = None  # "epoch", a number, or "most" (as many as there are)
    horizontal: str | None = None
    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Target:
    """One number or statement of a paper. ``printed`` and ``tolerance`` are NaN where nothing is printed."""

    id: str
    paper: str
    place: str
    statement: str
    kind: Kind
    metric: str
    algorithm: str  # name or name:variant; empty where no algorithm is concerned
    versus: tuple[str, ...]
    printed: float
    tolerance: float
    unit: str
    setting: Setting
    versus_setting: Setting


COLUMNS = [
    "id",
    "paper",
    "place",
    "statement",
    "kind",
    "metric",
    "dataset",
    "algorithm",
    "versus",
    "versus_setting",
    "printed",
    "tolerance",
    "unit",
    "subjects",
    "silos",
    "alpha",
    "rounds",
    "batch_size",
    "local_steps",
    "horizontal",
    "epsilon",
    "delta",
]
"""Columns of the file, in their order."""


def read_targets(path: Path | str) -> list[Target]:
    """All targets of a CSV with :data:`COLUMNS`, in its order.

    Raises ConfigError naming the file's row, column, value and what is allowed; also for an id that comes twice.
    """
    path = Path(path)
    if not path.is_file():
        raise expected("targets", str(path), "an existing file", ConfigError)
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if list(reader.fieldnames or ()) != COLUMNS:
            raise expected(
                f"columns of {path.name}", reader.fieldnames, f"exactly {', '.join(COLUMNS)}", ConfigError
            )
        targets = [_target(row, f"{path.name}, row {number}") for number, row in enumerate(reader, 2)]
    ids = [target.id for target in targets]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise expected(f"ids of {path.name}", twice, "each once", ConfigError)
    return targets


def _target(row: Mapping[str, Any], where: str) -> Target:
    if None in row.values() or None in row:
        raise expected(
            where, dict(row), f"a value, or nothing, for each of {len(COLUMNS)} columns", ConfigError
        )
    kind = _one_of(row["kind"], [k.value for k in Kind], f"{where}, kind")
    setting = _setting(row, where)
    target = Target(
        id=_needed(row, "id", where),
        paper=_one_of(row["paper"], PAPERS, f"{where}, paper"),
        place=_needed(row, "place", where),
        statement=_needed(row, "statement", where),
        kind=Kind(kind),
        metric=_one_of(row["metric"], METRICS, f"{where}, metric"),
        algorithm=_algorithm(row["algorithm"], where),
        versus=tuple(_algorithm(name, where) for name in row["versus"].split()),
        printed=_number(row["printed"], f"{where}, printed"),
        tolerance=_number(row["tolerance"], f"{where}, tolerance"),
        unit=row["unit"],
        setting=setting,
        versus_setting=_overridden(setting, row["versus_setting"], where),
    )
    _check(target, where)
    return target


def _setting(row: Mapping[str, str], where: str) -> Setting:
    def whole(name: str) -> int | None:
        return _whole(row[name], f"{where}, {name}")

    def real(name: str) -> float | None:
        return _positive(row[name], f"{where}, {name}")

    return Setting(
        dataset=_one_of(row["dataset"], DATASETS, f"{where}, dataset"),
        subjects=whole("subjects"),
        silos=whole("silos"),
        alpha=real("alpha"),
        rounds=whole("rounds"),
        batch_size=whole("batch_size"),
        local_steps=_local_steps(row["local_steps"], where),
        horizontal=_one_of(row["horizontal"], _HORIZONTAL, f"{where}, horizontal") or None,
        epsilon=real("epsilon"),
        delta=real("delta"),
    )


def _overridden(setting: Setting, text: str, where: str) -> Setting:
    """The other side's setting: that of the row with the pairs ``key=value`` of ``versus_setting`` replaced."""
    changes: dict[str, Any] = {}
    for pair in text.split():
        key, _, value = pair.partition("=")
        _one_of(key, _OVERRIDES, f"{where}, versus_setting")
        if key in _WHOLE:
            changes[key] = _whole(value, f"{where}, versus_setting {key}")
        elif key in _REAL:
            changes[key] = _positive(value, f"{where}, versus_setting {key}")
        elif key == "local_steps":
            changes[key] = _local_steps(value, where)
        else:
            changes[key] = _one_of(value, _HORIZONTAL, f"{where}, versus_setting {key}")
    return replace(setting, **changes)


def _check(target: Target, where: str) -> None:
    """What the kinds need: a number where one is compared, another side where sides are compared."""
    compared = target.kind in (Kind.RELATIVE, Kind.ORDER)
    if compared != bool(target.versus):
        allowed = "another algorithm" if compared else "empty"
        raise expected(f"{where}, versus", " ".join(target.versus), f"{allowed} ({target.kind})", ConfigError)
    printed = target.kind in (Kind.VALUE, Kind.RELATIVE, Kind.BELOW, Kind.CLAIM)
    if printed == math.isnan(target.printed) or printed == math.isnan(target.tolerance):
        need = "numbers" if printed else "empty"
        raise expected(
            f"{where}, printed and tolerance", (target.printed, target.tolerance), need, ConfigError
        )
    if target.tolerance < 0:
        raise expected(f"{where}, tolerance", target.tolerance, "at least 0", ConfigError)
    same = target.setting == target.versus_setting and target.algorithm in target.versus
    if compared and same:
        raise expected(
            f"{where}, versus", target.algorithm, "another algorithm or another setting", ConfigError
        )


def _needed(row: Mapping[str, str], name: str, where: str) -> str:
    if not row[name].strip():
        raise expected(f"{where}, {name}", row[name], "some text", ConfigError)
    return row[name]


def _one_of(value: str, allowed: Iterable[str], where: str) -> str:
    allowed = list(allowed)
    if value not in allowed:
        raise unknown(where, value, [name or "nothing" for name in allowed])
    return value


def _algorithm(text: str, where: str) -> str:
    if not text:
        return ""
    name, _, variant = text.partition(":")
    if name not in ALGORITHMS:
        raise unknown(f"{where}, algorithm", name, ALGORITHMS)
    algorithm(name, variant or None)
    return text


def _number(text: str, where: str) -> float:
    try:
        return float(text) if text else math.nan
    except ValueError as problem:
        raise expected(where, text, "a number, or nothing", ConfigError) from problem


def _positive(text: str, where: str) -> float | None:
    value = _number(text, where)
    if value <= 0 or math.isinf(value):
        raise expected(where, text, "a finite number above 0, or nothing", ConfigError)
    return None if math.isnan(value) else value


def _whole(text: str, where: str) -> int | None:
    if text and not (text.isdigit() and int(text) > 0):
        raise expected(where, text, "a whole number of at least 1, or nothing", ConfigError)
    return int(text) if text else None


def _local_steps(text: str, where: str) -> str | None:
    if text and text not in ("epoch", "most") and not (text.isdigit() and int(text) > 0):
        raise expected(f"{where}, local_steps", text, "epoch, most, a whole number, or nothing", ConfigError)
    return text or None


SETTING_FIELDS = tuple(field.name for field in fields(Setting))
"""Names of a setting's parts."""
