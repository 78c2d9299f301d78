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
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps
from subjectdp.accounting.make_plan import make_plan
from subjectdp.accounting.published import group_target
from subjectdp.accounting.shifts import sampled_gaussian
from subjectdp.algorithms.registry import mechanism
from subjectdp.cli.main import build_parser
from subjectdp.config import load_scenario
from subjectdp.errors import ConfigError, DataError
from subjectdp.io.atomic import sealed
from subjectdp.plan.plan import AccountingMode

SCHEDULE = "--steps-per-round 50 --sampling-probability 0.0201773 --max-items-per-subject 8 --delta 1e-5"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    options = build_parser().parse_args([word for argument in arguments for word in argument.split()])
    options.run(options)
    return capsys.readouterr().out


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    return json.loads(run(capsys, *arguments, "--json"))


def test_account_v3_at_sixteen_silos(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "account --algorithm higrad_avg_dp --variant v3 --mode sound --silos 16 --rounds 25"
    record = run_json(capsys, arguments, SCHEDULE, "--noise-multiplier", "12.3763")
    assert record["unit"] == "subject"
    assert record["epsilon"] == pytest.approx(8.3327, rel=1e-3)
    assert record["guarantee"] is True


@pytest.mark.parametrize(
    ("arguments", "epsilon"),
    [
        ("--algorithm higrad_avg_dp:v3 --rounds 100 --noise-multiplier 12.3763", 3.69),
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
def test_account(capsys: pytest.CaptureFixture[str], arguments: str, epsilon: float) -> None:
    record = run_json(capsys, "account", arguments, SCHEDULE)
    assert record["epsilon"] == pytest.approx(epsilon, rel=3e-3)


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
def test_account_of_one_release_a_round(capsys: pytest.CaptureFixture[str], arguments: str, epsilon: float) -> None:
    """100 rounds; no cap on a subject's items, and one release whatever the silos."""
    record = run_json(capsys, "account --algorithm subject_release --rounds 100", arguments)
    assert record["epsilon"] == pytest.approx(epsilon, rel=1e-2)
    assert record["steps_per_round"] == 1


def test_calibrate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "account --algorithm higrad_avg_dp --variant v3 --rounds 25 --silos 16"
    record = run_json(capsys, arguments, SCHEDULE)
    assert record["noise_multiplier"] == pytest.approx(23.03, rel=1e-3)
    assert 3.96 < record["epsilon"] <= 4.0
    half = run_json(capsys, arguments, SCHEDULE, "--silos-per-subject", "4")
    assert half["noise_multiplier"] == pytest.approx(11.54, rel=2e-3)


def test_calibrate_the_published_group_rule(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "account --algorithm local_group_dp --mode as_published --rounds 100"
    text = run(capsys, arguments, SCHEDULE)
    assert "Z =   8  13.4" in text
    assert text.count("Z =") == 8


@pytest.mark.slow
def test_noise_for_groups_up_to_32_in_one_go(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of accounting at the papers' scale for Z = 1..8, the same rule beyond it."""
    arguments = "account --algorithm local_group_dp --mode as_published --rounds 100 --group-sizes 32"
    table = run_json(capsys, arguments, SCHEDULE)["group_noise_multipliers"]
    assert len(table) == 32
    assert table == sorted(table)
    assert table[:8] == pytest.approx([1.7091, 3.339, 5.0061, 6.6838, 8.3661, 10.0507, 11.737, 13.4244], rel=2e-3)
    share, log_delta = group_target(4.0, 1e-5, 32)
    loss = (MixtureSteps(table[31], sampled_gaussian(0.0201773), 5000),)
    assert 0.98 * share < epsilon_of(loss, math.exp(log_delta)) <= share
    for algorithm, sizes in (("local_item_dp", "4"), ("local_group_dp", "0")):
        with pytest.raises(ConfigError, match="--group-sizes"):
            run(
                capsys,
                f"account --algorithm {algorithm} --mode as_published --rounds 1 --group-sizes {sizes}",
                SCHEDULE,
            )


def test_updates_clipped_once(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = "--algorithm joint_noise --clipping update --silos 16 --rounds 100"
    noise = run_json(capsys, "account", schedule, SCHEDULE)
    assert noise["unit"] == "silo"
    assert noise["noise_multiplier"] == pytest.approx(2 * math.sqrt(100) / 0.924931, rel=1e-5)
    record = run_json(capsys, "account", schedule, SCHEDULE, "--noise-multiplier 21.6")
    assert record["epsilon"] == pytest.approx(4.005, abs=1e-3)
    with pytest.raises(ConfigError, match="--clipping.*item with algorithm user_ldp"):
        run(capsys, "account --algorithm user_ldp --clipping update --rounds 1 --noise-multiplier 1", SCHEDULE)


@pytest.mark.slow
def test_account_and_calibrate_every_run_of_a_configuration(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(
        "name: two\n"
        "run: {partition: {silos: 3}, training: {rounds: 4, batch_size: 6, local_steps: 2}}\n"
        "sweep: [{algorithm: [local_item_dp, joint_noise], seed: [0]}]\n"
    )
    arguments = ("--config", str(scenario), "--results", str(tmp_path))
    with pytest.raises(DataError, match="needs its partition"):
        run(capsys, "account", *arguments)
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


@pytest.mark.parametrize("q", ["0.0004", "0.5005"])
def test_a_fixed_batch_is_a_whole_number_of_items(capsys: pytest.CaptureFixture[str], q: str) -> None:
    """Rounded down to no item at all it would cost nothing: ε = 0."""
    schedule = "--algorithm local_item_dp --rounds 100 --steps-per-round 50 --noise-multiplier 1 --items 1000"
    with pytest.raises(ConfigError, match="a whole number of items from 1 to 1000"):
        run(capsys, "account", schedule, "--sampling fixed_batch_size --sampling-probability", q)


def test_without_a_cap_a_subject_has_no_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    schedule = "--algorithm local_item_dp --rounds 100 --steps-per-round 50 --sampling-probability 0.0201773"
    record = run_json(capsys, "account", schedule, "--noise-multiplier 1.709")
    assert record["epsilon"] == pytest.approx(4.0, rel=2e-3)
    for unit in ("subject", "subject_one_silo"):
        statement = record["privacy"]["sound"][unit]
        assert statement["epsilon"] is None and statement["guarantee"] is False
        assert statement["reason"].startswith("no cap given")
    assert "none: no cap given" in record["card"] and "enforced cap" not in record["card"]


def test_account_of_a_finished_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    declared = mechanism("higrad_avg_dp", "v1", AccountingMode.AS_PUBLISHED)
    made = make_plan(declared, facts(), settings(noise_multiplier=1.709))
    folder = tmp_path / "runs" / "femnist-higrad-abc"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"plan": made.to_dict()}))
    record = run_json(capsys, "account", "--run", "femnist-higrad", "--results", str(tmp_path))
    assert record["privacy"]["sound"]["subject"]["epsilon"] == pytest.approx(144.6, rel=3e-3)
    (folder / "manifest.json").write_text(json.dumps(sealed({"plan": made.to_dict()}) | {"run_id": "other"}))
    with pytest.raises(DataError, match="changed after the run"):
        run(capsys, "account", "--run", "femnist-higrad", "--results", str(tmp_path))
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="manifest"):
        run(capsys, "account", "--run", "femnist-higrad", "--results", str(tmp_path))


COUNTED = "account --algorithm local_item_dp --rounds 5 --steps-per-round 4 --noise-multiplier 2 --counts"


@pytest.fixture
def counts(tmp_path: Path) -> str:
    rows = [f"s{n},{silo},2" for silo, size in (("north", 30), ("south", 40)) for n in range(size)]
    path = tmp_path / "counts.csv"
    path.write_text("subject,silo,items\n" + "\n".join(rows) + "\n")
    return str(path)


def test_account_of_counts(capsys: pytest.CaptureFixture[str], counts: str) -> None:
    """60 and 80 items: the silo of 60 samples with q = 0.1; equal silos of q = 0.1 are worse for a subject."""
    record = run_json(capsys, COUNTED, counts, "--batch-size 6 --max-items-per-subject 2")
    schedule = subjectdp.Schedule(rounds=5, steps=4, batch_size=6, max_items_per_subject=2)
    expected = subjectdp.account("local_item_dp", counts, schedule, 2.0)
    sound = record["privacy"]["sound"]
    assert sound["subject"]["epsilon"] == expected.subject.epsilon
    assert record["epsilon"] == sound["item"]["epsilon"] == expected.item.epsilon
    equal = COUNTED.replace("--counts", "--silos 2 --sampling-probability 0.1 --max-items-per-subject 2")
    assert sound["subject"]["epsilon"] < run_json(capsys, equal)["privacy"]["sound"]["subject"]["epsilon"]
    one_epoch = run_json(capsys, COUNTED.replace("--steps-per-round 4", ""), counts, "--batch-size 6")
    assert one_epoch["steps_per_round"] == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--batch-size 6 --silos 2 --items 60", "--silos, --items to be left out with --counts"),
        ("--batch-size 61", "--batch-size to be at most 60"),
        ("--batch-size 0", "--batch-size to be at least 1"),
        ("--batch-size 6 --sampling-probability 0.1", "--batch-size to be left out"),
        ("--sampling-probability 0.1 --sampling fixed_batch_size", "give --batch-size"),
    ],
)
def test_bad_options_with_counts(capsys: pytest.CaptureFixture[str], counts: str, arguments: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(capsys, COUNTED, counts, arguments)


def test_missing_options_and_bad_lines_with_counts(capsys: pytest.CaptureFixture[str], counts: str) -> None:
    with pytest.raises(ConfigError) as refused:
        run(capsys, "account --algorithm capped_item_dp --counts", counts)
    named = "--rounds, --sampling-probability, --max-items-per-subject"
    assert str(refused.value).startswith(f"Expected {named} to be given")
    with Path(counts).open("a") as file:
        file.write("zoe,north,few\n")
    with pytest.raises(DataError, match=r"counts\.csv, line 72: expected items to be a whole number"):
        run(capsys, COUNTED, counts, "--batch-size 6")
    with pytest.raises(ConfigError, match="--batch-size to be given with --counts or --silo-sizes only"):
        run(capsys, COUNTED.replace("--counts", "--batch-size 6"), SCHEDULE)
