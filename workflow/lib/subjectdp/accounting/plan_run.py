"""The privacy plan of a run, from its configuration and its partition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from subjectdp.accounting.make_plan import draft_plan, make_plan
from subjectdp.config.plan_inputs import mechanism_of, plan_settings
from subjectdp.config.resolve import resolve_defaults
from subjectdp.errors import PrivacyError, expected
from subjectdp.plan.plan import FederationFacts, PrivacyPlan

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import Partition


def plan_run(run: RunConfig, partition: Partition, cache_dir: Path | None = None) -> PrivacyPlan:
    """The privacy plan of a run on a partition (see ``accounting.make_plan.make_plan`` for what it refuses)."""
    run = resolve_defaults(run)
    return make_plan(mechanism_of(run), _facts(run, partition), plan_settings(run, cache_dir))


def draft_run(run: RunConfig, partition: Partition) -> PrivacyPlan:
    """The plan of :func:`plan_run` before its noise is calibrated: schedule and rounds, at once."""
    run = resolve_defaults(run)
    return draft_plan(mechanism_of(run), _facts(run, partition), plan_settings(run))


def _facts(run: RunConfig, partition: Partition) -> FederationFacts:
    """The partition's public facts, with a larger bound k on a subject's items where the user states one."""
    facts, bound = partition.federation_facts(), run.privacy.max_items_per_subject
    if bound is None:
        return facts
    largest = max(facts.largest_subject)
    if bound < largest:
        allowed = f"at least {largest}, the items of a subject at one silo (partition.max_items_per_subject caps them)"
        raise expected("privacy.max_items_per_subject", bound, allowed, PrivacyError)
    return replace(facts, max_items_per_subject=bound, largest_subject=(bound,) * len(facts.items))
