"""The papers' printed numbers and statements: config/targets.csv, read and checked, one row per target.

Columns and tolerances are described in docs/scorecard.md, verdicts in :mod:`subjectdp.scorecard.verdicts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from subjectdp.errors import ConfigError, expected
from subjectdp.scorecard.csv_fields import (
    known_algorithm,
    needed,
    number,
    one_of,
    positive,
    read_rows,
    whole_number,
)

PAPERS = ("v0", "v1", "v3", "joint")
DATASETS = ("", "femnist", "shakespeare", "fashion_mnist", "cifar10", "acs_income")
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
    "local_epsilon",
    "excess_loss",
    "excess_training_loss",
    "generalisation_gap",
    "printed_bound",
    "noise_growth",
)
_WHOLE = ("subjects", "silos", "rounds", "batch_size")
_REAL = ("alpha", "epsilon", "delta")
_OVERRIDES = ("alpha", "subjects", "batch_size", "local_steps", "horizontal")
_HORIZONTAL = ("", "rounds_over_sqrt_s", "steps_times_s", "none")


class Kind(StrEnum):
    """What a target states."""

    VALUE = "value"  # a number
    RELATIVE = "relative"  # by how many per cent the algorithm is above (or below) another
    ORDER = "order"  # the algorithm is above all others named
    BELOW = "below"  # the algorithm is below a number
    CLAIM = "claim"  # a privacy guarantee
    BOUND = "bound"  # a theorem's upper bound on a loss


class EvidenceKind(StrEnum):
    """What decides a target; verdicts are counted for each kind, never in one sum."""

    ACCOUNTING = "accounting"
    SAMPLING = "sampling"  # and counts of items and subjects
    BOUNDS = "bounds"
    TRAINING = "training"


_EVIDENCE = {
    EvidenceKind.ACCOUNTING: (
        "epsilon",
        "local_epsilon",
        "noise_multiplier",
        "noise_ratio",
        "noise_growth",
        "rounds_executed",
    ),
    EvidenceKind.SAMPLING: (
        "subjects",
        "items_per_subject",
        "subjects_per_batch",
        "largest_group",
        "largest_group_mode",
    ),
    EvidenceKind.BOUNDS: ("excess_loss", "excess_training_loss", "generalisation_gap", "printed_bound"),
}
CIRCULAR = "circular"
"""Mark of a target that cannot come out otherwise: the input of a calibration, or a formula that is executed."""


@dataclass(frozen=True)
class Setting:
    """The setting of a target's number; None if the paper does not state or need a value."""

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
    """One number or statement of a paper; ``printed`` and ``tolerance`` are NaN if no number is printed."""

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
    not_counted: str = ""  # CIRCULAR, or the id of the target that it repeats

    @property
    def evidence(self) -> EvidenceKind:
        """What decides the target."""
        found = (kind for kind, metrics in _EVIDENCE.items() if self.metric in metrics)
        return next(found, EvidenceKind.TRAINING)


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
    "not_counted",
]
"""Columns of the file, in their order."""


def read_targets(path: Path | str) -> list[Target]:
    """All targets of a CSV with :data:`COLUMNS`, in its order.

    Raises ConfigError naming the row, the column, the value and what is allowed; also for a repeated id.
    """
    rows = list(read_rows(Path(path), "targets", COLUMNS))
    counted = [row["id"] for _, row in rows if not row["not_counted"]]
    for where, row in rows:
        one_of(row["not_counted"], ["", CIRCULAR, *counted], f"{where}, not_counted")
    return [_target(row, where) for where, row in rows]


def _target(row: Mapping[str, Any], where: str) -> Target:
    kind = one_of(row["kind"], [k.value for k in Kind], f"{where}, kind")
    setting = _setting(row, where)
    target = Target(
        id=needed(row, "id", where),
        paper=one_of(row["paper"], PAPERS, f"{where}, paper"),
        place=needed(row, "place", where),
        statement=needed(row, "statement", where),
        kind=Kind(kind),
        metric=one_of(row["metric"], METRICS, f"{where}, metric"),
        algorithm=known_algorithm(row["algorithm"], where),
        versus=tuple(known_algorithm(name, where) for name in row["versus"].split()),
        printed=number(row["printed"], f"{where}, printed"),
        tolerance=number(row["tolerance"], f"{where}, tolerance"),
        unit=row["unit"],
        setting=setting,
        versus_setting=_overridden(setting, row["versus_setting"], where),
        not_counted=row["not_counted"],
    )
    _check(target, where)
    return target


def _setting(row: Mapping[str, str], where: str) -> Setting:
    def whole(name: str) -> int | None:
        return whole_number(row[name], f"{where}, {name}")

    def real(name: str) -> float | None:
        return positive(row[name], f"{where}, {name}")

    return Setting(
        dataset=one_of(row["dataset"], DATASETS, f"{where}, dataset"),
        subjects=whole("subjects"),
        silos=whole("silos"),
        alpha=real("alpha"),
        rounds=whole("rounds"),
        batch_size=whole("batch_size"),
        local_steps=_local_steps(row["local_steps"], where),
        horizontal=one_of(row["horizontal"], _HORIZONTAL, f"{where}, horizontal") or None,
        epsilon=real("epsilon"),
        delta=real("delta"),
    )


def _overridden(setting: Setting, text: str, where: str) -> Setting:
    """The other side's setting: the row's, changed by the pairs ``key=value`` of ``versus_setting``."""
    changes: dict[str, Any] = {}
    for pair in text.split():
        key, _, value = pair.partition("=")
        one_of(key, _OVERRIDES, f"{where}, versus_setting")
        if key in _WHOLE:
            changes[key] = whole_number(value, f"{where}, versus_setting {key}")
        elif key in _REAL:
            changes[key] = positive(value, f"{where}, versus_setting {key}")
        elif key == "local_steps":
            changes[key] = _local_steps(value, where)
        else:
            changes[key] = one_of(value, _HORIZONTAL, f"{where}, versus_setting {key}")
    return replace(setting, **changes)


def _check(target: Target, where: str) -> None:
    """Requires what the kind needs: a printed number, another side, or neither."""
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


def _local_steps(text: str, where: str) -> str | None:
    if text and text not in ("epoch", "most") and not (text.isdigit() and int(text) > 0):
        raise expected(f"{where}, local_steps", text, "epoch, most, a whole number, or nothing", ConfigError)
    return text or None


SETTING_FIELDS = tuple(field.name for field in fields(Setting))
"""Names of the fields of :class:`Setting`."""
