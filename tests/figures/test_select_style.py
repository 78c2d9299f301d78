"""Which runs a figure shows, and that series can be told apart."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from figures.fake_runs import Fake, grid, write_runs
from subjectdp.errors import DataError
from subjectdp.figures.style import ALGORITHM_STYLES, in_order, sequence_styles, styles_for
from subjectdp.results.collect import collect_runs
from subjectdp.results.labels import format_epsilon
from subjectdp.results.select import (
    choose_setting,
    differing_keys,
    local_steps_of,
    privacy_note,
    sampling_runs,
    without_labels,
)

# Full deficiencies in linear RGB (Machado, Oliveira, Fernandes 2009, severity 1.0)
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def runs_of(tmp_path: Path, fakes: list[Fake]) -> pd.DataFrame:
    return collect_runs(write_runs(tmp_path / "runs", fakes), tmp_path / "runs.parquet")


def test_the_papers_setting_is_chosen_and_the_choice_is_told(tmp_path: Path) -> None:
    fakes = grid(["local_item_dp"], ["femnist"], [0, 1]) + grid(
        ["local_item_dp"], ["femnist"], [0, 1], alpha=16.0
    )
    fakes += grid(["local_item_dp"], ["femnist"], [0, 1], mode="sound")
    chosen, notes = choose_setting(runs_of(tmp_path, fakes))
    assert (set(chosen["alpha"]), set(chosen["mode"]), len(chosen)) == ({1.0}, {"as_published"}, 2)
    assert [note.split(": ")[1] for note in notes] == ["only mode = as published shown", "only α = 1 shown"]


def test_what_a_figure_varies_is_kept(tmp_path: Path) -> None:
    fakes = grid(["fed_avg"], ["femnist"], [0]) + grid(["fed_avg"], ["femnist"], [0], alpha=16.0)
    chosen, notes = choose_setting(runs_of(tmp_path, fakes), vary=("alpha",))
    assert (len(chosen), notes) == (2, [])


def test_an_algorithm_with_one_setting_of_its_own_is_not_dropped(tmp_path: Path) -> None:
    fakes = grid(["local_item_dp", "user_ldp"], ["femnist"], [0]) + [Fake("higrad_avg_dp:v3", mode="sound")]
    chosen, notes = choose_setting(runs_of(tmp_path, fakes))
    assert (set(chosen["label"]), notes) == ({"LocalItemDP", "UserLDP", "HiGradAvgDP (v3)"}, [])


def test_settings_are_never_mixed_into_one_mean(tmp_path: Path) -> None:
    fakes = [Fake("fed_avg", learning_rate=0.1), Fake("fed_avg", learning_rate=0.5)]
    with pytest.raises(DataError, match=r"FedAvg with seed 0.*training\.optimizer\.learning_rate"):
        choose_setting(runs_of(tmp_path, fakes))


def test_mini_batches_are_counted_in_the_papers_algorithm_else_in_the_longest(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, grid(["fed_avg", "local_group_dp"], ["femnist"], [0]))
    assert set(sampling_runs(runs, ("LocalGroupDP",))["label"]) == {"LocalGroupDP"}
    assert set(sampling_runs(runs, ("HiGradAvgDP (v1)",))["label"]) == {"FedAvg"}


def test_hiding_all_algorithms_is_an_error(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, [Fake("joint_noise")])
    with pytest.raises(DataError, match="JointNoise"):
        without_labels(runs, ("JointNoise",))


@pytest.mark.parametrize(
    ("algorithm", "mode", "words"),
    [
        ("fed_avg", "as_published", "no privacy"),
        ("local_item_dp", "as_published", "published ε 4*; sound ε 3.99 item, 231 subject"),
        ("local_group_dp", "as_published", "published ε 4*; no sound ε"),
        ("joint_noise", "as_published", "published ε 4*; sound ε 2.75 item, 20 subject"),
        ("central_sub_dp", "as_published", "published ε 4*; sound ε ∞ subject"),
        ("higrad_avg_dp:v3", "sound", "sound ε 4 subject"),
    ],
)
def test_the_legend_says_what_is_guaranteed(tmp_path: Path, algorithm: str, mode: str, words: str) -> None:
    assert privacy_note(runs_of(tmp_path, [Fake(algorithm, mode=mode)])) == words


def test_two_data_sets_are_parted_by_a_slash(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, grid(["higrad_avg_dp:v1"], ["shakespeare", "femnist"], [0]))
    assert privacy_note(runs) == "published ε 4*; sound ε 145 / 189 subject"


def test_differing_keys() -> None:
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert differing_keys(first, {"a": {"b": 1, "c": 4}, "e": 3}) == ["a.c", "d", "e"]
    assert differing_keys(first, first) == []


def test_local_steps() -> None:
    assert local_steps_of(Fake("joint_noise", local_steps=5).config.model_dump_json()) == 5
    assert local_steps_of(Fake("joint_noise").config.model_dump_json()) is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (4.0, "4"),
        (8.33, "8.33"),
        (0.5, "0.5"),
        (9.996, "10"),
        (57.94, "57.9"),
        (144.6, "145"),
        (99.97, "100"),
        (10_131_055.5, "1e7"),
        (99_999.4, "99,999"),
        (float("inf"), "∞"),
        (float("nan"), "–"),
    ],
)
def test_epsilon_in_three_figures(value: float, words: str) -> None:
    assert format_epsilon(value) == words


def linear(color: str) -> np.ndarray:
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) from linear RGB."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = np.clip(matrix @ np.clip(rgb, 0, 1), 0, None) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_of_the_algorithms_differ_also_for_the_colour_blind(deficiency: str) -> None:
    seen = {name: lab(DEFICIENCIES[deficiency] @ linear(s.color)) for name, s in ALGORITHM_STYLES.items()}
    for one, two in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[two]) > 10, (one, two)


def test_without_colour_marker_and_line_tell_every_algorithm_apart() -> None:
    for styles in (list(ALGORITHM_STYLES.values()), sequence_styles(6)):
        assert len({style.marker for style in styles}) == len(styles)
        assert len({style.line for style in styles}) == len(styles)


def test_every_colour_stands_out_from_white() -> None:
    assert all(lab(linear(style.color))[0] < 78 for style in ALGORITHM_STYLES.values())


def test_an_unknown_algorithm_gets_a_style_of_its_own_and_comes_last() -> None:
    styles = styles_for(["FedAvg", "Mine", "Another"])
    assert styles["FedAvg"] == ALGORITHM_STYLES["FedAvg"]
    assert styles["Mine"] != styles["Another"]
    assert in_order(["Mine", "UserLDP", "FedAvg"]) == ["FedAvg", "UserLDP", "Mine"]
