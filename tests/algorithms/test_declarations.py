"""What each algorithm's file declares, against the declarations that the accounting tests made from the papers."""

from dataclasses import asdict, replace

import pytest

from accounting import plans
from algorithms import tiny
from subjectdp.algorithms import registry
from subjectdp.algorithms.base import DP_SGD, SiloTask, declare
from subjectdp.algorithms.registry import ALGORITHMS, algorithm, check_labels, mechanism
from subjectdp.errors import ConfigError, PrivacyError
from subjectdp.plan.plan import AccountingMode, Clipping, Mechanism, NoiseDistribution, TrustModel

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
    ("uldp_fl", None, plans.ULDP_FL),
    ("capped_item_dp", None, plans.CAPPED),
]  # of no paper: only sound mode exists


def facts_of(declared: Mechanism) -> dict[str, object]:
    """All but where it was read."""
    facts = asdict(declared)
    del facts["reference"]
    return facts


@pytest.mark.parametrize(("name", "variant", "stated"), [*PAPERS, *BEYOND])
def test_what_the_algorithms_declare(name: str, variant: str | None, stated: Mechanism) -> None:
    found = mechanism(name, variant, AccountingMode.SOUND)
    assert facts_of(found) == facts_of(plans.sound(stated)) and found.reference
    if not stated.beyond_papers:
        assert facts_of(mechanism(name, variant, AccountingMode.AS_PUBLISHED)) == facts_of(stated)


CASES = [(n, variant, mode) for n in ALGORITHMS for variant in algorithm(n).variants for mode in AccountingMode]


@pytest.mark.parametrize(("name", "variant", "mode"), CASES)
def test_one_round_executes_each_plan(name: str, variant: str | None, mode: AccountingMode) -> None:
    declared = algorithm(name)
    plan = tiny.tiny_plan(name, variant, mode)
    skellam = replace(plan.settings, noise_distribution=NoiseDistribution.SKELLAM)
    settings = [plan, replace(plan, settings=skellam)]
    if declared.of_updates is not None:
        settings.append(replace(plan, mechanism=declared.of_updates))
    found = [sum(rule.executes(each) for rule in declared.rounds) for each in settings]
    assert found[0] == 1 and max(found) == 1
    assert declared.round_rule(plan).executes(plan)
    integers = [rule for rule in declared.rounds if rule.silo_task is SiloTask.INTEGER_STEPS]
    assert found[1] == len(integers), "integer noise only where a round has it"
    assert found[2:] in ([], [1]), "whole updates have a round where they have facts"


def test_a_plan_that_no_round_executes_is_refused() -> None:
    plan = tiny.tiny_plan("local_item_dp", None, AccountingMode.SOUND)
    trusted = replace(plan.mechanism, trust=TrustModel.CENTRAL)
    with pytest.raises(PrivacyError, match="plan of local_item_dp .*'clipping per_item, trust central'"):
        algorithm("local_item_dp").round_rule(replace(plan, mechanism=trusted))
    integers = replace(plan.settings, noise_distribution=NoiseDistribution.SKELLAM)
    with pytest.raises(ConfigError, match="gaussian with algorithm local_item_dp"):
        algorithm("local_item_dp").round_rule(replace(plan, settings=integers))


def test_a_fact_in_words_is_the_member_of_its_enum() -> None:
    """They compare equal, and the accountant asks which it is."""
    words = replace(DP_SGD, trust="secure_aggregation", clipping="per_item", reference="own")  # type: ignore[arg-type]
    for facts in declare("mine", "Mine", words, rounds=()).mechanisms:
        assert facts.trust is TrustModel.SECURE_AGGREGATION and facts.clipping is Clipping.PER_ITEM


def test_a_file_that_declares_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "half", ALGORITHMS["local_item_dp"])
    with pytest.raises(ConfigError, match="local_item_dp declares to be half, as in the registry, got 'local_item_dp'"):
        algorithm("half")


def test_a_label_that_another_algorithm_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_labels()
    monkeypatch.setitem(ALGORITHMS, "copied", "copied")
    copied = replace(algorithm("fed_avg"), name="copied")
    monkeypatch.setattr(registry, "algorithm", lambda name: copied if name == "copied" else algorithm(name))
    with pytest.raises(ConfigError, match=r"label of copied to be its own \(fed_avg has it\), got 'FedAvg'"):
        check_labels()
