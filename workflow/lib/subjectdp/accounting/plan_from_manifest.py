"""A privacy plan from the dictionary that a manifest holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from subjectdp.errors import DataError
from subjectdp.plan.plan import (
    AccountingMode,
    Adjacency,
    Clipping,
    DivisorRule,
    Horizontal,
    Mechanism,
    NoiseDistribution,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    PublishedSampling,
    SamplingMethod,
    SiloSchedule,
    TrustModel,
)
from subjectdp.plan.subject_settings import BudgetWeights, Prediction, SubjectSettings

_ENUMS: dict[str, Any] = {
    "mode": AccountingMode,
    "claimed_unit": PrivacyUnit,
    "claimed_adjacency": Adjacency,
    "clipping": Clipping,
    "noise_rule": NoiseRule,
    "divisor_rule": DivisorRule,
    "trust": TrustModel,
    "published_sampling": PublishedSampling,
    "horizontal": Horizontal,
    "sampling": SamplingMethod,
    "noise_distribution": NoiseDistribution,
    "weights": BudgetWeights,
}


def plan_from_dict(content: Mapping[str, Any]) -> PrivacyPlan:
    """The inverse of ``PrivacyPlan.to_dict``; raises DataError for a dictionary that is not one."""
    try:
        return PrivacyPlan(
            mechanism=_made(Mechanism, content["mechanism"]),
            settings=_made(PlanSettings, content["settings"]),
            rounds=int(content["rounds"]),
            silos=tuple(_made(SiloSchedule, silo) for silo in content["silos"]),
            silos_per_subject=int(content["silos_per_subject"]),
            cap_enforced=bool(content["cap_enforced"]),
            group_noise_multipliers=tuple(tuple(table) for table in content["group_noise_multipliers"]),
            prediction=_prediction(content.get("prediction")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"Expected a privacy plan, got a record that is none: {error}.") from error


def _made(kind: Any, content: Mapping[str, Any]) -> Any:
    known = {field.name for field in fields(kind)}
    values = {key: _value(key, value) for key, value in content.items() if key in known}
    return kind(**values)


def _prediction(content: Mapping[str, Any] | None) -> Prediction | None:
    if content is None:
        return None
    multipliers = tuple(float(value) for value in content["noise_multipliers"])
    return Prediction(int(content["subjects"]), int(content["present"]), multipliers)


def _value(key: str, value: Any) -> Any:
    if key == "subject":
        return _made(SubjectSettings, value)
    return value if value is None or key not in _ENUMS else _ENUMS[key](value)
