"""What figures show, against plain means of the runs; what they leave out, what their notes say, what they refuse."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from figures.fake_runs import Fake, collected, grid
from figures.made_up import ALGORITHMS, SEEDS, SOUND, at_epsilon, joint, noise, sound, utility, write_partition
from subjectdp.data.partition import load_partition
from subjectdp.errors import DataError
from subjectdp.figures import panels
from subjectdp.figures.catalogue import build_figure
from subjectdp.figures.panels import Sheet
from subjectdp.figures.parts import privacy_footnote
from subjectdp.figures.runs_and_data import setting_of
from subjectdp.report.tables import runs_summary
from subjectdp.results.collect import FigureInputs
from subjectdp.results.select import privacy_note
from subjectdp.results.shown_runs import CONDITIONAL_NOTE

pytestmark = pytest.mark.slow

Made = Callable[[str], FigureInputs]


def values(sheet: Sheet) -> pd.DataFrame:
    """The plotted values by the panels' letters."""
    parts = [panel.values.assign(panel="abcdefghijkl"[place]) for place, panel in enumerate(sheet.panels)]
    return pd.concat(parts, ignore_index=True)


def means(sheet: Sheet, *by: str) -> pd.Series:
    return values(sheet).set_index(list(by))["mean"]


def axes_of(sheet: Sheet, panel: int = 0) -> Axes:
    axes = Figure().add_subplot()
    sheet.panels[panel].draw(axes)
    return axes


def said(sheet: Sheet, panel: int = 0) -> list[str]:
    return [text.get_text() for text in axes_of(sheet, panel).texts]


def expect(rows: pd.DataFrame, shown: pd.Series) -> None:
    """Mean and t-interval of the runs' final accuracies, by scipy."""
    accuracies = 100 * rows["final_test_accuracy"].to_numpy()
    assert len(accuracies) == shown["seeds"] == len(SEEDS)
    low, high = stats.t.interval(0.95, 2, loc=accuracies.mean(), scale=stats.sem(accuracies))
    assert (shown["mean"], shown["low"], shown["high"]) == pytest.approx((accuracies.mean(), low, high))


def changed(inputs: FigureInputs, column: str, of: dict[tuple[str, int], Any]) -> None:
    """Sets a column of the runs by (algorithm, seed)."""
    runs = pd.read_parquet(str(inputs.runs))
    for (algorithm, seed), value in of.items():
        runs.loc[(runs["algorithm"] == algorithm) & (runs["seed"] == seed), column] = value
    runs.to_parquet(str(inputs.runs))


# The papers' figures


def at_one_alpha(inputs: FigureInputs) -> FigureInputs:
    """The inputs without the runs at another α."""
    return replace(inputs, only=frozenset(inputs.read_runs().query("alpha == 1")["run_id"]))


def test_algorithms_on_other_people_are_told_apart(tmp_path: Path) -> None:
    fewer = (("data", {"embedded": {"subjects": 20, "items_per_subject": 100}}),)
    fakes = grid(["local_item_dp", "user_ldp"], ["femnist"], SEEDS, rounds=8)
    same = build_figure("figure1_v3", collected(tmp_path / "same", [*fakes, Fake("fed_avg", rounds=8)]))
    other = [*fakes, Fake("fed_avg", rounds=8, changes=fewer)]
    (note,) = (n for n in build_figure("figure1_v3", collected(tmp_path, other)).notes if "embedded.subjects" in n)
    assert note.startswith("FEMNIST: data.embedded.subjects differs: FedAvg 20, LocalItemDP ")
    assert not any("data." in each for each in same.notes)


def test_a_sweep_is_drawn_whole_with_the_baseline_in_each_setting(tmp_path: Path) -> None:
    fakes = grid(["fed_avg"], ["femnist"], SEEDS, rounds=8)
    for epsilon in (1.0, 4.0):
        fakes += grid(["local_item_dp", "user_ldp"], ["femnist"], SEEDS, rounds=8, **at_epsilon(epsilon))
    sheet = build_figure("figure1_v3", collected(tmp_path, fakes))
    assert [panel.heading for panel in sheet.panels] == [f"FEMNIST\nε = {e}" for e in (1, 1, 4, 4)]
    for panel in sheet.panels:
        assert set(panel.values["series"]) == {"FedAvg", "LocalItemDP", "UserLDP"}
    assert len(sheet.runs) == 15 and not any("only" in note for note in sheet.notes)
    assert {entry.text.split("\n")[0] for entry in sheet.legend} == {"FedAvg", "LocalItemDP", "UserLDP"}


def test_more_settings_than_fit_are_told(tmp_path: Path) -> None:
    fakes = [fake for e in range(1, 9) for fake in grid(["local_item_dp"], ["femnist"], [0], rounds=8, **at_epsilon(e))]
    sheet = build_figure("figure1_v3", collected(tmp_path, fakes))
    assert len(sheet.runs) == 1 and "FEMNIST: only ε = 1 shown" in sheet.notes


def test_curves_are_the_means_over_the_seeds_with_a_thin_line_each(made: Made) -> None:
    inputs = at_one_alpha(made("figure1_v3"))
    sheet, runs, rounds = build_figure("figure1_v3", inputs), inputs.read_runs(), inputs.read_rounds()
    chosen = runs[(runs["label"] == "HiGradAvgDP (v3)") & (runs["dataset"] == "shakespeare")]["run_id"]
    found = rounds[rounds["run_id"].isin(chosen) & (rounds["round"] == 2)]["test_accuracy"]
    shown = values(sheet).query("panel == 'c' and series == 'HiGradAvgDP (v3)' and x == 2").iloc[0]
    assert shown["mean"] == pytest.approx(100 * found.mean()) and shown["seeds"] == 3
    half = 4.302652729911275 * found.std() / np.sqrt(3)  # t(0.975, 2) from a printed table
    assert shown["high"] == pytest.approx(100 * (found.mean() + half))
    assert "HiGradAvgDP (v1)" not in set(values(sheet)["series"])
    thin = [line for line in axes_of(sheet).lines if line.get_linewidth() < 1]
    assert len(thin) == 3 * len(set(sheet.panels[0].values["series"]))


def test_rounds_without_a_finite_loss_are_told(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["fed_avg"], ["femnist"], SEEDS, rounds=3))
    rounds = inputs.read_rounds()
    rounds.loc[(rounds["round"] == 2) & (rounds["run_id"] == rounds["run_id"].iloc[0]), "test_loss"] = np.nan
    rounds.to_parquet(str(inputs.rounds))
    headings = [panel.heading for panel in build_figure("figure1_v3", inputs).panels]
    assert headings == ["FEMNIST", "FEMNIST, where finite"], "one seed of three has no loss there"


def test_labels_in_numbers_have_no_accuracy_and_what_is_explained_may_be_below_nothing(tmp_path: Path) -> None:
    data = {"source": "table", "path": "t.csv", "label": "y", "subject": "who", "task": "regression"}
    fake = Fake("fed_avg", "table", rounds=3, changes=(("data", {**data, "ranges": {"y": [0, 1]}}),))
    inputs = collected(tmp_path, [fake])
    inputs.read_rounds().assign(test_accuracy=-0.2).to_parquet(str(inputs.rounds))
    changed(inputs, "final_test_accuracy", {("fed_avg", 0): -0.2})
    for name in ("figure1_v3", "accuracy_privacy"):
        axes = axes_of(build_figure(name, inputs))
        assert axes.get_ylabel() == "variance explained (%)" and axes.get_ylim()[0] <= -20
    assert axes_of(build_figure("figure1_v3", inputs), 1).get_ylabel() == "test loss (squared error)"
    assert said(build_figure("figure1_v3", inputs)) == [], "no most frequent class"


def test_figure1_counts_mini_batches_in_the_runs_that_it_names(made: Made) -> None:
    sheet = build_figure("figure1", at_one_alpha(made("figure1")))
    kinds = ("accuracy", "loss", "group_size", "subjects")
    assert [panel.key for panel in sheet.panels] == [f"{d}_{k}" for d in ("femnist", "shakespeare") for k in kinds]
    counted = "Group sizes counted in the runs of LocalGroupDP, subjects counted in the runs of HiGradAvgDP (v1)"
    assert counted in sheet.notes
    assert said(sheet, 4) == ["most frequent class 18.8 %"]
    assert len(build_figure("figure3", at_one_alpha(made("figure3"))).rows) == 2


def test_group_sizes_are_the_mean_counts_of_local_group_dp(made: Made) -> None:
    inputs = made("figure2_v3")
    sheet = build_figure("figure2_v3", inputs)
    shown = sheet.panels[0].values
    assert shown["mean"].sum() == pytest.approx(16 * 6 * 2)  # silos, steps, rounds of the made-up runs
    runs = inputs.read_runs().query("label == 'LocalGroupDP' and dataset == 'femnist' and alpha == 1")
    root = Path(str(inputs.runs)).parent / "runs"
    threes = [(pd.read_parquet(root / run / "steps.parquet")["largest_group"] == 3).sum() for run in runs["run_id"]]
    assert shown.set_index("x")["mean"][3] == pytest.approx(sum(threes) / 3)
    assert "bar: 95 % t-interval" in " ".join(sheet.notes) and "band" not in " ".join(sheet.notes)


def test_the_sweep_over_alpha_and_its_alias(made: Made) -> None:
    sheet = build_figure("figure2", made("figure2"))
    assert set(sheet.panels[0].values["x"]) == {1.0, 16.0}
    groups = sheet.panels[1].values.set_index("x")["mean"]
    assert groups[16.0] > groups[1.0]
    assert [panel.heading for panel in sheet.panels[3:]] == ["FEMNIST, α = 1", "FEMNIST, α = 16"]
    assert any("Mean of 1 to 3 seeds" in note and "no band where there is one seed" in note for note in sheet.notes)
    names = [entry.text.split("\n")[0] for entry in sheet.legend]
    assert names == ["FedAvg", "LocalItemDP", "UserLDP", "LocalGroupDP", "HiGradAvgDP (v1)"], "several α"
    bars = [bar for bar in axes_of(sheet).collections if "LineCollection" in type(bar).__name__]
    assert sum(len(bar.get_paths()) for bar in bars) == 5, "the interval of a lone place is drawn"
    alias = build_figure("figure3_v3", made("figure3_v3"))
    assert "HiGradAvgDP (v1)" not in set(alias.panels[0].values["series"])
    assert set(alias.panels[2].values["series"]) == {"LocalGroupDP"}, "HiGradAvgDP (v3) was run at α = 1 alone"


def test_real_data_and_one_seed(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(ALGORITHMS, ["femnist"], [0], rounds=8, synthetic=False))
    sheet = build_figure("figure1", inputs)
    assert "One seed: no band" in sheet.notes and not any(panel.synthetic for panel in sheet.panels)
    for name in ("accuracy_privacy", "epsilon_over_rounds", "cost"):
        assert values(build_figure(name, inputs))["low"].isna().all()
    assert values(build_figure("excess_loss", utility(tmp_path, seeds=1)))["low"].isna().all()


def test_a_run_that_learns_nothing_or_diverges_is_drawn(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["fed_avg", "user_ldp"], ["femnist"], [0], rounds=8))
    rounds = pd.read_parquet(str(inputs.rounds)).assign(test_accuracy=0.0)
    first = rounds["run_id"] == rounds["run_id"].iloc[0]
    rounds.loc[first & (rounds["round"] > 4), "test_loss"] = np.nan
    rounds.loc[~first, "test_loss"] = 5e6
    rounds.to_parquet(str(inputs.rounds))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sheet = build_figure("figure1_v3", inputs)
        accuracy, loss = panels._combined(sheet, "ab").axes
    low, high = accuracy.get_ylim()
    assert low == 0 and 1.0 <= high < 100 and accuracy.get_yscale() == "linear", "the most frequent class is inside"
    assert loss.get_ylim()[1] > 5e6 and loss.get_yscale() == "log"
    assert len(sheet.panels[1].values.query("series == 'FedAvg'")) == 4


@pytest.mark.parametrize("name", ["group_sizes_paper_scale", "subjects_per_batch_paper_scale"])
def test_sampling_shows_our_means_and_the_papers(made: Made, name: str) -> None:
    frame, sheet = made(name).read_statistics(), build_figure(name, made(name))
    quantity = "largest_group" if name.startswith("group") else "subjects"
    found = sheet.panels[-1].values.set_index("x")["mean"]
    assert sorted(found.index) == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert found[16.0] == pytest.approx(frame[frame["setting"] == "femnist_alpha_16"][quantity].mean())
    assert [panel.values["mean"].sum() for panel in sheet.panels[:-1]] == pytest.approx([100.0] * 3)
    legends = [axes_of(sheet, place).get_legend() for place in range(3)]
    papers = [text.get_text() for legend in legends for text in legend.get_texts() if "paper" in text.get_text()]
    assert papers == (["paper 3", "paper 3", "paper 4"] if quantity == "largest_group" else ["paper 475", "paper 86"])


def test_the_partition_counts_items_of_each_subject_and_silo(made: Made) -> None:
    inputs = made("partition")
    shown = values(build_figure("partition", inputs))
    offsets = np.load(inputs.partitions[2] / "train_offsets.npy")  # seed 1, uniform: the one that is shown first
    cells = shown[shown["panel"] == "a"].groupby("series")["mean"].sum()
    assert [cells[f"silo {index}"] for index in range(16)] == np.diff(offsets).tolist()
    bars = shown[(shown["panel"] == "b") & (shown["series"] == "items")]["mean"]
    assert bars.tolist() == np.diff(offsets).tolist()
    assert shown["panel"].nunique() == 4


# Privacy


def test_epsilon_claimed_and_sound(made: Made) -> None:
    found = means(build_figure("privacy", made("privacy")), "panel", "series", "x")
    assert found["a", "HiGradAvgDP (v1), as published", "epsilon_as_published"] == 4.0
    assert found["a", "HiGradAvgDP (v1), as published", "epsilon_sound_subject"] == pytest.approx(144.6)
    assert ("a", "LocalGroupDP, as published", "epsilon_sound_subject") not in found.index
    assert not found.index.get_level_values("series").str.startswith("FedAvg").any()
    assert ("a", "UserLDP, sound", "epsilon_as_published") not in found.index, "a sound run claims nothing"
    assert "no sound ε" in said(build_figure("privacy", made("privacy")))


def test_epsilon_is_the_largest_over_the_seeds_in_every_figure(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["local_item_dp", "user_ldp"], ["femnist"], SEEDS, rounds=8))
    changed(inputs, "epsilon_sound_subject", {("local_item_dp", seed): 600.0 + seed for seed in SEEDS})
    changed(inputs, "epsilon_sound_subject", {("user_ldp", 1): float("nan")})
    curve = '{{"rounds": [1, 8], "constant_noise_assumed": false, "item": [1, 4], "subject": [{}, 700]}}'
    for name in ("local_item_dp", "user_ldp"):
        changed(inputs, "epsilon_over_rounds", {(name, seed): curve.format(500 + seed) for seed in SEEDS})
    pairs = means(build_figure("privacy", inputs), "series", "x")
    assert pairs["LocalItemDP", "epsilon_sound_subject"] == 602.0, "a mean would hold for one seed of three"
    assert ("UserLDP", "epsilon_sound_subject") not in pairs.index
    marks = values(build_figure("accuracy_privacy", inputs)).query("panel == 'a'").set_index(["series", "quantity"])
    assert marks["x"]["LocalItemDP", "accuracy_at_sound_epsilon"] == 602.0
    assert np.isinf(marks["x"]["UserLDP", "accuracy_at_sound_epsilon"])
    over = means(build_figure("epsilon_over_rounds", inputs), "panel", "series", "x")
    assert over["a", "LocalItemDP"].to_dict() == {1: 502.0, 8: 700.0}


def test_accuracy_stands_at_the_sound_epsilon_and_at_the_claim_of_its_own_unit(made: Made) -> None:
    sheet = build_figure("accuracy_privacy", made("accuracy_privacy"))
    shown = values(sheet).set_index(["panel", "series", "quantity"])
    at, claim = "accuracy_at_sound_epsilon", "accuracy_at_published_epsilon"
    assert shown.loc[("a", "HiGradAvgDP (v1), as published", at), "x"] == pytest.approx(144.6)
    assert shown.loc[("a", "HiGradAvgDP (v1), as published", claim), "x"] == 4.0
    assert shown.loc[("b", "LocalItemDP, as published", claim), "x"] == 4.0
    unclaimed = [("a", "LocalItemDP, as published"), ("b", "HiGradAvgDP (v1), as published"), ("a", "UserLDP, sound")]
    assert not any((*place, claim) in shown.index for place in unclaimed)
    assert shown.loc[("a", "UserLDP, sound", at), "x"] == 4.0
    assert all(np.isinf(shown.loc[("a", name, at), "x"]) for name in ("FedAvg", "LocalGroupDP, as published"))
    runs = made("accuracy_privacy").read_runs()
    expect(runs.query("label == 'UserLDP' and dataset == 'shakespeare'"), shown.loc["c", "UserLDP, as published", at])


def test_epsilon_over_rounds_is_what_the_manifests_say(made: Made, tmp_path: Path) -> None:
    found = means(build_figure("epsilon_over_rounds", made("epsilon_over_rounds")), "panel", "series", "x")
    assert found["a", "HiGradAvgDP (v1)"].to_dict() == pytest.approx({1: 144.6 * 0.5**0.5, 2: 144.6})
    assert found["b", "LocalItemDP"].to_dict() == pytest.approx({2: 3.99 / 2, 4: 3.99 / 2**0.5, 8: 3.99})
    inputs = collected(tmp_path, grid(["local_item_dp", "local_group_dp"], ["femnist"], [0], rounds=8))
    curve = {"rounds": [1, 2], "constant_noise_assumed": True, "item": [0.1, 0.2], "subject": [3.0, None]}
    changed(inputs, "epsilon_over_rounds", {("local_group_dp", 0): json.dumps(curve)})
    sheet = build_figure("epsilon_over_rounds", inputs)
    assert [entry.text for entry in sheet.legend] == ["LocalItemDP†", "the target ε"]
    assert "No finite sound ε, hence no line: LocalGroupDP" in sheet.notes, "its noise depends on data"
    changed(inputs, "epsilon_over_rounds", dict.fromkeys([("local_item_dp", 0), ("local_group_dp", 0)], "null"))
    with pytest.raises(DataError, match="ε over rounds"):
        build_figure("epsilon_over_rounds", inputs)


def test_a_conditional_epsilon_is_marked(tmp_path: Path) -> None:
    """The dagger: in legends, beside marks of a subject's ε, and explained; not on runs with an enforced cap."""
    fakes = grid(["local_item_dp", "user_ldp"], ["femnist"], [0], rounds=8)
    inputs = collected(tmp_path / "some", [*fakes, Fake("user_ldp", mode="sound", rounds=8)])
    told, beside = build_figure("privacy", inputs), build_figure("accuracy_privacy", inputs)
    assert CONDITIONAL_NOTE in told.notes and CONDITIONAL_NOTE in beside.notes
    assert {"2.25†", "231†", "4"} <= set(said(told)), "the last one has an enforced cap"
    assert (said(beside, 0).count("†"), said(beside, 1).count("†")) == (2, 0), "of subjects, not of items"
    runs = inputs.read_runs()
    published, enforced = (runs[runs["mode"] == mode] for mode in ("as_published", "sound"))
    assert "2.25† subject" in privacy_note(published[published["algorithm"] == "user_ldp"])
    assert "†" not in privacy_note(enforced) + privacy_footnote(enforced)
    assert CONDITIONAL_NOTE in privacy_footnote(published)
    alone = collected(tmp_path / "sound", [Fake("user_ldp", mode="sound", rounds=8)])
    assert CONDITIONAL_NOTE not in build_figure("privacy", alone).notes
    over = build_figure("epsilon_over_rounds", replace(inputs, only=frozenset(published["run_id"])))
    assert CONDITIONAL_NOTE in over.notes and over.legend[0].text.endswith("†")


def test_an_epsilon_can_be_read_off_the_axis_without_a_claim(tmp_path: Path) -> None:
    runs = [sound("subject_release", 0), sound("fed_avg", 0)]
    axes = axes_of(build_figure("accuracy_privacy", collected(tmp_path, runs)))
    assert min(axes.get_xticks()) == 4.0


def test_data_without_subject_ids_are_shown_with_the_epsilon_of_an_item_alone(tmp_path: Path) -> None:
    data = (("data", {"embedded": {"subjects": 100, "items_per_subject": 100}}),)
    runs = [Fake("joint_noise", "acs_income", changes=data), Fake("local_item_dp", "acs_income", changes=data)]
    inputs = collected(tmp_path, [*runs, Fake("local_item_dp")])
    for name in ("privacy", "accuracy_privacy", "epsilon_over_rounds"):
        sheet = build_figure(name, inputs)
        shown = values(sheet).query("dataset == 'acs_income'")
        assert not any("subject" in str(text) for text in (*shown["quantity"], *shown["x"]))
        assert not any("subject" in panel.key for panel in sheet.panels if "ACS" in panel.heading)
        assert any("Income" in panel.heading for panel in sheet.panels)
    of_runs = inputs.read_runs().set_index("dataset")
    assert set(of_runs.loc["acs_income", "subject_guarantee"]) == {"no subject ids"}
    assert of_runs.loc["acs_income", ["epsilon_sound_subject", "epsilon_sound_subject_one_silo"]].isna().all(axis=None)


def test_a_sweep_over_epsilon_is_shown_whole(tmp_path: Path) -> None:
    names = ("local_item_dp", "user_ldp")
    fakes = [Fake(n, seed=s, rounds=8, **at_epsilon(e)) for n in names for s in (0, 1) for e in (1.0, 4.0)]
    inputs = collected(tmp_path, [*grid(["fed_avg"], ["femnist"], [0, 1], rounds=8), *fakes])
    runs = pd.read_parquet(str(inputs.runs))
    private = runs["algorithm"] != "fed_avg"
    runs.loc[private, "epsilon_sound_subject"] = 10 * runs.loc[private, "epsilon"]
    runs.to_parquet(str(inputs.runs))
    sheet = build_figure("accuracy_privacy", inputs)
    marks = sheet.panels[0].values.query("quantity == 'accuracy_at_sound_epsilon'").set_index("series")
    labels = {f"{label}, ε = {e}": 10.0 * e for label in ("LocalItemDP", "UserLDP") for e in (1, 4)}
    assert marks["x"].drop("FedAvg").to_dict() == labels and set(marks["seeds"]) == {2}
    assert not any("shown" in note for note in sheet.notes), "nothing was left out"
    dotted = [line for line in axes_of(sheet).lines if line.get_linestyle() == ":"]
    assert [list(np.asarray(line.get_xdata())) for line in dotted] == [[10.0, 40.0]] * 2


def test_cost_is_that_of_the_runs(made: Made) -> None:
    found = means(build_figure("cost", made("cost")), "panel", "series")
    assert found["a", "FedAvg"] == 31.5 and found["f", "UserLDP"] == 412.0
    assert found["b", "FedAvg"] == pytest.approx(31.5 / 8)
    assert found["b", "HiGradAvgDP (v1)"] == pytest.approx(31.5 / 2), "fewer rounds were executed"


def test_excess_loss_shows_measured_and_both_bounds(made: Made) -> None:
    found = means(build_figure("excess_loss", made("excess_loss")), "panel", "quantity", "series")
    assert found["a", "empirical_excess", "LocalItemDP"].tolist() == pytest.approx([1.205] * 3)
    end = found["b"]
    assert end["population_bound", "UserLDP"] == 7.0 and end["population_bound_printed", "UserLDP"] == 50.0
    assert ("population_bound_printed", "FedAvg") not in end.index


# Joint noise


def test_joint_noise_has_lines_by_steps_by_silos_and_by_bits(made: Made) -> None:
    sheet, runs = build_figure("joint_noise", made("joint_noise")), made("joint_noise").read_runs()
    shown = values(sheet)
    lines = shown.groupby("panel")["series"].agg(set)
    steps = {f"{words} a round" for words in ("1 local step", "10 local steps", "1 local epoch")}
    own = {f"{words} a round, LocalItemDP" for words in ("1 local step", "10 local steps")}
    once = {f"5 local steps a round, one noised update, {silos} silos" for silos in (10, 300)}
    assert (lines["a"], lines["b"], lines["c"], lines["d"]) == (steps | own, steps, once, once)
    assert [panel.heading for panel in sheet.panels[2:4]] == ["FEMNIST, one noised update"] * 2
    accuracy = shown[shown["quantity"] == "final_accuracy"].set_index(["series", "x"])["mean"]
    assert sorted(x for name, x in accuracy.index if name == "Skellam noise") == [4, 8, 16]
    assert sorted(x for name, x in accuracy.index if name == "Gaussian noise, no rounding") == [4, 16]
    alike = runs.query("mode == 'sound' and local_steps == 1")
    for name, kind in (("Skellam noise", "skellam"), ("Gaussian noise, no rounding", "gaussian")):
        rows = alike[(alike["joint_noise"] == kind) & ((alike["joint_bits"] == 4) | (kind == "gaussian"))]
        assert len(rows) == 2
        assert accuracy[name, 4] == pytest.approx(100 * rows["final_test_accuracy"].mean())
    named = dict(entry.text.split("\n") for entry in sheet.legend if "\n" in entry.text)
    assert set(named) == steps | own | once
    assert "3.99 item" in named["10 local steps a round, LocalItemDP"], "LocalItemDP's own ε"
    pairs = build_figure("privacy", made("privacy")).panels[0].values
    assert not pairs["series"].str.contains("local step").any(), "all runs have one number of steps"


def test_the_joint_papers_figure_1_has_standard_errors_and_the_best_round(made: Made) -> None:
    inputs = made("joint_figure1")
    sheet, rounds = build_figure("joint_figure1", inputs), inputs.read_rounds()
    names = {"1 local step", "1 local epoch", "1 local epoch, each silo's own noise"}
    assert set(values(sheet)["series"]) == names and (values(sheet)["seeds"] == 3).all()
    ones = inputs.read_runs().query("local_steps == 1")["run_id"]
    best = rounds[rounds["run_id"].isin(ones)].groupby("run_id")["test_accuracy"].max()
    fewer = replace(inputs, only=frozenset(inputs.read_runs().query("local_steps == 1 or seed == 0")["run_id"]))
    assert "Mean of 1 to 3 seeds, band or bar: standard error" in build_figure("joint_figure1", fewer).notes
    shown = values(sheet).query("panel == 'c' and x == 0 and series == '1 local step'").iloc[0]
    assert shown["mean"] == pytest.approx(100 * best.mean())
    assert shown["high"] - shown["mean"] == pytest.approx(100 * best.std() / 3**0.5)


def test_the_epsilon_that_holds_is_the_largest_over_the_seeds(made: Made, tmp_path: Path) -> None:
    bits = [Fake("joint_noise", seed=n, mode="sound", local_steps=1, changes=joint(noise="skellam")) for n in (0, 1)]
    for name, inputs in (("joint_figure3", made("joint_figure3")), ("joint_noise", collected(tmp_path, bits))):
        runs = inputs.read_runs()
        uneven = replace(inputs, runs=tmp_path / f"{name}.parquet")
        runs.assign(epsilon_sound_item=2.0 + runs["seed"]).to_parquet(str(uneven.runs))
        shown = values(build_figure(name, uneven))
        assert set(shown[shown["quantity"].str.startswith("epsilon")]["mean"]) == {2.0 + runs["seed"].max()}


def test_figure_3_has_the_best_and_the_last_round_of_runs_of_each_length(made: Made) -> None:
    inputs = made("joint_figure3")
    sheet, runs = (build_figure("joint_figure3", inputs), inputs.read_runs().query("rounds == 8 and local_steps == 1"))
    rounds = inputs.read_rounds()
    grouped = rounds[rounds["run_id"].isin(runs["run_id"])].sort_values("round").groupby("run_id")
    wanted = {
        "accuracy_best": 100 * grouped["test_accuracy"].max().mean(),
        "loss_best": grouped["test_loss"].min().mean(),
        "loss_last": grouped["test_loss"].last().mean(),
        "epsilon": runs["epsilon_sound_item"].mean(),
    }
    found = means(sheet, "quantity", "series", "x")
    assert {name: found[name, "1 local step", 8] for name in wanted} == pytest.approx(wanted)
    assert {entry.style.line for entry in sheet.legend} == {"-"}, "dotted lines are last rounds, whoever's"
    for place, panel in enumerate(sheet.panels):
        low, high = axes_of(sheet, place).get_ylim()
        assert low <= panel.values["mean"].min() and panel.values["mean"].max() <= high, "marks are in sight"
    for name, told in (("joint_figure2", "cifar10"), ("joint_figure1", "one for this figure")):
        with pytest.raises(DataError, match=told):
            build_figure(name, inputs)


# Beyond the papers


def test_accuracy_by_epsilon_is_the_runs_and_ceilings_say_what_they_protect(made: Made) -> None:
    inputs = made("beyond_epsilon")
    sheet, runs = build_figure("beyond_epsilon", inputs), inputs.read_runs()
    shown = values(sheet)
    assert len(shown) == 1 + 2 * len(SOUND[1:])
    name = runs["label"].str.partition(" [")[0]
    for _, row in shown.iterrows():
        expect(runs[(name == row["series"]) & (runs["epsilon"] == row["x"])], row)
    assert sheet.panels[0].heading == "FEMNIST, predicted noise of 3,500 subjects"
    texts = [entry.text for entry in sheet.legend]
    assert texts[:2] == ["FedAvg (no privacy)", "LocalItemDP (item level only)"]
    best = shown.groupby("series")["mean"].max()
    assert said(sheet) == [f"↓ below: UserLDP (at most {best['UserLDP']:.1f} %)"]
    low, high = axes_of(sheet).get_ylim()
    assert best["UserLDP"] + 15 < low < best.drop("UserLDP").min() and high <= 100, "it does not stretch the axis"


def test_rounds_have_a_panel_for_each_epsilon(made: Made) -> None:
    inputs = made("beyond_rounds")
    sheet, runs, rounds = build_figure("beyond_rounds", inputs), inputs.read_runs(), inputs.read_rounds()
    assert [panel.heading.split(",")[1] for panel in sheet.panels] == [" ε = 1", " ε = 4"]
    assert values(sheet).groupby("panel")["series"].nunique().tolist() == [len(SOUND)] * 2
    wanted = runs.loc[runs["label"].str.startswith("SubjectRelease") & (runs["epsilon"] == 1), "run_id"]
    third = rounds[rounds["run_id"].isin(wanted) & (rounds["round"] == 3)]["test_accuracy"]
    assert means(sheet, "panel", "series", "x")["a", "SubjectRelease", 3] == pytest.approx(100 * third.mean())


def faces(axes: Axes) -> set[tuple[float, str]]:
    """Of each marked point of a line, its place, and whether it is hollow or filled."""
    return {
        (float(x), "hollow" if line.get_markerfacecolor() == "white" else "filled")
        for line in axes.lines
        if line.get_marker() not in ("None", "", "_", "|") and line.get_linestyle() != "None"
        for x in np.asarray(line.get_xdata(), dtype=float)
    }


def test_predicted_numbers_of_subjects_are_hollow(made: Made, tmp_path: Path) -> None:
    inputs = made("beyond_subjects")
    sheet, runs = build_figure("beyond_subjects", inputs), inputs.read_runs()
    shown = values(sheet)
    own, predicted = (shown[shown["quantity"] == f"accuracy_{kind}_noise"] for kind in ("own", "predicted"))
    assert set(own["x"]) == {30.0, 60.0} and len(own) == 2 * len(SOUND)
    assert set(predicted["x"]) == {500.0, 3500.0} and len(predicted) == 2 * len(SOUND[1:])
    for _, row in predicted.iterrows():
        expect(runs[runs["label"] == f"{row['series']} [noise of {int(row['x']):,} subjects]"], row)
    assert faces(axes_of(sheet)) == {(30.0, "filled"), (60.0, "filled"), (500.0, "hollow"), (3500.0, "hollow")}
    assert "predicted noise: an experiment" in said(sheet)
    fakes = [sound(n, 0, subjects=o, changes=(("data", {"subjects": o}),)) for n in SOUND for o in (30, 60)]
    plain = build_figure("beyond_subjects", collected(tmp_path, fakes))
    assert {kind for _, kind in faces(axes_of(plain))} == {"filled"}
    assert not any("predicted" in text for text in said(plain))


def test_spread_has_a_panel_for_each_of_its_two_kinds(made: Made) -> None:
    inputs = made("beyond_spread")
    sheet, runs = build_figure("beyond_spread", inputs), inputs.read_runs()
    shown = values(sheet)
    places = shown.groupby("panel")["x"].unique().map(sorted).to_dict()
    assert places == {"a": [1.0, 16.0], "b": [1.0, 4.0, 16.0]}
    name = runs["label"].str.partition(" [")[0]
    for _, row in shown.iterrows():
        alpha, held = (row["x"], 16) if row["panel"] == "a" else (1.0, row["x"])
        chosen = (runs["alpha"] == alpha) & (runs["silos_per_subject"] == held)
        expect(runs[(name == row["series"]) & chosen], row)
    filled = {line.get_color() for line in axes_of(sheet).lines if line.get_markerfacecolor() != "white"}
    assert "#000000" in filled, "what has no noise has none predicted"


def test_noise_shows_plan_and_measurement_beside_each_other(made: Made, tmp_path: Path) -> None:
    sheet = build_figure("beyond_noise", made("beyond_noise"))
    found = means(sheet, "panel", "series", "quantity")
    assert found["a", "SubjectRelease", "noise_planned"] == pytest.approx(0.005)
    assert found["b", "SubjectRelease", "noise_measured"] == pytest.approx(0.00505)
    assert said(sheet) == ["× 1.0", "× 5.0"]
    assert sheet.notes[0].startswith("PREDICTED NOISE: of 3,500 subjects")
    assert all("noise of 3,500 subjects" in panel.heading for panel in sheet.panels)
    own = build_figure("beyond_noise", noise(tmp_path, float("nan")))
    assert not any("PREDICTED" in note for note in own.notes)


# Attacks


def test_the_commonest_setting_of_the_counterexample_is_drawn(made: Made) -> None:
    shown = values(build_figure("joint_counterexample", made("joint_counterexample")))
    bounds = shown[(shown["quantity"] == "epsilon") & (shown["series"] == "lower_bound")]
    assert dict(zip(bounds["x"], bounds["mean"], strict=True)) == {1: 2.0, 10: 20.0, 50: 100.0}
    variances = shown[shown["quantity"] == "variance"]
    assert set(variances["series"]) == {"claimed", "released", "lower_bound"}


def test_a_partition_that_follows_no_power_law_has_no_alpha(made: Made) -> None:
    known = load_partition(made("partition").partitions[0])
    for kind, words in (("uniform", "α = 1"), ("equal", "equal shares"), ("inherent", "silos of the source")):
        facts = {**known.facts, "partition": {**known.facts["partition"], "distribution": kind}}
        assert setting_of(replace(known, facts=facts))[2] == words
    assert build_figure("partition", made("partition")).panels[0].heading == "FEMNIST, α = 1"


def test_partitions_of_other_sizes_are_drawn_or_counted(tmp_path: Path) -> None:
    folders = [write_partition(tmp_path / f"{n}-{alpha:g}", alpha, 0, n) for n in (30, 60, 40) for alpha in (1.0, 4.0)]
    sheet = build_figure("partition", FigureInputs(partitions=tuple(folders)))
    shown = [panel.heading for panel in sheet.panels[::2]]
    assert shown == [f"FEMNIST, α = {alpha}\nsubjects = {n}" for alpha, n in ((1, 60), (1, 40), (1, 30), (4, 60))]
    assert "4 of 6 settings shown" in sheet.notes


def test_runs_with_a_given_noise_multiplier_stand_at_no_target(tmp_path: Path) -> None:
    noisy = sound("subject_release", 0, changes=(("privacy", {"noise_multiplier": 1.0}),))
    inputs = collected(tmp_path / "a", [sound("subject_release", 0), noisy, sound("local_item_dp", 0)])
    sheet = build_figure("beyond_epsilon", inputs)
    assert noisy.config.run_id not in sheet.runs and len(sheet.runs) == 2
    assert "Runs with a given noise multiplier left out: no ε was their target" in sheet.notes
    table = runs_summary(inputs.read_runs())
    assert sorted(table.loc[table["label"] == "SubjectRelease", "epsilon"].dropna()) == [4.0]
    refused("beyond_epsilon", collected(tmp_path / "b", [noisy]), "privacy.noise_multiplier")
    over = build_figure("epsilon_over_rounds", collected(tmp_path / "c", [noisy]))
    assert len(axes_of(over).lines) == 1, "the run's own, and no target's"


# Refusals


def refused(name: str, inputs: FigureInputs, told: str) -> None:
    with pytest.raises(DataError, match=told):
        build_figure(name, inputs)


def test_runs_that_a_figure_cannot_show_are_refused(tmp_path: Path) -> None:
    published = collected(tmp_path / "a", [Fake("user_ldp", rounds=8)])
    for name in ("beyond_epsilon", "beyond_subjects", "beyond_spread", "beyond_rounds"):
        refused(name, published, "privacy.mode of the runs")
    refused("joint_noise", published, "joint_noise")
    refused("figure2", published, "alpha")
    free = collected(tmp_path / "b", grid(["fed_avg"], ["shakespeare"], [0], rounds=3))
    refused("figure3", free, "femnist")
    refused("privacy", free, "noise")
    refused("beyond_spread", collected(tmp_path / "c", [sound("subject_release", 0)]), "at more than one value")
    rates = [sound("subject_release", 0, learning_rate=rate) for rate in (0.1, 0.2)]
    refused("beyond_epsilon", collected(tmp_path / "d", rates), "learning_rate")
    for place, kind in (("e", {"clipping": "update"}), ("f", {"noise": "skellam"})):
        one: dict[str, Any] = {"mode": "sound", "local_steps": 1, "changes": joint(**kind)}
        rates = [Fake("joint_noise", seed=seed, learning_rate=rate, **one) for seed, rate in enumerate((0.1, 0.2))]
        refused("joint_noise", collected(tmp_path / place, rates), "learning_rate")
