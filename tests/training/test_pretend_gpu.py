"""Whole runs on a CUDA device that is not there: every tensor where it should be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

from data.made_content import text_of
from subjectdp.algorithms.registry import algorithm
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import make_partition
from subjectdp.data.store import write_prepared
from subjectdp.noise import gaussian as normals
from subjectdp.noise.gaussian import keyed_generator
from subjectdp.training.run import train_run
from training import small_world
from training.pretend_gpu import GPU, pretend_gpu
from training.small_world import resumed_after
from training.test_run import EVERY
from training.test_subject_runs import RUNS
from training.test_subject_runs import config as subject_config

CONVEX = {"name": "logistic", "parameters": {}}
SOME = {"local_item_dp", "higrad_avg_dp:v1", "joint_noise", "subject_release"}  # with every change
# Rounding may take a network to another side of a kink (a ReLU's input near 0): up to 7e-4 where this was tried.
TOLERANCE = {"small_cnn": 5e-3}


def twister(total: NDArray[Any], std: Any, key: NDArray[np.uint32]) -> None:
    """Noise of the CPU from the generator that stands for the GPU's."""
    drawn = torch.empty(len(total)).normal_(generator=keyed_generator(key.tobytes()))
    total += (std * drawn.numpy()).astype(total.dtype)


@pytest.fixture
def same_noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(normals, "add_normals", twister)
    yield


def trained(folder: Path, config: dict[str, Any], device: str, **performance: Any) -> Path:
    config = {**config, "performance": {"device": device, **performance}}
    prepared, partition = folder / "prepared", folder / "partition"
    if not prepared.exists():
        content = text_of([200] * 6) if config["model"]["name"] == "small_lstm" else small_world.image_content()
        write_prepared(prepared, content, "text" if content.kind == "text" else "leaf_json", [], 0.2)
    make_partition(prepared, partition, RunConfig.model_validate(config))
    train_run(config, prepared, partition, folder / device, folder / "cache", lambda line: None)
    return folder / device


def assert_same_run(one: Path, other: Path) -> None:
    models = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    manifests = [json.loads((folder / "manifest.json").read_text()) for folder in (one, other)]
    most = TOLERANCE.get(manifests[0]["config"]["model"]["name"], 1e-5)
    for name, values in models[0].items():
        assert float((values - models[1][name]).abs().max()) < most, name
    first, second = (pd.read_parquet(folder / "steps.parquet") for folder in (one, other))
    pd.testing.assert_frame_equal(first, second, atol=1e-5)
    assert manifests[0]["privacy"] == manifests[1]["privacy"]
    assert [manifest["environment"]["device"] for manifest in manifests] == ["cpu", "cuda:0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.long) for name in EVERY]
)
def test_every_algorithm_trains_as_on_the_cpu(tmp_path: Path, name: str, same_noise: None) -> None:
    declared = algorithm(name.partition(":")[0])
    mode = "sound" if declared.mechanisms[0].beyond_papers else "as_published"
    config = small_world.config(
        algorithm=name,
        privacy={"mode": mode},
        training={"rounds": 4, "local_steps": 1 if declared.one_step_per_round else 2},
        model=CONVEX,
    )
    on_cpu = trained(tmp_path, config, "cpu")
    with pretend_gpu():
        assert_same_run(on_cpu, trained(tmp_path, config, "cuda"))


OTHERS: dict[str, dict[str, Any]] = {
    "integer noise": {
        "algorithm": "joint_noise",
        "privacy": {"mode": "sound", "accountant": "rdp"},
        "training": {"local_steps": 1},
        "joint": {"noise": "skellam"},
    },
    "updates noised once": {
        "algorithm": "joint_noise",
        "privacy": {"mode": "sound"},
        "training": {"local_steps": 2},
        "joint": {"clipping": "update"},
    },
    "an average": {"training": {"averaged_rounds": 0.5}},
    "Adam": {"training": {"optimizer": {"name": "adam", "learning_rate": 0.01}}},
    "fixed features": {"model": {"name": "scattering_head", "parameters": {}}},
    "a network": {},
    "text": {
        "data": {"dataset": "shakespeare", "test_fraction": 0.5},
        "partition": {"silos": 3, "max_items_per_subject": None},
        "algorithm": "higrad_avg_dp:v1",
        "training": {"local_steps": 2},
        "model": {"name": "small_lstm", "parameters": {"embedding": 4, "hidden": 8, "dense": 6}},
    },
}


@pytest.mark.long
@pytest.mark.parametrize("name", [*OTHERS, *RUNS])
def test_other_settings_train_as_on_the_cpu(tmp_path: Path, name: str, same_noise: None) -> None:
    config = small_world.config(**OTHERS[name]) if name in OTHERS else subject_config(name)
    on_cpu = trained(tmp_path, config, "cpu")
    with pretend_gpu():
        assert_same_run(on_cpu, trained(tmp_path, config, "cuda"))


@pytest.mark.long
def test_a_run_goes_on_after_its_checkpoint(tmp_path: Path, same_noise: None) -> None:
    config = small_world.config(training={"rounds": 4, "optimizer": {"name": "momentum"}})
    on_cpu = trained(tmp_path, config, "cpu")
    with pretend_gpu(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "synchronize", dies_in_round(3))
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, config, "cuda", checkpoint_minutes=0)
    with pretend_gpu():
        on_gpu = trained(tmp_path, config, "cuda", checkpoint_minutes=0)
    assert resumed_after(on_gpu) == [2]
    assert_same_run(on_cpu, on_gpu)


def dies_in_round(number: int) -> Any:
    waits = iter(range(1, 100))

    def synchronize(device: object) -> None:
        if next(waits) == number:
            raise KeyboardInterrupt

    return synchronize


def test_two_devices_do_not_mix() -> None:
    with pretend_gpu():
        there = torch.ones(3, device=GPU)
        assert there.device == GPU and (there * 2).device == GPU
        assert float((there + torch.tensor(1.0)).sum()) == 6.0, "a number from the host is no tensor of the host"
        with pytest.raises(RuntimeError, match="same device"):
            there + torch.ones(3)
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        assert there.cpu().numpy().tolist() == [1.0] * 3
