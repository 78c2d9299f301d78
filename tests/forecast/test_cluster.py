"""What jobs ask a cluster for, and the size of runs that it follows from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.run import RunConfig
from subjectdp.config.sections import ModelConfig
from subjectdp.errors import ConfigError
from subjectdp.forecast.cluster import MEMORY_MB, MINUTES, cluster_settings
from subjectdp.forecast.cost_model import CLASSES, SIZES, expected_items, model_size, size_class, work_of
from subjectdp.models.build import build_model
from subjectdp.models.fixed import fixed_features

SMALL = {
    "data": {"embedded": {"subjects": 8, "items_per_subject": 50}},
    "partition": {"silos": 4},
    "training": {"rounds": 5, "batch_size": 16},
    "model": {"name": "small_cnn"},
}


def run_of(**changes: Any) -> RunConfig:
    content = {**SMALL}
    for key, value in changes.items():
        content[key] = {**content.get(key, {}), **value}
    return resolve_defaults(RunConfig.model_validate(content))


SHORT = run_of()
PAPER = run_of(
    data={"source": "upstream", "subjects": 3500},
    partition={"silos": 16},
    training={"rounds": 100, "batch_size": 512},
    model={"name": "leaf_cnn"},
)
SHAKESPEARE = run_of(
    data={"dataset": "shakespeare", "source": "upstream"},
    partition={"silos": 16},
    training={"rounds": 200, "batch_size": 100},
    model={"name": "leaf_lstm"},
)


def test_without_a_cluster_nothing_special_is_asked_for():
    settings = cluster_settings({})
    assert settings.gpu_resources(1) == {}
    assert settings.group_of(SHORT) is None
    assert not settings.light_jobs_local


@pytest.mark.parametrize(
    ("style", "asked"),
    [
        ("gpu", {"gpu": 2}),
        ("gpu:a100", {"gpu": 2, "gpu_model": "a100"}),
        ("gres=gpu", {"gres": "gpu:2"}),
        ("gres=gpu:a100", {"gres": "gpu:a100:2"}),
        ("gres=gpu:a100:1", {"gres": "gpu:a100:2"}),
        ("none", {}),
        ("", {}),
    ],
)
def test_a_gpu_is_asked_for_in_the_sites_own_way(style, asked):
    settings = cluster_settings({"SUBJECTDP_SLURM_GPU": style})
    assert settings.gpus_of(run_of(performance={"processes": 2})) == asked


def test_a_run_on_the_cpu_asks_for_no_gpu():
    settings = cluster_settings({"SUBJECTDP_SLURM_GPU": "gpu"})
    assert settings.gpus_of(run_of(performance={"device": "cpu", "processes": 2})) == {"gpu": 0}


def test_time_and_memory_follow_size_processes_and_attempt():
    settings = cluster_settings({"SUBJECTDP_SLURM_MINUTES": "7, 70,700"})
    for run, minutes, size in ((SHORT, 7, "short"), (PAPER, 70, "medium"), (SHAKESPEARE, 700, "long")):
        assert size_class(run) == size
        assert [settings.minutes_of(run, attempt) for attempt in (1, 2, 3)] == [
            minutes,
            2 * minutes,
            3 * minutes,
        ]
        assert settings.memory_mb_of(run, 2) == 2 * MEMORY_MB[size]
    assert settings.memory_mb_of(run_of(performance={"processes": 3}), 2) == 6 * MEMORY_MB["short"]
    assert cluster_settings({}).minutes_of(PAPER, 1) == MINUTES["medium"]


def test_only_short_runs_share_a_job_and_only_with_their_own_data():
    settings = cluster_settings({"SUBJECTDP_SLURM_RUNS_PER_JOB": "4"})
    groups = [settings.group_of(run) for run in (SHORT, PAPER, SHAKESPEARE)]
    assert groups == ["short_femnist_runs", None, None]
    assert cluster_settings({"SUBJECTDP_SLURM_RUNS_PER_JOB": "1"}).group_of(SHORT) is None


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("GPU", "gpus", "gres=NAME"),
        ("GPU", "gres=gpu:a100:2", "none"),
        ("GPU", "gpu:a 100", "MODEL"),
        ("MINUTES", "30", "3 whole numbers"),
        ("MINUTES", "30,x,60", "whole number"),
        ("MINUTES", "0,1,2", "from 1"),
        ("MEMORY_MB", "1,2,3,4", "short, medium, long"),
        ("RUNS_PER_JOB", "two", "whole number"),
        ("RUNS_PER_JOB", "-1", "from 1"),
        ("LIGHT_JOBS", "login", "partition or local"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(name, value, told):
    with pytest.raises(ConfigError) as caught:
        cluster_settings({f"SUBJECTDP_SLURM_{name}": value})
    assert f"SUBJECTDP_SLURM_{name}" in str(caught.value) and told in str(caught.value)


class Multiplications:
    """Counts the multiplications of a model's forward pass by watching its layers."""

    def __init__(self, model: nn.Module) -> None:
        self.count = 0
        for layer in model.modules():
            layer.register_forward_hook(self._seen)

    def _seen(self, layer: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(layer, nn.Linear):
            self.count += layer.weight.numel() * inputs[0].shape[0]
        elif isinstance(layer, nn.Conv2d):
            self.count += layer.weight.numel() * output.shape[2] * output.shape[3]
        elif isinstance(layer, nn.LSTM):
            weights = sum(p.numel() for name, p in layer.named_parameters() if name.startswith("weight"))
            self.count += weights * inputs[0].shape[1]


@pytest.mark.parametrize(
    ("dataset", "name", "parameters"),
    [
        ("femnist", "leaf_cnn", {}),
        ("femnist", "leaf_cnn", {"hidden": 100}),
        ("femnist", "small_cnn", {}),
        ("femnist", "small_cnn", {"width": 8}),
        ("femnist", "logistic", {}),
        ("femnist", "logistic", {"pool": 4}),
        ("femnist", "scattering_head", {}),
        ("femnist", "scattering_head", {"scales": 1, "angles": 3}),
        ("femnist", "handwriting_head", {}),
        ("shakespeare", "leaf_lstm", {}),
        ("shakespeare", "leaf_lstm", {"hidden": 100, "dense": 40, "embedding": 16}),
        ("shakespeare", "small_lstm", {}),
        ("shakespeare", "small_lstm", {"hidden": 16}),
    ],
)
def test_the_size_of_a_model_is_that_of_the_module(dataset, name, parameters):
    size = model_size(ModelConfig(name=name, parameters=parameters), dataset)
    kind = "image" if dataset == "femnist" else "text"
    model = build_model(name, CLASSES[dataset], kind, 0, parameters)
    counter = Multiplications(model)
    item = torch.zeros(1, 1, 28, 28) if kind == "image" else torch.zeros(1, 80, dtype=torch.int64)
    features = fixed_features(model)
    with torch.no_grad():
        if features is not None:
            item = features(item)
            counted, counter.count = counter.count, 0
            if name == "handwriting_head":
                assert size.once == counted + 864 * 128, "the layers and the projection"
        model(item)
    assert size.multiplications == counter.count
    weights = sum(p.numel() for p in model.parameters() if p.dim() > 1)
    assert size.parameters == weights


def test_a_model_without_a_name_has_no_size():
    with pytest.raises(ConfigError, match="model.name"):
        model_size(ModelConfig(), "femnist")


def test_work_counts_every_step_and_every_evaluation():
    run = run_of(training={"rounds": 3, "batch_size": 10, "evaluate_every": 2})
    work = work_of(run, silo_items=[25, 40], evaluated=100)
    assert work.steps == 3 * (3 + 4) * 4 / 2, "two silos stand for the four of the configuration"
    assert work.train_items == work.steps * 10
    assert work.evaluated_items == 2 * 100, "after round 2, and after the last"
    shorter = work_of(run, silo_items=[25, 40], evaluated=100, rounds=1)
    assert shorter.steps * 3 == work.steps


def test_a_part_of_the_silos_and_of_the_evaluation_costs_a_part():
    whole, part = run_of(), run_of(training={"silos_per_round": 1, "evaluation_items": 3})
    assert work_of(part).steps * 4 == work_of(whole).steps
    assert work_of(part).evaluated_items == 2 * 3 * part.training.rounds


def test_expected_items_are_those_of_the_papers():
    items = expected_items(PAPER)
    assert items.subjects == 3500
    assert items.train / items.subjects == pytest.approx(145, rel=0.005)
    text = expected_items(SHAKESPEARE)
    assert text.subjects == 660
    assert text.train == pytest.approx(3678452 * 0.8, rel=1e-6)


def test_the_last_class_has_no_limit():
    assert list(SIZES.values()) == sorted(SIZES.values())
    assert list(SIZES.values())[-1] == math.inf
