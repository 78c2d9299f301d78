"""What the algorithms of collected runs claim to protect, read from their declarations."""

from __future__ import annotations

import pandas as pd

from subjectdp.algorithms.registry import is_private, mechanism
from subjectdp.plan.plan import AccountingMode


def claimed_units(runs: pd.DataFrame) -> pd.Series:
    """The privacy unit that each run's algorithm claims (:class:`PrivacyUnit` as text); empty: no privacy."""
    columns = zip(runs["algorithm"], runs["variant"], runs["mode"], strict=True)
    units = [_claimed_unit(str(name), variant, str(mode)) for name, variant, mode in columns]
    return pd.Series(units, index=runs.index, dtype=object)


def are_private(runs: pd.DataFrame) -> pd.Series:
    """Whether each run's algorithm claims any privacy."""
    return runs["algorithm"].map(is_private).astype(bool)


def _claimed_unit(name: str, variant: object, mode: str) -> str:
    known = None if pd.isna(variant) else str(variant)  # type: ignore[call-overload]
    return str(mechanism(name, known, AccountingMode(mode)).claimed_unit or "")
