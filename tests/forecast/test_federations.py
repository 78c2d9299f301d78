"""The federation of a plan against the one that the run will train on."""

import re
from pathlib import Path

import numpy as np
import pytest

from forecast.runs import folders, prepare, small_run
from subjectdp.accounting.plan_run import draft_run
from subjectdp.config import load_scenario
from subjectdp.data.partition import make_partition
from subjectdp.errors import DataError
from subjectdp.forecast.plan_report import COUNTS, PARTITION, PREPARED, federation_of

ROOT = Path(__file__).resolve().parents[2]
FACTS = ("silo_items", "silo_subjects", "silo_largest_subject", "counts")


def test_a_federation_is_the_partition_before_and_after_it_has_been_made(tmp_path):
    run = small_run()
    prepare(run, tmp_path)
    foreseen, source = federation_of(run, str(tmp_path))
    assert source == PREPARED
    prepared, folder, _ = folders(run, tmp_path)
    made = make_partition(prepared, folder, run)
    assert {key: foreseen.facts[key] for key in FACTS} == {key: made.facts[key] for key in FACTS}
    again, source = federation_of(run, str(tmp_path))
    assert source == PARTITION
    assert np.array_equal(again.train_items, made.train_items)
    (folder / "train_items.npy").write_bytes(b"")
    with pytest.raises(DataError):  # and no prediction
        federation_of(run, str(tmp_path))


@pytest.mark.parametrize("cap", [None, 6])
def test_without_data_the_papers_federation_is_foreseen(tmp_path, cap):
    data, partition = {"source": "upstream", "subjects": 3500}, {"silos": 16, "max_items_per_subject": cap}
    run = small_run(data=data, partition=partition, training={"batch_size": 512})
    partition, source = federation_of(run, str(tmp_path))
    assert source == COUNTS
    assert partition.facts["counts"]["subjects"] == 3500
    if cap is None:
        assert partition.facts["counts"]["train_items"] == pytest.approx(3500 * 145, rel=0.01)
    assert (max(partition.facts["silo_largest_subject"]) == 6) == (cap == 6)


@pytest.mark.parametrize(("page", "below"), [("README.md", ["embedded"]), ("config/README.md", [])])
def test_the_sweeps_in_the_docs_would_start(page, below, tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (block,) = [text for text in blocks if "sweep:" in text]
    (tmp_path / "mine.yaml").write_text(block)
    files = [ROOT / f"config/scenarios/{name}.yaml" for name in below]
    runs = load_scenario([*files, tmp_path / "mine.yaml"]).runs
    assert len(runs) > 5
    for run in runs:
        partition, _ = federation_of(run, str(tmp_path))
        draft_run(run, partition)  # refuses what cannot be trained


def test_runs_of_one_partition_share_its_prediction(tmp_path):
    first, again = (small_run(algorithm=name) for name in ("fed_avg", "user_ldp"))
    predicted, source = federation_of(first, str(tmp_path))
    assert source == COUNTS
    assert federation_of(again, str(tmp_path))[0] is predicted
    other, _ = federation_of(small_run(algorithm="fed_avg", seed=1), str(tmp_path))
    assert other is not predicted
    assert not np.array_equal(other.train_items, predicted.train_items)
