"""Runs over several processes against the same run in one; workers that fail, are killed, or lose their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from subjectdp.accounting.plan_run import plan_run
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import load_partition
from subjectdp.data.store import load_prepared
from subjectdp.errors import ConfigError, DataError, SubjectDPError, WorkerError
from subjectdp.places import LIBRARY
from subjectdp.training.build import RunInputs, make_federation
from subjectdp.training.federation import Federation
from subjectdp.training.items.device_data import ResidentData
from subjectdp.training.record.environment import choose_devices
from subjectdp.training.record.steplog import StepLog
from subjectdp.training.run import train_run
from subjectdp.training.workers import worker
from subjectdp.training.workers.messages import Recipe, Seat
from subjectdp.training.workers.processes import Ranks, Team, team_of
from training import small_world
from training.outcomes import outcome

CPU = torch.device("cpu")
SKELLAM = {"noise": "skellam", "bits": 10}

SAMPLED = {"algorithm": "higrad_avg_dp:v1", "training": {"rounds": 2, "batch_size": 8, "silos_per_round": 2}}
AVERAGED = {"training": {"rounds": 2, "batch_size": 8, "averaging": {"name": "tail", "fraction": 1.0}}}
OTHERS: list[tuple[int, dict[str, Any]]] = [
    (2, AVERAGED),
    (2, {"algorithm": "central_sub_dp", "privacy": {"mode": "sound", "epsilon": 8.0}}),
    (
        2,
        {
            "algorithm": "joint_noise",
            "joint": SKELLAM,
            "privacy": {"accountant": "rdp", "epsilon": 8.0, "delta": 1e-3},
            "training": {"rounds": 1, "batch_size": 8, "local_steps": 1},
        },
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("processes", "changes"),
    [(3, SAMPLED), *OTHERS],
)
def test_several_processes_train_the_run_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, changes: dict[str, Any]
) -> None:
    """Model, mini-batches, scores and statements, to the bit."""
    every_part = Ranks.parts

    def first_part(ranks: Ranks, number: int, order: list[int]) -> Iterator[int]:
        yield from islice(every_part(ranks, number, order), 1)

    monkeypatch.setattr(Ranks, "parts", first_part)  # in this process: the workers have to do all the others
    outcomes = []
    for count in (1, processes):
        performance = {"processes": count, "evaluation_batch_size": 7}
        config = small_world.config(performance=performance, **changes)
        prepared, partition = small_world.build(tmp_path, config)
        folder = tmp_path / f"{count}"
        train_run(config, prepared, partition, folder, tmp_path / "cache", lambda line: None)
        outcomes.append(outcome(folder))
    assert outcomes[0] == outcomes[1]


@dataclass(frozen=True)
class InWorker:
    """Two parts; the one that a worker takes does ``deed``, the other waits for it. A third is left over."""

    deed: str
    rank_0: int
    folder: str

    parts: int = 3

    def order(self, federation: Federation) -> list[int]:
        return [0, 1, 2]

    def run(self, federation: Federation, theta: Tensor, part: int, log: StepLog) -> Tensor:
        reached = Path(self.folder, self.deed)
        if os.getpid() == self.rank_0:
            deadline = time.monotonic() + 60.0
            while not reached.exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            return torch.zeros(1)
        reached.touch()
        if self.deed == "error":
            raise DataError("Expected the worker's own words.")
        if self.deed == "bug":
            raise ZeroDivisionError("by the worker")
        os.kill(os.getpid(), signal.SIGKILL)
        return torch.zeros(1)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    folder = tmp_path_factory.mktemp("world")
    config = small_world.config(algorithm="fed_avg")
    prepared, partition = small_world.build(folder, config)
    run = resolve_defaults(RunConfig.model_validate(config))
    plan = plan_run(run, load_partition(partition))
    return Recipe(run.model_dump(mode="json"), plan, str(prepared), str(partition))


def test_a_worker_takes_the_features_that_rank_0_has_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_world.config(algorithm="fed_avg") | {"model": {"name": "handwriting_head"}}
    prepared, partition = small_world.build(tmp_path, config)
    run, parts = resolve_defaults(RunConfig.model_validate(config)), load_partition(partition)
    plan, cache = plan_run(run, parts), tmp_path / "cache"
    first = make_federation(RunInputs(run, plan, load_prepared(prepared), parts), CPU, cache)

    def computed(*_: object) -> Tensor:
        raise AssertionError("features computed again")

    monkeypatch.setattr(ResidentData, "_of_items", computed)
    kept = Recipe(run.model_dump(mode="json"), plan, str(prepared), str(partition), cache_folder=cache)
    found = worker._federation(kept, Seat(1, 2, "cpu", ""))
    assert torch.equal(found.data.batch(parts.train_items)[0], first.data.batch(parts.train_items)[0])
    with pytest.raises(AssertionError, match="computed again"):
        worker._federation(replace(kept, cache_folder=None), Seat(1, 2, "cpu", ""))


@pytest.fixture
def with_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers find the works of this module."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    yield


def federation_of(recipe: Recipe) -> Federation:
    run, partition = RunConfig.model_validate(recipe.run), load_partition(recipe.partition_folder)
    inputs = RunInputs(run, recipe.plan, load_prepared(recipe.prepared_folder), partition)
    return make_federation(inputs, CPU)


def attempt(recipe: Recipe, deed: str, folder: Path) -> None:
    federation = federation_of(recipe)
    with team_of(recipe, [CPU, CPU]) as team:
        assert isinstance(team, Team)
        work, theta = InWorker(deed, os.getpid(), str(folder)), federation.engine.flat.vector.clone()
        list(team.results(federation, work, theta, StepLog()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("deed", "kind", "message"),
    [
        ("error", DataError, "^Expected the worker's own words.$"),
        ("bug", WorkerError, "Worker 1 failed: ZeroDivisionError: by the worker\n(.|\n)*Traceback"),
        ("death", WorkerError, "Worker 1 of the run ended before its work was done"),
    ],
)
def test_what_ends_a_worker_ends_the_run(
    recipe: Recipe, with_tests: None, tmp_path: Path, deed: str, kind: type[SubjectDPError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        attempt(recipe, deed, tmp_path)
    assert not torch.distributed.is_initialized()


@pytest.mark.long
def test_a_worker_that_cannot_start_says_why(recipe: Recipe) -> None:
    broken = Recipe(recipe.run, recipe.plan, "/nowhere", recipe.partition_folder)
    with pytest.raises(DataError, match=r"/nowhere.*meta.json is missing"), team_of(broken, [CPU, CPU]):
        pytest.fail("no team without its workers")


def test_one_device_needs_no_team(recipe: Recipe) -> None:
    with team_of(recipe, [CPU]) as team:
        assert team is None


@pytest.mark.long
def test_a_worker_ends_when_its_parent_is_gone_whatever_it_does() -> None:
    """The parent's death closes the worker's standard input; work that never ends does not keep it."""
    code = (
        "import threading, time; from subjectdp.training.workers import worker; "
        "threading.Thread(target=worker._end_with_parent, daemon=True).start(); print('on', flush=True); "
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    try:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        process.stdin.close()
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def pretend(monkeypatch: pytest.MonkeyPatch, gpus: int, cuda: str | None = "13.0") -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    monkeypatch.setattr(torch.version, "cuda", cuda)


@pytest.mark.parametrize(
    ("name", "processes", "gpus", "wanted"),
    [
        ("auto", 1, 0, ["cpu"]),
        ("auto", 3, 0, ["cpu"] * 3),
        ("auto", 3, 2, ["cuda:0", "cuda:1"]),
        ("cuda", 2, 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 1, 2, ["cuda:1"]),
        ("cpu", 2, 2, ["cpu", "cpu"]),
    ],
)
def test_devices_of_the_processes(
    monkeypatch: pytest.MonkeyPatch, name: str, processes: int, gpus: int, wanted: list[str]
) -> None:
    pretend(monkeypatch, gpus)
    assert [str(device) for device in choose_devices(name, processes)] == wanted


@pytest.mark.parametrize(
    ("name", "processes", "gpus", "cuda", "message"),
    [
        ("cuda", 1, 0, None, r"performance.device .*built without CUDA\), got 'cuda'"),
        ("cuda", 1, 0, "13.0", r"built for CUDA 13.0 and finds no device"),
        ("cuda:2", 1, 2, "13.0", r"cuda:0 GPU 0, cuda:1 GPU 1\), got 'cuda:2'"),
        ("cuda", 3, 2, "13.0", r"performance.processes .*at most .*cuda:1 GPU 1.*got 3"),
        ("cuda:0", 2, 2, "13.0", r"performance.device .*one device each.*got 'cuda:0'"),
    ],
)
def test_devices_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch, name: str, processes: int, gpus: int, cuda: str | None, message: str
) -> None:
    pretend(monkeypatch, gpus, cuda)
    with pytest.raises(ConfigError, match=message):
        choose_devices(name, processes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the GPU that is to be missing")
def test_a_gpu_that_slurm_gave_and_cuda_does_not_find_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert choose_devices("auto", 1) == [torch.device("cpu")], "no job of Slurm"
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(ConfigError, match="Slurm gave this job GPU 0 and torch"):
        choose_devices("auto", 1)
    assert choose_devices("cpu", 1) == [torch.device("cpu")]
    monkeypatch.setenv("SUBJECTDP_ANY_DEVICE", "1")
    assert choose_devices("auto", 2) == [torch.device("cpu")] * 2
    monkeypatch.delenv("SUBJECTDP_ANY_DEVICE")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    assert choose_devices("auto", 1) == [torch.device("cpu")], "a job without GPUs"
