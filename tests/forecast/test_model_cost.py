"""Counted operations of models against their layers' shapes, and the catalogue's numbers against the counted ones."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from subjectdp.accounting.cache import forget
from subjectdp.config.sections import ModelConfig
from subjectdp.data.catalogue import DATASETS
from subjectdp.engine.pass_size import saved_values
from subjectdp.forecast.model_cost import model_cost
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import MODELS, SHAPES
from subjectdp.models.fixed import fixed_features

MODULE = sys.modules["subjectdp.forecast.model_cost"]
DATASET = {"image": "femnist", "text": "shakespeare", "vector": "acs_income"}


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


@pytest.mark.slow
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
        ("femnist", "scattering_head", {"scales": 1, "angles": 2, "components": 20}),
        ("femnist", "handwriting_head", {}),
        ("shakespeare", "leaf_lstm", {}),
        ("shakespeare", "leaf_lstm", {"hidden": 100, "dense": 40, "embedding": 16}),
        ("shakespeare", "small_lstm", {}),
        ("shakespeare", "small_lstm", {"hidden": 16}),
    ],
)
def test_operations_and_parameters_are_those_of_the_layers(dataset, name, parameters):
    cost, facts = model_cost(ModelConfig(name=name, parameters=parameters), dataset), DATASETS[dataset]
    model = build_model(name, facts.classes, facts.kind, 0, parameters)
    counter = Multiplications(model)
    item = torch.zeros(1, 1, 28, 28) if facts.kind == "image" else torch.zeros(1, 80, dtype=torch.int64)
    features = fixed_features(model)
    with torch.no_grad():
        if features is not None:
            item = features(item)
            counted, counter.count = counter.count, 0
            assert cost.features == item.numel()
            if name == "handwriting_head":
                assert cost.feature_flops == 2 * (counted + 864 * 128), "the layers and the projection"
        model(item)
    assert cost.forward_flops == 2 * counter.count
    assert cost.parameters == sum(p.numel() for p in model.parameters())


def flops_by_torch() -> FlopCounterMode:
    def transform(shape: tuple[int, ...], dimensions: list[int], *_: Any, **__: Any) -> int:
        return round(5 * math.prod(shape) * math.log2(math.prod(shape[d] for d in dimensions)))

    aten = torch.ops.aten
    transforms = (aten._fft_c2c, aten._fft_r2c, aten._fft_c2r)
    return FlopCounterMode(display=False, custom_mapping=dict.fromkeys(transforms, transform))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_counts_are_those_of_torchs_own_counter_on_tensors_without_data(name: str) -> None:
    dataset = DATASET[MODELS[name].kind]
    facts = DATASETS[dataset]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, {}, shape)
    item = torch.zeros((1, *shape), dtype=torch.int64 if facts.kind == "text" else torch.float32)
    features, feature_flops = fixed_features(model), 0
    if features is not None:
        with torch.no_grad(), flops_by_torch() as counter:
            item = features(item)
        feature_flops = counter.get_total_flops()
    with flops_by_torch() as counter:
        saved = saved_values(model.to("meta"), item.to("meta"))
    cost = model_cost(ModelConfig(name=name), dataset)
    assert (cost.forward_flops, cost.feature_flops) == (counter.get_total_flops(), feature_flops)
    assert cost.saved_values == saved


AHEAD = """
import json, sys

from subjectdp.config import load_scenario_from_mapping
from subjectdp.forecast import model_cost

run = {"model": sys.argv[1], "data": {"dataset": sys.argv[2]}}
(run,) = load_scenario_from_mapping({"name": "x", "run": run}).runs
if sys.argv[4:]:
    model_cost.count_ahead([run], sys.argv[3])
cost = model_cost.model_cost(run.model, run.data.dataset, sys.argv[3])
print(json.dumps([cost.forward_flops, *(name in sys.modules for name in ("torch", "torch._dynamo"))]))
"""


def in_another_process(*arguments: str) -> Any:
    command = [sys.executable, "-c", AHEAD, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True, env=os.environ)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["leaf_cnn", "scattering_head", "handwriting_head", "leaf_lstm", "char_ngram"]
)
def test_counting_loads_no_compiler(name: str, tmp_path: Path) -> None:
    found = in_another_process(name, DATASET[MODELS[name].kind], str(tmp_path))
    assert found == [MODELS[name].forward_flops, True, False]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked")
def test_a_cost_counted_ahead_spares_torch(tmp_path: Path) -> None:
    found = in_another_process("logistic", "femnist", str(tmp_path), "ahead")
    assert found == [MODELS["logistic"].forward_flops, False, False]


@pytest.mark.parametrize("name", MODELS)
def test_the_catalogue_has_the_counted_operations_of_the_default_parameters(name):
    dataset = DATASET[MODELS[name].kind]
    assert model_cost(ModelConfig(name=name), dataset).forward_flops == MODELS[name].forward_flops


@pytest.mark.slow
def test_saved_values_grow_with_the_layers_and_leave_out_the_weights():
    def saved(name: str, dataset: str, **parameters: int) -> int:
        return model_cost(ModelConfig(name=name, parameters=parameters), dataset).saved_values

    inputs, conv1, conv2 = 784, 28 * 28 * 32, 14 * 14 * 64
    assert inputs + conv1 + conv2 < saved("leaf_cnn", "femnist") < 4 * (inputs + conv1 + conv2)
    small = saved("leaf_lstm", "shakespeare", hidden=64)
    assert 2 * small < saved("leaf_lstm", "shakespeare", hidden=256) < 5 * small


def test_a_fourier_transform_is_counted():
    cost = model_cost(ModelConfig(name="scattering_head"), "femnist")
    assert 1e6 < cost.feature_flops < 1e8


def test_a_cost_is_kept_for_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = ModelConfig(name="logistic", parameters={"pool": 14}), str(tmp_path)
    first = model_cost(model, "femnist", folder)
    forget()
    MODULE._kept_cost.cache_clear()
    monkeypatch.setattr(MODULE, "_counted", lambda *_: pytest.fail("counted again"))
    assert model_cost(model, "femnist", folder) == first
    assert first.forward_flops == 2 * 62 * (2 * 2 + 1)
