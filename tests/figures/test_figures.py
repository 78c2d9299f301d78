"""Every figure from made-up runs: its files, its values against plain means, and what it refuses to draw."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from figures.fake_partitions import write_partition
from figures.fake_runs import Fake, collected, grid, values
from subjectdp.data.statistics import Draw, Setting, paper_settings, simulate_setting
from subjectdp.errors import DataError
from subjectdp.figures import panels
from subjectdp.figures.catalogue import FIGURES, SUFFIXES, build_figure, entry, make_figure
from subjectdp.results.inputs import FigureInputs

ALGORITHMS = [
    "fed_avg",
    "local_item_dp",
    "user_ldp",
    "local_group_dp",
    "higrad_avg_dp:v1",
    "higrad_avg_dp:v3",
]
SCALE = {"group_sizes_paper_scale": "largest_group", "subjects_per_batch_paper_scale": "subjects"}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    fakes = grid(ALGORITHMS, ["femnist", "shakespeare"], [0, 1, 2], rounds=8)
    return collected(tmp_path_factory.mktemp("main"), fakes)


@pytest.fixture(scope="module")
def femnist(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    fakes = grid(ALGORITHMS, ["femnist"], [0], rounds=8, synthetic=False)
    return collected(tmp_path_factory.mktemp("femnist"), fakes)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    fakes = [f for a in (1.0, 16.0) for f in grid(ALGORITHMS, ["femnist"], [0, 1], rounds=8, alpha=a)]
    return collected(tmp_path_factory.mktemp("sweep"), fakes)


@pytest.fixture(scope="module")
def statistics(tmp_path_factory: pytest.TempPathFactory) -> FigureInputs:
    frames = []
    for known in paper_settings():
        subjects = 350 if known.dataset == "femnist" else 100
        small = Setting(known.name, known.dataset, subjects, known.alpha, 64, 1, known.published)
        frames.append(simulate_setting(0, small, np.full(subjects, 60), Draw.FIXED_BATCH_SIZE))
    path = tmp_path_factory.mktemp("statistics") / "statistics.parquet"
    pd.concat([frame.astype({"setting": str}) for frame in frames]).to_parquet(path)
    return FigureInputs(statistics=path)


def texts(folder: Path, name: str) -> list[str]:
    """The text elements of the SVG."""
    root = ElementTree.parse(folder / f"{name}.svg").getroot()
    return ["".join(found.itertext()).strip() for found in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.slow
def test_figure1_has_eight_lettered_panels(main: FigureInputs, tmp_path: Path) -> None:
    paths = make_figure("figure1", main, tmp_path)
    assert sorted(path.name for path in paths) == sorted(path.name for path in tmp_path.iterdir())
    facts = json.loads((tmp_path / "figure1.json").read_text())
    assert [panel["key"] for panel in facts["panels"]] == [
        f"{dataset}_{what}"
        for dataset in ("femnist", "shakespeare")
        for what in ("accuracy", "loss", "group_size", "subjects")
    ]
    counted = (
        "Group sizes counted in the runs of LocalGroupDP, subjects counted in the runs of HiGradAvgDP (v1)"
    )
    assert counted in facts["notes"]
    assert "".join(panel["letter"] for panel in facts["panels"]) == "abcdefgh"
    said = texts(tmp_path, "figure1")
    assert said.count("synthetic data") == 8
    assert "(h) Shakespeare" in said
    assert {"HiGradAvgDP (v1)", "HiGradAvgDP (v3)"} <= set(values(tmp_path, "figure1")["series"])
    assert said.count("most frequent class 18.8 %") == 1


def test_a_tall_picture_is_drawn_coarser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_TYPICAL_DPI", 200)
    monkeypatch.setattr(panels, "_SAVED", {"png": {}})
    for inches, pixels in ((4.0, 800), (16.0, panels.MAX_PIXELS)):
        (path,) = panels._save(Figure(figsize=(1.0, inches)), tmp_path / "tall")
        with Image.open(path) as picture:
            assert picture.height == pixels


@pytest.mark.slow
def test_curves_are_the_means_over_the_seeds(main: FigureInputs, tmp_path: Path) -> None:
    make_figure("figure1_v3", main, tmp_path)
    assert main.runs is not None and main.rounds is not None
    runs, rounds = pd.read_parquet(main.runs), pd.read_parquet(main.rounds)
    chosen = runs[(runs["label"] == "HiGradAvgDP (v3)") & (runs["dataset"] == "shakespeare")]["run_id"]
    for number in (1, 2):
        found = [
            float(rounds[(rounds["run_id"] == run) & (rounds["round"] == number)]["test_accuracy"].iloc[0])
            for run in chosen
        ]
        table = values(tmp_path, "figure1_v3")
        row = table[
            (table["panel"] == "c") & (table["series"] == "HiGradAvgDP (v3)") & (table["x"] == number)
        ]
        assert row["mean"].iloc[0] == pytest.approx(100 * sum(found) / 3)
        assert row["seeds"].iloc[0] == 3
        half = 4.302652729911275 * np.std(found, ddof=1) / np.sqrt(3)  # t(0.975, 2) from a printed table
        assert row["high"].iloc[0] == pytest.approx(100 * (np.mean(found) + half))
    assert set(values(tmp_path, "figure1_v3")["series"]) >= {"FedAvg", "HiGradAvgDP (v3)"}
    assert "HiGradAvgDP (v1)" not in set(values(tmp_path, "figure1_v3")["series"])


@pytest.mark.slow
def test_group_sizes_are_the_mean_counts_of_local_group_dp(main: FigureInputs, tmp_path: Path) -> None:
    make_figure("figure2_v3", main, tmp_path)
    assert main.runs is not None
    table = values(tmp_path, "figure2_v3")
    total = table[table["dataset"] == "femnist"]["mean"].sum()
    assert total == pytest.approx(16 * 6 * 2)  # silos, steps, rounds of the made-up runs
    assert set(table["series"]) == {"LocalGroupDP"}
    folders = list((main.runs.parent / "runs").glob("femnist-local_group_dp-*"))
    threes = [int((pd.read_parquet(p / "steps.parquet")["largest_group"] == 3).sum()) for p in folders]
    found = table[(table["dataset"] == "femnist") & (table["x"] == 3)]["mean"].iloc[0]
    assert found == pytest.approx(sum(threes) / 3)


@pytest.mark.slow
def test_real_data_one_seed_and_one_data_set(femnist: FigureInputs, tmp_path: Path) -> None:
    make_figure("figure1", femnist, tmp_path / "1")
    facts = json.loads((tmp_path / "1" / "figure1.json").read_text())
    assert len(facts["panels"]) == 4
    assert "One seed: no band" in facts["notes"]
    assert "synthetic data" not in texts(tmp_path / "1", "figure1")
    assert len(build_figure("figure3", femnist).rows) == 2


@pytest.mark.slow
def test_the_alpha_sweep_and_its_alias(sweep: FigureInputs, tmp_path: Path) -> None:
    make_figure("figure2", sweep, tmp_path)
    table = values(tmp_path, "figure2")
    assert set(table[table["quantity"] == "final_accuracy"]["x"]) == {1.0, 16.0}
    groups = table[table["quantity"] == "mean_largest_group"].set_index("x")["mean"]
    assert groups[16.0] > groups[1.0]
    assert sum(name.startswith("(") and "α = 16" in name for name in texts(tmp_path, "figure2")) == 1
    alias = build_figure("figure3_v3", sweep)
    assert "HiGradAvgDP (v1)" not in set(alias.panels[0].values["series"])


@pytest.mark.slow
def test_epsilon_pairs(main: FigureInputs, tmp_path: Path) -> None:
    make_figure("privacy", main, tmp_path)
    table = values(tmp_path, "privacy").set_index(["dataset", "series", "x"])["mean"]
    assert table["femnist", "HiGradAvgDP (v1)", "epsilon_as_published"] == 4.0
    assert table["femnist", "HiGradAvgDP (v1)", "epsilon_sound_subject"] == pytest.approx(144.6)
    assert ("femnist", "LocalGroupDP", "epsilon_sound_subject") not in table.index
    assert "FedAvg" not in table.index.get_level_values("series")
    assert "no sound ε" in texts(tmp_path, "privacy")


@pytest.mark.slow
def test_infinite_epsilon_is_drawn_as_such(tmp_path: Path) -> None:
    inputs = collected(tmp_path / "s", grid(["central_sub_dp"], ["femnist"], [0, 1], rounds=4))
    make_figure("privacy", inputs, tmp_path)
    assert "∞" in texts(tmp_path, "privacy")
    table = values(tmp_path, "privacy").set_index("x")["mean"]
    assert np.isinf(table["epsilon_sound_subject"])


@pytest.mark.slow
def test_joint_noise_has_a_line_for_each_number_of_local_steps(tmp_path: Path) -> None:
    fakes = [Fake("joint_noise", rounds=5, local_steps=k) for k in (1, 10, None)]
    fakes += [Fake("local_item_dp", rounds=5, local_steps=k) for k in (1, 10)]
    inputs = collected(tmp_path / "s", fakes)
    make_figure("joint_noise", inputs, tmp_path)
    table = values(tmp_path, "joint_noise")
    names = {"1 local step a round", "10 local steps a round", "1 local epoch a round"}
    own = {f"{steps} a round, LocalItemDP" for steps in ("1 local step", "10 local steps")}
    assert set(table[table["panel"] == "a"]["series"]) == names | own
    assert set(table[table["panel"] == "b"]["series"]) == names, "joint noise alone"
    pairs = build_figure("privacy", inputs).panels[0].values
    assert {"JointNoise, 10 local steps", "LocalItemDP, 1 local step"} <= set(pairs["series"])


def joint(**changes: Any) -> tuple[tuple[str, Any], ...]:
    """Changes of a made-up run of joint noise whose ε is a Rényi bound, as integer noise wants it."""
    return (("joint", changes), ("privacy", {"accountant": "rdp"}))


@pytest.mark.slow
def test_joint_noise_shows_integer_noise_by_its_bits_beside_the_same_run_without_rounding(
    tmp_path: Path,
) -> None:
    sound = {"rounds": 4, "mode": "sound", "local_steps": 1}
    fakes = [Fake("joint_noise", rounds=4, local_steps=k) for k in (1, 10)]
    fakes += [Fake("joint_noise", changes=joint(), seed=seed, **sound) for seed in (0, 1)]  # type: ignore[arg-type]
    fakes += [
        Fake("joint_noise", changes=joint(noise="skellam", bits=bits), seed=seed, **sound)  # type: ignore[arg-type]
        for bits in (4, 8, 16)
        for seed in (0, 1)
    ]
    fakes.append(Fake("joint_noise", rounds=4, mode="sound", local_steps=5, changes=joint(clipping="update")))
    inputs = collected(tmp_path / "s", fakes)
    make_figure("joint_noise", inputs, tmp_path)
    table = values(tmp_path, "joint_noise")
    assert set(table[table["panel"] == "a"]["series"]) == {"1 local step a round", "10 local steps a round"}
    accuracy = table[table["quantity"] == "final_accuracy"].set_index(["series", "x"])["mean"]
    assert sorted(x for name, x in accuracy.index if name == "Skellam noise") == [4, 8, 16]
    assert sorted(x for name, x in accuracy.index if name == "Gaussian noise, no rounding") == [4, 16]
    runs = inputs.read_runs()
    skellam = runs["joint_noise"] == "skellam"
    eight = runs[skellam & (runs["joint_bits"] == 8)]
    assert accuracy["Skellam noise", 8] == pytest.approx(100 * eight["final_test_accuracy"].mean())
    real = runs[~skellam & (runs["mode"] == "sound") & (runs["joint_clipping"] == "item")]
    assert len(real) == 2
    mean = 100 * real["final_test_accuracy"].mean()
    assert accuracy["Gaussian noise, no rounding", 4] == pytest.approx(mean)
    assert "bits of a clipped gradient's grid" in texts(tmp_path, "joint_noise")


@pytest.mark.slow
def test_updates_noised_once_have_a_row_with_a_line_for_each_number_of_silos(tmp_path: Path) -> None:
    fakes = [Fake("joint_noise", rounds=4, local_steps=5)]
    fakes += [
        Fake(
            "joint_noise",
            rounds=4,
            mode="sound",
            local_steps=5,
            changes=(*joint(clipping="update"), ("partition", {"silos": silos})),
        )
        for silos in (10, 300)
    ]
    make_figure("joint_noise", collected(tmp_path / "s", fakes), tmp_path)
    table = values(tmp_path, "joint_noise")
    shown = {panel: set(rows["series"]) for panel, rows in table.groupby("panel")}
    once = {f"5 local steps a round, one noised update, {silos} silos" for silos in (10, 300)}
    assert shown == {"a": {"5 local steps a round"}, "b": {"5 local steps a round"}, "c": once, "d": once}
    assert sum("FEMNIST, one noised update" in text for text in texts(tmp_path, "joint_noise")) == 2


@pytest.mark.slow
def test_joint_noise_of_integer_runs_alone(tmp_path: Path) -> None:
    fakes = [
        Fake("joint_noise", rounds=3, mode="sound", local_steps=1, changes=joint(noise="skellam", bits=bits))
        for bits in (4, 8)
    ]
    make_figure("joint_noise", collected(tmp_path / "s", fakes), tmp_path)
    assert set(values(tmp_path, "joint_noise")["quantity"]) == {"final_accuracy", "epsilon_item"}


@pytest.mark.slow
def test_sampling_figures_show_our_means_and_the_papers(statistics: FigureInputs, tmp_path: Path) -> None:
    frame = statistics.read_statistics()
    for name, quantity in SCALE.items():
        sheet = build_figure(name, statistics)
        means = sheet.panels[-1].values.set_index("x")["mean"]
        assert sorted(means.index) == [1.0, 2.0, 4.0, 8.0, 16.0]
        own = frame[frame["setting"] == "femnist_alpha_16"][quantity]
        assert means[16.0] == pytest.approx(sum(own) / len(own))
        assert [panel.values["mean"].sum() for panel in sheet.panels[:-1]] == pytest.approx([100.0] * 3)
    make_figure("group_sizes_paper_scale", statistics, tmp_path)
    said = texts(tmp_path, "group_sizes_paper_scale")
    assert said.count("paper 3") == 2 and said.count("paper 4") == 1


@pytest.mark.slow
def test_partition_counts_items_of_each_subject_and_silo(tmp_path: Path) -> None:
    folders = [
        write_partition(tmp_path / f"p{seed}{alpha}", "femnist", alpha, seed)
        for seed in (3, 1)
        for alpha in (1.0, 16.0)
    ]
    make_figure("partition", FigureInputs(partitions=tuple(folders)), tmp_path)
    table = values(tmp_path, "partition")
    offsets = np.load(folders[2] / "train_offsets.npy")  # seed 1, uniform: the one that is shown first
    cells = table[(table["panel"] == "a")].groupby("series")["mean"].sum()
    assert [cells[f"silo {index}"] for index in range(16)] == np.diff(offsets).tolist()
    bars = table[(table["panel"] == "b") & (table["series"] == "items")]["mean"]
    assert bars.tolist() == np.diff(offsets).tolist()
    assert len(json.loads((tmp_path / "partition.json").read_text())["panels"]) == 4


@pytest.mark.usefixtures("as_published")
@pytest.mark.slow
def test_a_figure_has_all_its_files_and_they_are_the_same_to_the_byte_when_made_again(
    femnist: FigureInputs, tmp_path: Path
) -> None:
    for folder in ("one", "two"):
        paths = make_figure("figure2_v3", femnist, tmp_path / folder)
        assert [path.name for path in paths] == [
            f"figure2_v3{suffix}" for suffix in (*SUFFIXES[:2], *SUFFIXES[2:])
        ]
        assert sorted(path.name for path in paths) == sorted(
            path.name for path in (tmp_path / folder).iterdir()
        )
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_accuracy_panels_of_a_data_set_share_their_range(sweep: FigureInputs) -> None:
    sheet = build_figure("figure2", sweep)
    assert {panel.scale for panel in sheet.panels} >= {"accuracy_femnist"}
    with panels.figure_style():
        figure, limits = panels._combined(sheet, "abcde")
    assert set(limits) == {"accuracy", "accuracy_femnist"}
    assert figure.axes[3].get_ylim() == figure.axes[4].get_ylim() == limits["accuracy_femnist"][:2]


@pytest.mark.slow
def test_no_picture_is_wider_than_a_page_and_no_type_smaller_than_seven_points(
    main: FigureInputs, sweep: FigureInputs
) -> None:
    for sheet in (
        build_figure("figure1", main),
        build_figure("figure2", sweep),
        build_figure("privacy", main),
    ):
        with panels.figure_style():
            figure, _ = panels._combined(sheet, "abcdefghij"[: len(sheet.panels)])
        assert figure.get_figwidth() <= panels.PAGE_WIDTH
        shown = [text for text in figure.findobj(Text) if text.get_text()]
        assert min(text.get_fontsize() for text in shown) >= 7


@pytest.mark.slow
def test_every_seed_is_a_thin_line(main: FigureInputs) -> None:
    sheet = build_figure("figure1_v3", main)
    with panels.figure_style():
        figure, _ = panels._combined(sheet, "abcd")
    runs = main.read_runs()
    shown = runs[(runs["dataset"] == "femnist") & (runs["label"] != "HiGradAvgDP (v1)")]
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() < 1]
    assert len(thin) == len(shown)


@pytest.mark.slow
def test_an_algorithm_with_one_alpha_is_not_in_the_legend(tmp_path: Path) -> None:
    fakes = [
        f
        for a in (1.0, 16.0)
        for f in grid(["fed_avg", "local_item_dp"], ["femnist"], [0], rounds=4, alpha=a)
    ]
    fakes += grid(["user_ldp"], ["femnist"], [0], rounds=4)
    sheet = build_figure("figure2", collected(tmp_path, fakes))
    assert [entry.text.split("\n")[0] for entry in sheet.legend] == ["FedAvg", "LocalItemDP"]


@pytest.mark.slow
def test_nothing_of_a_figure_overlaps(main: FigureInputs) -> None:
    sheet = build_figure("figure1", main)
    with panels.figure_style():
        figure, _ = panels._combined(sheet, "abcdefgh")
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    boxes += [figure.legends[0].get_window_extent(renderer), figure.texts[-1].get_window_extent(renderer)]
    for index, box in enumerate(boxes):
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1 and box.y1 <= figure.bbox.y1 + 1
        for other in boxes[index + 1 :]:
            assert not box.shrunk(0.98, 0.98).overlaps(other.shrunk(0.98, 0.98))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("joint_noise", "joint_noise"),
        ("figure2", "alpha"),
        ("group_sizes_paper_scale", "statistics"),
        ("partition", "partition"),
        ("figure9", "Did you mean 'figure"),
    ],
)
def test_nothing_to_draw_is_an_error(femnist: FigureInputs, tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_figure(name, femnist, tmp_path)
    assert not list(tmp_path.glob("*.svg"))


def test_a_run_that_learns_nothing_or_diverges_is_drawn(tmp_path: Path) -> None:
    inputs = collected(tmp_path / "s", grid(["fed_avg", "user_ldp"], ["femnist"], [0], rounds=8))
    assert inputs.rounds is not None
    rounds = pd.read_parquet(inputs.rounds)
    first = rounds["run_id"] == rounds["run_id"].iloc[0]
    rounds["test_accuracy"] = 0.0
    rounds.loc[first & (rounds["round"] > 4), "test_loss"] = np.nan
    rounds.loc[~first, "test_loss"] = 5e6
    rounds.to_parquet(inputs.rounds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sheet = build_figure("figure1_v3", inputs)
        with panels.figure_style():
            figure, limits = panels._combined(sheet, "ab")
    assert limits["accuracy_femnist"] == (0, 1.0, "linear")
    assert limits["loss_femnist"][1] > 5e6 and limits["loss_femnist"][2] == "log"
    assert len(sheet.panels[1].values.query("series == 'FedAvg'")) == 4


def test_a_scenario_without_femnist_has_no_figure3_and_without_noise_no_privacy(tmp_path: Path) -> None:
    inputs = collected(tmp_path, grid(["fed_avg"], ["shakespeare"], [0], rounds=3))
    with pytest.raises(DataError, match="femnist"):
        make_figure("figure3", inputs, tmp_path)
    with pytest.raises(DataError, match="noise"):
        make_figure("privacy", inputs, tmp_path)


def test_an_unknown_sampling_setting_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        [("mine", 0, 0, 5, 4, 2)], columns=["setting", "silo", "step", "items", "subjects", "largest_group"]
    )
    frame.to_parquet(tmp_path / "s.parquet")
    with pytest.raises(DataError, match="mine"):
        make_figure("group_sizes_paper_scale", FigureInputs(statistics=tmp_path / "s.parquet"), tmp_path)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_a_module_known_inputs_and_a_caption(name: str) -> None:
    assert find_spec(entry(name).module_path) is not None
    assert set(entry(name).needs) <= set(FigureInputs.__dataclass_fields__)
    assert (ROOT / "workflow" / "report" / f"{name}.rst").is_file()


@pytest.mark.slow
def test_the_joint_papers_figure_has_standard_errors_and_the_best_round(tmp_path: Path) -> None:
    sound = (("joint", {"own_noise_only": True}),)
    fakes = [Fake("joint_noise", rounds=5, local_steps=k, seed=seed) for k in (1, None) for seed in (0, 1, 2)]
    fakes += [Fake("joint_noise", rounds=5, mode="sound", changes=sound, seed=seed) for seed in (0, 1, 2)]
    inputs = collected(tmp_path / "s", fakes)
    make_figure("joint_figure1", inputs, tmp_path)
    table, rounds = values(tmp_path, "joint_figure1"), inputs.read_rounds()
    names = {"1 local step", "1 local epoch", "1 local epoch, each silo's own noise"}
    assert set(table["series"]) == names and (table["seeds"] == 3).all()
    runs = inputs.read_runs()
    ones = runs[runs["local_steps"] == 1]["run_id"]
    accuracy = rounds[rounds["run_id"].isin(ones)].groupby("run_id")["test_accuracy"]
    best = table[(table["panel"] == "c") & (table["x"] == 0) & (table["series"] == "1 local step")].iloc[0]
    assert best["mean"] == pytest.approx(100 * accuracy.max().mean())
    assert best["high"] - best["mean"] == pytest.approx(100 * accuracy.max().std() / 3**0.5)
    panels = build_figure("joint_figure1", inputs).panels
    assert len(panels) == 3 and all(panel.synthetic for panel in panels), (
        "generated data say so in every panel"
    )


@pytest.mark.slow
def test_figure_3_has_the_best_and_the_last_round_of_runs_of_each_length(tmp_path: Path) -> None:
    more = (("data", {"embedded": {"subjects": 100, "items_per_subject": 100}}),)
    fakes = [
        Fake("joint_noise", "acs_income", rounds=r, local_steps=k, seed=seed, changes=more)
        for r in (4, 8)
        for k in (1, None)
        for seed in (0, 1, 2)
    ]
    inputs = collected(tmp_path / "s", fakes)
    make_figure("joint_figure3", inputs, tmp_path)
    table = values(tmp_path, "joint_figure3").set_index(["quantity", "series", "x"])
    runs = inputs.read_runs()
    runs = runs[(runs["rounds"] == 8) & (runs["local_steps"] == 1)]
    rounds = inputs.read_rounds()
    grouped = rounds[rounds["run_id"].isin(runs["run_id"])].sort_values("round").groupby("run_id")
    cell = ("1 local step", 8)
    assert table.loc["accuracy_best", *cell]["mean"] == pytest.approx(
        100 * grouped["test_accuracy"].max().mean()
    )
    assert table.loc["loss_best", *cell]["mean"] == pytest.approx(grouped["test_loss"].min().mean())
    assert table.loc["loss_last", *cell]["mean"] == pytest.approx(grouped["test_loss"].last().mean())
    assert table.loc["epsilon", *cell]["mean"] == pytest.approx(runs["epsilon_sound_item"].mean())
    sheet = build_figure("joint_figure3", inputs)
    assert {entry.style.line for entry in sheet.legend} == {"-"}, "dotted lines are last rounds, whoever's"
    for panel in sheet.panels:
        axes = Figure().subplots()
        panel.draw(axes)
        low, high = axes.get_ylim()
        assert low <= panel.values["mean"].min() and panel.values["mean"].max() <= high, "marks are in sight"
    with pytest.raises(DataError, match="cifar10"):
        make_figure("joint_figure2", inputs, tmp_path)
    with pytest.raises(DataError, match="one for this figure"):
        make_figure("joint_figure1", inputs, tmp_path)
