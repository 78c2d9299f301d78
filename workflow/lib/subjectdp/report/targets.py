"""The papers' printed numbers and statements (config/targets.csv, one row per target), and the verdict on each.

Columns, tolerances and the rule: docs/findings.md. No verdict is written by hand. A number is compared by its interval:
within the allowed range it is reproduced, entirely outside it differs; across the edge it is not decided at this scale.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as checked
from pydantic_core import ErrorDetails

from subjectdp.algorithms.registry import algorithm
from subjectdp.errors import ConfigError, SubjectDPError, expected, unknown
from subjectdp.results.select import Estimate


class Kind(StrEnum):
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


_BY_EVIDENCE = {
    EvidenceKind.ACCOUNTING: "epsilon local_epsilon noise_multiplier noise_ratio noise_ratio_mean noise_growth "
    "rounds_executed",
    EvidenceKind.SAMPLING: "subjects items_per_subject subjects_per_batch largest_group largest_group_mode",
    EvidenceKind.BOUNDS: "excess_loss excess_training_loss generalisation_gap printed_bound",
    EvidenceKind.TRAINING: "test_accuracy test_loss accuracy_at_equal_rounds rounds_to_equal_accuracy",
}
EVIDENCE = {metric: kind for kind, metrics in _BY_EVIDENCE.items() for metric in metrics.split()}
"""The metrics, and what decides each."""
CIRCULAR = "circular"
"""Mark of a target that cannot come out otherwise: the input of a calibration, or a formula that is executed."""


def _known_metric(name: str) -> str:
    if name not in EVIDENCE:
        raise unknown("metric", name, EVIDENCE)
    return name


def _known_algorithm(text: str) -> str:
    name, _, variant = text.partition(":")
    if text:
        algorithm(name, variant or None)
    return text


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Algorithm = Annotated[str, AfterValidator(_known_algorithm)]
_STRICT = ConfigDict(extra="forbid", str_strip_whitespace=True)


@checked(frozen=True, config=_STRICT)
class Setting:
    """The setting of a target's number; None if the paper does not state or need a value."""

    dataset: Literal["", "femnist", "shakespeare", "fashion_mnist", "cifar10", "acs_income"] = ""
    subjects: Count | None = None
    silos: Count | None = None
    alpha: Positive | None = None
    rounds: Count | None = None
    batch_size: Count | None = None
    # "epoch", a number, or "most" (as many as there are)
    local_steps: Annotated[str, Field(pattern=r"^(epoch|most|[1-9]\d*)$")] | None = None
    horizontal: Literal["rounds_over_sqrt_s", "steps_times_s", "none"] | None = None
    epsilon: Positive | None = None
    delta: Positive | None = None


SETTING_FIELDS = tuple(field.name for field in fields(Setting))  # names of the fields of Setting


@checked(frozen=True, config=_STRICT)
class Target:
    """One number or statement of a paper; ``printed`` and ``tolerance`` are NaN if no number is printed."""

    id: Text
    paper: Literal["v0", "v1", "v3", "joint"]
    place: Text
    statement: Text
    kind: Kind
    metric: Annotated[str, AfterValidator(_known_metric)]
    setting: Setting
    versus_setting: Setting
    algorithm: Algorithm = ""  # name or name:variant; empty where no algorithm is concerned
    versus: tuple[Algorithm, ...] = ()
    printed: float = math.nan
    tolerance: float = math.nan
    unit: str = ""
    not_counted: str = ""  # CIRCULAR, or the id of the target that it repeats

    @property
    def evidence(self) -> EvidenceKind:
        return EVIDENCE[self.metric]

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Target:
        compared = self.kind in (Kind.RELATIVE, Kind.ORDER)
        if compared != bool(self.versus):
            allowed = "another algorithm" if compared else "empty"
            raise expected("versus", " ".join(self.versus), f"{allowed} ({self.kind})")
        printed = self.kind in (Kind.VALUE, Kind.RELATIVE, Kind.BELOW, Kind.CLAIM)
        if printed == math.isnan(self.printed) or printed == math.isnan(self.tolerance):
            need = "numbers" if printed else "empty"
            raise expected("printed and tolerance", (self.printed, self.tolerance), need)
        if self.tolerance < 0:
            raise expected("tolerance", self.tolerance, "at least 0")
        if compared and self.setting == self.versus_setting and self.algorithm in self.versus:
            raise expected("versus", self.algorithm, "another algorithm or another setting")
        return self


COLUMNS = [  # columns of the file, in their order
    *("id", "paper", "place", "statement", "kind", "metric", "dataset", "algorithm", "versus"),
    *("versus_setting", "printed", "tolerance", "unit", *SETTING_FIELDS[1:], "not_counted"),
]
_TARGET = TypeAdapter(Target)


def read_targets(path: Path | str) -> list[Target]:
    """All targets of a CSV with :data:`COLUMNS`, in its order.

    ``versus_setting`` is the row's setting, changed by pairs ``key=value``.
    Raises ConfigError naming the row, the column, the value and what is allowed; also for a repeated id.
    """
    path = Path(path)
    rows = _rows(path)
    twice = [name for name, count in Counter(row["id"] for row in rows).items() if count > 1]
    if twice:
        raise expected(f"ids of {path.name}", twice, "each once")
    originals = ["", CIRCULAR, *(row["id"] for row in rows if not row["not_counted"])]
    targets = []
    for number, row in enumerate(rows, 2):
        where = f"{path.name}, row {number}"
        if row["not_counted"] not in originals:
            raise unknown(f"{where}, not_counted", row["not_counted"], originals)
        try:
            given = {name: value for name, value in row.items() if value}  # empty cells are left out
            setting = {name: given.pop(name) for name in SETTING_FIELDS if name in given}
            pairs = (pair.partition("=") for pair in given.pop("versus_setting", "").split())
            versus = {"versus": given.pop("versus", "").split()}
            settings = {"setting": setting, "versus_setting": setting | {key: to for key, _, to in pairs}}
            targets.append(_TARGET.validate_python(given | versus | settings))
        except ValidationError as problem:
            raise _refused(where, problem.errors()[0]) from problem
    return targets


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        raise expected("targets", str(path), "an existing file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:  # spreadsheets write a byte-order mark
            reader = csv.DictReader(stream)
            names, rows = list(reader.fieldnames or ()), list(reader)
    except (UnicodeDecodeError, csv.Error) as problem:
        raise expected(str(path), str(problem), "a CSV in UTF-8") from problem
    if names != COLUMNS:
        raise expected(f"columns of {path.name}", names, f"exactly {', '.join(COLUMNS)}")
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            allowed = f"a value, or nothing, for each of {len(COLUMNS)} columns"
            raise expected(f"{path.name}, row {number}", dict(row), allowed)
    return rows


def _refused(where: str, problem: ErrorDetails) -> ConfigError:
    names = [str(name) for name in problem["loc"] if name != "setting"]
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, SubjectDPError):
        return ConfigError(f"{', '.join([where, *names[:1]])}: {cause}")
    key = f"{where}, {' '.join(names)}"
    if problem["type"] == "unexpected_keyword_argument":
        return ConfigError(str(unknown(f"setting in {where}, {names[0]}", names[-1], SETTING_FIELDS)))
    allowed = problem["msg"].removeprefix("Input should be ").replace("String should", "text that must")
    return ConfigError(str(expected(key, problem["input"], allowed)))


class Verdict(StrEnum):
    """The possible verdicts, in the order of the scorecard."""

    REPRODUCED = "reproduced"
    DIFFERS = "differs"
    REFUTED = "refuted"
    NOT_PROVABLE = "not provable"
    CANNOT_FAIL = "cannot fail"
    NOT_AT_THIS_SCALE = "not at this scale"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Measured:
    """Our measurement of one target.

    ``mean``, ``low``, ``high``: the value with its 95 % interval in the target's unit; for an order the smallest lead
    over the others, for a claim the sound ε (infinite if none can be stated), for a bound the measured loss minus the
    bound. ``low`` and ``high`` are NaN for a single seed, and equal to ``mean`` if nothing is random.
    """

    mean: float
    low: float
    high: float
    seeds: int  # 0: nothing was trained
    scale: str  # data and runs that it was measured on, in words
    at_setting: bool = True  # the paper's own setting
    synthetic: bool = False  # trained on generated data
    epsilon_published: float = math.nan
    epsilon_sound: float = math.nan  # at the unit that the paper claims; NaN: none can be stated, or no claim
    epsilon_sound_subject: float = math.nan  # of a subject over all its silos
    subject_guarantee: str = ""  # of that ε of runs: conditional where a bound was read from the data
    epsilon_lower: float = math.nan  # of a claim: ε is at least this, by an attack or a tight account
    cannot_fail: bool = False  # of a bound: a model that learnt nothing meets it as well
    note: str = ""

    @classmethod
    def of(cls, estimate: Estimate, scale: str, **facts: Any) -> Measured:
        return cls(estimate.mean, estimate.low, estimate.high, estimate.count, scale, **facts)

    @classmethod
    def exact(cls, value: float, scale: str, **facts: Any) -> Measured:
        """A number in which nothing is random."""
        return cls(value, value, value, 0, scale, **facts)


_REASONS = {  # of an interval inside the allowed range, outside, across its edge
    Kind.VALUE: (
        "the interval is within the tolerance",
        "the interval is outside the tolerance",
        "the interval reaches over the tolerance's edge",
    ),
    Kind.BELOW: (
        "the interval is below the number",
        "the interval is above the number",
        "the interval holds the number",
    ),
    Kind.ORDER: ("the lead's interval is above 0", "the lead's interval is below 0", "the lead's interval holds 0"),
    Kind.BOUND: (
        "the measured loss is below the bound",
        "the measured loss is above the bound",
        "the interval holds the bound",
    ),
}


def judge(target: Target, measured: Measured | None) -> tuple[Verdict, str]:
    """The verdict on a target, and the reason in a few words."""
    if measured is None:
        return Verdict.NOT_RUN, "no run or table of this scenario measures it"
    if target.kind is Kind.CLAIM:
        return _claim(target, measured)
    if measured.synthetic and target.kind is not Kind.BOUND:
        return Verdict.NOT_AT_THIS_SCALE, "generated data"
    if not measured.at_setting and target.kind not in (Kind.BOUND, Kind.ORDER):
        return Verdict.NOT_AT_THIS_SCALE, "not the paper's setting"
    if math.isnan(measured.low) or math.isnan(measured.high):
        return Verdict.NOT_AT_THIS_SCALE, "one seed gives no interval"
    return _by_interval(target, measured)


def verdict_counts(table: pd.DataFrame) -> pd.DataFrame:
    """The counted targets: a row for each verdict and a column for each kind of evidence, zeros included."""
    counted = table[table["counted"].astype(bool)]
    counts = pd.crosstab(counted["verdict"], counted["evidence"])
    verdicts, kinds = [verdict.value for verdict in Verdict], [kind.value for kind in EvidenceKind]
    return counts.reindex(index=verdicts, columns=kinds, fill_value=0).astype(int)


def _claim(target: Target, measured: Measured) -> tuple[Verdict, str]:
    sound, allowed = measured.mean, target.printed + target.tolerance
    if sound <= allowed:
        return Verdict.REPRODUCED, f"sound ε {sound:.3g} is at most the claim"
    if measured.epsilon_lower > allowed:
        return Verdict.REFUTED, f"ε is at least {measured.epsilon_lower:.4g}, above the claim"
    if math.isinf(sound):
        return Verdict.NOT_PROVABLE, "no ε is proven"
    return Verdict.NOT_PROVABLE, f"the sound ε {sound:.4g} is above the claim, no lower bound is"


def _by_interval(target: Target, measured: Measured) -> tuple[Verdict, str]:
    """An order needs a lead above 0, and ``below`` a number below the printed one: their edge is outside."""
    low, high = target.printed - target.tolerance, target.printed + target.tolerance
    if target.kind is Kind.ORDER:
        low, high = math.nextafter(0.0, 1.0), math.inf
    elif target.kind is Kind.BELOW:
        low, high = -math.inf, math.nextafter(high, 0.0)
    elif target.kind is Kind.BOUND:
        low, high = -math.inf, 0.0
    inside, outside, across = _REASONS.get(target.kind, _REASONS[Kind.VALUE])
    if low <= measured.low and measured.high <= high:
        if target.kind is Kind.BOUND and measured.cannot_fail:
            return Verdict.CANNOT_FAIL, "the model before its first step is below the bound as well"
        return Verdict.REPRODUCED, inside
    if measured.high < low or measured.low > high:
        return (Verdict.REFUTED if target.kind is Kind.BOUND else Verdict.DIFFERS), outside
    return Verdict.NOT_AT_THIS_SCALE, across
