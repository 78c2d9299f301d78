"""What accounting answers: a guarantee for each unit of privacy, with its assumptions."""

import json
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.sound import noise_of_the_sum, unit_epsilon
from subjectdp.accounting.statements import CONDITIONAL, condition, privacy_statements, sound_statement
from subjectdp.errors import ConfigError, PrivacyError, number, unknown
from subjectdp.plan.plan import PrivacyPlan, PrivacyUnit

UNITS = {
    "item": (PrivacyUnit.ITEM, False),
    "subject_at_one_silo": (PrivacyUnit.SUBJECT, False),
    "subject": (PrivacyUnit.SUBJECT, True),
    "silo": (PrivacyUnit.SILO, False),
}
"""Name of a unit -> the unit, and whether all silos that hold it count."""


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-differential privacy of one unit, or the reason why there is none.

    Attributes:
        unit: ``item``, ``subject_at_one_silo``, ``subject`` (over all silos that hold it) or ``silo``.
        epsilon: an upper bound; None where none can be given.
        delta: δ.
        reason: why ``epsilon`` is None.
        adjacency: what neighbouring federations differ by: a unit added or removed, or replaced.
        observer: who may see what.
        assumptions: what has to hold; check each.
        conditional: a bound on a subject's items or silos was read from the data, not enforced.
    """

    unit: str
    epsilon: float | None
    delta: float
    reason: str | None
    adjacency: str
    observer: str
    assumptions: tuple[str, ...]
    conditional: bool = False

    def __str__(self) -> str:
        if self.epsilon is None:
            return f"{self.unit}: no epsilon ({self.reason})"
        mark = ", conditional" if self.conditional else ""
        return f"{self.unit}: epsilon {self.epsilon:.4g} at delta {self.delta:g}, {self.adjacency}{mark}"


@dataclass(frozen=True)
class PrivacyReport:
    """The guarantees of a plan for every unit. ``print`` shows the whole report.

    Attributes:
        plan: sampling, clipping, noise and steps of every silo.
        silos: the silos' names, in the plan's order.
    """

    plan: PrivacyPlan
    silos: tuple[str, ...]

    @cached_property
    def statements(self) -> dict[str, Any]:
        """The privacy record that a run's manifest would have, with privacy losses and versions; JSON-able."""
        return privacy_statements(self.plan, over_rounds=False)

    @property
    def item(self) -> Guarantee:
        """One item added or removed."""
        return self.guarantee("item")

    @property
    def subject_at_one_silo(self) -> Guarantee:
        """All items of a subject at any one silo."""
        return self.guarantee("subject_at_one_silo")

    @property
    def subject(self) -> Guarantee:
        """All items of a subject, at all silos that hold it."""
        return self.guarantee("subject")

    @property
    def silo(self) -> Guarantee:
        """All data of a silo, replaced."""
        return self.guarantee("silo")

    def guarantee(self, unit: str) -> Guarantee:
        """The guarantee of the unit of that name. Raises ConfigError for an unknown one."""
        if unit not in UNITS:
            raise unknown("unit", unit, UNITS)
        recorded = "subject_one_silo" if unit == "subject_at_one_silo" else unit  # in a manifest
        found = self.statements["sound"].get(recorded) or sound_statement(self.plan, *UNITS[unit])
        same = {key: found[key] for key in ("epsilon", "delta", "reason", "adjacency", "observer")}
        assumptions, conditional = tuple(found["assumptions"]), found["guarantee"] == CONDITIONAL
        return Guarantee(unit, **same, assumptions=assumptions, conditional=conditional)

    @property
    def noise_multipliers(self) -> dict[str, float]:
        """Each silo's own noise multiplier: std of the noise that it adds, over the clip norm."""
        return dict(zip(self.silos, (silo.noise_multiplier for silo in self.plan.silos), strict=True))

    @property
    def noise_multiplier(self) -> float:
        """The one noise multiplier: of the sum over silos where their noise adds up (secure aggregation), else of each.

        What :func:`subjectdp.account` takes. Raises PrivacyError where silos differ (:attr:`noise_multipliers`).
        """
        values = set(self.noise_multipliers.values())
        if len(values) > 1:
            raise PrivacyError(
                f"Silos have noise multipliers from {min(values):.4g} to {max(values):.4g}: read noise_multipliers."
            )
        return noise_of_the_sum(self.plan)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All units, smallest first."""
        return tuple(map(self.guarantee, UNITS))

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: noise multipliers, statements with their privacy losses, plan."""
        noise, sound = self.noise_multipliers, self.statements["sound"]
        whole = noise_of_the_sum(self.plan)
        return {"noise_multiplier": whole, "noise_multipliers": noise, "guarantees": sound, "plan": self.plan.to_dict()}

    def __str__(self) -> str:
        return report_text(self.plan, self.statements)


class Spending:
    """What a training has spent so far: ε and report of the releases that were made.

    Attributes:
        silos: names of the silos.
    """

    silos: tuple[str, ...]
    _plan: PrivacyPlan | None = None
    _steps = 0

    @property
    def plan(self) -> PrivacyPlan:
        """The plan that sampler, clipping, noise and accountant share. Raises ConfigError before ``make_private``."""
        if self._plan is None:
            raise ConfigError("Expected make_private to be called first.")
        return self._plan

    @property
    def steps(self) -> int:
        """Releases so far, steps of an optimiser or rounds, those before a state was loaded again included."""
        return self._steps

    def get_epsilon(self, delta: float | None = None, unit: str = "subject") -> float:
        """ε at ``delta`` (None: the settings') after the steps so far, of an ``"item"`` or of a ``"subject"``.

        A subject counts with all its items here; one with items elsewhere, trained on too, needs
        ``subjectdp.account`` over all silos. A UserWarning says where ε rests on what was read from the data, such as
        the largest number of a subject's items.

        Raises:
            ConfigError: another unit, or δ out of range.
            PrivacyError: the mechanism bounds nothing for the unit.
        """
        if unit not in ("item", "subject"):
            raise unknown("unit", unit, ("item", "subject"))
        plan = self._so_far(delta)
        if self.steps == 0:
            return 0.0
        if (rests_on := condition(plan, *UNITS[unit])) is not None:
            warnings.warn(f"This epsilon of a {unit} is conditional: {rests_on}.", stacklevel=2)
        return unit_epsilon(plan, *UNITS[unit])

    def report(self, delta: float | None = None) -> PrivacyReport:
        """The guarantees at ``delta`` (None: the settings') after the steps so far, with what they assume.

        Raises ConfigError before the first step.
        """
        if self.steps == 0:
            raise ConfigError("Expected at least one step or round before a report.")
        return PrivacyReport(self._so_far(delta), self.silos)

    def _so_far(self, delta: float | None) -> PrivacyPlan:
        delta = self.plan.settings.delta if delta is None else delta
        settings = replace(self.plan.settings, delta=number("delta", delta, above=0, below=0.1))
        return replace(self.plan, rounds=max(1, self.steps), settings=settings)


def plain(plan: PrivacyPlan) -> Any:
    return json.loads(json.dumps(plan.to_dict(), default=str))
