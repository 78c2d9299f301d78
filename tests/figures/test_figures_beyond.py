"""Figures beyond the papers: their values against the runs', predicted noise in every picture, and what they refuse."""

from __future__ import annotations

import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from figures.fake_runs import Fake, collected, values
from subjectdp.errors import DataError
from subjectdp.figures import panels
from subjectdp.figures.catalogue import build_figure, make_figure
from subjectdp.results.inputs import FigureInputs
from subjectdp.utility.measured_noise_table import COLUMNS, PAPERS, SCENARIO

NAMES = ["fed_avg", "local_item_dp", "user_ldp", "higrad_avg_dp:v1", "subject_release"]
PRIVATE = NAMES[1:]
SEEDS = (0, 1, 2)


def fake(name: str, seed: int, **more: object) -> Fake:
    return Fake(name, seed=seed, mode="sound", rounds=8, **more)  # type: ignore[arg-type]


def at_epsilon(epsilon: float) -> dict[str, object]:
    return {"changes": (("privacy", {"epsilon": epsilon}),)}


@pytest.fixture(scope="module")
def by_epsilon(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    fakes = [fake("fed_avg", seed) for seed in SEEDS]
    for name, epsilon, seed in product(PRIVATE, (1.0, 4.0), SEEDS):
        fakes.append(fake(name, seed, predicted=3500, **at_epsilon(epsilon)))
    return collected(tmp_path_factory.mktemp("epsilon"), fakes)


@pytest.fixture(scope="module")
def by_subjects(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    fakes = []
    for name, seed in product(NAMES, SEEDS):
        for own in (30, 60):
            fakes.append(fake(name, seed, subjects=own, changes=(("data", {"subjects": own}),)))
    for name, seed, predicted in product(PRIVATE, SEEDS, (500, 3500)):
        changes = (("data", {"subjects": 60}),)
        fakes.append(fake(name, seed, subjects=60, predicted=predicted, changes=changes))
    return collected(tmp_path_factory.mktemp("subjects"), fakes)


@pytest.fixture(scope="module")
def by_spread(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    fakes = []
    for name, seed in product(NAMES, SEEDS):
        more = {"predicted": None if name == "fed_avg" else 3500}
        for alpha in (1.0, 16.0):
            fakes.append(fake(name, seed, alpha=alpha, **more))
        for held in (1, 4):
            fakes.append(fake(name, seed, changes=(("partition", {"silos_per_subject": held}),), **more))
    return collected(tmp_path_factory.mktemp("spread"), fakes)


def expect(rows: pd.DataFrame, shown: pd.Series) -> None:
    """Mean and t-interval of the runs' final accuracies, by scipy."""
    accuracies = 100 * rows["final_test_accuracy"].to_numpy()
    assert len(accuracies) == shown["seeds"] == len(SEEDS)
    low, high = stats.t.interval(0.95, 2, loc=accuracies.mean(), scale=stats.sem(accuracies))
    assert (shown["mean"], shown["low"], shown["high"]) == pytest.approx((accuracies.mean(), low, high))


@pytest.mark.slow
def test_accuracy_by_epsilon_is_the_runs(by_epsilon: FigureInputs, tmp_path: Path) -> None:
    make_figure("beyond_epsilon", by_epsilon, tmp_path)
    table, runs = values(tmp_path, "beyond_epsilon"), by_epsilon.read_runs()
    assert len(table) == 1 + 2 * len(PRIVATE)
    for _, shown in table.iterrows():
        label = runs["label"].str.partition(" [")[0]
        rows = runs[(label == shown["series"]) & (runs["epsilon"] == shown["x"])]
        expect(rows, shown)
    assert table.loc[table["series"] == "FedAvg", "x"].tolist() == [4.0]  # its configuration's, drawn across
    facts = json.loads((tmp_path / "beyond_epsilon.json").read_text())
    assert facts["notes"][0].startswith("PREDICTED NOISE")
    assert facts["panels"][0]["heading"] == "FEMNIST, predicted noise of 3,500 subjects"
    assert sorted(facts["runs"]) == sorted(runs["run_id"])


def test_an_algorithm_far_below_is_named_and_does_not_stretch_the_axis(by_epsilon: FigureInputs) -> None:
    axes = drawn(by_epsilon, "beyond_epsilon")
    runs = by_epsilon.read_runs()
    user = runs[runs["algorithm"] == "user_ldp"].groupby("epsilon")["final_test_accuracy"].mean().max() * 100
    assert [text.get_text() for text in axes.texts] == [f"↓ below: UserLDP (at most {user:.1f} %)"]
    others = (
        runs[runs["algorithm"] != "user_ldp"].groupby(["label", "epsilon"])["final_test_accuracy"].mean()
        * 100
    )
    low, high = axes.get_ylim()
    assert user + 15 < low < others.min() and others.max() < high <= 100


def test_ceilings_say_what_they_protect(by_epsilon: FigureInputs) -> None:
    texts = [entry.text for entry in build_figure("beyond_epsilon", by_epsilon).legend]
    assert texts[:2] == ["FedAvg (no privacy)", "LocalItemDP (item level only)"]
    assert texts[2:] == ["UserLDP", "HiGradAvgDP (v1)", "SubjectRelease"]


def drawn(inputs: FigureInputs, name: str, panel: int = 0) -> Axes:
    sheet = build_figure(name, inputs)
    axes = Figure().add_subplot()
    sheet.panels[panel].draw(axes)
    return axes


def faces(axes: Axes) -> set[tuple[float, str]]:
    """Of each marked point, its place, and whether it is hollow or filled."""
    return {
        (float(x), "hollow" if line.get_markerfacecolor() == "white" else "filled")
        for line in axes.lines
        if line.get_marker() not in ("None", "", "_", "|")
        for x in np.asarray(line.get_xdata(), dtype=float)
        if line.get_linestyle() != "None"
    }


@pytest.mark.slow
def test_predicted_numbers_of_subjects_are_hollow(by_subjects: FigureInputs, tmp_path: Path) -> None:
    make_figure("beyond_subjects", by_subjects, tmp_path)
    table, runs = values(tmp_path, "beyond_subjects"), by_subjects.read_runs()
    own = table[table["quantity"] == "accuracy_own_noise"]
    assert set(own["x"]) == {30.0, 60.0} and len(own) == 2 * len(NAMES)
    predicted = table[table["quantity"] == "accuracy_predicted_noise"]
    assert set(predicted["x"]) == {500.0, 3500.0} and len(predicted) == 2 * len(PRIVATE)
    for _, shown in predicted.iterrows():
        rows = runs[runs["label"] == f"{shown['series']} [noise of {int(shown['x']):,} subjects]"]
        expect(rows, shown)
    axes = drawn(by_subjects, "beyond_subjects")
    assert faces(axes) == {(30.0, "filled"), (60.0, "filled"), (500.0, "hollow"), (3500.0, "hollow")}
    assert "predicted noise: an experiment" in [text.get_text() for text in axes.texts]


@pytest.mark.slow
def test_without_predictions_nothing_is_hollow(by_subjects: FigureInputs, tmp_path: Path) -> None:
    fakes = [
        fake(n, s, subjects=o, changes=(("data", {"subjects": o}),))
        for n in NAMES
        for s in (0, 1)
        for o in (30, 60)
    ]
    axes = drawn(collected(tmp_path, fakes), "beyond_subjects")
    assert {kind for _, kind in faces(axes)} == {"filled"}
    assert not any("predicted" in text.get_text() for text in axes.texts)


@pytest.mark.slow
def test_spread_has_a_panel_for_each_of_its_two_kinds(by_spread: FigureInputs, tmp_path: Path) -> None:
    make_figure("beyond_spread", by_spread, tmp_path)
    table, runs = values(tmp_path, "beyond_spread"), by_spread.read_runs()
    assert table.groupby("panel")["x"].unique().map(sorted).to_dict() == {
        "a": [1.0, 16.0],
        "b": [1.0, 4.0, 16.0],
    }
    held = runs["silos_per_subject"]
    name = runs["label"].str.partition(" [")[0]
    for _, shown in table.iterrows():
        alpha, silos = (shown["x"], 16) if shown["panel"] == "a" else (1.0, shown["x"])
        expect(runs[(name == shown["series"]) & (runs["alpha"] == alpha) & (held == silos)], shown)


@pytest.mark.slow
def test_lines_are_dashed_as_in_the_legend(by_subjects: FigureInputs) -> None:
    sheet = build_figure("beyond_subjects", by_subjects)
    handles = [panels._handle(entry) for entry in sheet.legend]
    named = {(handle.get_color(), handle._unscaled_dash_pattern) for handle in handles}
    lines = [line for line in drawn(by_subjects, "beyond_subjects").lines if line.get_linestyle() != "None"]
    marked = [line for line in lines if line.get_marker() != "None" and line.get_markerfacecolor() != "white"]
    assert len({line.get_color() for line in marked}) == len(NAMES)
    assert all((line.get_color(), line._unscaled_dash_pattern) in named for line in marked)


@pytest.mark.slow
def test_what_has_no_noise_has_none_predicted(by_spread: FigureInputs) -> None:
    axes = drawn(by_spread, "beyond_spread")
    lines = [line for line in axes.lines if line.get_linestyle() != "None"]
    assert {line.get_color() for line in lines if line.get_markerfacecolor() != "white"} == {"#000000"}


@pytest.mark.slow
def test_seeds_are_counted_at_each_place(tmp_path: Path) -> None:
    fakes = [fake("subject_release", seed, **at_epsilon(1.0)) for seed in SEEDS]
    inputs = collected(tmp_path, [*fakes, fake("subject_release", 0, **at_epsilon(4.0))])
    make_figure("beyond_epsilon", inputs, tmp_path / "f")
    assert "1 to 3 seeds" in json.loads((tmp_path / "f" / "beyond_epsilon.json").read_text())["notes"][0]


@pytest.mark.slow
def test_rounds_have_a_panel_for_each_epsilon(by_epsilon: FigureInputs, tmp_path: Path) -> None:
    make_figure("beyond_rounds", by_epsilon, tmp_path)
    table = values(tmp_path, "beyond_rounds")
    assert set(table["quantity"]) == {"accuracy_epsilon_1", "accuracy_epsilon_4"}
    assert table.groupby("panel")["series"].nunique().tolist() == [len(NAMES)] * 2
    runs, rounds = by_epsilon.read_runs(), by_epsilon.read_rounds()
    wanted = runs.loc[runs["label"].str.startswith("SubjectRelease") & (runs["epsilon"] == 1), "run_id"]
    third = rounds[rounds["run_id"].isin(wanted) & (rounds["round"] == 3)]["test_accuracy"]
    row = table[(table["panel"] == "a") & (table["series"] == "SubjectRelease") & (table["x"] == 3)]
    assert row["mean"].item() == pytest.approx(100 * third.mean())
    headings = [p["heading"] for p in json.loads((tmp_path / "beyond_rounds.json").read_text())["panels"]]
    assert headings == [f"FEMNIST, ε = {e}, predicted noise of 3,500 subjects" for e in (1, 4)]


def noise_rows(predicted: float = 3500.0) -> pd.DataFrame:
    rows = []
    for schedule in (SCENARIO, PAPERS):
        for place, (label, unit) in enumerate([("LocalItemDP", "item"), ("SubjectRelease", "subject")]):
            row = dict.fromkeys(COLUMNS, 1.0)
            row |= {
                "dataset": "femnist",
                "synthetic": False,
                "label": label,
                "unit": unit,
                "schedule": schedule,
            }
            row |= {
                "predicted_subjects": predicted,
                "planned": 0.001 * 5**place,
                "measured": 0.00101 * 5**place,
            }
            rows.append(row)
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_noise_shows_plan_and_measurement_beside_each_other(tmp_path: Path) -> None:
    noise_rows().to_parquet(tmp_path / "noise.parquet")
    inputs = FigureInputs(noise=tmp_path / "noise.parquet")
    make_figure("beyond_noise", inputs, tmp_path)
    table = values(tmp_path, "beyond_noise").set_index(["panel", "series", "quantity"])["mean"]
    assert table["a", "SubjectRelease", "noise_planned"] == pytest.approx(0.005)
    assert table["b", "SubjectRelease", "noise_measured"] == pytest.approx(0.00505)
    assert [text.get_text() for text in drawn(inputs, "beyond_noise").texts] == ["× 1.0", "× 5.0"]
    facts = json.loads((tmp_path / "beyond_noise.json").read_text())
    assert facts["notes"][0].startswith("PREDICTED NOISE: of 3,500 subjects")
    assert all("noise of 3,500 subjects" in panel["heading"] for panel in facts["panels"])
    noise_rows(math.nan).to_parquet(tmp_path / "noise.parquet")
    make_figure("beyond_noise", inputs, tmp_path)
    assert "PREDICTED" not in (tmp_path / "beyond_noise.json").read_text()


def test_noise_of_two_settings_is_refused(tmp_path: Path) -> None:
    two = noise_rows()
    pd.concat([two, two.assign(epsilon=8.0)]).to_parquet(tmp_path / "noise.parquet")
    with pytest.raises(DataError, match="one ε"):
        make_figure("beyond_noise", FigureInputs(noise=tmp_path / "noise.parquet"), tmp_path)


def test_runs_as_published_alone_are_refused(tmp_path: Path) -> None:
    inputs = collected(tmp_path, [Fake("user_ldp", rounds=8)])
    for name in ("beyond_epsilon", "beyond_subjects", "beyond_spread", "beyond_rounds"):
        with pytest.raises(DataError, match="privacy.mode of the runs"):
            make_figure(name, inputs, tmp_path / "f")


def test_one_spread_is_no_figure_of_spreads(by_epsilon: FigureInputs, tmp_path: Path) -> None:
    inputs = collected(tmp_path, [fake("subject_release", 0)])
    with pytest.raises(DataError, match="at more than one value"):
        make_figure("beyond_spread", inputs, tmp_path / "f")


def test_two_settings_of_an_algorithm_are_never_averaged(tmp_path: Path) -> None:
    fakes = [fake("subject_release", 0, learning_rate=rate) for rate in (0.1, 0.2)]
    inputs = collected(tmp_path, fakes)
    with pytest.raises(DataError, match="learning_rate"):
        make_figure("beyond_epsilon", inputs, tmp_path / "f")
