"""Accuracy against ε, ε over rounds, cost and excess loss: their values against the runs', and what they refuse."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from figures.fake_runs import Fake, collected, grid, values
from subjectdp.errors import DataError
from subjectdp.figures import panels
from subjectdp.figures.catalogue import build_figure, make_figure
from subjectdp.figures.parts import privacy_footnote
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.select import CONDITIONAL_NOTE, privacy_note
from subjectdp.utility.excess_loss_table import COLUMNS

ALGORITHMS = ["fed_avg", "local_item_dp", "user_ldp", "local_group_dp", "higrad_avg_dp:v1", "joint_noise"]


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    root = tmp_path_factory.mktemp("main")
    fakes = grid(ALGORITHMS, ["femnist", "shakespeare"], [0, 1, 2], rounds=8)
    inputs = collected(root, [*fakes, Fake("user_ldp", mode="sound", rounds=8)], utility=root / "u")
    utility().to_parquet(root / "u")
    return inputs


def utility(seeds: int = 2) -> pd.DataFrame:
    rows = []
    for number, label in enumerate(["FedAvg", "LocalItemDP", "UserLDP"]):
        for seed in range(seeds):
            for quantity in ("empirical", "population"):
                for steps in (10, 20, 40):
                    row = dict.fromkeys(COLUMNS, 1.0)
                    last = steps == 40
                    printed = 50.0 if last and number and quantity == "population" else math.nan
                    row |= {
                        "dataset": "femnist",
                        "synthetic": True,
                        "algorithm": "a",
                        "label": label,
                        "theorem": "t",
                    }
                    row |= {
                        "seed": seed,
                        "quantity": quantity,
                        "steps": steps,
                        "last": last,
                        "bound_printed": printed,
                    }
                    row |= {"excess": 0.2 + number + 0.01 * seed, "bound": 5.0 + number, "epsilon": 4.0}
                    rows.append(row)
    return pd.DataFrame(rows)


def overlaps(sheet: panels.Sheet) -> list[tuple[int, int]]:
    """Pairs of axes, legend and notes that cover each other, and anything that leaves the picture."""
    letters = "abcdefghij"[: len(sheet.panels)]
    with panels.figure_style():
        figure, _ = panels._combined(sheet, letters)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    boxes.append(figure.texts[-1].get_window_extent(renderer))
    found = [
        (i, i) for i, box in enumerate(boxes) if box.x0 < -1 or box.x1 > figure.bbox.x1 + 1 or box.y0 < -1
    ]
    return found + [
        (i, j)
        for i, one in enumerate(boxes)
        for j, two in enumerate(boxes[:i])
        if one.shrunk(0.98, 0.98).overlaps(two.shrunk(0.98, 0.98))
    ]


@pytest.mark.slow
def test_accuracy_stands_at_the_sound_epsilon_and_at_the_claim_of_its_own_unit(
    main: FigureInputs, tmp_path: Path
) -> None:
    make_figure("accuracy_privacy", main, tmp_path)
    table = values(tmp_path, "accuracy_privacy").set_index(["panel", "series", "quantity"])
    sound, claim = "accuracy_at_sound_epsilon", "accuracy_at_published_epsilon"
    assert table.loc[("a", "HiGradAvgDP (v1), as published", sound), "x"] == pytest.approx(144.6)
    assert table.loc[("a", "HiGradAvgDP (v1), as published", claim), "x"] == 4.0
    assert table.loc[("b", "LocalItemDP, as published", claim), "x"] == 4.0
    assert ("a", "LocalItemDP, as published", claim) not in table.index, (
        "claimed for an item, not for a subject"
    )
    assert ("b", "HiGradAvgDP (v1), as published", claim) not in table.index
    assert table.loc[("a", "UserLDP, sound", sound), "x"] == 4.0
    assert ("a", "UserLDP, sound", claim) not in table.index, "a sound run claims what holds"
    for strip in ("FedAvg", "LocalGroupDP, as published"):
        assert np.isinf(table.loc[("a", strip, sound), "x"])
    runs = pd.read_parquet(str(main.runs))
    own = (
        runs[(runs["label"] == "JointNoise") & (runs["dataset"] == "shakespeare")]["final_test_accuracy"]
        * 100
    )
    found = table.loc[("c", "JointNoise, as published", sound)]
    assert (found["mean"], found["seeds"]) == (pytest.approx(own.mean()), 3)


@pytest.mark.slow
def test_epsilon_grows_over_the_rounds_as_the_manifests_say(main: FigureInputs, tmp_path: Path) -> None:
    make_figure("epsilon_over_rounds", main, tmp_path)
    table = values(tmp_path, "epsilon_over_rounds").set_index(["panel", "series", "x"])["mean"]
    assert table["a", "HiGradAvgDP (v1)"].to_dict() == pytest.approx({1: 144.6 * 0.5**0.5, 2: 144.6})
    assert table["b", "LocalItemDP"].to_dict() == pytest.approx({2: 3.99 / 2, 4: 3.99 / 2**0.5, 8: 3.99})
    assert "FedAvg" not in table.index.get_level_values("series")
    assert "LocalGroupDP" not in table.index.get_level_values("series"), "states no curve"


def test_algorithms_whose_noise_depends_on_data_have_no_line(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["local_item_dp", "local_group_dp"], ["femnist"], [0, 1], rounds=8))
    runs = pd.read_parquet(str(inputs.runs))
    curve = {"rounds": [1, 2], "constant_noise_assumed": True, "item": [0.1, 0.2], "subject": [3.0, None]}
    runs.loc[runs["algorithm"] == "local_group_dp", "epsilon_over_rounds"] = json.dumps(curve)
    runs.to_parquet(str(inputs.runs))
    sheet = build_figure("epsilon_over_rounds", inputs)
    assert [entry.text for entry in sheet.legend] == ["LocalItemDP", "the target ε"]
    assert "No finite sound ε, hence no line: LocalGroupDP" in sheet.notes
    assert {name for panel in sheet.panels for name in panel.values["series"]} == {"LocalItemDP"}


def test_a_scenario_without_curves_is_refused(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["local_item_dp"], ["femnist"], [0], rounds=4))
    runs = pd.read_parquet(str(inputs.runs)).assign(epsilon_over_rounds="null")
    runs.to_parquet(str(inputs.runs))
    with pytest.raises(DataError, match="ε over rounds"):
        make_figure("epsilon_over_rounds", inputs, tmp_path / "f")


@pytest.mark.slow
def test_cost_is_that_of_the_runs(main: FigureInputs, tmp_path: Path) -> None:
    make_figure("cost", main, tmp_path)
    table = values(tmp_path, "cost").set_index(["panel", "series"])["mean"]
    assert table["a", "FedAvg"] == 31.5
    assert table["b", "FedAvg"] == pytest.approx(31.5 / 8)
    assert table["b", "HiGradAvgDP (v1)"] == pytest.approx(31.5 / 2), "fewer rounds were executed"
    assert table["f", "UserLDP"] == 412.0


@pytest.mark.slow
def test_excess_loss_shows_measured_and_both_bounds(main: FigureInputs, tmp_path: Path) -> None:
    make_figure("excess_loss", main, tmp_path)
    table = values(tmp_path, "excess_loss").set_index(["panel", "quantity", "series"])
    assert table.loc[("a", "empirical_excess", "LocalItemDP"), "mean"].tolist() == pytest.approx([1.205] * 3)
    end = table.loc["b"]["mean"]
    assert end["population_bound", "UserLDP"] == 7.0 and end["population_bound_printed", "UserLDP"] == 50.0
    assert ("population_bound_printed", "FedAvg") not in end.index
    assert json.loads((tmp_path / "excess_loss.json").read_text())["panels"][0]["synthetic"] is True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy_privacy", "epsilon_over_rounds", "cost", "excess_loss"])
def test_nothing_overlaps(main: FigureInputs, name: str) -> None:
    assert overlaps(build_figure(name, main)) == []


@pytest.mark.slow
def test_one_seed_has_no_bars(tmp_path: Path) -> None:
    fakes = grid(["fed_avg", "local_item_dp"], ["femnist"], [0], rounds=4, synthetic=False)
    inputs = collected(tmp_path, fakes, utility=tmp_path / "u")
    utility(seeds=1).to_parquet(tmp_path / "u")
    for name in ("accuracy_privacy", "epsilon_over_rounds", "cost", "excess_loss"):
        make_figure(name, inputs, tmp_path / name)
        assert values(tmp_path / name, name)["low"].isna().all()


def _texts(sheet: panels.Sheet, panel: int) -> list[str]:
    """What is written inside a panel."""
    with panels.figure_style():
        figure, _ = panels._combined(sheet, "abcdefghij"[: len(sheet.panels)])
    return [text.get_text() for text in figure.axes[panel].texts]


def test_a_conditional_epsilon_is_marked(tmp_path: Path) -> None:
    """The dagger: in legends, beside marks of a subject's ε, and explained; not on runs with an enforced cap."""
    names = ["local_item_dp", "user_ldp"]
    fakes = [*grid(names, ["femnist"], [0], rounds=8), Fake("user_ldp", mode="sound", rounds=8)]
    inputs = collected(tmp_path / "some", fakes)
    told = build_figure("privacy", inputs)
    assert CONDITIONAL_NOTE in told.notes
    assert {"2.25†", "231†", "4"} <= set(_texts(told, 0)), "the last one has an enforced cap"
    values = told.rows[0][0].values
    assert set(values.loc[values["x"] == "epsilon_as_published", "series"]) == {
        "LocalItemDP, as published",
        "UserLDP, as published",
    }, "a sound run claims nothing"
    beside = build_figure("accuracy_privacy", inputs)
    assert CONDITIONAL_NOTE in beside.notes
    assert (_texts(beside, 0).count("†"), _texts(beside, 1).count("†")) == (2, 0), "of subjects, not of items"

    runs = inputs.read_runs()
    published, sound = (runs[runs["mode"] == mode] for mode in ("as_published", "sound"))
    assert "2.25† subject" in privacy_note(published[published["algorithm"] == "user_ldp"])
    assert "†" not in privacy_note(sound) and "†" not in privacy_footnote(sound)
    assert CONDITIONAL_NOTE in privacy_footnote(published)
    enforced = collected(tmp_path / "sound", [Fake("user_ldp", mode="sound", rounds=8)])
    assert CONDITIONAL_NOTE not in build_figure("privacy", enforced).notes
