"""The clipping engine: Σ_a min(1, C/‖g_a‖) · g_a from one forward and one backward pass, g_a an item's or group's.

Book-keeping (Bu et al. 2023, "Differentially private optimization on large model at small cost") with one backward pass
to the layers' outputs. From these gradients and its inputs each layer computes the squared norms of the items'
gradients and then their weighted sum. No per-item gradient of a large layer is formed.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from subjectdp.engine.batches import (
    Grouping,
    Inputs,
    autocast_on,
    call,
    edges_of,
    forwards,
    group_numbers,
    group_parts,
    item_parts,
    laid_out,
    number_of,
    taken,
)
from subjectdp.engine.flat import Factor, FlatParameters, LongSum, clip_factors, row_norms
from subjectdp.engine.layout import Layout, in_words, kept_alone, only_input, plain_layout, refuse_by_name, ruled_layers
from subjectdp.engine.linear_models import OneLinear, without_backward
from subjectdp.engine.rules import Captured, Coefficients, Squares, Sums, in_float32, summed
from subjectdp.engine.uses import Uses, captured_of
from subjectdp.errors import ModelError, PrivacyError, expected

ItemLoss = Callable[[Any, Any], Tensor]
"""The loss of each item (B,), from the model's output for B items and their targets; an item's depends on it alone."""


@dataclass(frozen=True)
class Clip:
    """How the gradients of one pass are clipped."""

    grouping: Grouping  # what is clipped as one, in the order of the pass's items
    clip_norm: float | Tensor  # C, one for all or one a group
    weights: Tensor | None = None  # (B,), None for all ones
    factor: Factor | None = None  # None: min(1, C/‖g‖)
    grouped: bool = False  # a group's gradient is that of its weighted items; else items are weighted after clipping


@dataclass(frozen=True)
class _Taped:
    """A layer in the forward pass.

    Edges of the autograd graph keep no output in memory, and stay where they are if the model changes an output in
    place.
    """

    edges: list[GradientEdge]
    shapes: list[torch.Size]  # of the outputs
    kept: Any
    inputs: Tensor
    version: int  # of the inputs, counted by torch


@dataclass(frozen=True)
class Tape:
    """One forward pass: the layers with rules, in the order in which they ran, and the uses of other parameters."""

    layers: dict[str, _Taped]
    uses: Uses | None


_MAY_BE_SHORTENED: dict[str, tuple[Any, ...]] = {
    "cpu": (torch.backends.mkldnn.matmul, torch.backends.mkldnn.conv),  # type: ignore[attr-defined]
    "cuda": (torch.backends.cuda.matmul, torch.backends.cudnn.conv),  # type: ignore[attr-defined]
}


@contextmanager
def whole_products(device: torch.device) -> Iterator[None]:
    """Within it products of float32 numbers are float32's, whatever the user allows elsewhere (TF32, bfloat16).
    With ten bits or seven a sum could be longer than the norms that it was clipped by."""
    before = [(kind, kind.fp32_precision) for kind in _MAY_BE_SHORTENED.get(device.type, ())]
    changed = [(kind, precision) for kind, precision in before if precision not in ("none", "ieee")]
    for kind, _ in changed:
        kind.fp32_precision = "ieee"
    try:
        yield
    finally:
        for kind, precision in changed:
            kind.fp32_precision = precision


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of each item: (B, classes) logits and (B,) int64 targets to (B,)."""
    return F.cross_entropy(logits, targets, reduction="none")


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared error of each item: (B, 1) outputs and (B,) float targets to (B,)."""
    return (outputs.squeeze(1) - targets).square()


class ClippingEngine:
    """Clipped, weighted gradient sums of a model whose parameters live in a flat vector.

    Guarantee: with weights in [0, 1], adding or removing one item moves the sum of clipped items by at most
    ``clip_norm`` in L2; with any finite weights, adding or removing a whole group moves the sum of clipped groups by at
    most ``clip_norm``. An item whose gradient is not finite contributes nothing, and neither does its group, unless its
    weight is 0. An item of weight 0 contributes exactly nothing, whatever its gradient.

    ``layout``: None for the plain one, where each parameter belongs to a layer with a rule. Raises ModelError for a
    layer that mixes items or is not supported, ConfigError for a physical batch size (items that go through at once)
    below 1.
    """

    def __init__(
        self,
        flat: FlatParameters,
        physical_batch_size: int = 192,
        item_loss: ItemLoss = cross_entropy,
        layout: Layout | None = None,
    ) -> None:
        if physical_batch_size < 1:
            raise expected("physical_batch_size", physical_batch_size, "at least 1")
        refuse_by_name(flat.model)
        self.flat, self.physical_batch_size, self.item_loss = flat, physical_batch_size, item_loss
        self.layout = layout or plain_layout(flat.model)
        self.rules = ruled_layers(flat.model, self.layout.ruled)
        prefixes = {name: f"{name}." if name else "" for name in self.rules}
        self._units = {  # names of each layer's parameters, within it and in the model
            layer: {name.removeprefix(prefix): name for name in flat.parameters if name.startswith(prefix)}
            for layer, prefix in prefixes.items()
        }
        ruled = {full for own in self._units.values() for full in own.values()}
        self.followed = [name for name in flat.parameters if name not in ruled]
        self._units |= {f"{name} alone": {"weight": name} for name in self.followed}
        one_linear = [type(module) for module, _ in self.rules.values()] == [nn.Linear]
        self._may_be_one_linear = one_linear and item_loss is cross_entropy
        self.largest_tried = 0  # items of the largest mini-batch that was tried (probe.check_batch)

    def clipped_sum(
        self,
        inputs: Inputs,
        labels: Any,
        clip_norm: float | Tensor,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
        factor: Factor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Σ_i w_i Clip(g_i, C) and the norms ‖g_i‖; with groups Σ_a Clip(Σ_{i∈a} w_i g_i, C) and ‖Σ_{i∈a} w_i g_i‖.

        Args:
            inputs: B items, whatever the model takes; B = 0 gives a zero sum.
            labels: (B,) int64.
            clip_norm: C > 0, or infinity; one for all, or one an item (or group) on the device.
            weights: (B,), None for all ones; in [0, 1] without groups. Items of weight 0 (padding) count for nothing.
            factor: what a gradient is multiplied by, of its ‖g‖/C; None: min(1, C/‖g‖), which is also the most.
            groups: (B,) whole numbers from 0 on, best on the CPU: the group of each item; None clips items.

        Returns:
            (P,) sum, and (B,) unclipped norms of the items or (largest number + 1,) of the groups' sums, 0 for a number
                that no item has. PrivacyError for weights or groups of another shape, or other groups.
        """
        items = number_of(labels)
        if weights is not None and weights.shape != (items,):
            raise expected("weights", tuple(weights.shape), f"one an item, shape ({items},)", PrivacyError)
        if groups is None:
            if (at_once := self._at_once(inputs, labels)) is not None:
                with whole_products(self.flat.vector.device):
                    norms = at_once.clip(clip_norm, weights, factor)
                    return at_once.sum(), norms
            parts, count = item_parts(items, self.physical_batch_size), items
        else:
            numbers = group_numbers(groups, items)
            count = int(numbers.max()) + 1 if items else 0
            parts = group_parts(numbers, self.physical_batch_size)
        total, norms = LongSum(self.flat.vector), self.flat.vector.new_zeros(count)
        for part in parts:
            part_weights = None if weights is None else weights[part.items]
            bound = clip_norm[part.groups] if isinstance(clip_norm, Tensor) else clip_norm
            clip = Clip(part.grouping, bound, part_weights, factor, groups is not None)
            in_one_pass = part.grouping.runs[-1].size <= self.physical_batch_size
            add = self._add_clipped if in_one_pass else self._add_large_group
            so_far, norms[part.groups] = add(taken(inputs, part.items), taken(labels, part.items), clip, total.part)
            total.take(so_far)
        return total.sum(), norms

    def gradient_sum(self, inputs: Inputs, labels: Any, weights: Tensor | None = None) -> Tensor:
        """Σ_i w_i g_i (P,), nothing clipped; ``weights`` (B,), None for all ones."""
        if (at_once := self._at_once(inputs, labels)) is not None:
            at_once.weight(weights)
            return at_once.sum()
        total: Tensor | None = None
        for start in range(0, number_of(labels), self.physical_batch_size):
            part = slice(start, start + self.physical_batch_size)
            part_weights = None if weights is None else weights[part]
            total = self._add_gradients(taken(inputs, part), taken(labels, part), part_weights, total)
        return torch.zeros_like(self.flat.vector) if total is None else total

    def _add_clipped(self, inputs: Inputs, labels: Any, clip: Clip, total: Tensor | None) -> tuple[Tensor, Tensor]:
        if (linear := self._one_linear(inputs, labels)) is not None:
            linear.weight(clip.weights if clip.grouped else None)
            return self._add_captured({next(iter(self.rules)): linear.captured()}, clip, total)
        output, tape = self.record(inputs)
        with torch.enable_grad():
            losses = self.losses(output, labels)
        return self.add_recorded(tape, losses, clip, total)

    def record(self, inputs: Inputs) -> tuple[Any, Tape]:
        """The model's output for some items, and what :meth:`add_recorded` needs of the pass."""
        items, model, uses = number_of(inputs), self.flat.model, None
        if self.followed:
            parameters = {name: self.flat.parameters[name] for name in self.followed}
            uses = Uses(parameters, [*model.parameters(), *model.buffers()], items, self.layout.places)
        tape = Tape({}, uses)
        alone = kept_alone(model, self.layout.alone)
        with torch.enable_grad(), alone, self._recording(tape.layers, items), uses or nullcontext():
            return call(model, inputs), tape

    def losses(self, output: Any, targets: Any) -> Tensor:
        """The losses of the items (B,). Raises ModelError for a loss of another shape."""
        losses, items = self.item_loss(output, targets), number_of(targets)
        if losses.shape != (items,):
            raise expected("loss", tuple(losses.shape), f"one number an item, shape ({items},)", ModelError)
        return losses

    def add_recorded(self, tape: Tape, losses: Tensor, clip: Clip, total: Tensor | None) -> tuple[Tensor, Tensor]:
        """``total`` (P,) (None: 0), changed by the clipped sum of a recorded pass, and the norms of its groups.
        ``tape`` is of :meth:`record` and used up, ``losses`` (B,) come from the recorded output."""
        # a group's gradient is that of its weighted loss; an item's weight comes after its norm
        with torch.autocast(losses.device.type, enabled=False):
            with torch.enable_grad():
                loss = _total(losses.float(), clip.weights if clip.grouped else None)
            return self._add_captured(self._captured(tape, loss), clip, total)

    def _add_captured(self, captured: dict[str, Captured], clip: Clip, total: Tensor | None) -> tuple[Tensor, Tensor]:
        with torch.no_grad(), whole_products(self.flat.vector.device):
            if clip.grouped and clip.weights is not None:
                _zero_out(captured, clip.weights == 0.0, None)
            squares = [layer.squared_norms(clip.grouping) for layer in captured.values()]
            total_squares = summed(squares or [Squares(self.flat.vector.new_zeros(clip.grouping.count))])
            norms, bounds = total_squares.values.sqrt(), total_squares.bounds.sqrt()
            scales = clip_factors(bounds, clip.clip_norm, clip.factor)
            bad = ~torch.isfinite(bounds)
            scales.masked_fill_(bad, 0.0)
            _zero_out(captured, clip.grouping.to_items(bad), bad)
            if clip.weights is not None and not clip.grouped:
                scales.mul_(clip.weights)
            coefficients = Coefficients(scales, clip.grouping.to_items(scales))
            # only now, when the activations are freed: the sum is as large as the model
            into = torch.empty_like(self.flat.vector) if total is None else total
            views = self.flat.views(into)
            for name, own in self._units.items():
                sums = Sums({each: views[full] for each, full in own.items()}, fresh=total is None)
                if name in captured:
                    captured[name].add_weighted_sum(coefficients, sums)
                sums.close()
        return into, norms

    def _add_large_group(self, inputs: Inputs, labels: Any, clip: Clip, total: Tensor | None) -> tuple[Tensor, Tensor]:
        if (weights := clip.weights) is not None:
            kept = weights != 0.0
            inputs, labels, weights = taken(inputs, kept), taken(labels, kept), weights[kept]
        gradient = self.gradient_sum(inputs, labels, weights)
        norm = row_norms(gradient.unsqueeze(0))
        scaled = gradient.mul_(clip_factors(norm, clip.clip_norm, clip.factor))
        gradient = torch.where(torch.isfinite(norm), scaled, 0.0)
        return gradient if total is None else total.add_(gradient), norm

    def _add_gradients(self, inputs: Inputs, labels: Any, weights: Tensor | None, total: Tensor | None) -> Tensor:
        parameters = self.flat.parameters
        self.flat.require_gradients(True)
        try:
            loss = _total(self.losses(call(self.flat.model, inputs), labels), weights)
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        finally:
            self.flat.require_gradients(False)
        into = torch.empty_like(self.flat.vector) if total is None else total
        sums = Sums(self.flat.views(into), fresh=total is None)
        for name, gradient in zip(parameters, gradients, strict=True):
            if gradient is not None:
                sums.add(name, gradient)
        sums.close()
        return into

    @torch.no_grad()
    def _one_linear(self, inputs: Inputs, labels: Any) -> OneLinear | None:
        if not self._may_be_one_linear or not isinstance(inputs, Tensor) or autocast_on(inputs.device):
            return None
        ((layer, _),) = self.rules.values()
        linear = without_backward(self.flat.model, layer, laid_out(inputs), labels)
        self._may_be_one_linear = linear is not None
        return linear

    def _at_once(self, inputs: Inputs, labels: Any) -> OneLinear | None:
        plain = isinstance(labels, Tensor) and labels.device.type == "cpu"
        return self._one_linear(inputs, labels) if plain and 0 < len(labels) <= self.physical_batch_size else None

    def _captured(self, tape: Tape, loss: Tensor) -> dict[str, Captured]:
        edges = [edge for taped in tape.layers.values() for edge in taped.edges]
        edges += [] if tape.uses is None else tape.uses.edges
        gradients = torch.autograd.grad(loss, edges, allow_unused=True) if edges and loss.requires_grad else ()
        deltas = iter(gradients or [None] * len(edges))
        captured = {}
        with torch.no_grad():
            for name, taped in tape.layers.items():
                own = [next(deltas) for _ in taped.edges]
                if all(delta is None for delta in own):
                    continue
                if taped.inputs._version != taped.version:
                    raise ModelError(
                        f"Expected a model that leaves the inputs of its layers as they are, those of {name!r} were "
                        "changed in place after it had run."
                    )
                module, rule = self.rules[name]
                shapes = zip(taped.shapes, own, strict=True)
                written = [loss.new_zeros(shape) if delta is None else delta for shape, delta in shapes]
                with in_words(_layer(name)):
                    captured[name] = rule.captured(module, in_float32(taped.kept), in_float32(written))
            if tape.uses is not None:
                for value in tape.uses.take(list(deltas)):
                    if value.pieces:
                        captured[f"{value.names[0]} alone"] = captured_of(value)
        tape.layers.clear()
        return captured

    def _recording(self, tape: dict[str, _Taped], items: int) -> AbstractContextManager[None]:
        def run(name: str, module: nn.Module, *inputs: Any, **options: Any) -> Any:
            alone = only_input(module, inputs, options, items)
            if name in tape or alone is None:
                wanted = f"to run once a forward pass, on one tensor with the {items} items first"
                raise ModelError(f"Expected {_layer(name)} {wanted}, as where the model was tried.")
            with in_words(_layer(name)):
                output, ends, kept = self.rules[name][1].forward(module, alone)
            edges, shapes = edges_of(ends, f"layer {name!r}"), [tensor.shape for tensor in ends]
            tape[name] = _Taped(edges, shapes, kept, alone.detach(), alone._version)
            return output

        modules = {name: module for name, (module, _) in self.rules.items()}
        return forwards(modules, lambda name, module: partial(run, name, module))


def _layer(name: str) -> str:
    return f"Layer {name!r}" if name else "The module"


def _total(losses: Tensor, weights: Tensor | None) -> Tensor:
    return losses.sum() if weights is None else losses @ weights


def _zero_out(captured: dict[str, Captured], items: Tensor, groups: Tensor | None) -> None:
    """Sets the marked items' gradients to 0 in every layer: 0 times a gradient that is not finite is not 0.
    On the CPU this returns at once if nothing is marked; on a GPU that check would wait for the device."""
    if items.device.type == "cpu" and not bool(items.any()):
        return
    for layer in captured.values():
        layer.zero_out(items, groups)
