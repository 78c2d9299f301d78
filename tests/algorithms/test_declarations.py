"""What each algorithm's file declares, against the declarations that the accounting tests made from the papers."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from accounting import plans
from subjectdp.algorithms.registry import ALGORITHMS, algorithm, mechanism
from subjectdp.plan.plan import AccountingMode, Clipping, Mechanism, PrivacyUnit

PAPERS = [
    ("fed_avg", None, plans.FED_AVG),
    ("local_item_dp", None, plans.LOCAL_ITEM),
    ("user_ldp", None, plans.USER_LDP),
    ("user_ldp", "v1_sampled", plans.USER_LDP_SAMPLED),
    ("user_ldp", "v3", plans.USER_LDP_V3),
    ("local_group_dp", None, plans.LOCAL_GROUP),
    ("higrad_avg_dp", "v1", plans.HIGRAD_V1),
    ("higrad_avg_dp", "v3", plans.HIGRAD_V3),
    ("central_sub_dp", "v0", plans.CENTRAL),
    ("joint_noise", None, plans.JOINT),
]
BEYOND = [
    ("subject_release", None, plans.RELEASE),
    ("subject_sampling", None, plans.SUBJECT_SAMPLING),
    ("capped_item_dp", None, plans.CAPPED),
]  # of no paper: only sound mode exists


def facts_of(declared: Mechanism) -> dict[str, object]:
    """All but where it was read."""
    facts = asdict(declared)
    del facts["reference"]
    return facts


@pytest.mark.parametrize(("name", "variant", "paper"), PAPERS)
def test_what_the_algorithms_declare(name: str, variant: str | None, paper: Mechanism) -> None:
    published = mechanism(name, variant, AccountingMode.AS_PUBLISHED)
    assert facts_of(published) == facts_of(paper)
    assert facts_of(mechanism(name, variant, AccountingMode.SOUND)) == facts_of(plans.sound(paper))
    assert published.reference


def test_no_algorithm_is_left_out() -> None:
    declared = {(name, variant) for name in ALGORITHMS for variant in algorithm(name).variants}
    assert declared == {(name, variant) for name, variant, _ in (*PAPERS, *BEYOND)}


@pytest.mark.parametrize(("name", "variant", "declared"), BEYOND)
def test_what_is_declared_beyond_the_papers(name: str, variant: str | None, declared: Mechanism) -> None:
    found = mechanism(name, variant, AccountingMode.SOUND)
    assert facts_of(found) == facts_of(plans.sound(declared))
    assert found.reference


def test_updates_of_a_release_differ_by_what_is_clipped() -> None:
    updates = algorithm("subject_release").of_updates
    assert updates is not None
    clipped = replace(plans.sound(plans.RELEASE), clipping=Clipping.PER_SUBJECT_UPDATE)
    assert facts_of(updates) == facts_of(clipped)


def test_only_fed_avg_claims_nothing() -> None:
    claims = {
        name: mechanism(name, variant, AccountingMode.SOUND).claimed_unit for name, variant, _ in PAPERS
    }
    assert [name for name, unit in claims.items() if unit is None] == ["fed_avg"]
    assert {name for name, unit in claims.items() if unit is PrivacyUnit.ITEM} == {
        "local_item_dp",
        "joint_noise",
    }
