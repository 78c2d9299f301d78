"""What a reader takes from a figure: every line is named, ε holds for every seed, labels can be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from figures.fake_runs import Fake, collected, grid
from subjectdp.auditing.findings import COLUMNS
from subjectdp.figures import panels
from subjectdp.figures.catalogue import build_figure
from subjectdp.results.inputs import FigureInputs
from subjectdp.results.intervals import largest_of


def changed(inputs: FigureInputs, column: str, values: dict[tuple[str, int], float]) -> None:
    """Sets a column of the runs by (algorithm, seed)."""
    runs = pd.read_parquet(str(inputs.runs))
    for (algorithm, seed), value in values.items():
        runs.loc[(runs["algorithm"] == algorithm) & (runs["seed"] == seed), column] = value
    runs.to_parquet(str(inputs.runs))


def drawn(sheet: panels.Sheet) -> Figure:
    with panels.figure_style():
        figure, _ = panels._combined(sheet, "abcdefghij"[: len(sheet.panels)])
        FigureCanvasAgg(figure).draw()
    return figure


def colliding_labels(axes: Axes) -> list[tuple[str, str]]:
    """Neighbouring labels of the x-axis without room between them."""
    renderer = axes.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    low, high = axes.get_xlim()
    labels = [
        label
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high and label.get_text()
    ]
    boxes = [(label.get_window_extent(renderer), label.get_text()) for label in labels]
    boxes.sort(key=lambda pair: float(pair[0].x0))
    pairs = zip(boxes, boxes[1:], strict=False)
    return [(one, two) for (left, one), (right, two) in pairs if left.x1 + 2 > right.x0]


def test_the_largest_of_the_seeds() -> None:
    assert largest_of([1.0, 3.0, 2.0]) == 3.0
    assert np.isnan(largest_of([1.0, float("nan")])), "one seed without an ε leaves none for all"
    assert largest_of([1.0, float("inf")]) == float("inf")


def test_epsilon_is_the_largest_over_the_seeds_in_every_figure(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["local_item_dp", "user_ldp"], ["femnist"], [0, 1, 2], rounds=8))
    changed(inputs, "epsilon_sound_subject", {("local_item_dp", seed): 600.0 + seed for seed in range(3)})
    changed(inputs, "epsilon_sound_subject", {("user_ldp", 1): float("nan")})
    pairs = build_figure("privacy", inputs).panels[0].values.set_index(["series", "x"])["mean"]
    assert pairs["LocalItemDP", "epsilon_sound_subject"] == 602.0, "a mean would hold for one seed of three"
    assert ("UserLDP", "epsilon_sound_subject") not in pairs.index
    marks = build_figure("accuracy_privacy", inputs).panels[0].values
    at = marks[marks["quantity"] == "accuracy_at_sound_epsilon"].set_index("series")["x"]
    assert at["LocalItemDP"] == 602.0 and np.isinf(at["UserLDP"])


def test_epsilon_over_rounds_is_the_largest_as_well(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["local_item_dp"], ["femnist"], [0, 1], rounds=8))
    runs = pd.read_parquet(str(inputs.runs))
    curve = '{{"rounds": [1, 8], "constant_noise_assumed": false, "item": [1, 4], "subject": [{}, 700]}}'
    runs["epsilon_over_rounds"] = [curve.format(500 + seed) for seed in runs["seed"]]
    runs.to_parquet(str(inputs.runs))
    sheet = build_figure("epsilon_over_rounds", inputs)
    assert sheet.panels[0].values.set_index("x")["mean"].to_dict() == {1: 501.0, 8: 700.0}
    assert any("largest ε over the seeds" in note for note in sheet.notes)


@pytest.mark.slow
def test_claims_that_lie_close_together_do_not_hide_each_other(tmp_path: Path) -> None:
    algorithms = ["user_ldp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3", "central_sub_dp"]
    fakes = grid(["fed_avg", *algorithms], ["femnist"], [0], rounds=8)
    inputs = collected(tmp_path, [*fakes, *grid(["local_item_dp"], ["femnist"], [0], rounds=8)])
    names = ["central_sub_dp", "local_group_dp", "user_ldp"]
    claims = zip(names, (0.04, 0.19, 0.31), strict=True)
    changed(inputs, "epsilon_as_published", {(name, 0): claim for name, claim in claims})
    figure = drawn(build_figure("accuracy_privacy", inputs))
    assert [colliding_labels(axes) for axes in figure.axes] == [[], []]
    told = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert {"none", "4"} <= set(told), "the claim that most algorithms share has a label"


@pytest.mark.slow
def test_a_sweep_over_epsilon_is_shown_whole(tmp_path: Path) -> None:
    targets = (1.0, 4.0)
    fakes = [
        Fake(name, seed=seed, rounds=8, changes=(("privacy", {"epsilon": epsilon}),))
        for name in ("local_item_dp", "user_ldp")
        for seed in (0, 1)
        for epsilon in targets
    ]
    inputs = collected(tmp_path, [*grid(["fed_avg"], ["femnist"], [0, 1], rounds=8), *fakes])
    runs = pd.read_parquet(str(inputs.runs))
    private = runs["algorithm"] != "fed_avg"
    runs.loc[private, "epsilon_sound_subject"] = 10 * runs.loc[private, "epsilon"]
    runs.to_parquet(str(inputs.runs))
    sheet = build_figure("accuracy_privacy", inputs)
    marks = sheet.panels[0].values.query("quantity == 'accuracy_at_sound_epsilon'").set_index("series")
    assert marks["x"].drop("FedAvg").to_dict() == {
        "LocalItemDP, ε = 1": 10.0,
        "LocalItemDP, ε = 4": 40.0,
        "UserLDP, ε = 1": 10.0,
        "UserLDP, ε = 4": 40.0,
    }
    assert set(marks["seeds"]) == {2}
    assert not any("shown" in note for note in sheet.notes), "nothing was left out"
    assert [entry.text for entry in sheet.legend][:3] == ["FedAvg", "LocalItemDP", "UserLDP"]
    dotted = [line for line in drawn(sheet).axes[0].get_lines() if line.get_linestyle() == ":"]
    assert [list(np.asarray(line.get_xdata())) for line in dotted] == [[10.0, 40.0], [10.0, 40.0]]


def test_rings_of_claims_lie_within_the_axes(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["local_item_dp", "user_ldp"], ["femnist"], [0], rounds=8))
    changed(inputs, "epsilon_as_published", {("user_ldp", 0): 1e-3})
    changed(inputs, "epsilon_sound_subject", {("local_item_dp", 0): 1e6})
    (axes,) = drawn(build_figure("privacy", inputs)).axes
    inside = axes.get_window_extent()
    for line in axes.get_lines():
        if line.get_marker() == "o":
            x = axes.transData.transform((float(np.asarray(line.get_xdata())[0]), 0.0))[0]
            assert x - inside.x0 > line.get_markersize() / 2 * axes.figure.dpi / 72


def test_every_line_of_joint_noise_has_a_name_in_the_legend(tmp_path: Path) -> None:
    fakes = [Fake("joint_noise", rounds=5, local_steps=4), Fake("local_item_dp", rounds=5, local_steps=5)]
    sheet = build_figure("joint_noise", collected(tmp_path, fakes))
    lines = {series for panel in sheet.panels for series in panel.values["series"]}
    named = [entry.text.split("\n") for entry in sheet.legend]
    assert lines == {"4 local steps a round", "5 local steps a round, LocalItemDP"}
    assert [name for name, _ in named] == ["4 local steps a round", "5 local steps a round, LocalItemDP"]
    assert "4 item" in named[1][1] or "3.99 item" in named[1][1], "LocalItemDP's own ε"


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    """Three seeds of every algorithm at α = 1, one of some at α = 16, as the embedded scenario has them."""
    every = ["fed_avg", "local_item_dp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3"]
    fakes = grid(every, ["femnist"], [0, 1, 2], rounds=8)
    fakes += grid(every[:4], ["femnist"], [0], rounds=8, alpha=16.0)
    return collected(tmp_path_factory.mktemp("uneven"), fakes)


@pytest.mark.slow
def test_the_sweep_over_alpha_says_where_there_is_one_seed(uneven: FigureInputs) -> None:
    notes = build_figure("figure2", uneven).notes
    assert any("Mean of 1 to 3 seeds" in note and "no band where there is one seed" in note for note in notes)


def test_subjects_are_counted_where_all_alphas_are(uneven: FigureInputs) -> None:
    sheet = build_figure("figure3_v3", uneven)
    subjects = sheet.panels[2].values
    assert sorted(subjects["x"]) == [1.0, 16.0], "HiGradAvgDP (v3) was run at α = 1 alone"
    assert set(subjects["series"]) == {"LocalGroupDP"}
    assert any("subjects counted in the runs of LocalGroupDP" in note for note in sheet.notes)


@pytest.mark.slow
def test_the_interval_of_a_lone_place_is_drawn(uneven: FigureInputs) -> None:
    figure = drawn(build_figure("figure2", uneven))
    accuracy = figure.axes[0]
    bars = [bar for bar in accuracy.collections if "LineCollection" in type(bar).__name__]
    assert sum(len(bar.get_paths()) for bar in bars) == 4, "one for each algorithm with several α, at α = 1"


def test_bars_are_not_called_bands(uneven: FigureInputs) -> None:
    notes = " ".join(build_figure("figure2_v3", uneven).notes)
    assert "bar: 95 % t-interval" in notes and "band" not in notes


def test_a_panel_of_audits_is_as_high_as_its_attacks_are_many(tmp_path: Path) -> None:
    rows = [("monte_carlo", f"setting {number}") for number in range(9)] + [("noise_level_leak", "1 step")]
    facts = {"algorithm": "user_ldp", "variant": None, "mode": "as_published", "synthetic": False}
    numbers = {"claimed_epsilon": 4.0, "true_epsilon": 9.0, "lower_bound": 5.0, "verdict": "refuted"}
    table = pd.DataFrame([{"audit": kind, "setting": setting, **facts, **numbers} for kind, setting in rows])
    path = tmp_path / "audit.parquet"
    table.reindex(columns=COLUMNS).to_parquet(path)
    figure = drawn(build_figure("audit", FigureInputs(audit=path)))
    many, few = (axes.get_position().height for axes in figure.axes)
    assert many > 2.5 * few
