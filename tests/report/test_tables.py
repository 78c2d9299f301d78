"""The table of runs and the comparison of sampling with the papers."""

import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from figures.fake_runs import Fake, grid, write_runs
from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import MixtureSteps, Turned, recorded, sampled_gaussian
from subjectdp.data.statistics import paper_settings
from subjectdp.errors import DataError
from subjectdp.plan.plan import NoiseDistribution
from subjectdp.report.make_table import TABLES
from subjectdp.report.scorecard import published_runs
from subjectdp.report.tables import LEADS, leads, runs_summary, statistics_comparison
from subjectdp.results.collect import collect_scenario
from subjectdp.results.select import steps_words

pytestmark = pytest.mark.slow

RULES = Path(__file__).resolve().parents[2] / "workflow" / "rules"


def test_the_runs_table_has_a_row_a_setting(tmp_path: Path) -> None:
    fakes = grid(["fed_avg", "local_group_dp", "higrad_avg_dp:v1"], ["femnist"], [0, 1, 2], rounds=8)
    runs = collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path)
    table = runs_summary(runs).set_index("label")
    order = list(table.columns)
    assert order.index("test_accuracy_percent") < order.index("epsilon_sound_subject") < order.index("batch_size")
    assert order[-1] == "run_ids" and len(order) == len(set(order))
    assert table.index.tolist() == ["FedAvg", "LocalGroupDP", "HiGradAvgDP (v1)"]
    own = runs[runs["label"] == "FedAvg"]["final_test_accuracy"]
    assert table.loc["FedAvg", "test_accuracy_percent"] == pytest.approx(100 * own.sum() / 3, abs=1e-3)
    assert table["seeds"].tolist() == [3, 3, 3]
    assert table["published_guarantee"].fillna("").tolist() == ["", "no", "no"]
    assert np.isnan(table.loc["LocalGroupDP", "epsilon_sound_subject"])
    assert table.loc["HiGradAvgDP (v1)", "epsilon_sound_subject"] == pytest.approx(144.6)
    assert len(table.loc["FedAvg", "run_ids"].split()) == 3


def test_runs_without_validation_items_have_a_row(tmp_path: Path) -> None:
    """As of people with two records each: one to test and one to train with."""
    runs = collect_scenario(write_runs(tmp_path / "runs", grid(["fed_avg"], ["femnist"], [0, 1], rounds=8)), tmp_path)
    (whole,) = runs_summary(runs)["validation_accuracy_percent"]
    assert whole == pytest.approx(100 * np.mean(runs["final_validation_accuracy"]), abs=1e-3)
    table = runs_summary(runs.assign(final_validation_accuracy=np.nan))
    assert table["validation_accuracy_percent"].isna().all() and table["test_accuracy_percent"].notna().all()


def test_a_row_names_no_setting_that_its_runs_do_not_read(tmp_path: Path) -> None:
    equal = (("partition", {"distribution": "equal"}),)
    fakes = [
        Fake("local_item_dp", changes=equal),
        Fake("local_item_dp", mode="sound"),
        Fake("subject_release", mode="sound"),
    ]
    table = runs_summary(collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path))
    assert table["alpha"].isna().tolist() == [False, True, False], "equal shares follow no power law"
    assert table["horizontal"].isna().tolist() == [True, False, True], "a rule of the papers"
    assert table["batch_size"].isna().tolist() == [False, False, True], "whole subjects are drawn"


def test_several_epochs_are_not_called_one_nor_is_a_single_step(tmp_path: Path) -> None:
    fakes = [Fake("fed_avg"), Fake("local_item_dp", changes=(("training", {"local_epochs": 5}),))]
    fakes.append(Fake("subject_release", mode="sound"))
    runs = collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path)
    assert runs_summary(runs)["local_steps"].tolist() == ["one epoch", "5 epochs", "1"]
    assert runs["local_steps"].map(steps_words).tolist() == ["1 local epoch", "5 local epochs", "1 local step"]
    assert published_runs(runs)["local_steps"].tolist() == ["epoch", "-5"], "no paper's setting"


@pytest.mark.parametrize("probability", [1.0, 0.1])
def test_all_seeds_together_are_as_many_steps(tmp_path: Path, probability: float) -> None:
    """Three runs of one setting, each with 20 sampled Gaussian releases, are one with 60."""
    fakes = grid(["fed_avg", "higrad_avg_dp:v1"], ["femnist"], [0, 1, 2], rounds=8)
    runs = collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path)
    part = MixtureSteps(5.0, sampled_gaussian(probability), 20)
    event = json.dumps([recorded((part,), NoiseDistribution.GAUSSIAN)])
    table = runs_summary(runs.assign(subject_event=event)).set_index("label")
    expected = epsilon_of((replace(part, steps=60),), 1e-5, resolution=SEARCH)
    assert table.loc["HiGradAvgDP (v1)", "epsilon_sound_subject_all_seeds"] == pytest.approx(expected)
    assert np.isnan(table.loc["FedAvg", "epsilon_sound_subject_all_seeds"])
    coin = recorded((replace(part, shift=Turned.by(0.1, 2.0)),), NoiseDistribution.GAUSSIAN)
    for event in ("null", json.dumps([coin])):
        unknown = runs_summary(runs.assign(subject_event=event)).set_index("label")
        assert np.isnan(unknown.loc["HiGradAvgDP (v1)", "epsilon_sound_subject_all_seeds"])


def test_sampling_is_compared_with_the_papers() -> None:
    rows = [(s.name, 0, step, 512, 470 + step, 3) for s in paper_settings()[:3] for step in range(3)]
    frame = pd.DataFrame(rows, columns=["setting", "silo", "step", "items", "subjects", "largest_group"])
    table = statistics_comparison(frame).set_index("setting")
    assert table.loc["femnist", "subjects_difference_percent"] == pytest.approx(100 * (471 / 475 - 1))
    assert np.isnan(table.loc["small_femnist", "subjects_difference_percent"])
    with pytest.raises(DataError, match="settings"):
        statistics_comparison(frame.assign(setting="mine"))


def test_every_table_of_the_rules_is_known() -> None:
    named = (RULES / "tables.smk").read_text().partition("TABLES = {")[2].partition("\n}\n")[0]
    assert [line[5:-4] for line in named.splitlines() if line.startswith('    "')] == list(TABLES)


SEEDS = (0, 1, 2)


def fake(name: str, seed: int, epsilon: float = 4.0, predicted: int | None = 3500, held: int | None = None) -> Fake:
    changes = (("privacy", {"epsilon": epsilon}), ("partition", {"silos_per_subject": held}))
    predicted = None if name == "fed_avg" else predicted
    return Fake(name, seed=seed, mode="sound", rounds=6, predicted=predicted, changes=changes)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    root = tmp_path_factory.mktemp("runs")
    names = ("local_item_dp", "higrad_avg_dp:v3", "subject_release")
    fakes = [fake("fed_avg", seed) for seed in SEEDS]
    fakes += [fake(name, seed, epsilon) for name, seed, epsilon in product(names, SEEDS, (1.0, 4.0))]
    fakes += [fake("subject_release", seed, predicted=None) for seed in SEEDS]
    fakes += [fake("subject_release", seed, held=1) for seed in SEEDS]
    return collect_scenario(write_runs(root / "runs", fakes), root)


@pytest.fixture(scope="module")
def table(runs: pd.DataFrame) -> pd.DataFrame:
    return leads(runs)


def accuracies(runs: pd.DataFrame, name: str, epsilon: float, predicted: bool = True) -> pd.Series:
    rows = runs[(runs["algorithm"] == name) & (runs["epsilon"] == epsilon)]
    even = rows["silos_per_subject"] == rows["silos"]
    rows = rows[even & (rows["predicted_subjects"].notna() == (predicted and name != "fed_avg"))]
    return rows.set_index("seed")["final_test_accuracy"].sort_index() * 100


def test_leads_are_paired_by_seed(runs: pd.DataFrame, table: pd.DataFrame) -> None:
    assert list(table.columns) == list(LEADS)
    for epsilon, name in product((1.0, 4.0), ("local_item_dp", "higrad_avg_dp")):
        ours, other = (accuracies(runs, one, epsilon) for one in ("subject_release", name))
        label = {"local_item_dp": "LocalItemDP", "higrad_avg_dp": "HiGradAvgDP (v3)"}[name]
        rows = table[(table["epsilon"] == epsilon) & (table["algorithm"] == label) & (table["noise_subjects"] == 3500)]
        row = rows[rows["silos_per_subject"] == rows["silos"]].iloc[0]
        differences = (ours - other).to_numpy()
        low, high = stats.t.interval(0.95, 2, loc=differences.mean(), scale=stats.sem(differences))
        found = [row["lead"], row["lead_low"], row["lead_high"]]
        assert found == pytest.approx([differences.mean(), low, high], abs=1e-3)
        assert row["test_accuracy_percent"] == pytest.approx(other.mean(), abs=1e-3)


def test_fed_avg_stands_at_every_epsilon_and_claims_nothing(table: pd.DataFrame) -> None:
    rows = table[table["algorithm"] == "FedAvg"]
    assert sorted(zip(rows["noise_subjects"], rows["epsilon"], strict=True)) == [(60, 4), (3500, 1), (3500, 4)]
    assert (rows["unit"] == "").all() and rows["epsilon_stated"].isna().all()
    assert rows["test_accuracy_percent"].nunique() == 1


def test_an_epsilon_that_was_read_from_the_data_is_not_stated_without_a_mark(runs: pd.DataFrame) -> None:
    """LocalItemDP needs no cap: what its runs give a subject is conditional then."""
    items = runs["algorithm"] == "local_item_dp"
    found = leads(runs.assign(subject_guarantee=runs["subject_guarantee"].mask(items, "conditional")))
    told = dict(zip(found["algorithm"], found["subject_guarantee"], strict=True))
    assert told["LocalItemDP"] == "conditional" and told["SubjectRelease"] == "yes"


def test_local_trust_counts_where_there_are_several(runs: pd.DataFrame, table: pd.DataFrame) -> None:
    """Runs under secure aggregation beside those under local trust change nothing; alone they count."""
    ours = runs["algorithm"] == "subject_release"
    summed = runs[ours].assign(run_id=runs["run_id"] + "x", trust="secure_aggregation")
    summed["final_test_accuracy"] /= 2
    assert set(runs.loc[ours, "trust"]) == {"local"}
    pd.testing.assert_frame_equal(leads(pd.concat([runs, summed])), table)
    alone = leads(pd.concat([runs[~ours], summed]))
    both = [each[each["algorithm"] == "SubjectRelease"]["test_accuracy_percent"] for each in (alone, table)]
    assert (both[0] * 2).tolist() == pytest.approx(both[1].tolist(), abs=3e-3)


def test_without_the_algorithm_there_is_no_lead(runs: pd.DataFrame) -> None:
    with pytest.raises(DataError, match="evenly over their silos"):
        leads(runs[runs["algorithm"] != "subject_release"])


def test_the_table_of_runs_never_averages_two_settings(runs: pd.DataFrame) -> None:
    """Runs that differ in how many silos hold a subject, or in a rate that no column shows, have rows of their own."""
    table = runs_summary(runs)
    assert (table["seeds"] == len(SEEDS)).all()
    ours = table[table["label"] == "SubjectRelease [noise of 3,500 subjects]"]
    assert sorted(zip(ours["silos_per_subject"], ours["epsilon"], strict=True)) == [(1, 4), (16, 1), (16, 4)]
    setting = runs["setting"].str.replace('"learning_rate": 0.1', '"learning_rate": 0.7')
    other = runs.assign(run_id=runs["run_id"] + "x", setting=setting)
    assert (runs_summary(pd.concat([runs, other]))["seeds"] == len(SEEDS)).all()
