"""What each algorithm's file declares, against the declarations that the accounting tests made from the papers."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from accounting import plans
from subjectdp.algorithms.registry import ALGORITHMS, algorithm, mechanism
from subjectdp.mechanisms.plan import AccountingMode, Mechanism, PrivacyUnit

PAPERS = [
    ("fed_avg", None, plans.FED_AVG),
    ("local_item_dp", None, plans.LOCAL_ITEM),
    ("user_ldp", None, plans.USER_LDP),
    ("local_group_dp", None, plans.LOCAL_GROUP),
    ("higrad_avg_dp", "v1", plans.HIGRAD_V1),
    ("higrad_avg_dp", "v3", plans.HIGRAD_V3),
    ("central_sub_dp", "v0", plans.CENTRAL),
    ("joint_noise", None, plans.JOINT),
]


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
    assert declared == {(name, variant) for name, variant, _ in PAPERS}


def test_only_fed_avg_claims_nothing() -> None:
    claims = {
        name: mechanism(name, variant, AccountingMode.SOUND).claimed_unit for name, variant, _ in PAPERS
    }
    assert [name for name, unit in claims.items() if unit is None] == ["fed_avg"]
    assert {name for name, unit in claims.items() if unit is PrivacyUnit.ITEM} == {
        "local_item_dp",
        "joint_noise",
    }
