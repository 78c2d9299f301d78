"""Sound algorithms side by side: paired leads against scipy, FedAvg at every ε, rows of the table of runs apart."""

from itertools import product

import pandas as pd
import pytest
from scipy import stats

from figures.fake_runs import Fake, write_runs
from subjectdp.errors import DataError
from subjectdp.report.tables import runs_summary
from subjectdp.results.collect import collect_scenario
from subjectdp.scorecard.leads import COLUMNS, leads

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


def everywhere(table: pd.DataFrame) -> pd.DataFrame:
    return table[table["silos_per_subject"] == table["silos"]]


def accuracies(runs: pd.DataFrame, name: str, epsilon: float, predicted: bool = True) -> pd.Series:
    rows = runs[(runs["algorithm"] == name) & (runs["epsilon"] == epsilon)]
    even = rows["silos_per_subject"] == rows["silos"]
    rows = rows[even & (rows["predicted_subjects"].notna() == (predicted and name != "fed_avg"))]
    return rows.set_index("seed")["final_test_accuracy"].sort_index() * 100


def test_leads_are_paired_by_seed(runs: pd.DataFrame, table: pd.DataFrame) -> None:
    assert list(table.columns) == list(COLUMNS)
    for epsilon, name in product((1.0, 4.0), ("local_item_dp", "higrad_avg_dp")):
        ours, other = (accuracies(runs, one, epsilon) for one in ("subject_release", name))
        label = {"local_item_dp": "LocalItemDP", "higrad_avg_dp": "HiGradAvgDP (v3)"}[name]
        rows = everywhere(table[(table["epsilon"] == epsilon) & (table["algorithm"] == label)])
        row = rows[rows["noise_subjects"] == 3500].iloc[0]
        differences = (ours - other).to_numpy()
        low, high = stats.t.interval(0.95, 2, loc=differences.mean(), scale=stats.sem(differences))
        assert [row["lead"], row["lead_low"], row["lead_high"]] == pytest.approx(
            [differences.mean(), low, high], abs=1e-3
        )
        assert row["test_accuracy_percent"] == pytest.approx(other.mean(), abs=1e-3)


def test_fed_avg_stands_at_every_epsilon_and_claims_nothing(table: pd.DataFrame) -> None:
    rows = table[table["algorithm"] == "FedAvg"]
    assert sorted(zip(rows["noise_subjects"], rows["epsilon"], strict=True)) == [(60, 4), (3500, 1), (3500, 4)]
    assert (rows["unit"] == "").all() and rows["epsilon_stated"].isna().all()
    assert rows["test_accuracy_percent"].nunique() == 1


def test_local_trust_counts_where_there_are_several(runs: pd.DataFrame, table: pd.DataFrame) -> None:
    """Runs under secure aggregation beside those under local trust change nothing; alone they count."""
    ours = runs["algorithm"] == "subject_release"
    summed = runs[ours].assign(
        run_id=runs["run_id"] + "x", trust="secure_aggregation", final_test_accuracy=runs["final_test_accuracy"] / 2
    )
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
    other = runs.assign(
        run_id=runs["run_id"] + "x", setting=runs["setting"].str.replace('"learning_rate": 0.1', '"learning_rate": 0.7')
    )
    assert (runs_summary(pd.concat([runs, other]))["seeds"] == len(SEEDS)).all()
