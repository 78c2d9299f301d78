"""Which runs a figure shows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from figures.fake_runs import Fake, grid, write_runs
from subjectdp.errors import DataError
from subjectdp.results.collect import collect_runs
from subjectdp.results.select import choose_setting, privacy_note, sampling_runs, steps_words
from subjectdp.results.shown_runs import Shown, differing_keys


def runs_of(tmp_path: Path, fakes: list[Fake]) -> pd.DataFrame:
    return collect_runs(write_runs(tmp_path / "runs", fakes), tmp_path / "runs.parquet")


def test_the_papers_setting_is_chosen_and_the_choice_is_told(tmp_path: Path) -> None:
    fakes = grid(["local_item_dp"], ["femnist"], [0, 1]) + grid(
        ["local_item_dp"], ["femnist"], [0, 1], alpha=16.0
    )
    fakes += grid(["local_item_dp"], ["femnist"], [0, 1], mode="sound")
    chosen, notes = choose_setting(runs_of(tmp_path, fakes), Shown())
    assert (set(chosen["alpha"]), set(chosen["mode"]), len(chosen)) == ({1.0}, {"as_published"}, 2)
    assert [note.split(": ")[1] for note in notes] == ["only mode = as published shown", "only α = 1 shown"]


def test_what_a_figure_varies_is_kept(tmp_path: Path) -> None:
    fakes = grid(["fed_avg"], ["femnist"], [0]) + grid(["fed_avg"], ["femnist"], [0], alpha=16.0)
    chosen, notes = choose_setting(runs_of(tmp_path, fakes), Shown(vary=("alpha",)))
    assert (len(chosen), notes) == (2, [])


def test_an_algorithm_with_one_setting_of_its_own_is_not_dropped(tmp_path: Path) -> None:
    fakes = grid(["local_item_dp", "user_ldp"], ["femnist"], [0]) + [Fake("higrad_avg_dp:v3", mode="sound")]
    chosen, notes = choose_setting(runs_of(tmp_path, fakes), Shown())
    assert (set(chosen["label"]), notes) == ({"LocalItemDP", "UserLDP", "HiGradAvgDP (v3)"}, [])


def test_settings_are_never_mixed_into_one_mean(tmp_path: Path) -> None:
    fakes = [Fake("fed_avg", learning_rate=0.1), Fake("fed_avg", learning_rate=0.5)]
    with pytest.raises(DataError, match=r"FedAvg with seed 0.*training\.optimizer\.learning_rate"):
        choose_setting(runs_of(tmp_path, fakes), Shown())


def test_mini_batches_are_counted_in_the_papers_algorithm_else_in_the_longest(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, grid(["fed_avg", "local_group_dp"], ["femnist"], [0]))
    assert set(sampling_runs(runs, ("LocalGroupDP",))["label"]) == {"LocalGroupDP"}
    assert set(sampling_runs(runs, ("HiGradAvgDP (v1)",))["label"]) == {"FedAvg"}


def test_what_a_figure_leaves_out_is_not_drawn(tmp_path: Path) -> None:
    fakes = [Fake("fed_avg"), Fake("local_item_dp", alpha=2.0), Fake("local_item_dp"), Fake("user_ldp")]
    runs = runs_of(tmp_path, fakes)
    wanted = {
        Shown(hidden=("FedAvg", "JointNoise")): {"LocalItemDP", "UserLDP"},
        Shown(private=True): {"LocalItemDP", "UserLDP"},
        Shown(vary=("alpha",), swept="alpha"): {"LocalItemDP"},
    }
    for shown, labels in wanted.items():
        assert set(choose_setting(runs, shown)[0]["label"]) == labels


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (Shown(hidden=("FedAvg",)), "algorithms to draw to be others than FedAvg, got .'FedAvg'."),
        (Shown(private=True), "algorithms of the scenario to be at least one with noise"),
        (Shown(vary=("alpha",), swept="alpha"), r"alpha of the runs to be at least two values.*got .1\.0."),
    ],
)
def test_a_figure_without_a_run_to_draw_is_an_error(tmp_path: Path, shown: Shown, told: str) -> None:
    runs = runs_of(tmp_path, [Fake("fed_avg")])
    with pytest.raises(DataError, match=told):
        choose_setting(runs, shown)
    with pytest.raises(DataError, match="runs to draw"):
        choose_setting(runs.iloc[:0], shown)


@pytest.mark.parametrize(
    ("algorithm", "mode", "words"),
    [
        ("fed_avg", "as_published", "no privacy"),
        ("local_item_dp", "as_published", "published ε 4*; sound ε 3.99 item, 231† subject"),
        ("local_group_dp", "as_published", "published ε 4*; no sound ε"),
        ("joint_noise", "as_published", "published ε 4*; sound ε 2.75 item, 20† subject"),
        ("central_sub_dp", "as_published", "published ε 4*; sound ε ∞ subject"),
        ("higrad_avg_dp:v3", "sound", "sound ε 4 subject"),
    ],
)
def test_the_legend_says_what_is_guaranteed(tmp_path: Path, algorithm: str, mode: str, words: str) -> None:
    assert privacy_note(runs_of(tmp_path, [Fake(algorithm, mode=mode)])) == words


def test_two_data_sets_are_parted_by_a_slash(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, grid(["higrad_avg_dp:v1"], ["shakespeare", "femnist"], [0]))
    assert privacy_note(runs) == "published ε 4*; sound ε 145 / 189† subject"


def test_differing_keys() -> None:
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert differing_keys(first, {"a": {"b": 1, "c": 4}, "e": 3}) == ["a.c", "d", "e"]
    assert differing_keys(first, first) == []


def test_local_steps(tmp_path: Path) -> None:
    runs = runs_of(tmp_path, [Fake("joint_noise", local_steps=5), Fake("joint_noise")])
    assert runs["local_steps"].map(steps_words).tolist() == ["5 local steps", "1 local epoch"]
