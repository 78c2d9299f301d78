"""The project's goals: verdicts against scipy's intervals, what is not decided, and tables that are refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from figures.fake_runs import Fake, write_runs
from subjectdp.errors import ConfigError
from subjectdp.results.collect import collect_runs
from subjectdp.scorecard.goals import COLUMNS, judge_goals, read_goals, write_goals

ROOT = Path(__file__).resolve().parents[2]
SEEDS = (0, 1, 2)
ACCURACY = {
    "fed_avg": (0.88, 0.881, 0.879),
    "subject_release": (0.86, 0.865, 0.861),
    "user_ldp": (0.50, 0.52, 0.51),
    "higrad_avg_dp": (0.855, 0.84, 0.85),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """Sound runs on real data with the noise of 3,500 subjects, at ε = 4."""
    root = tmp_path_factory.mktemp("runs")
    fakes = [
        Fake(
            "higrad_avg_dp:v3" if name == "higrad_avg_dp" else name,
            seed=seed,
            mode="sound",
            rounds=4,
            synthetic=False,
            predicted=None if name == "fed_avg" else 3500,
            changes=(("privacy", {"epsilon": 4}),),
        )
        for name in ACCURACY
        for seed in SEEDS
    ]
    table = collect_runs(write_runs(root / "runs", fakes), root / "runs.parquet")
    table["final_test_accuracy"] = [
        ACCURACY[name][seed] for name, seed in zip(table["algorithm"], table["seed"], strict=True)
    ]
    return table


def row(kind: str, versus: str = "", limit: object = 0, **changed: object) -> dict[str, object]:
    facts = {"goal": "g", "statement": "s", "dataset": "femnist", "noise_subjects": 3500, "epsilon": 4}
    facts |= {"silos_per_subject": "", "model": ""}
    return {**facts, "kind": kind, "versus": versus, "limit": limit, **changed}


def judged(folder: Path, runs: pd.DataFrame, *rows: dict[str, object]) -> pd.DataFrame:
    runs.to_parquet(folder / "runs.parquet")
    named = [{**each, "goal": f"g{number}"} for number, each in enumerate(rows)]
    pd.DataFrame(named)[COLUMNS].to_csv(folder / "goals.csv", index=False)
    return write_goals(folder / "goals.csv", folder / "runs.parquet", folder / "judged.csv")


def interval(values: list[float]) -> tuple[float, float]:
    low, high = stats.t.interval(0.95, len(values) - 1, loc=pd.Series(values).mean(), scale=stats.sem(values))
    return float(low), float(high)


def test_an_accuracy_is_judged_by_its_whole_interval(runs: pd.DataFrame, tmp_path: Path) -> None:
    low, high = interval([100 * value for value in ACCURACY["subject_release"]])
    limits = [low - 0.01, low + 0.01, high - 0.01, high + 0.01]
    table = judged(tmp_path, runs, *[row("accuracy", limit=limit) for limit in limits])
    assert table["verdict"].tolist() == ["met", "undecided", "undecided", "missed"]
    assert table["low"].tolist() == pytest.approx([low] * 4, abs=2e-3)
    assert table["high"].tolist() == pytest.approx([high] * 4, abs=2e-3)
    assert set(table["seeds"]) == {3} and set(table["decided_by"]) == {"SubjectRelease"}


def test_a_gap_is_paired_and_may_be_at_most_its_limit(runs: pd.DataFrame, tmp_path: Path) -> None:
    gaps = [100 * (a - b) for a, b in zip(ACCURACY["fed_avg"], ACCURACY["subject_release"], strict=True)]
    low, high = interval(gaps)
    limits = [high + 0.01, high - 0.01, low - 0.01]
    table = judged(tmp_path, runs, *[row("gap", "fed_avg", limit) for limit in limits])
    assert table["verdict"].tolist() == ["met", "undecided", "missed"]
    assert table[["low", "high"]].to_numpy()[0] == pytest.approx([low, high], abs=2e-3)


def test_of_several_algorithms_the_closest_decides(runs: pd.DataFrame, tmp_path: Path) -> None:
    both, far = "user_ldp higrad_avg_dp:v3", "user_ldp"
    leads = [
        100 * (a - b) for a, b in zip(ACCURACY["subject_release"], ACCURACY["higrad_avg_dp"], strict=True)
    ]
    low, _ = interval(leads)
    assert low < 0, "the case is one that is not decided"
    table = judged(tmp_path, runs, row("lead", both), row("lead", far))
    assert table["verdict"].tolist() == ["undecided", "met"]
    assert table["decided_by"].tolist() == ["HiGradAvgDP (v3)", "UserLDP"]
    assert table["low"][0] == pytest.approx(low, abs=2e-3)


def test_what_was_not_run_or_proves_nothing_is_not_met(runs: pd.DataFrame, tmp_path: Path) -> None:
    easy = row("accuracy", limit=1)
    others = [{**easy, "epsilon": 1}, {**easy, "noise_subjects": 60}, {**easy, "dataset": "shakespeare"}]
    others += [{**easy, "silos_per_subject": 4}, row("lead", "user_ldp capped_item_dp")]
    table = judged(tmp_path, runs, *others)
    assert set(table["verdict"]) == {"not run"}
    assert table["reason"].str.contains("SubjectRelease|CappedItemDP").all()
    assert judged(tmp_path, runs[runs["seed"] == 0], easy)["verdict"].tolist() == ["undecided"]
    assert judged(tmp_path, runs.assign(synthetic=True), easy)["reason"].tolist() == ["generated data"]
    assert judged(tmp_path, runs, easy)["verdict"].tolist() == ["met"]


def test_a_goal_may_be_about_subjects_at_few_silos(runs: pd.DataFrame, tmp_path: Path) -> None:
    few = runs.assign(
        run_id=runs["run_id"] + "x",
        config=runs["config"].str.replace('"silos_per_subject": 16', '"silos_per_subject": 4'),
        final_test_accuracy=runs["final_test_accuracy"] - 0.2,
    )
    places: list[dict[str, object]] = [{}, {"silos_per_subject": 16}, {"silos_per_subject": 4}]
    table = judged(
        tmp_path, pd.concat([runs, few]), *[row("accuracy", limit=80, **place) for place in places]
    )
    assert table["verdict"].tolist() == ["met", "met", "missed"]
    assert table["ours"][0] - table["ours"][2] == pytest.approx(20, abs=2e-3)


def test_a_goal_may_be_about_one_model(runs: pd.DataFrame, tmp_path: Path) -> None:
    (model,) = set(runs["model"])
    easy = [row("accuracy", limit=1, model=name) for name in (model, "scattering_head", "")]
    assert judged(tmp_path, runs, *easy)["verdict"].tolist() == ["met", "not run", "met"]


def statement(run_id: str, stated: float, unit: str = "subject") -> dict[str, object]:
    epsilon = {"item": stated, "subject_one_silo": stated, "subject": stated}
    return {"released": run_id, "epsilon": epsilon, "unit": unit, "private_selection": {"epsilon": 4.0}}


def test_what_private_selections_release_is_judged_and_no_other_repetition(
    runs: pd.DataFrame, tmp_path: Path
) -> None:
    """Own noise, ε = 2.5 a repetition: the accuracies of what is released, and ε of the whole selections."""
    own = runs[runs["algorithm"] == "subject_release"].assign(
        label="SubjectRelease", predicted_subjects=float("nan"), epsilon=2.5
    )
    others = own.assign(run_id=own["run_id"] + "x", final_test_accuracy=0.1)
    uneven = own.assign(run_id=own["run_id"] + "y", alpha=16.0, final_test_accuracy=0.2)
    repetitions = pd.concat([own, others, uneven])
    statements = [
        statement(run_id, stated) for run_id, stated in zip(own["run_id"], (3.8, 3.9, 3.7), strict=True)
    ]
    statements += [statement(run_id, 3.95) for run_id in uneven["run_id"]]
    statements += [statement(run_id, 9.0, "item") for run_id in others["run_id"]]
    low, high = interval([100 * value for value in ACCURACY["subject_release"]])
    facts = {"noise_subjects": 60}
    cases = [row("selection", limit=limit, **facts) for limit in (low - 0.01, low + 0.01, high + 0.01)]
    cases += [row("selection", limit=1, **facts, epsilon=2.5), row("selection", limit=1)]
    cases += [row("accuracy", limit=1, **facts)]
    named = [{**each, "goal": f"g{number}"} for number, each in enumerate(cases)]
    pd.DataFrame(named)[COLUMNS].to_csv(tmp_path / "goals.csv", index=False)
    table = judge_goals(read_goals(tmp_path / "goals.csv"), repetitions, statements)
    assert table["verdict"].tolist() == ["met", "undecided", "missed", "not run", "not run", "not run"]
    assert table["low"][0] == pytest.approx(low, abs=2e-3) and table["seeds"][0] == 3
    assert table["epsilon_own_subject"][0] == 3.9
    alone = judge_goals(read_goals(tmp_path / "goals.csv"), runs)
    assert set(alone["verdict"]) == {"not run"}


def test_the_privacy_of_the_runs_own_subjects_stands_beside(runs: pd.DataFrame, tmp_path: Path) -> None:
    table = judged(tmp_path, runs, row("accuracy", limit=1))
    own = runs[runs["algorithm"] == "subject_release"]["epsilon_sound_subject"].max()
    assert table["epsilon_own_subject"].tolist() == [own]


def test_the_projects_goals_are_as_they_were_set() -> None:
    goals = {goal.name: goal for goal in read_goals(ROOT / "config" / "goals.csv")}
    assert goals["femnist-accuracy-4"].limit == 82 and goals["femnist-accuracy-1"].limit == 75
    assert goals["femnist-gap-4"].limit == 3
    published = {"UserLDP", "LocalGroupDP", "HiGradAvgDP (v1)", "HiGradAvgDP (v3)", "CentralSubDP"}
    lead = [goal for name, goal in goals.items() if "-lead-" in name]
    assert len(lead) == 3 and all(set(goal.versus) == published for goal in lead)
    own = {
        name: (goal.noise_subjects, goal.epsilon, goal.limit)
        for name, goal in goals.items()
        if "-own-" in name
    }
    wanted = {"femnist-own-4": (180, 4, 81), "femnist-own-1": (180, 1, 70), "shakespeare-own-4": (660, 4, 38)}
    assert own == wanted
    peer = {goal.silos_per_subject: goal for name, goal in goals.items() if "-uldp-" in name}
    assert set(peer) == {None, 4, 1} and {goal.versus for goal in peer.values()} == {("ULDP-FL",)}
    assert {(goal.noise_subjects, goal.epsilon, goal.limit) for goal in peer.values()} == {(180, 4, 0)}
    selected = goals["femnist-selected-4"]
    assert (selected.kind, selected.noise_subjects, selected.epsilon) == ("selection", 180, 4)
    assert selected.limit == pytest.approx(84.4 - 2)
    wavelets = goals["femnist-wavelets-4"]
    assert (wavelets.model, wavelets.limit) == ("scattering_head", 83)
    others = [goal for name, goal in goals.items() if name not in own and "-uldp-" not in name]
    assert all(goal.noise_subjects == 3500 for goal in others if goal is not selected)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kind": "leed"}, "Did you mean 'lead'"),
        ({"versus": ""}, r"goals.csv, row 2, versus to be fed_avg \(gap\)"),
        ({"kind": "accuracy"}, r"versus to be empty \(accuracy\)"),
        ({"kind": "lead"}, "not fed_avg"),
        ({"versus": "fed_avgg"}, "Did you mean 'fed_avg'"),
        ({"kind": "selection"}, r"versus to be empty \(selection\)"),
        ({"model": "scatering_head"}, "Did you mean 'scattering_head'"),
        ({"dataset": "mnist"}, "Did you mean 'femnist'"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": ""}, "none of them empty"),
        ({"limit": "high"}, "limit"),
        ({"noise_subjects": "3.5"}, "whole number"),
        ({"silos_per_subject": "few"}, "silos_per_subject"),
        ({"statement": " "}, "statement"),
    ],
)
def test_a_wrong_goal_is_named(changed: dict[str, object], told: str, tmp_path: Path) -> None:
    pd.DataFrame([row("gap", "fed_avg", 3) | changed])[COLUMNS].to_csv(tmp_path / "goals.csv", index=False)
    with pytest.raises(ConfigError, match=told):
        read_goals(tmp_path / "goals.csv")


def test_a_file_from_a_spreadsheet_is_read_and_another_encoding_refused(tmp_path: Path) -> None:
    path = tmp_path / "goals.csv"
    text = (ROOT / "config" / "goals.csv").read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8-sig")
    assert len(read_goals(path)) == len(list(csv.reader(text.splitlines()))) - 1
    path.write_bytes(text.encode("utf-16"))
    with pytest.raises(ConfigError, match="a CSV in UTF-8"):
        read_goals(path)
