"""Fashion-MNIST's files: the format, the generated ones, and which damage is refused."""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from subjectdp.config.run import RunConfig
from subjectdp.data.content import check_content, count_content
from subjectdp.data.embedded import generate
from subjectdp.data.embedded.garments import idx_bytes
from subjectdp.data.idx import load_upstream, read_idx
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, prepare_dataset
from subjectdp.data.store import load_prepared
from subjectdp.errors import DataError
from subjectdp.training.run import train_run

REAL = os.environ.get("SUBJECTDP_REAL_DATA")


def _write(path: Path, shape: tuple[int, ...], values: bytes, kind: int = 8) -> Path:
    header = bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    path.write_bytes(gzip.compress(header + values))
    return path


def test_the_format_is_the_published_one(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.gz", (2, 3, 1), bytes(range(6)))
    assert read_idx(path, 3).tolist() == [[[0], [1], [2]], [[3], [4], [5]]]
    assert gzip.decompress(path.read_bytes()) == idx_bytes(np.arange(6, dtype=np.uint8).reshape(2, 3, 1))


@pytest.mark.parametrize(
    ("shape", "values", "kind"), [((2, 3), 6, 8), ((2, 3, 1), 5, 8), ((2, 3, 1), 7, 8), ((2, 3, 1), 6, 9)]
)
def test_other_files_are_refused(tmp_path: Path, shape: tuple[int, ...], values: int, kind: int) -> None:
    with pytest.raises(DataError):
        read_idx(_write(tmp_path / "a.gz", shape, bytes(values), kind), 3)


def test_generated_files_are_read(tmp_path: Path) -> None:
    generate("fashion_mnist", tmp_path, 7, 20, seed=3)
    content = load_upstream(tmp_path)
    check_content(content)
    assert content.notes["images_of_files"] == {"train": 120, "t10k": 20}
    assert content.own_subjects and set(content.labels) == set(range(10))
    corners = content.features[:, [0, 0, -1, -1], [0, -1, 0, -1]]
    assert np.median(corners) == 0 and content.features.max() > 200  # light on black, as upstream


def test_items_are_dealt_in_equal_shares(tmp_path: Path) -> None:
    run = RunConfig.model_validate(
        {
            "data": {"dataset": "fashion_mnist", "embedded": {"subjects": 10, "items_per_subject": 33}},
            "partition": {"silos": 4, "distribution": "equal"},
        }
    )
    fetch_sources(run.data, tmp_path / "source")
    prepare_dataset(run.data, tmp_path / "source", tmp_path / "prepared")
    made = make_partition(tmp_path / "prepared", tmp_path / "partition", run)
    assert len(made.test_items) == 66 and len(made.validation_items) == 53  # 0.2 of 330, 0.2 of the other 264
    assert np.ptp(np.diff(made.train_offsets)) <= 1
    everything = np.concatenate([made.train_items, made.validation_items, made.test_items])
    assert sorted(everything) == list(range(330))
    assert made.facts["own_subjects"] and made.facts["partition"]["max_items_per_subject"] == 1
    assert load_prepared(tmp_path / "prepared").shape == (1, 28, 28)
    other = make_partition(tmp_path / "prepared", tmp_path / "other", run.model_copy(update={"seed": 1}))
    assert made.train_items.tolist() != other.train_items.tolist()


@pytest.mark.slow
def test_a_run_says_that_items_are_their_own_subjects(tmp_path: Path) -> None:
    run = RunConfig.model_validate(
        {
            "data": {"dataset": "fashion_mnist", "embedded": {"subjects": 10, "items_per_subject": 20}},
            "partition": {"silos": 2, "distribution": "equal"},
            "algorithm": "joint_noise",
            "privacy": {"accountant": "rdp"},
            "joint": {"noise": "skellam", "bits": 32},
            "training": {"rounds": 1, "batch_size": 16},
            "model": "tanh_cnn",
        }
    )
    fetch_sources(run.data, tmp_path / "source")
    prepare_dataset(run.data, tmp_path / "source", tmp_path / "prepared")
    make_partition(tmp_path / "prepared", tmp_path / "partition", run)
    train_run(json.loads(run.model_dump_json()), tmp_path / "prepared", tmp_path / "partition", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert any("each item is its own subject" in line for line in manifest["privacy"]["card"])
    assert all(silo["max_items_per_subject"] == 1 for silo in manifest["plan"]["silos"])


@pytest.mark.skipif(REAL is None, reason="needs SUBJECTDP_REAL_DATA")
def test_the_first_real_images_are_read() -> None:
    content = load_upstream(Path(str(REAL)) / "fashion_mnist_first")
    assert content.notes["images_of_files"] == {"train": 1813, "t10k": 1770}
    assert content.labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert count_content(content, 0.2)["train_items"] == 2866
