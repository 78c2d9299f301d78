"""The verdict on a target: one pure function, the rule of docs/findings.md. No verdict is written by hand.

A number is compared by its interval: within the allowed range it is reproduced, entirely outside it differs; an
interval across the edge is not decided at this scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from subjectdp.results.intervals import Estimate
from subjectdp.scorecard.targets import EvidenceKind, Kind, Target


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
    epsilon_lower: float = math.nan  # of a claim: ε is at least this, by an attack or a tight account
    cannot_fail: bool = False  # of a bound: a model that learnt nothing meets it as well
    note: str = ""

    @classmethod
    def of(cls, estimate: Estimate, scale: str, **facts: Any) -> Measured:
        """A mean over seeds."""
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
        return Verdict.NOT_PROVABLE, "no finite ε can be stated"
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
