"""The command line: account, calibrate, table1."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from accounting.plans import facts, settings
from subjectdp.accounting.commands import add_parsers
from subjectdp.accounting.planning import make_plan
from subjectdp.algorithms.registry import mechanism
from subjectdp.errors import ConfigError, DataError, PrivacyError, SubjectDPError
from subjectdp.mechanisms.plan import AccountingMode

SCHEDULE = "--steps-per-round 50 --sampling-probability 0.0201773 --max-items-per-subject 8 --delta 1e-5"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    parser = argparse.ArgumentParser()
    add_parsers(parser.add_subparsers())
    options = parser.parse_args([word for argument in arguments for word in argument.split()])
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
    ],
)
def test_account(capsys: pytest.CaptureFixture[str], arguments: str, epsilon: float) -> None:
    record = run_json(capsys, "account", arguments, SCHEDULE)
    assert record["epsilon"] == pytest.approx(epsilon, rel=3e-3)


def test_account_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "account --algorithm local_item_dp --rounds 100 --noise-multiplier 1.7091"
    text = run(capsys, arguments, SCHEDULE)
    assert text.startswith("epsilon 4.0")
    assert "Privacy card" in text


def test_calibrate(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "calibrate --algorithm higrad_avg_dp --variant v3 --rounds 25 --silos 16"
    record = run_json(capsys, arguments, SCHEDULE)
    assert record["noise_multiplier"] == pytest.approx(23.03, rel=1e-3)
    assert 3.96 < record["epsilon"] <= 4.0
    half = run_json(capsys, arguments, SCHEDULE, "--silos-per-subject", "4")
    assert half["noise_multiplier"] == pytest.approx(11.54, rel=2e-3)


def test_calibrate_the_published_group_rule(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = "calibrate --algorithm local_group_dp --mode as_published --rounds 100"
    text = run(capsys, arguments, SCHEDULE)
    assert "Z =   8  13.4" in text
    assert text.count("Z =") == 8


def test_table1(capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "table1")
    assert len(rows) == 12
    last = rows[-1]
    assert (last["local_steps"], last["parties"]) == (50, 10)
    assert (round(last["sigma_total"], 2), round(last["epsilon"], 2)) == (3.73, 1.03)
    assert (round(last["epsilon_tight"], 2), round(last["epsilon_sound"], 2)) == (0.74, 3.79)
    assert "1.03" in run(capsys, "table1")


@pytest.mark.parametrize(
    ("arguments", "message", "error"),
    [
        ("--noise-multiplier 1", "--algorithm", ConfigError),
        ("--algorithm local_item_dp --rounds 5", "--noise-multiplier", ConfigError),
        ("--algorithm local_item_dp --noise-multiplier 1", "--rounds", ConfigError),
        ("--algorithm no_such --rounds 5 --noise-multiplier 1", "algorithm", ConfigError),
        ("--algorithm higrad_avg_dp:v9 --rounds 5 --noise-multiplier 1", "variant", ConfigError),
        ("--algorithm local_item_dp --rounds 5 --noise-multiplier 1 --silos 0", "--silos", ConfigError),
        ("--algorithm local_item_dp --rounds 5 --noise-multiplier 1 --delta 2", "delta", ConfigError),
        (
            "--algorithm local_item_dp --rounds 5 --noise-multiplier 1 --sampling fixed_batch_size",
            "--items",
            ConfigError,
        ),
        ("--algorithm joint_noise --rounds 5 --noise-multiplier 1 --silos 4", "one local step", PrivacyError),
        (
            "--algorithm local_item_dp --mode as_published --unit subject --rounds 5 --noise-multiplier 1",
            "claims nothing",
            PrivacyError,
        ),
        ("--run no-such-run", "--run", DataError),
    ],
)
def test_bad_options(
    capsys: pytest.CaptureFixture[str], arguments: str, message: str, error: type[SubjectDPError]
) -> None:
    with pytest.raises(error, match=message):
        run(capsys, "account", SCHEDULE, arguments)


def test_account_of_a_finished_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    declared = mechanism("higrad_avg_dp", "v1", AccountingMode.AS_PUBLISHED)
    made = make_plan(declared, facts(), settings(noise_multiplier=1.709))
    folder = tmp_path / "runs" / "femnist-higrad-abc"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"plan": made.to_dict()}))
    record = run_json(capsys, "account", "--run", "femnist-higrad", "--results", str(tmp_path))
    assert record["privacy"]["sound"]["subject"]["epsilon"] == pytest.approx(144.6, rel=3e-3)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match="manifest"):
        run(capsys, "account", "--run", "femnist-higrad", "--results", str(tmp_path))
