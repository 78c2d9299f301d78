"""The command line: account, table1."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import subjectdp
from accounting.plans import facts, settings
from cli.commands import Captured, refused, run_json, said
from subjectdp.accounting.make_plan import make_plan
from subjectdp.algorithms.registry import mechanism
from subjectdp.config.scenario import load_scenario
from subjectdp.io.atomic import sealed
from subjectdp.plan.plan import AccountingMode

SCHEDULE = "--steps-per-round 50 --sampling-probability 0.0201773 --max-items-per-subject 8 --delta 1e-5"


def account(capsys: Captured, *arguments: str) -> Any:
    """The record of a plan; the arguments are split at spaces."""
    return run_json(capsys, "account", *" ".join(arguments).split())


@pytest.mark.parametrize(
    ("arguments", "epsilon"),
    [
        ("--algorithm higrad_avg_dp:v3 --rounds 100 --noise-multiplier 12.3763", 3.69),
        ("--algorithm higrad_avg_dp:v3 --mode sound --silos 16 --rounds 25 --noise-multiplier 12.3763", 8.33),
        ("--algorithm higrad_avg_dp:v1 --rounds 25 --noise-multiplier 1.709", 19.7),
        ("--algorithm local_item_dp --rounds 100 --noise-multiplier 1.7091", 4.0),
        ("--algorithm local_item_dp --unit subject --rounds 100 --noise-multiplier 1.709", 57.9),
        ("--algorithm user_ldp --unit silo --rounds 100 --noise-multiplier 76.45", 9.08),
        ("--algorithm higrad_avg_dp:v3 --mode as_published --rounds 100 --noise-multiplier 12.3763", 4.0),
        ("--algorithm joint_noise --own-noise-only --rounds 100 --noise-multiplier 1.7091 --silos 16", 4.0),
        ("--algorithm capped_item_dp --rounds 100 --noise-multiplier 12.3851", 4.0),
        ("--algorithm subject_sampling --rounds 100 --noise-multiplier 1.7091", 4.0),
    ],
)
def test_account(capsys: Captured, arguments: str, epsilon: float) -> None:
    assert account(capsys, arguments, SCHEDULE)["epsilon"] == pytest.approx(epsilon, rel=3e-3)


@pytest.mark.parametrize(
    ("arguments", "epsilon"),
    [
        ("--sampling-probability 1 --noise-multiplier 10.8116 --silos 16", 4.0),
        ("--sampling-probability 1 --noise-multiplier 10.8116 --silos 16 --trust secure_aggregation", 4.0),
        ("--sampling-probability 1 --noise-multiplier 10.8116 --trust central", 4.0),
        ("--sampling-probability 1 --noise-multiplier 10.8116 --unit item", 9.0847),
        ("--sampling-probability 0.02 --noise-multiplier 0.6857", 4.0),
    ],
)
def test_account_of_one_release_a_round(capsys: Captured, arguments: str, epsilon: float) -> None:
    """100 rounds; no cap on a subject's items, and one release whatever the silos."""
    record = account(capsys, "--algorithm subject_release --rounds 100", arguments)
    assert record["epsilon"] == pytest.approx(epsilon, rel=1e-2)
    assert record["steps_per_round"] == 1


def test_calibrate(capsys: Captured) -> None:
    arguments = "--algorithm higrad_avg_dp:v3 --rounds 25 --silos 16"
    record = account(capsys, arguments, SCHEDULE)
    assert record["noise_multiplier"] == pytest.approx(23.03, rel=1e-3)
    assert 3.96 < record["epsilon"] <= 4.0
    half = account(capsys, arguments, SCHEDULE, "--silos-per-subject 4")
    assert half["noise_multiplier"] == pytest.approx(11.54, rel=2e-3)


def test_calibrate_the_published_group_rule(capsys: Captured) -> None:
    arguments = f"account --algorithm local_group_dp --mode as_published --rounds 100 {SCHEDULE}"
    text = said(capsys, *arguments.split())
    assert "Z =   8  13.4" in text
    assert text.count("Z =") == 8


def test_updates_clipped_once(capsys: Captured) -> None:
    schedule = "--algorithm joint_noise --clipping update --silos 16 --rounds 100"
    noise = account(capsys, schedule, SCHEDULE)
    assert noise["unit"] == "silo"
    assert noise["noise_multiplier"] == pytest.approx(2 * math.sqrt(100) / 0.924931, rel=1e-5)
    record = account(capsys, schedule, SCHEDULE, "--noise-multiplier 21.6")
    assert record["epsilon"] == pytest.approx(4.005, abs=1e-3)


@pytest.mark.slow
def test_account_and_calibrate_every_run_of_a_configuration(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "name: two\n"
        "run: {partition: {silos: 3}, training: {rounds: 4, batch_size: 6, local_steps: 2}}\n"
        "sweep: [{algorithm: [local_item_dp, joint_noise], seed: [0]}]\n"
    )
    arguments = ("--config", str(scenario), "--results", str(tmp_path))
    assert "needs its partition" in refused(capsys, "account", *arguments)
    runs = load_scenario([str(scenario)]).runs
    for one in runs:
        (tmp_path / "partitions" / one.partition_id).mkdir(parents=True, exist_ok=True)
    few = facts(silos=3)
    made = SimpleNamespace(federation_facts=lambda: replace(few, items=(60, 60, 60)))
    monkeypatch.setattr("subjectdp.cli.ledger.load_partition", lambda folder: made)
    records = run_json(capsys, "account", *arguments)
    assert [record["run"] for record in records] == [one.run_id for one in runs]
    assert [record["algorithm"] for record in records] == ["local_item_dp", "joint_noise"]
    for record in records:
        assert (record["steps_per_round"], record["silos"], record["guarantee"]) == (2, 3, False)
        assert record["epsilon"] == pytest.approx(4.0, rel=2e-3)
        assert record["privacy"]["sound"]["item"]["epsilon"] > 3.9
    own, shared = (record["noise_multiplier"] for record in records)
    assert shared == pytest.approx(own, rel=1e-3), "of the sum"
    assert records[1]["noise_multipliers"] == pytest.approx([own / math.sqrt(3)] * 3, rel=1e-3)


def test_without_a_cap_a_subject_has_no_epsilon(capsys: Captured) -> None:
    schedule = "--algorithm local_item_dp --rounds 100 --steps-per-round 50 --sampling-probability 0.0201773"
    record = account(capsys, schedule, "--noise-multiplier 1.709")
    assert record["epsilon"] == pytest.approx(4.0, rel=2e-3)
    for unit in ("subject", "subject_one_silo"):
        statement = record["privacy"]["sound"][unit]
        assert statement["epsilon"] is None and statement["guarantee"] is False
        assert statement["reason"].startswith("no cap given")
    assert "none: no cap given" in record["card"] and "enforced cap" not in record["card"]


def test_account_of_a_finished_run(capsys: Captured, tmp_path: Path) -> None:
    declared = mechanism("higrad_avg_dp", "v1", AccountingMode.AS_PUBLISHED)
    plan = make_plan(declared, facts(), settings(noise_multiplier=1.709)).to_dict()
    manifest = tmp_path / "runs" / "femnist-higrad-abc" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps(sealed({"plan": plan})))
    command = ("account", "--run", "femnist-higrad", "--results", tmp_path)
    assert "item: leave --unit out, which prints what is provable" in refused(capsys, *command, "--unit", "item")
    sound = run_json(capsys, *command)["privacy"]["sound"]
    assert sound["subject"]["epsilon"] == pytest.approx(144.6, rel=3e-3)
    for text, told in ((json.dumps(sealed({"plan": plan}) | {"run_id": "other"}), "changed after"), ("{}", "changed")):
        manifest.write_text(text)
        assert told in refused(capsys, *command)


@pytest.mark.usefixtures("tables")
def test_account_of_counts(capsys: Captured) -> None:
    """60 and 80 items: the silo of 60 samples with q = 0.1; equal silos of q = 0.1 are worse for a subject."""
    plan = "--algorithm local_item_dp --rounds 5 --noise-multiplier 2"
    record = account(capsys, plan, "--steps-per-round 4 --counts counts.csv --batch-size 6 --max-items-per-subject 2")
    schedule = subjectdp.Schedule(rounds=5, steps=4, batch_size=6, max_items_per_subject=2)
    expected = subjectdp.account("local_item_dp", "counts.csv", schedule, 2.0)
    assert "your software" in record["card"] and "the seed" not in record["card"], "nothing is trained here"
    sound = record["privacy"]["sound"]
    assert sound["subject"]["epsilon"] == expected.subject.epsilon
    assert record["epsilon"] == sound["item"]["epsilon"] == expected.item.epsilon
    equal = "--steps-per-round 4 --silos 2 --sampling-probability 0.1 --max-items-per-subject 2"
    assert sound["subject"]["epsilon"] < account(capsys, plan, equal)["privacy"]["sound"]["subject"]["epsilon"]
    assert account(capsys, plan, "--counts counts.csv --batch-size 6")["steps_per_round"] == 10, "one epoch"


@pytest.mark.slow
@pytest.mark.usefixtures("tables")
def test_account_answers_for_people_and_caps(capsys: Captured, tmp_path: Path) -> None:
    plan = "--rounds 5 --epochs 2 --batch-size 2"
    counted = f"account --algorithm local_item_dp {plan} --counts few.csv"
    printed = said(capsys, *f"{counted} --noise-multiplier 5 --by-person".split())
    assert "items a silo  1 silo  2 silos" in printed and "Largest for cleo (9 at s)" in printed
    capped = f"--algorithm capped_item_dp {plan}"
    lines = said(capsys, *f"account {capped} --counts few.csv --caps 1,4 --figure caps.png".split()).splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["1", "4"], ["4", "13"]]
    assert (tmp_path / "caps.png").stat().st_size > 5000
    planned = account(capsys, capped, "--silo-sizes sizes.csv --max-items-per-subject 3")
    assert planned["epsilon"] <= 4.0
    own = "--unit subject --epsilon 4 --by-person --max-items-per-subject 3 --json"
    record = json.loads(said(capsys, *f"{counted} {own}".split()))
    assert 3.9 < record["epsilon"] <= 4.0, "the noise is made for the unit that is asked for"
    assert record["by_person"]["epsilon"][-1]["epsilon"][-1] == pytest.approx(record["epsilon"], rel=1e-6)
    for name in ("first.json", "second.json"):
        (tmp_path / name).write_text(json.dumps(planned))
    rows = run_json(capsys, "ledger", "first.json", "second.json")
    (together,) = [row["together"] for row in rows if row["unit"] == "one subject, at all its silos"]
    assert 4.0 < together < 8.0


def test_what_people_are_drawn_by_is_not_changed_without_a_word(capsys: Captured) -> None:
    drawn = "account --algorithm subject_sampling --rounds 2 --steps-per-round 1 --items 100 --noise-multiplier 4"
    options = [*drawn.split(), "--sampling-probability", "0.1", "--sampling", "fixed_batch_size"]
    assert "--sampling to be poisson" in refused(capsys, *options)
