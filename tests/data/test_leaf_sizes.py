"""Sizes of LEAF's JSON from the heads of its files."""

import json
import zipfile
from pathlib import Path

from subjectdp.config import load_run
from subjectdp.data.sizes import leaf_sizes
from subjectdp.forecast.cost_model import expected_items
from subjectdp.forecast.federations import federation_of


def write(path: Path, counts: dict[str, int]) -> None:
    items = {user: {"x": [[0.0] * 784] * count, "y": [0] * count} for user, count in counts.items()}
    head = {"users": list(counts), "num_samples": list(counts.values())}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**head, "user_data": items}))


def test_sizes_of_a_folder_of_a_zip_and_of_users_in_parts(tmp_path: Path) -> None:
    write(tmp_path / "parts/train/a.json", {"a": 8, "b": 6})
    write(tmp_path / "parts/test/a.json", {"a": 2})
    assert leaf_sizes(str(tmp_path / "parts")) == (10, 6)
    write(tmp_path / "leaf/all_data/all_data_0.json", {"a": 30, "b": 40})
    write(tmp_path / "leaf/all_data/all_data_1.json", {"c": 50, "empty": 0})
    assert leaf_sizes(str(tmp_path / "leaf")) == (30, 40, 50)
    with zipfile.ZipFile(tmp_path / "leaf.zip", "w") as packed:
        packed.write(tmp_path / "leaf/all_data/all_data_0.json", "data/all_data/all_data_0.json")
    assert leaf_sizes(str(tmp_path / "leaf.zip")) == (30, 40)


def test_what_cannot_be_told_is_not_guessed(tmp_path: Path) -> None:
    assert leaf_sizes(str(tmp_path / "none")) is None
    (tmp_path / "x.json").write_text('{"user_data": {}, "users": ["a"]}')
    assert leaf_sizes(str(tmp_path)) is None
    (tmp_path / "x.json").write_text("no JSON")
    assert leaf_sizes(str(tmp_path)) is None


def test_a_forecast_counts_the_data_at_hand(tmp_path: Path) -> None:
    """A few hundred items of one's own were planned as all of FEMNIST."""
    write(tmp_path / "all_data/all_data_0.json", {f"user {number}": 20 for number in range(9)})
    run = load_run({"data": {"source": "leaf_json", "path": str(tmp_path)}, "partition": {"silos": 2}})
    items = expected_items(run)
    assert (items.subjects, items.train + items.validation + items.test) == (9, 180)
    partition, _ = federation_of(run, str(tmp_path / "results"))
    assert sum(partition.facts["silo_items"]) == 9 * 12  # 16 of 20 are not for the test, 12 of those for training
