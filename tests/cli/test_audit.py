"""``audit``: attacks within the time that is given."""

import json

import pytest

from subjectdp.cli.main import main


def test_the_claim_of_v1_is_refuted_within_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "higrad_avg_dp:v1", "--seconds", "4"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "1 attack on higrad_avg_dp:v1, about 4 s" and said[2].endswith("refuted")
    assert float(said[2].split()[-3]) > 4.0


def test_a_sound_plan_is_not_refuted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "capped_item_dp", "--seconds", "0.5", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert 0.0 <= found["lower_bound"] < 4.0


def test_what_no_audit_attacks_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "fed_avg"]) == 2
    assert "Unknown algorithm 'fed_avg'" in capsys.readouterr().err
    assert main(["audit", "higrad_avg_dp", "--seconds", "0"]) == 2
