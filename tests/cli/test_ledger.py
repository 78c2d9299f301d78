"""``subjectdp ledger``: runs on the same people, composed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from accounting.plans import LOCAL_ITEM, RELEASE, plan
from cli.commands import refused, run_json, said
from subjectdp.plan.plan import NoiseSource, SamplingMethod

Captured = pytest.CaptureFixture[str]


def record(results: Path, name: str, dataset: str = "femnist", **settings: Any) -> None:
    made = plan(RELEASE, 12.0, silos=2, rounds=20, q=1.0, sampling=SamplingMethod.POISSON_SUBJECTS, **settings)
    epsilon = {"epsilon": 1.5, "delta": 1e-5}
    folder = results / "runs" / name
    folder.mkdir(parents=True)
    manifest = {
        "run_id": name,
        "config": {"seed": int(name[-1]), "data": {"dataset": dataset, "source": "leaf_json"}},
        "plan": made.to_dict(),
        "identity": {"partition": name},
        "privacy": {"sound": dict.fromkeys(("item", "subject_one_silo", "subject"), epsilon)},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_two_runs_are_composed_unit_by_unit(tmp_path: Path, capsys: Captured) -> None:
    for name in ("release-s0", "release-s1"):
        record(tmp_path, name)
    rows = run_json(capsys, "ledger", "release-s0", "release-s1", "--results", tmp_path)
    assert [row["unit"].partition(",")[0] for row in rows] == ["one item", "one subject", "one subject"]
    assert all(row["runs"] == 2 and row["each_run"] == 1.5 < row["together"] for row in rows)
    alone = run_json(capsys, "ledger", "release-s0", "--results", tmp_path)
    assert alone[2]["together"] < rows[2]["together"] < 2 * alone[2]["together"]
    loose = run_json(capsys, "ledger", "release-s0", "--delta", "1e-3", "--results", tmp_path)
    assert loose[2]["together"] < alone[2]["together"]
    text = said(capsys, "ledger", "release-s0", "release-s1", "--results", tmp_path)
    assert "ε of all together" in text and "Runs that are not named are not counted" in text


def test_other_data_are_other_people(tmp_path: Path, capsys: Captured) -> None:
    record(tmp_path, "release-s0")
    record(tmp_path, "plays-s0", dataset="shakespeare", noise_source=NoiseSource.SECURE)
    rows = run_json(capsys, "ledger", "release-s0", "plays-s0", "--results", tmp_path)
    assert {(row["data"], row["runs"]) for row in rows} == {("femnist (leaf_json)", 1), ("shakespeare (leaf_json)", 1)}


def test_records_of_an_engine_are_composed_and_stay_conditional(tmp_path: Path, capsys: Captured) -> None:
    """A report and a state as JSON; a bound that was read from the data stays one."""
    made = plan(LOCAL_ITEM, 4.0, rounds=10, steps=1, q=0.1, k=3, noise_source=NoiseSource.SECURE)
    report, state = tmp_path / "report.json", tmp_path / "state.json"
    report.write_text(json.dumps({"plan": made.to_dict(), "noise_multipliers": {"data": 4.0}}))
    state.write_text(json.dumps({"plan": replace(made, cap_enforced=False, rounds=1).to_dict(), "steps": 10}))
    one = run_json(capsys, "ledger", report)
    both = run_json(capsys, "ledger", report, state)
    assert [row["conditional"] for row in one] == [False] * 3
    assert [row["conditional"] for row in both] == [False, True, True]
    assert one[2]["together"] < both[2]["together"] < 2 * one[2]["together"]
    assert both[2]["each_run"] == pytest.approx(one[2]["each_run"]), "10 steps each"
    text = said(capsys, "ledger", report, state)
    assert "†" in text and "conditional" in text
    record(tmp_path, "release-s0")
    beside = run_json(capsys, "ledger", "release-s0", report, "--results", tmp_path)
    assert {(row["data"], row["runs"]) for row in beside} == {("femnist (leaf_json)", 2)}
    report.write_text("{}")
    assert "hold a report or a state" in refused(capsys, "ledger", report)
    assert "--delta" in refused(capsys, "ledger", "release-s0", "--delta", "2", "--results", tmp_path)
