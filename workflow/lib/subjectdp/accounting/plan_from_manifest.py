"""A privacy plan from the dictionary that a manifest holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from subjectdp.errors import DataError
from subjectdp.plan.plan import PrivacyPlan

_PLAN = TypeAdapter(PrivacyPlan)


def plan_from_dict(content: Mapping[str, Any]) -> PrivacyPlan:
    """The inverse of ``PrivacyPlan.to_dict``; raises DataError for a dictionary that is not one."""
    try:
        return _PLAN.validate_python(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"Expected a privacy plan, got a record with {where}: {first['msg']}.") from problem
