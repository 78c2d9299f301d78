"""Collection: what is gathered, and what is refused with the file named."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from figures.fake_runs import Fake, grid, list_files, write_run, write_runs
from subjectdp.errors import DataError
from subjectdp.io.atomic import sealed
from subjectdp.results.collect import QUANTITIES, RUN_COLUMNS, collect_scenario, epsilon_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "runs", Fake("higrad_avg_dp:v1", rounds=8))


def test_one_row_a_run_with_the_columns_of_the_index(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("statement", "value"), [(4, 4.0), ({"epsilon": 2.5}, 2.5), ("inf", math.inf), ({"epsilon": "Infinity"}, math.inf)]
)
def test_statements_of_epsilon(statement: object, value: float) -> None:
    assert epsilon_of(statement) == value


def test_no_statement_is_nan_and_words_are_refused() -> None:
    assert math.isnan(epsilon_of(None))
    assert math.isnan(epsilon_of({"epsilon": None}))
    with pytest.raises(DataError, match="plenty"):
        epsilon_of({"epsilon": "plenty"})


def test_rounds_are_all_there_in_order_and_steps_are_counted(tmp_path: Path) -> None:
    folders = write_runs(tmp_path / "runs", grid(["fed_avg"], ["femnist"], [0, 1], rounds=5))
    collect_scenario(folders, tmp_path)
    assert pd.read_parquet(tmp_path / "rounds.parquet")["round"].tolist() == [1, 2, 3, 4, 5] * 2
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
    with pytest.raises(DataError, match=name):
        collect_scenario([folder], tmp_path / "out")
    assert not (tmp_path / "out" / "runs.parquet").exists()


def rewrite(path: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    change(pd.read_parquet(path)).to_parquet(path, index=False)


@pytest.mark.parametrize("name", ["rounds.parquet", "steps.parquet"])
def test_a_table_that_was_changed_after_the_run_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    column = {"rounds.parquet": "test_accuracy", "steps.parquet": "noise_multiplier"}[name]
    rewrite(folder / name, lambda frame: frame.assign(**{column: frame[column] * 1.5}))
    with pytest.raises(DataError, match=f"{name} (was changed|is missing or truncated).*run the workflow again"):
        collect_scenario([folder], tmp_path)


def test_a_changed_digit_in_a_manifest_is_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "manifest.json"
    text = path.read_text()
    assert '"epsilon": 4.0' in text
    path.write_text(text.replace('"epsilon": 4.0', '"epsilon": 3.0', 1))
    with pytest.raises(DataError, match="manifest.json was changed after the run"):
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
