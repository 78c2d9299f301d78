"""Accounting at the papers' own settings; the verdicts on it are in test_scorecard."""

from __future__ import annotations

from pathlib import Path

import pytest

from subjectdp.errors import DataError
from subjectdp.scorecard.paper_accounting import is_accounted, paper_facts, write_paper_accounting
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
