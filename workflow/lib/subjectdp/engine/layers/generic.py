"""Any other layer, through per-item vector-Jacobian products (torch.func): slow, general, exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap

from subjectdp.engine.groups import Grouping
from subjectdp.engine.layers.base import (
    Coefficients,
    Squares,
    Sums,
    group_sums,
    squared_rows,
    wanted,
    zeroed,
)


class GenericRule:
    """A layer with one tensor input (batch first) and one tensor output that treats items one by one."""

    def forward(self, module: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
        output = wanted(type(module).forward(module, inputs))
        return output, [output], inputs.detach()

    def captured(self, module: nn.Module, kept: Tensor, deltas: list[Tensor]) -> GenericCaptured:
        parameters = {name: p.detach() for name, p in module.named_parameters(recurse=False)}

        def gradients(item: Tensor, delta: Tensor) -> Any:
            # the layer must run its own forward, not the engine's recording one
            def run(values: dict[str, Tensor]) -> Tensor:
                result: Tensor = functional_call(
                    _Plain(module), {f"inner.{k}": v for k, v in values.items()}, item[None]
                )
                return result

            return vjp(run, parameters)[1](delta[None])[0]

        return GenericCaptured(vmap(gradients)(kept, deltas[0]))


class _Plain(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = type(self.inner).forward(self.inner, inputs)
        return result


@dataclass
class GenericCaptured:
    """Per-item gradients of each parameter, (B, ...)."""

    gradients: dict[str, Tensor]

    def squared_norms(self, grouping: Grouping) -> Squares:
        squares = [squared_rows(group_sums(g.flatten(1), grouping)) for g in self.gradients.values()]
        return Squares(torch.stack(squares).sum(0))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.gradients = {name: zeroed(gradient, items) for name, gradient in self.gradients.items()}

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        for name, gradient in self.gradients.items():
            into.add(name, torch.tensordot(coefficients.items, gradient, dims=1))
