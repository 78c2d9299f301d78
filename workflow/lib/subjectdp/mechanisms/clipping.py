"""The clipping engine: Σ_i w_i · min(1, C/‖g_i‖) · g_i from one forward and one backward pass.

Book-keeping (Bu et al. 2023, "Differentially private optimization on large model at small cost") with one backward:
the parameters ask for no gradient, only the layers' outputs do; from these and the layers' inputs each layer gives the
squared norms of the items' gradients and then, with the coefficients known, their weighted sum. No per-item gradient of
a large layer is ever formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from subjectdp.errors import ModelError
from subjectdp.mechanisms.flat import FlatParameters
from subjectdp.mechanisms.layers import convolution, recurrent
from subjectdp.mechanisms.layers.base import Captured, LayerRule
from subjectdp.mechanisms.layers.convolution import ConvolutionRule
from subjectdp.mechanisms.layers.dense import EmbeddingRule, LinearRule
from subjectdp.mechanisms.layers.generic import GenericRule
from subjectdp.mechanisms.layers.normalisation import GroupNormRule, LayerNormRule
from subjectdp.mechanisms.layers.recurrent import LSTMRule

# Norms are float32 sums of a few million terms; clipping to slightly less than C keeps the true norm at or below C.
_ROUNDING_MARGIN = 1.0 + 2.0**-18


class ClippingEngine:
    """Clipped, weighted gradient sums of a model whose parameters live in a flat vector.

    Guarantee: with weights in [0, 1], adding or removing one item moves the result by at most ``clip_norm`` in L2; an
    item whose gradient is not finite contributes nothing.

    Attributes:
        doubt: None, or a 0-dimensional bool on the device. Then nothing waits for the device to find an item whose
            gradient is not finite: it is told here, and the sums since then are of no use.

    Raises:
        ModelError: a layer that mixes the items of a batch, or that the engine cannot see through.
    """

    def __init__(self, flat: FlatParameters, physical_batch_size: int = 512) -> None:
        self.flat = flat
        self.doubt: Tensor | None = None
        self.physical_batch_size = physical_batch_size
        self.rules = {name: (module, _rule_of(name, module)) for name, module in _layers(flat.model)}

    def clipped_sum(
        self, inputs: Tensor, labels: Tensor, clip_norm: float | Tensor, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Σ_i w_i Clip(g_i, C) and the norms ‖g_i‖.

        Args:
            inputs: (B, ...) items; B = 0 gives a zero sum.
            labels: (B,) int64.
            clip_norm: C > 0, or infinity; one for all items, or (B,) on the device.
            weights: (B,) in [0, 1]; None for all ones.

        Returns:
            (P,) sum over the items and (B,) unclipped norms.
        """
        total = torch.zeros_like(self.flat.vector)
        norms = self.flat.vector.new_zeros(len(labels))
        for start in range(0, len(labels), self.physical_batch_size):
            part = slice(start, start + self.physical_batch_size)
            part_weights = None if weights is None else weights[part]
            bound = clip_norm[part] if isinstance(clip_norm, Tensor) else clip_norm
            norms[part] = self._add_clipped(inputs[part], labels[part], bound, part_weights, total)
        return total, norms

    def gradient_sum(self, inputs: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """Σ_i w_i g_i (P,), by a plain backward pass; weights (B,), None for all ones."""
        parameters = dict(self.flat.model.named_parameters())
        total = torch.zeros_like(self.flat.vector)
        views = self.flat.views(total)
        if len(labels) == 0:
            return total
        for parameter in parameters.values():
            parameter.requires_grad_(True)
        try:
            for start in range(0, len(labels), self.physical_batch_size):
                part = slice(start, start + self.physical_batch_size)
                logits = self.flat.model(_laid_out(inputs[part]))
                if weights is None:
                    loss = F.cross_entropy(logits, labels[part], reduction="sum")
                else:
                    loss = F.cross_entropy(logits, labels[part], reduction="none") @ weights[part]
                gradients = torch.autograd.grad(loss, list(parameters.values()))
                for name, gradient in zip(parameters, gradients, strict=True):
                    views[name].add_(gradient)
        finally:
            for parameter in parameters.values():
                parameter.requires_grad_(False)
        return total

    def _add_clipped(
        self,
        inputs: Tensor,
        labels: Tensor,
        clip_norm: float | Tensor,
        weights: Tensor | None,
        total: Tensor,
    ) -> Tensor:
        captured = self._capture(inputs, labels)
        with torch.no_grad():
            norms = torch.stack([layer.squared_norms() for layer in captured.values()]).sum(0).sqrt_()
            finite = torch.isfinite(norms)
            if self.doubt is not None:
                self.doubt.logical_or_(~finite.all())
            elif not bool(finite.all()):
                kept_weights = None if weights is None else weights[finite]
                bound = clip_norm[finite] if isinstance(clip_norm, Tensor) else clip_norm
                self._add_clipped(inputs[finite], labels[finite], bound, kept_weights, total)
                return norms
            coefficients = (clip_norm / (norms * _ROUNDING_MARGIN).clamp_min_(1e-30)).clamp_(max=1.0)
            if weights is not None:
                coefficients.mul_(weights)
            views = self.flat.views(total)
            for name, layer in captured.items():
                prefix = f"{name}." if name else ""
                layer.add_weighted_sum(coefficients, within(views, prefix))
        return norms

    def _capture(self, inputs: Tensor, labels: Tensor) -> dict[str, Captured]:
        tape: dict[str, tuple[list[Tensor], Any]] = {}
        with torch.enable_grad(), self._recording(tape):
            logits = self.flat.model(_laid_out(inputs))
            loss = F.cross_entropy(logits, labels, reduction="sum")
            outputs = [tensor for wanted, _ in tape.values() for tensor in wanted]
            deltas = iter(torch.autograd.grad(loss, outputs))
        captured = {}
        with torch.no_grad():
            for name, (wanted, kept) in tape.items():
                module, rule = self.rules[name]
                captured[name] = rule.captured(module, kept, [next(deltas) for _ in wanted])
        return captured

    @contextmanager
    def _recording(self, tape: dict[str, tuple[list[Tensor], Any]]) -> Iterator[None]:
        def run(name: str, module: nn.Module, rule: LayerRule, inputs: Tensor) -> Any:
            if name in tape:
                raise ModelError(f"Expected each layer to run once a forward pass, {name!r} runs more often.")
            output, wanted, kept = rule.forward(module, inputs)
            tape[name] = (wanted, kept)
            return output

        for name, (module, rule) in self.rules.items():
            module.forward = partial(run, name, module, rule)
        try:
            yield
        finally:
            for module, _ in self.rules.values():
                del module.forward


def _laid_out(inputs: Tensor) -> Tensor:
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def within(views: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The views whose names start with ``prefix``, without it."""
    return {name[len(prefix) :]: view for name, view in views.items() if name.startswith(prefix)}


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that own parameters themselves, in order of definition."""
    return [
        (name, m) for name, m in model.named_modules() if next(m.parameters(recurse=False), None) is not None
    ]


def _rule_of(name: str, module: nn.Module) -> LayerRule:
    if isinstance(module, _BatchNorm):
        raise ModelError(
            f"Expected layers that treat items one by one, {name!r} is {type(module).__name__}: it mixes the items "
            "of a batch, so that no item's influence can be bounded. Use GroupNorm or LayerNorm."
        )
    if isinstance(module, nn.LSTM) and recurrent.supports(module):
        return LSTMRule()
    if isinstance(module, nn.RNNBase):
        raise ModelError(
            f"Expected a one-directional nn.LSTM without dropout or projection, {name!r} is {module}."
        )
    if isinstance(module, nn.Conv2d) and convolution.supports(module):
        return ConvolutionRule()
    exact: dict[type[nn.Module], LayerRule] = {
        nn.Linear: LinearRule(),
        nn.Embedding: EmbeddingRule(),
        nn.GroupNorm: GroupNormRule(),
        nn.LayerNorm: LayerNormRule(),
    }
    if next(module.children(), None) is not None:
        raise ModelError(
            f"Expected parameters in layers only, {name or 'the model'!r} holds some of its own."
        )
    return exact.get(type(module), GenericRule())
