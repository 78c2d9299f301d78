"""An independent oracle: one item at a time, float64, plain autograd."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def per_item_gradients(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[dict[str, Tensor]]:
    """Gradients of each item, by a loop over float64 copies."""
    model = copy.deepcopy(model).double()
    parameters = dict(model.named_parameters())
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    rows = []
    for i in range(len(labels)):
        item = inputs[i : i + 1]
        item = item.double() if item.is_floating_point() else item
        loss = F.cross_entropy(model(item), labels[i : i + 1])
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        rows.append(dict(zip(parameters, gradients, strict=True)))
    return rows


def norm(gradient: dict[str, Tensor]) -> float:
    return float(torch.sqrt(torch.stack([g.square().sum() for g in gradient.values()]).sum()))


def flatten(gradient: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for g in gradient.values()])


def clipped_sum(rows: list[dict[str, Tensor]], clip_norm: float, weights: list[float]) -> Tensor:
    """Σ_i w_i min(1, C/‖g_i‖) g_i, flattened in the order of the parameters."""
    total = torch.zeros(sum(g.numel() for g in rows[0].values()), dtype=torch.float64)
    for row, weight in zip(rows, weights, strict=True):
        total += flatten(row) * weight * min(1.0, clip_norm / norm(row))
    return total


def group_gradients(rows: list[dict[str, Tensor]], weights: list[float], groups: list[int]) -> list[Tensor]:
    """Σ_{i∈a} w_i g_i of each number a up to the largest, flattened."""
    totals = [torch.zeros_like(flatten(rows[0])) for _ in range(max(groups) + 1)]
    for row, weight, group in zip(rows, weights, groups, strict=True):
        totals[group] += flatten(row) * weight
    return totals


def clipped_group_sum(gradients: list[Tensor], clip_norm: float) -> Tensor:
    """Σ_a min(1, C/‖g_a‖) g_a."""
    total = torch.zeros_like(gradients[0])
    for gradient in gradients:
        length = float(gradient.norm())
        total += gradient * (min(1.0, clip_norm / length) if length > 0 else 0.0)
    return total
