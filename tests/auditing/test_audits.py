"""The small suite: what it refutes and what it must not, with fixed seeds; every finding is reproducible."""

import json
from pathlib import Path

import pandas as pd
import pytest

from auditing.generated_setup import generated_setup
from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.auditing.cases import MONTE_CARLO
from subjectdp.auditing.suite import COLUMNS, write_suite

pytestmark = pytest.mark.long  # the whole suite of audits, and what hangs on it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    targets = [folder / f"audit.{suffix}" for suffix in ("parquet", "csv", "json")]
    write_suite("small", 0, generated_setup(0), targets)
    return folder


@pytest.fixture(scope="module")
def rows(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "audit.parquet")


def chosen(rows: pd.DataFrame, audit: str, mode: str) -> pd.DataFrame:
    return rows[(rows["audit"] == audit) & (rows["mode"] == mode)]


def test_monte_carlo_refutes_what_was_published(rows: pd.DataFrame) -> None:
    """HiGradAvgDP v1 and LocalGroupDP at their ε = 4, and v3's R/√s rounds."""
    published = chosen(rows, "monte_carlo", "as_published")
    algorithms = {(a, None if pd.isna(v) else v) for a, v in zip(published.algorithm, published.variant, strict=True)}
    assert algorithms == {("higrad_avg_dp", "v1"), ("local_group_dp", None), ("higrad_avg_dp", "v3")}
    assert (published["lower_bound"] > 4).all()
    assert (published["verdict"] == "refuted").all()


def test_no_sound_plan_is_refuted(rows: pd.DataFrame) -> None:
    sound = rows[rows["mode"] == "sound"]
    assert set(sound["algorithm"]) == ALGORITHMS.keys() - {"fed_avg"}
    assert (sound["lower_bound"] < 3).all() and (sound["lower_bound"] > 0.8).all(), "and none is trivial"
    assert (sound["verdict"] == "not refuted").all()
    calibrated = sound[sound["claimed_epsilon"] == 4.0]
    assert calibrated["true_epsilon"].between(3.98, 4.0001).all()


def test_updates_noised_once_are_attacked_for_a_silo_and_for_an_item(rows: pd.DataFrame) -> None:
    """The item's ε is the accountant's: below the silo's, as not every round draws the item."""
    silo, item = (
        chosen(rows[rows["setting"].str.contains(words)], "monte_carlo", "sound").iloc[0]
        for words in ("silo's whole data, 10 noised updates", "one item, 10 noised updates")
    )
    assert silo["algorithm"] == item["algorithm"] == "joint_noise"
    assert silo["claimed_epsilon"] == 4.0
    assert item["claimed_epsilon"] == item["true_epsilon"] == pytest.approx(2.575, abs=0.01)
    assert 0.8 < item["lower_bound"] < silo["lower_bound"] < 2.5


def test_no_bound_lies_above_the_accountants_epsilon(rows: pd.DataFrame) -> None:
    known = rows[rows["true_epsilon"].notna()]
    assert len(known) == 24
    assert (known["lower_bound"] < known["true_epsilon"]).all()


def test_one_training_needs_subjects_as_canaries(rows: pd.DataFrame) -> None:
    subjects = chosen(rows, "one_run_subjects", "as_published")
    assert list(subjects["algorithm"]) == ["higrad_avg_dp", "local_group_dp"]
    items = chosen(rows, "one_run_items", "as_published")
    assert list(items["variant"]) == ["v1"]
    # 400 guesses, the papers' own noise, 98.3 % confidence; the keys of noise follow the code, and bounds move by 1
    least = items["lower_bound"].item()
    assert 0.1 < least < 2.5 < subjects["lower_bound"].max(), "an audit with items passes the broken algorithm"
    assert (subjects["lower_bound"] > least).all()
    assert (chosen(rows, "one_run_subjects", "sound")["lower_bound"] < 4).all()


def test_data_dependent_noise_leaks(rows: pd.DataFrame) -> None:
    assert rows.loc[rows["audit"] == "noise_level_leak", "lower_bound"].item() > 5
    leaks = list(rows.loc[rows["audit"] == "divisor_leak", "lower_bound"])
    assert leaks == sorted(leaks) and leaks[0] < 1 and leaks[-1] > 8, "the larger the model, the more it shows"


def test_files_agree(folder: Path, rows: pd.DataFrame) -> None:
    assert tuple(rows.columns) == COLUMNS
    csv = pd.read_csv(folder / "audit.csv")
    assert list(csv["lower_bound"]) == pytest.approx(list(rows["lower_bound"]))
    content = json.loads((folder / "audit.json").read_text())
    assert content["size"] == "small" and content["seed"] == 0
    assert len(content["refuted"]) + len(content["not_refuted"]) == len(rows) == len(content["findings"])
    training = [f for f in content["findings"] if f["audit"].startswith("one_run")]
    assert all(f["guesses"] == 400 and f["synthetic"] for f in training)
    assert max(f["test_accuracy"] for f in training) > 0.6, "the canaries ride on a training that learns (chance: 0.2)"
    assert not rows.loc[rows["audit"] == "monte_carlo", "synthetic"].any()


def test_the_full_audit_covers_the_papers_scale() -> None:
    cases = MONTE_CARLO["full"]
    names = {case.name for case in cases}
    assert len(names) == len(cases) == 21
    rule = next(case for case in cases if case.variant == "v3" and case.mode == "as_published" and case.silos == 16)
    assert rule.held == 16 and rule.runs >= 100_000, "20,000 runs cannot refute 4 where the truth is 8"
