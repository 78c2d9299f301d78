"""What a private selection promises: its ε for each unit, and whether that keeps the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from subjectdp.accounting.plan_run import plan_run
from subjectdp.accounting.private_selection import run_epsilon, selection_curve
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import PrivacyPlan, PrivacyUnit

if TYPE_CHECKING:
    from subjectdp.config.private_selection import PrivateSelection, SelectionGroup
    from subjectdp.data.partition import Partition

UNITS = {
    "item": (PrivacyUnit.ITEM, False),
    "subject_one_silo": (PrivacyUnit.SUBJECT, False),
    "subject": (PrivacyUnit.SUBJECT, True),
}


@dataclass(frozen=True)
class Promise:
    """ε of a selection for each unit; None, with the reason, where none holds."""

    epsilon: Mapping[str, float | None]
    delta: float
    unit: str
    reason: str | None

    @property
    def promised(self) -> float | None:
        """ε for the algorithm's own unit."""
        return self.epsilon[self.unit]


def group_plans(group: SelectionGroup, partition: Partition, cache: Path | None = None) -> list[PrivacyPlan]:
    """The plan of every setting that a repetition may draw."""
    return [plan_run(run, partition, cache) for run in group.candidates]


def promise(plans: Sequence[PrivacyPlan], selection: PrivateSelection) -> Promise:
    """What the released run gives, the selection included."""
    found: dict[str, float | None] = {}
    reason, delta = None, max(plan.settings.delta for plan in plans)
    for name, (unit, every) in UNITS.items():
        try:
            found[name] = selection_curve(plans, selection, unit, every).epsilon(delta)
        except PrivacyError as problem:
            found[name], reason = None, str(problem)
    claimed = plans[0].mechanism.claimed_unit
    return Promise(found, delta, "subject" if claimed is PrivacyUnit.SUBJECT else "item", reason)


def check_promise(found: Promise, plans: Sequence[PrivacyPlan], selection: PrivateSelection) -> None:
    """Raises PrivacyError where the selection exceeds ``private_selection.epsilon``."""
    value = found.promised
    if value is None:
        raise PrivacyError(f"The selection has no epsilon: {found.reason}.")
    if value > selection.epsilon:
        most = run_epsilon(plans, selection, UNITS[found.unit][0], found.delta)
        allowed = (
            f"at most private_selection.epsilon ({selection.epsilon:g}): set privacy.epsilon to {most:.4g}"
        )
        raise expected("epsilon of the selection", round(value, 4), allowed, PrivacyError)
