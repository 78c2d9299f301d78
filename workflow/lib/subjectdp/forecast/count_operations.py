"""Counts what one item costs in a model: operations by torch's formulas, numbers saved, scale of the weights."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from subjectdp.data.catalogue import DATASETS
from subjectdp.engine.pass_size import items_in_a_pass, saved_values
from subjectdp.forecast.cost_model import LINEAR_SCALE, ModelCost
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import SHAPES
from subjectdp.models.fixed import fixed_features


def counted_cost(name: str, parameters: str, dataset: str) -> ModelCost:
    """The cost of one item in a model; ``parameters`` as JSON."""
    facts = DATASETS[dataset]
    shape = facts.shape or SHAPES[facts.kind]
    model = build_model(name, facts.classes, facts.kind, 0, json.loads(parameters), shape)
    item = torch.zeros((1, *shape), dtype=torch.int64 if facts.kind == "text" else torch.float32)
    feature_map, feature_flops, features = fixed_features(model), 0, 0
    if feature_map is not None:
        with torch.no_grad(), _Operations() as operations:
            item = feature_map(item)
        feature_flops, features = operations.count, item.numel()
    with _without_onednn(), _Operations() as operations:
        saved = saved_values(model, item)
    return ModelCost(
        forward_flops=operations.count,
        parameters=sum(p.numel() for p in model.parameters()),
        saved_values=saved,
        feature_flops=feature_flops,
        features=features,
        items_in_a_pass=items_in_a_pass(saved, "cpu"),
        weight_scale=_weight_scale(model),
    )


def _weight_scale(model: nn.Module) -> float:
    largest = max(model.parameters(), key=torch.numel).detach()
    linear = fixed_features(model) is not None or not largest.any()
    return LINEAR_SCALE if linear else float(largest.std())


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations as torch's FlopCounterMode does, which loads torch's compiler for it (two seconds)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to be told what to skip, the compiler would be loaded

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in _FORMULAS:
            self.count += _FORMULAS[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        return result


@contextmanager
def _without_onednn() -> Iterator[None]:
    """An LSTM as the matrix products that are counted; oneDNN has one operation for all of it."""
    switch: Callable[[bool], Sequence[bool]] = torch.backends.mkldnn.set_flags
    before = switch(False)
    try:
        yield
    finally:
        switch(before[0])


def _transform_flops(numbers: Tensor, dimensions: list[int], *_: Any, **__: Any) -> int:
    """5 N log2 n of a transform of length n, N numbers in all: torch counts none."""
    return round(5 * numbers.numel() * math.log2(math.prod(numbers.shape[d] for d in dimensions)))


_TRANSFORMS = (torch.ops.aten._fft_c2c, torch.ops.aten._fft_r2c, torch.ops.aten._fft_c2r)
_FORMULAS: dict[Any, Callable[..., int]] = {**flop_registry, **dict.fromkeys(_TRANSFORMS, _transform_flops)}
