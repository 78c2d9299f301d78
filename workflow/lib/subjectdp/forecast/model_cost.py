"""Cost of one item in a model: operations and memory, counted by torch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from subjectdp.accounting.cache import cached
from subjectdp.config.fingerprint import fingerprint
from subjectdp.data.catalogue import DATASETS
from subjectdp.engine.pass_size import saved_values
from subjectdp.forecast.cost_model import ModelCost
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import SHAPES
from subjectdp.models.fixed import fixed_features

if TYPE_CHECKING:
    from subjectdp.config.sections import ModelConfig


def model_cost(model: ModelConfig, dataset: str, folder: str | None = None) -> ModelCost:
    """The cost of one item in a resolved model; kept in ``folder``, since torch loads its compiler to count."""
    return _kept_cost(str(model.name), json.dumps(model.parameters, sort_keys=True), dataset, folder)


@lru_cache(maxsize=64)
def _kept_cost(name: str, parameters: str, dataset: str, folder: str | None) -> ModelCost:
    code = fingerprint(__name__, f"model:{name}")  # torch's version is in it
    inputs = {"model": name, "parameters": parameters, "dataset": dataset, "code": code}
    return ModelCost(
        **cached("model_cost", inputs, folder, lambda: asdict(_model_cost(name, parameters, dataset)))
    )


def _model_cost(name: str, parameters: str, dataset: str) -> ModelCost:
    facts = DATASETS[dataset]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, json.loads(parameters), shape)
    item = torch.zeros((1, *shape), dtype=torch.int64 if facts.kind == "text" else torch.float32)
    feature_map, feature_flops, features = fixed_features(model), 0, 0
    if feature_map is not None:
        with torch.no_grad(), _flop_counter() as counter:
            item = feature_map(item)
        feature_flops, features = counter.get_total_flops(), item.numel()
    # on the device "meta" tensors have shapes and no data, and an LSTM is the matrix products that are counted
    model, item = model.to("meta"), item.to("meta")
    with _flop_counter() as counter:
        saved = saved_values(model, item)
    size = sum(p.numel() for p in model.parameters())
    return ModelCost(counter.get_total_flops(), size, saved, feature_flops, features)


def _flop_counter() -> FlopCounterMode:
    aten = torch.ops.aten
    transforms = (aten._fft_c2c, aten._fft_r2c, aten._fft_c2r)
    return FlopCounterMode(display=False, custom_mapping=dict.fromkeys(transforms, _fft_flops))


def _fft_flops(shape: tuple[int, ...], dimensions: list[int], *_: Any, **__: Any) -> int:
    """5 N log2 n of a transform of length n, N numbers in all: torch counts none."""
    return round(5 * math.prod(shape) * math.log2(math.prod(shape[d] for d in dimensions)))
