"""Accounting at the papers' own settings; the verdicts on it are in test_scorecard."""

import math
import re
from pathlib import Path

import pytest
from opacus.accountants import RDPAccountant
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy.optimize import brentq

from subjectdp.accounting.gaussian import gdp_epsilon
from subjectdp.errors import DataError
from subjectdp.scorecard.paper_accounting import AUDITED, is_accounted, paper_facts, write_paper_accounting
from subjectdp.scorecard.targets import read_targets

FILE = Path(__file__).resolve().parents[2] / "config" / "targets.csv"
TARGETS = {target.id: target for target in read_targets(FILE)}


def test_the_papers_federation_is_theirs() -> None:
    facts = paper_facts(TARGETS["v1-claim-user"].setting)
    assert sum(facts.items) == 3500 * 145 and len(facts.items) == 16
    assert not facts.cap_enforced and facts.silos_per_subject == 16
    assert all(145 / 16 < largest < 30 for largest in facts.largest_subject)


def test_what_accounting_cannot_answer_is_refused(tmp_path: Path) -> None:
    joint = TARGETS["joint-table1-1-1-epsilon"]
    assert not is_accounted(joint)
    with pytest.raises(DataError, match="accounting"):
        write_paper_accounting([joint], tmp_path / "a.parquet")


@pytest.mark.slow
def test_claims_have_the_noise_of_opacus_and_plds_beside_it(tmp_path: Path) -> None:
    """The subject-level papers used Opacus' RDP accountant, which asks for 6 to 7 % more noise than PLD."""
    table = write_paper_accounting([TARGETS["v1-claim-user"]], tmp_path / "a.parquet", tmp_path)
    (row,) = table.to_dict("records")
    orders = list(RDPAccountant.DEFAULT_ALPHAS)
    steps = 100 * 50  # R rounds of an epoch

    def claimed(sigma: float) -> float:
        divergences = opacus_rdp.compute_rdp(q=1.0, noise_multiplier=sigma, steps=steps, orders=orders)
        return float(opacus_rdp.get_privacy_spent(orders=orders, rdp=divergences, delta=1e-5)[0])

    sigma = brentq(lambda value: claimed(value) - 4, 50, 200)
    assert row["epsilon_published"] == pytest.approx(4, abs=5e-3)
    # any two users: 2C, in all 5,000 steps, whatever the sizes of subjects
    any_two = gdp_epsilon(2 * math.sqrt(steps) / sigma, 1e-5)
    assert sigma == pytest.approx(81.9, rel=0.01)
    assert row["epsilon_lower"] == pytest.approx(any_two, abs=0.01)
    assert row["epsilon_sound"] == pytest.approx(any_two, abs=0.01)
    assert "with that by PLD: ε 9.085" in row["note"]


def test_the_bounds_of_the_audit_are_those_of_its_page() -> None:
    page = (FILE.parents[1] / "docs" / "findings.md").read_text(encoding="utf-8")
    for name, bound in AUDITED.items():
        assert bound > 4
        label = {"local_group_dp": "LocalGroupDP", "higrad_avg_dp:v3": "HiGradAvgDP v3"}[name]
        assert re.search(rf"^\| {label}, as published.* \| \*\*{bound}\*\* \|$", page, re.MULTILINE), name
