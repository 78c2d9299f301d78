"""Integer noise in a federation: the grid, secure sums, sums of rounded gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from subjectdp.config.sections import OptimizerConfig
from subjectdp.errors import ConfigError, PrivacyError, expected
from subjectdp.noise.skellam import Grid, modular_sum
from subjectdp.plan.plan import PrivacyPlan

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch
    from subjectdp.engine.clipping import ClippingEngine

_NUMBERS_AT_ONCE = 1 << 24  # of all gradients that are kept at a time: 64 MiB


@dataclass(frozen=True)
class IntegerNoise:
    """Public numbers of a run with integer noise."""

    grid: Grid  # of steps C over 2^bits
    unit: float  # how far one integer moves a parameter

    def secure_sum(self, updates: Iterable[Tensor]) -> Tensor:
        """Σ of integer vectors (P,) in the ring; DataError if it wrapped around."""
        return torch.from_numpy(modular_sum(update.numpy() for update in updates))


def integer_noise(plan: PrivacyPlan, dimension: int, optimiser: OptimizerConfig) -> IntegerNoise:
    """The grid of a plan with Skellam noise for P = ``dimension`` parameters.

    Raises:
        ConfigError: an optimiser whose updates are no multiples of the grid.
        PrivacyError: gradients that are not clipped, or noise too wide for the sampler.
    """
    if optimiser.name != "sgd":
        allowed = "sgd with Skellam noise (updates must be sums of noisy integers)"
        raise expected("training.optimizer.name", optimiser.name, allowed, ConfigError)
    if plan.clip_norm is None:
        raise PrivacyError("Expected clipped gradients with Skellam noise, the plan clips nothing.")
    grid = Grid.of_bits(plan.settings.gradient_bits, plan.clip_norm, dimension)
    for silo in plan.silos:
        grid.variance(silo.noise_multiplier)  # refused now, not in the first round
    return IntegerNoise(grid, optimiser.learning_rate * grid.step / plan.silos[0].divisor)


def rounded_sum(
    engine: ClippingEngine, batch: Batch, grid: Grid, clip_norm: float, generator: np.random.Generator
) -> tuple[Tensor, float]:
    """Σ_j Round(Clip(g_j, C)) as int64 (P,) on the CPU, and the fraction of items that were clipped (NaN for none).

    Each item's gradient is rounded before the sum: one item's norm does not bound the sensitivity of a sum that is
    rounded afterwards. An item whose gradient is not finite contributes nothing.
    """
    total = np.zeros(grid.dimension, np.int64)
    clipped = 0
    for gradients in _item_gradients(engine, batch.inputs, batch.labels):
        for gradient in gradients.cpu().numpy().astype(np.float64):
            norm = float(np.sqrt(gradient @ gradient))
            clipped += int(not norm <= clip_norm)
            if not np.isfinite(norm):
                continue
            factor = min(1.0, clip_norm / norm) if norm > 0 else 1.0
            total += grid.rounded(gradient * factor, generator)
    return torch.from_numpy(total), clipped / batch.items if batch.items else float("nan")


def _item_gradients(engine: ClippingEngine, inputs: Tensor, labels: Tensor) -> Iterator[Tensor]:
    # float32 (items at once, P) in the order of the vector: rounding changes every gradient before the sum
    at_once = max(1, min(64, _NUMBERS_AT_ONCE // engine.flat.size))
    for start in range(0, len(labels), at_once):
        rows = slice(start, start + at_once)
        yield _gradients(engine, inputs[rows], labels[rows])


def _gradients(engine: ClippingEngine, inputs: Tensor, labels: Tensor) -> Tensor:
    model = engine.flat.model
    if any(isinstance(module, nn.RNNBase) for module in model.modules()):  # vmap does not support them
        items = range(len(labels))
        return torch.stack([engine.clipped_sum(inputs[i : i + 1], labels[i : i + 1], math.inf)[0] for i in items])

    def loss(parameters: dict[str, Tensor], item: Tensor, label: Tensor) -> Tensor:
        output = functional_call(model, parameters, (item.unsqueeze(0),))
        return engine.item_loss(output, label.unsqueeze(0)).sum()

    parameters = {name: value.detach() for name, value in model.named_parameters()}
    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, labels)
    return torch.cat([_in_memory_order(gradients[name]).flatten(1) for name in engine.flat.shapes], dim=1)


def _in_memory_order(gradients: Tensor) -> Tensor:
    return gradients.permute(0, 1, 3, 4, 2) if gradients.dim() == 5 else gradients
