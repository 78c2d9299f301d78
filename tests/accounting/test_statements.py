"""Statements and cards: what they say, and what they leave unsaid."""

import json
from dataclasses import replace

import pytest
from dp_accounting import dp_event

from accounting import plans
from accounting.plans import facts, plan, settings, sound
from accounting.reference import by_dp_accounting, composed, sampled
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.sound import unit_epsilon
from subjectdp.accounting.statements import ItemFacts, epsilon_over_rounds, privacy_statements, sound_statement
from subjectdp.accounting.statements import stated_epsilons as stated
from subjectdp.plan.plan import Clipping, Mechanism, NoiseDistribution, NoiseSource, PrivacyPlan, SamplingMethod

SUBJECTS = SamplingMethod.POISSON_SUBJECTS


def text_of(plan: PrivacyPlan) -> str:
    return report_text(plan, privacy_statements(plan))


KEYS = {
    *("epsilon", "epsilon_if_constant", "delta", "unit", "mu_gdp"),
    *("assumptions", "accountant", "versions", "event", "dp_event"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [*plans.PAPERS, sound(plans.HIGRAD_V1)])
def test_statements_are_json_and_complete_and_those_of_a_forecast(mechanism: Mechanism) -> None:
    made = make_plan(mechanism, facts(), settings(rounds=20))
    statements = privacy_statements(made)
    assert json.loads(json.dumps(statements, allow_nan=False)) == statements
    assert statements["as_published"]["guarantee"] is False
    assert (statements["as_published"]["claim"] == "no privacy is claimed") is (mechanism is plans.FED_AVG)
    assert {"item", "subject_one_silo", "subject"} <= set(statements["sound"])
    for record in statements["sound"].values():
        assert set(record) >= KEYS
        assert (record["epsilon"] is None) == (record["reason"] is not None)
    assert "Privacy report" in report_text(made, statements)
    found = stated(made)
    assert found.pop("as_published") == statements["as_published"]["epsilon"]
    assert found == {name: statements["sound"][name]["epsilon"] for name in found}


def test_one_silo_costs_a_subject_no_more_than_all_of_them() -> None:
    """At ε of ten thousands the two grids differ: here the bound for one silo alone would come out above."""
    run = plan(plans.LOCAL_ITEM, 0.3, silos=2, steps=20, rounds=50, k=40, q=0.5)
    tail = replace(run.silos[1], sampling_probability=1e-9, max_items_per_subject=1)
    spread = replace(run, silos=(run.silos[0], tail), silos_per_subject=2)
    one, every = (sound_statement(spread, plans.SUBJECT, each)["epsilon"] for each in (False, True))
    assert every > 10_000
    assert one <= every


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [plans.LOCAL_ITEM, sound(plans.HIGRAD_V3), sound(plans.LOCAL_GROUP)])
def test_dp_accounting_reads_the_recorded_events_and_agrees(mechanism: Mechanism) -> None:
    """Any accountant can check a manifest: the events' text, evaluated and composed by dp-accounting alone."""
    run = plan(mechanism, 2.0, silos=2, steps=1, rounds=5, k=3)
    for record in privacy_statements(run, over_rounds=False)["sound"].values():
        (text,) = record["dp_event"]
        theirs = by_dp_accounting((eval(text, vars(dp_event)), 1), grid=3e-3)
        assert record["epsilon"] == pytest.approx(theirs, rel=1e-2) and record["delta"] == plans.DELTA


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "reason", "constant"), [(plans.HIGRAD_V3, "divisor", 8.33), (plans.LOCAL_GROUP, "noise level", 29.6)]
)
def test_what_depends_on_data_gives_nothing_but_says_what_a_constant_would(
    mechanism: Mechanism, reason: str, constant: float
) -> None:
    """16 silos, 25 rounds; the noise at the typical group size of three."""
    record = privacy_statements(make_plan(mechanism, facts(), settings()))["sound"]["subject"]
    assert record["epsilon"] is None and record["mu_gdp"] is None and not record["guarantee"]
    assert reason in record["reason"]
    assert record["epsilon_if_constant"] == pytest.approx(constant, rel=3e-3)


@pytest.mark.parametrize(("enforced", "guarantee"), [(True, True), (False, "conditional")])
def test_an_epsilon_on_a_bound_that_was_read_from_data_is_conditional(enforced: bool, guarantee: bool | str) -> None:
    made = plan(plans.LOCAL_ITEM, 12.0, rounds=2, enforced=enforced)
    statements = privacy_statements(made, over_rounds=False)
    found = {name: record["guarantee"] for name, record in statements["sound"].items()}
    assert found == {"item": True, "subject_one_silo": guarantee, "subject": guarantee}
    assert report_text(made, statements).count("CONDITIONAL") == (0 if enforced else 2)
    read = replace(plan(plans.LOCAL_ITEM, 12.0, silos=3, rounds=2, enforced=enforced), silos_bounded=False)
    text = text_of(read)
    rests = [line.partition("CONDITIONAL: ")[2] for line in text.splitlines() if line.startswith("  one subject")]
    assert [each.count("silos of a subject was read from") for each in (text_of(made), text)] == [0, 1]
    cap = [] if enforced else ["no cap is enforced"]
    assert rests == [", ".join(cap), ", ".join([*cap, "no bound on silos"])], "at one silo, and at all of them"
    release = privacy_statements(plan(plans.RELEASE, 9.0, sampling=SUBJECTS, q=1.0, enforced=False), over_rounds=False)
    assert release["sound"]["subject"]["guarantee"] is True, "a subject is clipped as one"


@pytest.mark.slow
def test_what_is_not_covered_is_said() -> None:
    """Other runs (see docs/pitfalls.md), the secrecy of the seed, and what is recorded without noise."""
    text = text_of(plan(sound(plans.HIGRAD_V3), 12.0))
    for words in ("other runs on these data", "the seed stays secret", "recorded beside the model without noise"):
        assert words in text
    assert "number of subjects at each silo that the plan" in text and "noise is counted" not in text
    assert "number of subjects at each silo" not in text_of(plan(sound(plans.LOCAL_GROUP), 12.0))


@pytest.mark.slow
def test_the_report_says_what_an_item_is() -> None:
    made = plan(plans.LOCAL_ITEM, 1.2, rounds=4, steps=10)
    statements = privacy_statements(made, over_rounds=False, items=ItemFacts(copies=2))
    (both,) = (line for line in statements["items"] if "copies of one" in line)
    pair = replace(made, silos=(replace(made.silos[0], max_items_per_subject=2),))
    epsilon = unit_epsilon(pair, plans.SUBJECT, every_silo=False)
    assert f"epsilon is {epsilon:.4g}" in both and epsilon > statements["sound"]["item"]["epsilon"]
    assert "What an item is" in report_text(made, statements)
    claimed = plan(plans.LOCAL_ITEM, 1.2, rounds=4, steps=10, accountant="opacus")  # which certifies nothing
    assert both in privacy_statements(claimed, over_rounds=False, items=ItemFacts(copies=2))["items"]
    text = privacy_statements(made, over_rounds=False, items=ItemFacts(window=80))["items"]
    assert "up to 81 items" in text[0] and "one more item in the raw data" in text[-1]
    leaky = privacy_statements(plan(plans.HIGRAD_V3, 9.0, rounds=1), over_rounds=False, items=ItemFacts(copies=2))
    assert "no epsilon holds" in leaky["items"][0]
    drawn = plan(sound(plans.SUBJECT_SAMPLING), 4.0, rounds=1, sampling=SUBJECTS)
    said = privacy_statements(drawn, over_rounds=False, items=ItemFacts(copies=2))
    assert f"is {said['sound']['item']['epsilon']:.4g}" in said["items"][0]  # one of them may turn its subject's part


def test_copies_of_an_item_may_turn_a_clipped_mean() -> None:
    """Two of a subject's eight items: if any is drawn beside the others, the subject's mean may reverse, by 2C."""
    clipped = replace(sound(plans.CAPPED), clipping=Clipping.PER_SUBJECT)
    run = plan(clipped, 6.0, rounds=20, steps=1, q=0.1, items=25_000)
    said = privacy_statements(run, over_rounds=False, items=ItemFacts(copies=2))
    step = dp_event.PoissonSampledDpEvent(1 - 0.9**2, dp_event.GaussianDpEvent(3.0))
    both = by_dp_accounting((step, 20), grid=1e-4)
    assert f"epsilon is {both:.3g}" in said["items"][0] and both > said["sound"]["item"]["epsilon"]
    fixed = replace(run, settings=replace(run.settings, sampling=plans.FIXED))
    assert "no epsilon holds" in privacy_statements(fixed, over_rounds=False, items=ItemFacts(copies=2))["items"][0]


def test_the_report_says_what_noise_is_drawn_from() -> None:
    keyed = plan(plans.LOCAL_ITEM, 1.7)
    secure = replace(keyed, settings=replace(keyed.settings, noise_source=NoiseSource.SECURE))
    text = report_text(keyed, privacy_statements(keyed, over_rounds=False))
    assert "NOT FOR RELEASE" in text and "the seed stays secret" in text and "63-bit seed" in text
    text = report_text(secure, privacy_statements(secure, over_rounds=False))
    assert "NOT FOR RELEASE" not in text and "the seed" not in text.replace("noise_source", "")
    for words in ("256 bits of the operating system", "nobody knows the secret", "not of an exact discrete one"):
        assert words in text


def test_the_report_names_one_observer_and_one_noise() -> None:
    """Noise of a sum and an observer who sees each silo, or the other way round, would contradict each other."""
    for own in (False, True):
        run = plan(sound(plans.JOINT), 5.0, silos=4, steps=1, rounds=2, own_noise_only=own)
        text = report_text(run, privacy_statements(run, over_rounds=False))
        assert ("its share of a sum that alone is seen" in text) is not own
        assert ("the other silos' noise is not counted" in text) is own
        assert ("sees every noisy step of every silo" in text) is own


@pytest.mark.slow
@pytest.mark.parametrize(("linear", "counted"), [(True, 2.0), (False, 0.5)])
def test_joint_noise_under_adam_counts_own_noise(linear: bool, counted: float) -> None:
    """Adam's first step is a sign: what the other 15 silos add does not hide it (auditing/test_local_optimisers.py)."""
    run = plan(plans.JOINT, 0.5, silos=16, steps=1, rounds=100, linear_updates=linear)
    found = privacy_statements(run, over_rounds=False)["sound"]["item"]
    assert found["epsilon"] == pytest.approx(composed(sampled(plans.Q), counted, 100), rel=2e-3)
    assert any("Adam's steps" in line for line in found["assumptions"]) is not linear


def test_epsilon_over_rounds_at_unequal_silos() -> None:
    """Never below the largest over the silos, which is not always the silo where ε ends largest."""
    made = make_plan(plans.LOCAL_ITEM, replace(facts(3), items=(400, 900, 5000)), settings(rounds=30, batch_size=100))
    for count, epsilon in epsilon_over_rounds(made, plans.ITEM):
        largest = unit_epsilon(replace(made, rounds=count), plans.ITEM, every_silo=True)
        assert largest * (1 - 1e-9) <= epsilon <= 1.02 * largest


@pytest.mark.parametrize(
    ("noise", "q", "rounds"), [(0.02, 1e-3, 100), (0.03, 5e-3, 50), (0.01, 1e-4, 10), (1.0, 0.02, 40)]
)
def test_epsilon_over_rounds_never_falls_and_ends_at_that_of_all(noise: float, q: float, rounds: int) -> None:
    """Where items are rare and noise is small ε is in the thousands, and hardly grows."""
    run = plan(plans.LOCAL_ITEM, noise, silos=1, steps=1, rounds=rounds, q=q)
    counts, curve = zip(*epsilon_over_rounds(run, plans.ITEM), strict=True)
    assert list(curve) == sorted(curve) and counts[-1] == rounds
    for count, epsilon in zip(counts, curve, strict=True):
        alone = unit_epsilon(replace(run, rounds=count), plans.ITEM, every_silo=True)
        assert 0.999 * alone <= epsilon <= 1.02 * alone
    assert curve[-1] == pytest.approx(alone, rel=1e-12)


def test_card_of_integer_noise_names_it_and_its_accountant() -> None:
    """Gaussian noise and losses are not what such a run has, in the text, the record and the curve over rounds."""
    mechanism, skellam = sound(plans.JOINT), NoiseDistribution.SKELLAM
    run = plan(mechanism, 0.6, silos=4, steps=1, rounds=40, accountant="rdp_integer", noise_distribution=skellam)
    statements = privacy_statements(run)
    text = report_text(run, statements)
    assert (
        "Skellam on a grid of 16 bits, multiplier 1.2 of the sum over silos (0.6 at each of 4), in every local step"
        in text
    )
    assert "Rényi bounds for integer noise" in text
    assert "privacy loss distributions" not in text
    for record in statements["sound"].values():
        assert (record["noise"], record["accountant"]) == ("skellam", "rdp_integer")
        assert "Skellam" in record["event"][0][0]["mechanism"]
    curve = statements["over_rounds"]
    for unit in ("item", "subject"):
        assert curve[unit][-1] == pytest.approx(statements["sound"][unit]["epsilon"], rel=1e-9)


@pytest.mark.slow
def test_card_says_what_is_clipped_noised_and_capped() -> None:
    text = text_of(plan(plans.HIGRAD_V1, 2.0, silos=3, rounds=2, steps=5, enforced=False))
    for line in (
        "each item's gradient, then averaged by subject and summed, to L2 norm 1",
        "Gaussian, multiplier 2, in every local step",
        "at most 8 (seen in the data), at up to 3 silos",
        "5 a round",
        "added or removed",
        "dp-accounting",
    ):
        assert line in text
    grouped = text_of(make_plan(plans.LOCAL_GROUP, facts(silos=2), settings(noise_multiplier=2.0)))
    assert "multiplier 2 by the largest group of the mini-batch (data), in every local step" in grouped
    fixed = text_of(plan(plans.LOCAL_ITEM, 3.0, rounds=2, sampling=plans.FIXED))
    assert "batch size fixed" in fixed and "batches of fixed size B without replacement" in fixed
    for mechanism, where in ((sound(plans.CENTRAL), "sum over silos"), (plans.CENTRAL, "silo's average, after the")):
        chosen = settings(mode=mechanism.mode, noise_multiplier=20.0, rounds=2)
        central = text_of(make_plan(mechanism, facts(silos=2), chosen))
        assert where in central
        assert "silos are honest: they clip as planned" in central


def test_the_claim_stands_beside_its_value_by_pld() -> None:
    made = plan(plans.LOCAL_ITEM, 1.8, accountant="opacus")
    statements = privacy_statements(made, over_rounds=False)
    claim, held = statements["as_published"], statements["sound"]["item"]
    assert claim["accountant"] == "opacus" and held["accountant"] == "pld"
    assert claim["epsilon"] > 1.05 * claim["epsilon_by_pld"]
    assert claim["epsilon_by_pld"] == pytest.approx(held["epsilon"], rel=1e-6)
    text = report_text(made, statements)
    assert "Opacus' RDP accountant" in text and f"epsilon {claim['epsilon_by_pld']:.4g} by privacy loss" in text
