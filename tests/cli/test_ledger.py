"""``subjectdp ledger``: runs on the same people, composed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounting.plans import RELEASE, plan
from cli.commands import run, run_json
from subjectdp.plan.plan import NoiseSource, SamplingMethod

SUBJECTS = SamplingMethod.POISSON_SUBJECTS


def record(results: Path, name: str, dataset: str = "femnist", **settings: Any) -> None:
    made = plan(RELEASE, 12.0, silos=2, rounds=20, q=1.0, sampling=SUBJECTS, **settings)
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


def test_two_runs_are_composed_unit_by_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("release-s0", "release-s1"):
        record(tmp_path, name)
    rows = run_json(capsys, "ledger", "release-s0", "release-s1", "--results", str(tmp_path))
    assert [row["unit"].partition(",")[0] for row in rows] == ["one item", "one subject", "one subject"]
    assert all(row["runs"] == 2 and row["each_run"] == 1.5 < row["together"] for row in rows)
    alone = run_json(capsys, "ledger", "release-s0", "--results", str(tmp_path))
    assert alone[2]["together"] < rows[2]["together"] < 2 * alone[2]["together"]
    loose = run_json(capsys, "ledger", "release-s0", "--delta", "1e-3", "--results", str(tmp_path))
    assert loose[2]["together"] < alone[2]["together"]
    _, text, _ = run(capsys, "ledger", "release-s0", "release-s1", "--results", str(tmp_path))
    assert "ε of all together" in text and "Runs that are not named are not counted" in text


def test_other_data_are_other_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, "release-s0")
    record(tmp_path, "plays-s0", dataset="shakespeare", noise_source=NoiseSource.SECURE)
    rows = run_json(capsys, "ledger", "release-s0", "plays-s0", "--results", str(tmp_path))
    assert {(row["data"], row["runs"]) for row in rows} == {
        ("femnist (leaf_json)", 1),
        ("shakespeare (leaf_json)", 1),
    }


@pytest.mark.parametrize(
    ("arguments", "words"), [((), "at least one RUN"), (("r-s0", "--delta", "2"), "--delta")]
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    record(tmp_path, "r-s0")
    code, _, error = run(capsys, "ledger", *arguments, "--results", str(tmp_path))
    assert code == 2 and words in error
