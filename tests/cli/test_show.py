"""``subjectdp show``: a finished run, its curve, what differs between two; ``ledger``: runs composed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from accounting.plans import LOCAL_ITEM, RELEASE, plan
from cli.commands import SMOKE, Captured, refused, run, run_json, said
from subjectdp.cli.runs import compare
from subjectdp.config.run import load_run
from subjectdp.config.scenario import load_scenario, set_dotted
from subjectdp.io.atomic import sealed
from subjectdp.plan.plan import NoiseSource, SamplingMethod

FIRST, SECOND = (config.run_id for config in load_scenario(SMOKE).runs[:2])
SAID = """FedAvg
synthetic
12.34 %
Privacy report: fed_avg, as published
  one item   epsilon 3.25 at delta 1e-05
training.batch_size"""


def test_show(results: Path, capsys: Captured) -> None:
    out = said(capsys, "show", FIRST, "--results", results)
    assert [text for text in (FIRST, *SAID.splitlines()) if text not in out] == []
    assert "Rounds" not in out
    assert "privacy.epsilon" not in out  # a default
    assert run_json(capsys, "show", "femnist-fed_avg", "--results", results)["run_id"] == FIRST


def change(results: Path, run_id: str, key: str, value: object) -> None:
    """Sets a dotted key of a run's manifest, which is sealed again."""
    path = results / "runs" / run_id / "manifest.json"
    path.write_text(json.dumps(sealed(set_dotted(json.loads(path.read_text()), key, value))))


def test_an_epsilon_on_a_bound_that_was_read_from_the_data_is_marked(results: Path, capsys: Captured) -> None:
    change(results, FIRST, "privacy.sound.subject", {"epsilon": 63.4, "guarantee": "conditional"})
    listed = said(capsys, "runs", "--results", results)
    assert "63.4†" in listed and "† conditional: " in listed
    kinds = run_json(capsys, "show", FIRST, SECOND, "--results", results)["guarantee"]
    assert kinds["sound, one subject, at all its silos"][0] == "conditional"
    assert "Guarantee of each ε (conditional: " in said(capsys, "show", FIRST, SECOND, "--results", results)


def test_data_without_subject_ids_have_no_epsilon_of_a_subject(results: Path, capsys: Captured) -> None:
    stated = dict.fromkeys(("item", "subject_one_silo", "subject"), {"epsilon": 63.4})
    change(results, FIRST, "privacy", {"own_subjects": True, "sound": stated})
    assert run_json(capsys, "runs", "--results", results)[0]["epsilon_sound_subject"] is None
    compared = run_json(capsys, "show", FIRST, SECOND, "--results", results)["epsilon"]
    assert compared["sound, one item"] == [63.4, 3.25] and compared["sound, one subject, at all its silos"][0] is None


def test_what_is_explained_of_labels_in_numbers_is_no_accuracy(results: Path, capsys: Captured) -> None:
    change(results, FIRST, "config.data.task", "regression")
    assert "12.34 (R²)" in said(capsys, "runs", "--results", results)


@pytest.mark.parametrize(
    ("text", "told"), [("nothing", "'nothing'"), ("femnist-", "fits 3"), ("femnist-higrad", "to be finished")]
)
def test_show_refuses(results: Path, capsys: Captured, text: str, told: str) -> None:
    assert told in refused(capsys, "show", text, "--results", results)


@pytest.mark.parametrize("content", [{"config": "word"}, {"final": {"test_accuracy": "most"}}])
def test_a_manifest_without_its_seal_stops_no_other_run(results: Path, capsys: Captured, content: Any) -> None:
    path = results / "runs" / FIRST / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | content))
    out = said(capsys, "runs", "--results", results, code=1)
    assert "1 done, 1 stopped, 1 broken" in out and "manifest.json was changed after it was written" in out
    assert "1 broken" in said(capsys, "runs", "--results", results, "--algorithm", "user_ldp", code=1)
    assert SECOND in said(capsys, "show", SECOND, "--results", results)
    for command in (("show", FIRST), ("show", SECOND, FIRST), ("ledger", FIRST), ("account", "--run", FIRST)):
        assert "was changed after it was written" in refused(capsys, *command, "--results", results)


def test_show_tells_the_ends_and_the_best_of_a_curve(results: Path, capsys: Captured) -> None:
    path = results / "runs" / FIRST / "rounds.parquet"
    accuracy = [0.0, 0.25, 0.5, 0.75]
    frame = pd.DataFrame({"round": [1, 2, 3, 4], "test_accuracy": accuracy, "validation_accuracy": [np.nan] * 4})
    frame.to_parquet(path)
    out = said(capsys, "show", FIRST, "--results", results)
    assert "test accuracy  0.0 to 75.0 %, best 75.0 %" in out
    assert "validation accuracy" not in out
    path.write_bytes(path.read_bytes()[:-30])
    code, _, message = run(capsys, "show", FIRST, "--results", results)
    assert code == 2 and "rounds.parquet" in message and "parquet file" in message


def test_compare(results: Path, capsys: Captured) -> None:
    change(results, SECOND, "code_fingerprint", "abc")
    change(results, SECOND, "privacy.sound.item", {"epsilon": 7.5})
    comparison = run_json(capsys, "show", FIRST, SECOND, "--results", results)
    assert comparison["settings"] == {"algorithm.name": ["fed_avg", "local_item_dp"]}
    assert comparison["metrics"]["test_accuracy"] == [0.1234, 1.1234]
    assert comparison["epsilon"]["sound, one item"] == [3.25, 7.5]
    assert comparison["epsilon"]["sound, one subject, at all its silos"] == [None, None]
    assert comparison["made_with"] == {"code_fingerprint": ["0a1b", "abc"]}
    assert "algorithm.name  fed_avg  local_item_dp" in said(capsys, "show", FIRST, SECOND, "--results", results)
    out = said(capsys, "show", FIRST, FIRST, "--results", results)
    assert "the settings are the same" in out and "code and machine are the same" in out
    assert "to be finished" in refused(capsys, "show", FIRST, "femnist-higrad", "--results", results)


def test_a_setting_that_a_run_does_not_read_has_no_value_there(results: Path) -> None:
    chosen = {"algorithm": "capped_item_dp", "partition": {"max_items_per_subject": 4}}
    privacy = ({"mode": "sound", "epsilon": 8}, {"mode": "sound", "noise_multiplier": 2.0})
    made = json.loads((results / "runs" / FIRST / "manifest.json").read_text())
    runs = (made | {"config": load_run({**chosen, "privacy": each}).model_dump(mode="json")} for each in privacy)
    assert compare(*runs)["settings"] == {"privacy.epsilon": [8.0, None], "privacy.noise_multiplier": [None, 2.0]}


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
        "privacy": {"sound": dict.fromkeys(("item", "subject_one_silo", "subject"), epsilon), "own_subjects": False},
    }
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))


def test_two_runs_are_composed_unit_by_unit(tmp_path: Path, capsys: Captured) -> None:
    for name in ("release-s0", "release-s1"):
        record(tmp_path, name)
    rows = run_json(capsys, "ledger", "release-s0", "release-s1", "--results", tmp_path)
    assert [row["unit"].partition(",")[0] for row in rows] == ["one item", "one subject", "one subject"]
    assert all(row["runs"] == 2 and row["each_run"] == 1.5 < row["together"] for row in rows)
    alone = run_json(capsys, "ledger", "release-s0", "--results", tmp_path)
    assert run_json(capsys, "ledger", "release-s0", "release-s0", "--results", tmp_path) == alone
    assert alone[2]["together"] < rows[2]["together"] < 2 * alone[2]["together"]
    loose = run_json(capsys, "ledger", "release-s0", "--delta", "1e-3", "--results", tmp_path)
    assert loose[2]["together"] < alone[2]["together"]
    tight = run_json(capsys, "ledger", "release-s0", "--delta", "1e-9", "--results", tmp_path)
    assert tight[2]["each_run"] == tight[2]["together"] > alone[2]["together"]  # not what the run states at 1e-5
    text = said(capsys, "ledger", "release-s0", "release-s1", "--results", tmp_path)
    assert "ε of all together" in text and "Runs that are not named are not counted" in text


def test_other_data_are_other_people(tmp_path: Path, capsys: Captured) -> None:
    record(tmp_path, "release-s0")
    record(tmp_path, "plays-s0", dataset="shakespeare", noise_source=NoiseSource.SECURE)
    rows = run_json(capsys, "ledger", "release-s0", "plays-s0", "--results", tmp_path)
    assert {(row["data"], row["runs"]) for row in rows} == {("femnist (leaf_json)", 1), ("shakespeare (leaf_json)", 1)}
    assert "counted apart" in said(capsys, "ledger", "release-s0", "plays-s0", "--results", tmp_path)


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
    assert run_json(capsys, "account", "--run", state)["privacy"]["sound"]["item"]["epsilon"] == both[0]["each_run"]
    kept = state.read_text()
    state.write_text(kept.replace('"steps": 10}', '"steps": -5}'))
    assert "steps or rounds to be a whole number from 1 on, got -5" in refused(capsys, "ledger", state)
    for value in ("1e+300", "Infinity", "NaN"):
        state.write_text(re.sub(r'("noise_multiplier"): [\d.]+', rf"\1: {value}", kept))
        assert "noise_multiplier: Input should be" in refused(capsys, "ledger", state)
    state.write_text(kept)
    text = said(capsys, "ledger", report, state)
    assert "†" in text and "conditional" in text
    record(tmp_path, "release-s0")
    beside = run_json(capsys, "ledger", "release-s0", report, "--results", tmp_path)
    assert {(row["data"], row["runs"]) for row in beside} == {("femnist (leaf_json)", 2)}
    report.write_text(json.dumps(sealed({"plan": made.to_dict()}) | {"rounds_executed": 1}))
    assert "changed after it was written" in refused(capsys, "ledger", report)
    report.write_text("{}")
    assert "hold a report or a state" in refused(capsys, "ledger", report)
    assert "--delta" in refused(capsys, "ledger", "release-s0", "--delta", "2", "--results", tmp_path)
