"""As published, the noise is that of the papers' accountant: Opacus', asked here without this project."""

from pathlib import Path

import pytest
from opacus.accountants.utils import get_noise_multiplier

from accounting.plans import DELTA, JOINT, LOCAL_ITEM, SOUND, facts, plan, settings, sound
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.statements import privacy_statements
from subjectdp.config import load_scenario
from subjectdp.errors import PrivacyError
from subjectdp.plan.plan import Accountant, Mechanism

OPACUS = Accountant.OPACUS
SCENARIOS = Path(__file__).resolve().parents[2] / "config" / "scenarios"


def test_the_noise_is_opacus_own() -> None:
    made = make_plan(LOCAL_ITEM, facts(), settings(accountant=OPACUS))
    theirs = get_noise_multiplier(
        target_epsilon=4.0, target_delta=DELTA, sample_rate=512 / 25_375, steps=5000, accountant="rdp"
    )
    ours = made.silos[0].noise_multiplier
    assert ours == pytest.approx(theirs, rel=5e-3)
    tight = make_plan(LOCAL_ITEM, facts(), settings()).silos[0].noise_multiplier
    assert 1.05 * tight < ours < 1.08 * tight


def test_the_claim_stands_beside_its_value_by_pld() -> None:
    made = plan(LOCAL_ITEM, 1.8, accountant=OPACUS)
    statements = privacy_statements(made, over_rounds=False)
    claim, held = statements["as_published"], statements["sound"]["item"]
    assert claim["accountant"] == "opacus" and held["accountant"] == "pld"
    assert claim["epsilon"] > 1.05 * claim["epsilon_by_pld"]
    assert claim["epsilon_by_pld"] == pytest.approx(held["epsilon"], rel=1e-6)
    text = report_text(made, statements)
    assert "Opacus' RDP accountant" in text and f"epsilon {claim['epsilon_by_pld']:.4g} by privacy loss" in text


@pytest.mark.parametrize(("accountant", "mechanism"), [(OPACUS, LOCAL_ITEM), (Accountant.MIRONOV, JOINT)])
def test_it_certifies_nothing_in_sound_mode(accountant: Accountant, mechanism: Mechanism) -> None:
    with pytest.raises(PrivacyError, match="privacy.accountant"):
        make_plan(sound(mechanism), facts(), settings(mode=SOUND, accountant=accountant, local_steps=1))


@pytest.mark.parametrize("name", ["paper", "femnist", "shakespeare", "alpha-sweep", "small-femnist"])
def test_scenarios_at_the_papers_scale_account_as_the_papers_did(name: str) -> None:
    runs = load_scenario([str(SCENARIOS / f"{name}.yaml")]).runs
    published = [run for run in runs if run.algorithm.name in ("local_item_dp", "higrad_avg_dp", "user_ldp")]
    assert published and {run.privacy.accountant for run in published} == {"opacus"}
