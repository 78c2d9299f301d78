"""The findings of audits as a tidy table, one row each, and as a JSON summary."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.auditing.lower_bounds import CONFIDENCE
from subjectdp.io.atomic import write_frame, write_json
from subjectdp.plan.plan import Mechanism

COLUMNS = (
    *("audit", "algorithm", "variant", "mode", "setting", "claimed_epsilon", "true_epsilon", "lower_bound"),
    *("runs", "direction", "confidence", "verdict", "synthetic"),
)
REFUTED, STANDS = "refuted", "not refuted"


@dataclass(frozen=True)
class Finding:
    """One row of the table; ``details`` appear in the summary only."""

    audit: str  # monte_carlo, one_run_subjects, one_run_items, noise_level_leak or divisor_leak
    mechanism: Mechanism
    setting: str
    claimed_epsilon: float
    true_epsilon: float  # as if σ and divisor were constants; NaN where the attack is on them
    lower_bound: float
    runs: int  # of each world; canaries of a one-run audit
    direction: str
    details: dict[str, Any]
    synthetic: bool = False  # whether the data are generated
    confidence: float = CONFIDENCE  # of the bound by itself

    @property
    def verdict(self) -> str:
        """ "refuted" if the bound lies above the claim, else "not refuted"."""
        return REFUTED if self.lower_bound > self.claimed_epsilon else STANDS

    @property
    def name(self) -> str:
        """Audit, algorithm, mode and setting in one line."""
        declared = self.mechanism
        variant = "" if declared.variant is None else f":{declared.variant}"
        return f"{self.audit} {declared.algorithm}{variant} {declared.mode.value}, {self.setting}"

    @property
    def line(self) -> str:
        """The finding for a log."""
        return (
            f"{self.name}: claimed {self.claimed_epsilon:g}, true {self.true_epsilon:.2f}, "
            f"lower bound {self.lower_bound:.2f}, {self.verdict}"
        )

    def row(self) -> dict[str, Any]:
        """The values of :data:`COLUMNS`."""
        declared = self.mechanism
        named = {"algorithm": declared.algorithm, "variant": declared.variant, "mode": declared.mode.value}
        values = {**vars(self), **named, "verdict": self.verdict}
        return {name: values[name] for name in COLUMNS}


def table(findings: list[Finding]) -> pd.DataFrame:
    """The findings as a tidy table with :data:`COLUMNS`."""
    return pd.DataFrame([finding.row() for finding in findings], columns=list(COLUMNS))


def summary(findings: list[Finding], facts: dict[str, Any]) -> dict[str, Any]:
    """All findings with their details as one JSON object that starts with ``facts``; null for NaN and infinity."""

    def finite(values: dict[str, Any]) -> dict[str, Any]:
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}

    return {
        **facts,
        "refuted": [finding.name for finding in findings if finding.verdict == REFUTED],
        "not_refuted": [finding.name for finding in findings if finding.verdict == STANDS],
        "findings": [finite({**finding.row(), **finding.details}) for finding in findings],
    }


def write_findings(
    findings: list[Finding], facts: dict[str, Any], parquet: Path | str, csv: Path | str, json: Path | str
) -> None:
    """Writes table and summary; the summary starts with ``facts`` (size, seed, confidence, δ)."""
    frame = table(findings)
    write_frame(parquet, frame)
    write_frame(csv, frame)
    write_json(json, summary(findings, facts))
