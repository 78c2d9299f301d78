"""The privacy plan of a run, from its configuration and its partition."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from subjectdp.accounting.make_plan import draft_plan, make_plan
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.plan.plan import PrivacyPlan

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import Partition


def plan_run(run: RunConfig, partition: Partition, cache_dir: Path | None = None) -> PrivacyPlan:
    """The privacy plan of a run on a partition (see ``accounting.make_plan.make_plan`` for what it refuses)."""
    return make_plan(mechanism_of(run), partition.federation_facts(), plan_settings(run, cache_dir))


def draft_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The plan of :func:`plan_run` before its noise is calibrated: schedule and rounds, at once."""
    return draft_plan(mechanism_of(run), partition.federation_facts(), plan_settings(run))
