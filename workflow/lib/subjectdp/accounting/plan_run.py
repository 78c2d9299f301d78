"""The privacy plan of a run, from its configuration and its partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from subjectdp.accounting.make_plan import draft_plan, make_plan
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.errors import DataError
from subjectdp.plan.plan import PrivacyPlan

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import Partition


def plan_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The privacy plan of a run on a partition (see ``accounting.make_plan.make_plan`` for what it refuses)."""
    return make_plan(mechanism_of(run), partition.federation_facts(), plan_settings(run))


def draft_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The plan of :func:`plan_run` before its noise is calibrated: schedule and rounds, at once."""
    return draft_plan(mechanism_of(run), partition.federation_facts(), plan_settings(run))


_PLAN = TypeAdapter(PrivacyPlan)


def plan_from_dict(content: Mapping[str, Any]) -> PrivacyPlan:
    """The inverse of ``PrivacyPlan.to_dict``; raises DataError for a dictionary that is not one."""
    try:
        return _PLAN.validate_python(content)
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DataError(f"Expected a privacy plan, got a record with {where}: {first['msg']}.") from problem
