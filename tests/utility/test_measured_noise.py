"""Two rounds that differ in the noise alone: what is measured is what the plan says, for every algorithm."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from subjectdp.errors import DataError
from subjectdp.noise import gaussian as noise
from subjectdp.training import silo_step
from subjectdp.utility import NOISE_COLUMNS as COLUMNS
from subjectdp.utility import PAPERS, SCENARIO
from subjectdp.utility.measured_noise import PAPER_PROBABILITY, write_noise
from training import small_world

pytestmark = pytest.mark.slow

ALGORITHMS = [
    *("local_item_dp", "user_ldp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3"),
    *("central_sub_dp", "subject_release", "uldp_fl", "subject_sampling", "capped_item_dp"),
]


def config(algorithm: str, **subject: Any) -> dict[str, Any]:
    sampled = {"subject": subject} if algorithm.startswith("subject") else {}
    single = algorithm in ("subject_release", "central_sub_dp") and subject.get("contribution") != "update"
    steps = 1 if single else 2
    return small_world.config(
        algorithm=algorithm,
        privacy={"mode": "sound", "predicted_subjects": 60, "clip_norm": 0.3},
        training={"local_steps": steps},
        model={"name": "logistic", "parameters": {}},
        **sampled,
    )


def measured(folder: Path, runs: list[dict[str, Any]]) -> pd.DataFrame:
    jobs = [(run, *small_world.build(folder, run)) for run in runs]
    return write_noise(jobs, folder / "noise.parquet")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return measured(tmp_path_factory.mktemp("noise"), [config(name) for name in ALGORITHMS])


def as_planned(table: pd.DataFrame) -> bool:
    """Within five standard errors, 1/√(2P) of the value each."""
    error = 5 / (2 * table["coordinates"]) ** 0.5
    return bool(((table["measured"] / table["planned"] - 1).abs() < error).all())


def test_measured_noise_is_the_planned_one(table: pd.DataFrame) -> None:
    assert list(table.columns) == list(COLUMNS) and len(table) == 2 * len(ALGORITHMS)
    assert set(table["schedule"]) == {SCENARIO, PAPERS} and (table["planned"] > 0).all()
    assert as_planned(table), table[["label", "planned", "measured"]]


def test_the_papers_schedule_has_more_releases_but_for_one_a_round(table: pd.DataFrame) -> None:
    papers = table[table["schedule"] == PAPERS].set_index("algorithm")
    assert set(papers["rounds"]) == {100}
    assert papers.loc["higrad_avg_dp:v3", "local_steps"] == 50
    assert papers.loc["subject_release", "local_steps"] == 1 == papers.loc["central_sub_dp:v0", "local_steps"]
    assert papers.loc["subject_sampling", "sampling_probability"] == pytest.approx(PAPER_PROBABILITY)
    release = table[table["algorithm"] == "subject_release"].set_index("schedule")["planned"]
    assert release[PAPERS] / release[SCENARIO] == pytest.approx(math.sqrt(100 / 2), rel=1e-3)


def test_noise_that_was_given_was_made_for_no_epsilon(tmp_path: Path) -> None:
    run = config("local_item_dp")
    given = {"mode": "sound", "noise_multiplier": 1.0, "clip_norm": 0.3}
    assert measured(tmp_path, [{**run, "privacy": given}])["epsilon"].tolist() == [math.inf] * 2


def test_the_measurement_sees_wrong_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug that halves the noise halves what is measured, and leaves the plan as it is."""

    def half(total: torch.Tensor, std: float, key: bytes) -> torch.Tensor:
        return noise.add_gaussian(total, std / 2, key)

    monkeypatch.setattr(silo_step, "add_gaussian", half)
    found = measured(tmp_path, [config("local_item_dp")])
    assert (found["measured"] / found["planned"]).tolist() == pytest.approx([0.5, 0.5], rel=0.05)


def test_what_is_no_sound_noise_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one run with noise"):
        write_noise([], tmp_path / "noise.parquet")
    for name in ("local_item_dp", "local_group_dp"):  # as published
        run = small_world.config(algorithm=name, training={"local_steps": 2})
        with pytest.raises(DataError, match="privacy.mode of .* to be sound"):
            measured(tmp_path, [run])
    assert not (tmp_path / "noise.parquet").exists()
