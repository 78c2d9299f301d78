"""Collection: what is gathered, and what is refused with the file named; which runs a figure shows, with intervals."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from figures.fake_runs import Fake, collected, grid, list_files, write_run, write_runs
from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.errors import DataError
from subjectdp.io.atomic import sealed
from subjectdp.results.collect import QUANTITIES, RUN_COLUMNS, collect_scenario, read_frame
from subjectdp.results.select import (
    are_private,
    bands,
    choose_setting,
    claimed_units,
    mean_interval,
    paired_difference,
    privacy_note,
    sampling_runs,
    sound_runs,
)
from subjectdp.results.shown_runs import Shown, differing_keys, format_epsilon, setting_columns, settings_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs", Fake("higrad_avg_dp:v1", rounds=8))


def test_one_row_a_run_all_rounds_in_order_and_steps_counted(tmp_path: Path) -> None:
    folders = write_runs(tmp_path / "runs", grid(["fed_avg", "higrad_avg_dp:v1"], ["femnist"], [0, 1], rounds=8))
    table = collect_scenario(folders, tmp_path)
    stored = pd.read_parquet(tmp_path / "runs.parquet")
    assert list(stored.columns) == list(RUN_COLUMNS) == list(table.columns)
    assert stored["run_id"].tolist() == [path.name for path in folders]
    row = stored.set_index("run_id").loc[folders[2].name]
    rounds = pd.read_parquet(folders[2] / "rounds.parquet")
    assert (row["label"], row["seed"], row["rounds"], row["rounds_executed"]) == ("HiGradAvgDP (v1)", 0, 8, 2)
    assert row["final_test_accuracy"] == rounds["test_accuracy"].iloc[-1]
    assert (row["epsilon_as_published"], row["epsilon_sound_subject"]) == (4.0, 144.6)
    assert json.loads(row["setting"])["algorithm"]["variant"] == row["variant"] == "v1"
    free = stored.set_index("run_id").loc[folders[0].name]
    assert math.isnan(free["epsilon_as_published"])
    assert pd.read_parquet(tmp_path / "rounds.parquet")["round"].tolist() == [*range(1, 9)] * 2 + [1, 2] * 2
    table, steps = (pd.read_parquet(place / "steps.parquet") for place in (tmp_path, folders[1]))
    table = table[table["run_id"] == folders[1].name]
    for quantity in QUANTITIES:
        part = table[table["quantity"] == quantity]
        assert dict(zip(part["value"], part["minibatches"], strict=True)) == Counter(steps[quantity].tolist())


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-40]),
    "empty": lambda path: path.write_bytes(b""),
    "a page": lambda path: path.write_bytes(b"<html>not what you think</html>"),
    "missing": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("name", ["manifest.json", "rounds.parquet", "steps.parquet"])
def test_a_damaged_file_is_refused_by_name(
    folder: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    damage(folder / name)
    with pytest.raises(DataError, match=f"{name}(.|\n)*(run (the workflow )?again|file with content)"):
        collect_scenario([folder], tmp_path / "out")
    assert not (tmp_path / "out" / "runs.parquet").exists()


@pytest.mark.parametrize(("name", "of"), [("rounds.parquet", "test_accuracy"), ("steps.parquet", "noise_multiplier")])
def test_a_changed_table_is_refused(folder: Path, tmp_path: Path, name: str, of: str) -> None:
    frame = pd.read_parquet(folder / name)
    frame.assign(**{of: frame[of] * 1.5}).to_parquet(folder / name, index=False)
    with pytest.raises(DataError, match=f"{name} (was changed|is missing or truncated).*run the workflow again"):
        collect_scenario([folder], tmp_path)


def test_a_changed_bit_of_a_collected_table_is_refused(folder: Path, tmp_path: Path) -> None:
    collect_scenario([folder], tmp_path)
    path = tmp_path / "runs.parquet"
    parts, whole = pq.ParquetFile(path).metadata.row_group(0), path.read_bytes()
    for part in map(parts.column, range(len(RUN_COLUMNS))):
        last = (part.dictionary_page_offset or part.data_page_offset) + part.total_compressed_size - 1
        path.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
        with pytest.raises(DataError, match="a whole table; remove it and run again"):
            read_frame(path, RUN_COLUMNS)
    path.write_bytes(whole)
    assert read_frame(path, RUN_COLUMNS)["run_id"].tolist() == [folder.name]


def test_a_changed_digit_in_a_manifest_is_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    assert '"epsilon": 4.0' in text
    path.write_text(text.replace('"epsilon": 4.0', '"epsilon": 3.0', 1))
    with pytest.raises(DataError, match="manifest.json was changed after it was written"):
        collect_scenario([folder], tmp_path)


def test_a_table_without_rows_or_a_column_is_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "rounds.parquet"
    whole = pd.read_parquet(path)
    for frame, message in ((whole.iloc[:0], "no rows"), (whole.drop(columns="test_loss"), "test_loss")):
        frame.to_parquet(path, index=False)
        list_files(folder)
        with pytest.raises(DataError, match=message):
            collect_scenario([folder], tmp_path)


def test_another_runs_files_are_refused(folder: Path, tmp_path: Path) -> None:
    moved = folder.rename(folder.with_name("femnist-fed_avg-s0-0000000000"))
    with pytest.raises(DataError, match="run_id"):
        collect_scenario([moved], tmp_path)


@pytest.mark.parametrize("key", ["files", "config", "privacy", "plan", "partition", "synthetic", "wall_seconds"])
def test_an_incomplete_manifest_is_refused(folder: Path, tmp_path: Path, key: str) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[key]
    (folder / "manifest.json").write_text(json.dumps(sealed(manifest)))
    with pytest.raises(DataError, match=key):
        collect_scenario([folder], tmp_path)


def runs_of(tmp_path: Path, fakes: list[Fake]) -> pd.DataFrame:
    return collect_scenario(write_runs(tmp_path / "runs", fakes), tmp_path)


def test_the_papers_setting_is_chosen_and_the_choice_is_told(tmp_path: Path) -> None:
    fakes = grid(["local_item_dp"], ["femnist"], [0, 1]) + grid(["local_item_dp"], ["femnist"], [0, 1], alpha=16.0)
    fakes += grid(["local_item_dp"], ["femnist"], [0, 1], mode="sound")
    runs = runs_of(tmp_path, fakes)
    chosen, notes = choose_setting(runs, Shown())
    assert (set(chosen["alpha"]), set(chosen["mode"]), len(chosen)) == ({1.0}, {"as_published"}, 2)
    assert [note.split(": ")[1] for note in notes] == ["only as published shown", "only α = 1 shown"]
    varied, notes = choose_setting(runs[runs["mode"] == "as_published"], Shown(vary=("alpha",)))
    assert (len(varied), notes) == (4, [])


def test_a_run_with_given_noise_is_not_named_by_a_target_that_it_does_not_have(tmp_path: Path) -> None:
    noises = [Fake("local_item_dp", changes=(("privacy", {"noise_multiplier": noise}),)) for noise in (0.5, None)]
    found = settings_of(runs_of(tmp_path, noises).to_dict("records"), Shown())
    assert [words for words, _ in found] == ["ε = 4", "ε = that of noise 0.5"]


def test_an_algorithm_that_was_run_at_another_value_alone_is_not_shown_among_the_others(tmp_path: Path) -> None:
    """The note says that only α = 1 is shown; rounds of its own an algorithm keeps."""
    fakes = [
        Fake("user_ldp"),
        Fake("user_ldp", alpha=16.0),
        Fake("local_item_dp", alpha=16.0),
        Fake("fed_avg", rounds=8),
    ]
    chosen, notes = choose_setting(runs_of(tmp_path, fakes), Shown())
    assert (set(chosen["label"]), notes) == ({"UserLDP", "FedAvg"}, ["FEMNIST: only α = 1 shown"])


@pytest.mark.parametrize(("seed", "told"), [(0, "seed 0"), (1, "seed 0 and 1")])
def test_settings_are_never_mixed_into_one_mean(tmp_path: Path, seed: int, told: str) -> None:
    """Nor those of different seeds, which look like the seeds of one."""
    fakes = [Fake("fed_avg", learning_rate=0.1), Fake("fed_avg", learning_rate=0.5, seed=seed)]
    with pytest.raises(DataError, match=rf"FedAvg with {told} .*training\.optimizer\.learning_rate"):
        choose_setting(runs_of(tmp_path, fakes), Shown())


def test_rounds_of_its_own_are_one_number_for_each_algorithm(tmp_path: Path) -> None:
    fakes = [Fake("subject_release", mode="sound", rounds=rounds) for rounds in (4, 8)]
    with pytest.raises(DataError, match=r"SubjectRelease with seed 0 .*training\.rounds"):
        sound_runs(runs_of(tmp_path, fakes), vary=("epsilon",))


def test_a_setting_is_the_same_wherever_its_table_lies(tmp_path: Path) -> None:
    data = {"source": "table", "label": "y", "subject": "who"}
    of = [Fake("fed_avg", "table", changes=(("data", {**data, "path": f"{place}/t.csv"}),)) for place in ("a", "b")]
    assert len({setting_columns(fake.config.model_dump(mode="json"))["setting"] for fake in of}) == 1


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


def test_differing_keys() -> None:
    first = {"a": {"b": 1, "c": 2}, "d": 3}
    assert differing_keys(first, {"a": {"b": 1, "c": 4}, "e": 3}) == ["a.c", "d", "e"]
    assert differing_keys(first, first) == []


NAMES = ["fed_avg", "local_item_dp", "subject_release"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    fakes = [Fake(name, mode="sound", rounds=4) for name in NAMES]
    fakes += [Fake(name, mode="sound", rounds=4, predicted=500) for name in NAMES[1:]]
    return collected(tmp_path_factory.mktemp("runs"), fakes).read_runs()


def test_stated_epsilon_is_of_the_unit_that_the_noise_was_made_for(runs: pd.DataFrame) -> None:
    chosen, notes = sound_runs(runs, vary=("noise_subjects",))
    assert notes == []
    own = chosen[chosen["predicted_subjects"].isna()].set_index("name")["epsilon_stated"]
    assert own["LocalItemDP"] == 1.1 and own["SubjectRelease"] == 4.0  # as the fake runs' statements say
    assert math.isnan(own["FedAvg"])
    predicted = chosen[chosen["predicted_subjects"].notna()].set_index("name")["epsilon_stated"]
    assert predicted.to_dict() == {"LocalItemDP": 4.0, "SubjectRelease": 4.0}


def test_runs_with_noise_for_one_number_of_subjects_are_kept(runs: pd.DataFrame) -> None:
    chosen, notes = sound_runs(runs, vary=())
    assert notes == ["Only runs with the noise of 500 subjects shown"]
    assert chosen["name"].tolist().count("FedAvg") == 1 and len(chosen) == 3


def test_claims_are_those_that_the_algorithms_declare() -> None:
    table = pd.DataFrame({"algorithm": list(ALGORITHMS), "variant": None, "mode": "sound"})
    units = claimed_units(table).set_axis(table["algorithm"])
    told = {"fed_avg": "", "local_item_dp": "item", "joint_noise": "item", "user_ldp": "subject"}
    assert units[list(told)].to_dict() == told
    assert table.loc[~are_private(table), "algorithm"].tolist() == ["fed_avg"] == units.index[units == ""].tolist()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        *((4.0, "4"), (8.33, "8.33"), (0.5, "0.5"), (9.996, "10"), (57.94, "57.9"), (144.6, "145"), (99.97, "100")),
        *((10_131_055.5, "1e7"), (99_999.4, "99,999"), (math.inf, "∞"), (math.nan, "–")),
    ],
)
def test_epsilon_in_three_figures(value: float, words: str) -> None:
    assert format_epsilon(value) == words


values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20).filter(lambda v: np.std(v) > 1e-6)


@given(values)
def test_the_interval_is_that_of_scipys_one_sample_t_test(sample: list[float]) -> None:
    found = mean_interval(sample)
    wanted = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(sample))
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-9, abs=1e-9)
    assert found.count == len(sample)


@pytest.mark.parametrize("others", [[1.0], [1.0, 2.0]])
def test_pairs_of_different_numbers_are_refused(others: list[float]) -> None:
    with pytest.raises(DataError, match="of the same length"):
        paired_difference([1.0, 2.0, 3.0], others)


@given(values, st.integers(0, 2**32 - 1))
def test_paired_difference_is_scipys_paired_t_test(sample: list[float], seed: int) -> None:
    first = np.asarray(sample)
    second = first + np.random.default_rng(seed).normal(0.3, 1.0, first.size)
    wanted = stats.ttest_rel(first, second).confidence_interval(0.95)
    found = paired_difference(first, second)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-6, abs=1e-9)


def test_values_that_are_not_finite_are_left_out_and_one_seed_has_no_interval() -> None:
    assert mean_interval([1.0, np.nan, 3.0, np.inf]).count == 2
    alone = mean_interval([0.7, np.nan])
    assert (alone.mean, alone.count) == (0.7, 1) and np.isnan([alone.low, alone.high]).all()
    with pytest.raises(DataError, match="finite"):
        mean_interval([np.nan])


def test_bands_are_the_intervals_of_each_group() -> None:
    frame = pd.DataFrame({"round": [1, 1, 1, 2, 2, 3], "value": [1.0, 2.0, 4.0, 5.0, np.nan, np.nan]})
    table = bands(frame, ["round"], "value").set_index("round")
    alone = mean_interval([1.0, 2.0, 4.0])
    assert table.loc[1, ["mean", "low", "high"]].tolist() == pytest.approx([alone.mean, alone.low, alone.high])
    assert table.loc[2, "seeds"] == 1
    assert np.isnan(table.loc[2, "low"])
    assert 3 not in table.index
