"""The plan of a scenario against what the runs then really are: federation, ε, rounds, steps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from subjectdp.accounting.plan_run import draft_run
from subjectdp.cli.main import main
from subjectdp.config import load_scenario, load_scenario_from_mapping, paths
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import make_partition
from subjectdp.data.store import write_prepared
from subjectdp.errors import DataError
from subjectdp.forecast.federations import COUNTS, PARTITION, PREPARED, federation_of
from subjectdp.forecast.measured import Measurement, Paces, measurements
from subjectdp.forecast.plan_report import _span, plan_scenario
from subjectdp.forecast.run_time import forecast, predicted_memory_mb
from subjectdp.training.run import train_run
from training import small_world

ROOT = Path(__file__).resolve().parents[2]
FACTS = ("silo_items", "silo_subjects", "silo_largest_subject", "counts")


def run_of(**changes: Any) -> RunConfig:
    return resolve_defaults(RunConfig.model_validate(small_world.config(**changes)))


def folders(run: RunConfig, results: Path) -> tuple[Path, Path, Path]:
    found = paths.prepared_dir(run.data_key), paths.partition_dir(run.partition_id), paths.run_dir(run.run_id)
    prepared, partition, output = (results / path.removeprefix("results/") for path in found)
    return prepared, partition, output


def prepare(run: RunConfig, results: Path) -> None:
    write_prepared(folders(run, results)[0], small_world.image_content(), "leaf_json", [], 0.2)


def train(run: RunConfig, results: Path) -> dict[str, Any]:
    """Makes the partition and trains; returns the manifest."""
    prepared, partition, output = folders(run, results)
    make_partition(prepared, partition, run)
    train_run(run.model_dump(mode="json"), prepared, partition, output, results / "cache/calibration")
    manifest: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    return manifest


def test_a_federation_is_the_partition_before_and_after_it_has_been_made(tmp_path):
    run = run_of()
    prepare(run, tmp_path)
    foreseen, source = federation_of(run, str(tmp_path))
    assert source == PREPARED
    prepared, folder, _ = folders(run, tmp_path)
    made = make_partition(prepared, folder, run)
    assert {key: foreseen.facts[key] for key in FACTS} == {key: made.facts[key] for key in FACTS}
    again, source = federation_of(run, str(tmp_path))
    assert source == PARTITION
    assert np.array_equal(again.train_items, made.train_items)


def test_a_corrupt_partition_is_an_error_and_no_prediction(tmp_path):
    run = run_of()
    prepare(run, tmp_path)
    prepared, folder, _ = folders(run, tmp_path)
    make_partition(prepared, folder, run)
    (folder / "train_items.npy").write_bytes(b"")
    with pytest.raises(DataError):
        federation_of(run, str(tmp_path))


@pytest.mark.parametrize("cap", [None, 6])
def test_without_data_the_papers_federation_is_foreseen(tmp_path, cap):
    settings = {"data": {"source": "upstream", "subjects": 3500}, "partition": {"silos": 16}}
    run = run_of(**settings, training={"batch_size": 512})
    run = run.model_copy(
        update={"partition": run.partition.model_copy(update={"max_items_per_subject": cap})}
    )
    partition, source = federation_of(run, str(tmp_path))
    assert source == COUNTS
    assert partition.facts["counts"]["subjects"] == 3500
    if cap is None:
        assert partition.facts["counts"]["train_items"] == pytest.approx(3500 * 145, rel=0.01)
    assert (max(partition.facts["silo_largest_subject"]) == 6) == (cap == 6)


def test_subjects_that_are_kept_are_the_first_ones(tmp_path):
    few = run_of(data={"embedded": {"subjects": 30, "items_per_subject": 40}, "subjects": 10})
    partition, _ = federation_of(few, str(tmp_path))
    assert partition.facts["counts"]["subjects"] == 10


@pytest.mark.parametrize(
    "algorithm", ["fed_avg", "local_item_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3", "local_group_dp"]
)
def test_the_plan_says_what_the_run_will_state(tmp_path, algorithm):
    run = run_of(algorithm=algorithm)
    prepare(run, tmp_path)
    scenario = load_scenario_from_mapping({"name": "x", "run": small_world.config(algorithm=algorithm)})
    (row,) = forecast(scenario, str(tmp_path))
    manifest = train(run, tmp_path)
    stated = manifest["privacy"]
    published = stated["as_published"]["epsilon"]
    assert row.epsilon_as_published == (None if published is None else pytest.approx(published, rel=2e-3))
    for name, statement in stated["sound"].items():
        assert getattr(row, f"epsilon_sound_{name}") == statement["epsilon"], name
    steps = pd.read_parquet(folders(run, tmp_path)[2] / "steps.parquet")
    assert row.rounds == manifest["plan"]["rounds"]
    assert row.local_steps == len(steps)
    assert (row.runs, row.finished) == (1, 0)


def test_finished_runs_are_counted_and_their_pace_is_used(tmp_path):
    run = run_of(algorithm="fed_avg")
    prepare(run, tmp_path)
    manifest = train(run, tmp_path)
    content = {"name": "x", "run": small_world.config(algorithm="fed_avg"), "sweep": [{"seed": [0, 1]}]}
    found = measurements(str(tmp_path))
    (row,) = forecast(load_scenario_from_mapping(content), str(tmp_path), Paces(found))
    assert (row.runs, row.finished) == (2, 1)
    assert row.hours_a_run * 3600 == pytest.approx(manifest["wall_seconds"])
    assert row.hours == row.hours_a_run, "one of two is left"
    assert row.memory_mb == manifest["peak_memory_mb"]
    assert row.basis == "by finished runs of the same algorithm and model on cpu"


def test_a_manifest_that_cannot_be_read_is_passed_over(tmp_path):
    (tmp_path / "runs/half").mkdir(parents=True)
    (tmp_path / "runs/half/manifest.json").write_text('{"config": ')
    (tmp_path / "runs/old").mkdir(parents=True)
    (tmp_path / "runs/old/manifest.json").write_text('{"config": {"seed": 1}}')
    assert measurements(str(tmp_path)) == []


def measured(device: str, model: str, algorithm: str, factor: float) -> Measurement:
    return Measurement(device, model, algorithm, factor, 100.0)


def test_the_closest_measurement_counts_and_a_gpu_before_a_cpu():
    run = run_of(algorithm="fed_avg")
    far = [measured("cpu", "leaf_cnn", "UserLDP", 9.0)]
    model = [measured("cpu", "small_cnn", "UserLDP", factor) for factor in (2.0, 3.0, 7.0)]
    same = [measured("cpu", "small_cnn", "FedAvg", 1.5)]
    assert Paces([]).pace(run).factor == 1.0
    assert Paces(far).pace(run).factor == 9.0
    assert Paces(far + model).pace(run).factor == 3.0
    assert Paces(far + model + same).pace(run).factor == 1.5
    fast = [measured("cuda", "leaf_cnn", "FedAvg", 0.01)]
    assert Paces(far + model + same + fast).pace(run).factor == 0.01
    assert Paces(same, gflops=100.0).pace(run).factor == 0.5


def test_larger_models_and_batches_take_more_memory():
    small, large = run_of(), run_of(model={"name": "leaf_cnn", "parameters": {}})
    assert predicted_memory_mb(small) < predicted_memory_mb(large)
    batch = run_of(
        model={"name": "leaf_cnn", "parameters": {}},
        training={"batch_size": 512},
        performance={"evaluation_batch_size": 1},
    )
    assert predicted_memory_mb(batch) > predicted_memory_mb(
        batch.model_copy(
            update={"performance": batch.performance.model_copy(update={"physical_batch_size": 8})}
        )
    )


def test_a_run_that_will_refuse_to_start_is_told_with_its_reason(tmp_path):
    run = small_world.config(
        training={"batch_size": 5000}, data={"embedded": {"subjects": 9, "items_per_subject": 60}}
    )
    frame, text = plan_scenario(load_scenario_from_mapping({"name": "refused", "run": run}), str(tmp_path))
    assert "training.batch_size" in frame["problem"][0]
    assert (
        "1 of 1 runs will not start (LocalItemDP on femnist): Expected training.batch_size"
        in text.replace("\n", " ")
    )
    assert frame["epsilon_sound_subject"].isna().all()


def test_the_command_prints_the_plan_and_writes_it(tmp_path, capsys):
    content = {
        "name": "small",
        "run": small_world.config(data={"embedded": {"subjects": 9, "items_per_subject": 60}}),
        "sweep": [
            {"algorithm": ["fed_avg", "local_item_dp"], "privacy.clip_norm": [1, 2], "seed": [0, 1, 2]}
        ],
    }
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(content))
    assert main(["plan", str(file), "--results", str(tmp_path / "results"), "--gflops", "1000"]) == 0
    printed = capsys.readouterr().out
    folder = tmp_path / "results/small"
    assert (folder / "plan.txt").read_text() == printed
    table = pd.read_csv(folder / "plan.csv")
    runs = load_scenario_from_mapping(content).runs
    assert table["runs"].sum() == len(runs) == 9, "clipping means nothing to FedAvg"
    assert printed.startswith("Plan of the scenario small: 9 runs, 0 of them done")
    words = " ".join(printed.split())
    assert "taken from: expected counts" in words and "9 runs: for a device of 1000 GFLOP/s" in words
    assert set(table.loc[table["label"] == "LocalItemDP", "settings"].fillna("")) == {"", "clip_norm=2"}
    assert not (tmp_path / "results/data").exists(), "nothing is fetched or prepared"
    assert main(["plan", str(file), "--results", str(tmp_path / "results"), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["runs"] for row in rows] == table["runs"].tolist()
    assert [row["epsilon_sound_item"] for row in rows][0] is None, "FedAvg states none: null, and no NaN"


def test_all_runs_that_will_not_start_are_told_and_the_command_says_so(tmp_path, capsys):
    run = small_world.config(
        training={"batch_size": 5000}, data={"embedded": {"subjects": 9, "items_per_subject": 60}}
    )
    file = tmp_path / "refused.yaml"
    content = {"name": "refused", "run": run, "sweep": [{"algorithm": ["fed_avg", "user_ldp"]}]}
    file.write_text(yaml.safe_dump(content))
    assert main(["plan", str(file), "--results", str(tmp_path / "results")]) == 1
    told = capsys.readouterr().out.replace("\n", " ")
    assert "2 of 2 runs will not start (FedAvg on femnist, UserLDP on femnist): Expected" in told


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (0, "0 s"),
        (2.5 / 3600, "2.5 s"),
        (14 / 3600, "14 s"),
        (0.05, "3.0 min"),
        (1.5, "90 min"),
        (5.12, "5.1 h"),
        (1239.6, "1,240 h"),
    ],
)
def test_times_are_in_units_that_people_can_picture(hours, words):
    assert _span(hours) == words


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


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "fast"])
def test_a_rate_has_to_be_a_positive_number(value, capsys):
    with pytest.raises(SystemExit):
        main(["plan", "config/scenarios/smoke.yaml", "--gflops", value])
    assert "positive number" in capsys.readouterr().err
