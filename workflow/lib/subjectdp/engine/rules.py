"""Layer rules: their interface to the clipping engine, helpers that they share, all but convolutions and LSTMs.

Linear and embedding layers give outer products, formed per item only where nothing is cheaper; norms have small
per-item gradients. What has no rule is followed function by function (:mod:`subjectdp.engine.uses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from subjectdp.engine.batches import Grouping, Run
from subjectdp.engine.flat import row_norms
from subjectdp.errors import PrivacyError

CANCELS = 2.0**-9
"""Squared norms from float32 products below it, relative to the squared sums of the lengths that were added up, are
computed again in float64. Short terms beside a long one are lost in inner products, up to 2^-16 of it. Positions that
point anywhere cancel so far from 512 of them on."""

SUM_ROUNDING = 2.0**-18
"""The least that a squared norm counts for, relative to the same: the weighted sum adds up the parts, and rounds by up
to 2^-17 of their lengths. Positions that point anywhere cancel so far from 262,144 of them on."""

_LOST = 2.0**-100  # more than a square loses below the least float32, where a large factor may follow
_NARROW = 32  # a product with fewer columns is computed as its transpose, 10 times as fast (8,000 x 8 by MKL)
_FEW_STEPS = 32  # positions whose products cost next to nothing beside the layer's own, in float64 too
_EXACT_FLOATS = 1 << 18  # in float64 at once
_IN_A_LINE = 512  # numbers that are added up one after another: each is rounded as the sum so far is
_DIRECT_FLOATS = 1 << 21  # gradients of groups that are formed at once, where they are formed at all


@dataclass(frozen=True)
class Squares:
    """Squared norms of the gradients of a part's groups, and what the rounding of their weighted sum depends on.

    Where it adds up the parts of a group's gradient, and not the gradient itself, parts that add up to almost 0 leave a
    fraction of their lengths.
    """

    values: Tensor  # (groups,)
    added: Tensor | None = None  # (groups,) squared sums of the lengths that the weighted sum adds up; None: no parts

    @property
    def bounds(self) -> Tensor:
        """(groups,) what the squared norms count for in clipping."""
        return self.values if self.added is None else torch.maximum(self.values, self.added * SUM_ROUNDING)


@dataclass(frozen=True)
class Coefficients:
    """The factor of each group's gradient in the sum, and the same for each item."""

    groups: Tensor
    items: Tensor


class Sums:
    """A layer's views into the flat result; of ``fresh`` ones, which nobody wrote, :meth:`close` zeroes the rest."""

    def __init__(self, views: Mapping[str, Tensor], fresh: bool) -> None:
        self._views = views
        self._unwritten = set(views) if fresh else set()

    def __getitem__(self, name: str) -> Tensor:
        """The parameter's sum so far, to be added to in place."""
        return self._views[name].zero_() if self._first(name) else self._views[name]

    def _first(self, name: str) -> bool:
        first = name in self._unwritten
        self._unwritten.discard(name)
        return first

    def close(self) -> None:
        """Zeroes what no layer wrote: a layer that did not run, a parameter without gradient."""
        for name in self._unwritten:
            self._views[name].zero_()

    def add(self, name: str, value: Tensor) -> None:
        """Adds a tensor of the parameter's size."""
        view = self._views[name]
        value = value.reshape(view.shape)
        view.copy_(value) if self._first(name) else view.add_(value)

    def add_product(self, name: str, left: Tensor, right: Tensor) -> None:
        """Adds the matrix product ``left`` (n, k) · ``right`` (k, m)."""
        if 1 in (len(left), right.shape[1]) and len(right) > _IN_A_LINE:
            self.add(name, (left.t() * right).sum(0))
        elif right.shape[1] < _NARROW:
            self.add(name, torch.mm(right.t(), left.t()).t())
        else:
            self._views[name].addmm_(left, right, beta=0.0 if self._first(name) else 1.0)


class Captured(Protocol):
    """One layer's part of the book-keeping of one part of a batch, after the backward pass."""

    def squared_norms(self, grouping: Grouping) -> Squares:
        """Squared L2 norm of each group's gradient of this layer's parameters, the sum over the group's items."""

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        """Sets the gradients of the marked items (items,) to exactly 0, also where they are not finite.
        ``groups`` (groups,) marks their groups; None before the norms are computed."""

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        """Adds Σ_a coefficients_a · g_a to each parameter.
        Leaves the gradients of outputs as they are: layers whose outputs are added share one tensor."""


def own_forward(module: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor], Tensor]:
    """Runs a layer's own code and keeps its input."""
    output = wanted(type(module).forward(module, inputs))
    return output, [output], inputs.detach()


@dataclass(frozen=True)
class LayerRule:
    """Captures a layer in the forward pass and makes its :class:`Captured` once the output gradients are known."""

    captured: Callable[[Any, Any, list[Tensor]], Captured]
    """Of the layer, what was kept, and the gradients of the wanted tensors."""
    forward: Callable[[Any, Tensor], tuple[Any, list[Tensor], Any]] = own_forward
    """Runs the layer: output, the tensors whose gradients are :func:`wanted`, and what to keep."""


def in_float32(values: Any) -> Any:
    """The values of a structure, with the lower precisions of autocast in float32: norms and sums are."""
    half = torch.bfloat16, torch.float16
    return tree_map(lambda each: each.float() if isinstance(each, Tensor) and each.dtype in half else each, values)


def wanted(output: Tensor) -> Tensor:
    """A layer's output as a tensor of the autograd graph, even if nothing before it requires a gradient."""
    if output.requires_grad:  # a view that is changed in place, as of a linear layer on 3-D data, leaves its node
        return torch.ops.aten._unsafe_view(output, output.shape) if output._is_view() else output
    if output._is_view():  # autograd forbids to change it in place
        output = output.clone()
    result: Tensor = _Source.apply(output, torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call]
    return result


TERMS = (
    "Expected a model in private training to be differentiated through the private loss alone: its outputs or hidden "
    "values are in another term of the loss, or in a plain criterion, whose gradient nothing would clip. Put the term "
    "into the criterion, as a loss of each item."
)


class _Source(torch.autograd.Function):
    """The end of the backward pass. A leaf would stay in memory as long as the graph, and forbid ``relu_``.
    The engine differentiates up to the layers' outputs: only a backward pass that is not the engine's arrives here."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor) -> Tensor:
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        raise PrivacyError(TERMS)


def squared_rows(rows: Tensor) -> Tensor:
    """(B,) squared L2 norm of each row of a (B, d) tensor, larger by what tiny numbers' squares lose."""
    return row_norms(rows).square_().add_(rows.shape[1] * _LOST)


def grouped(values: Tensor, run: Run) -> Tensor:
    """The items of a run (of (B, T, ...) values) as its groups: (groups, size·T, ...)."""
    return values[run.items].reshape(run.groups, run.size * values.shape[1], *values.shape[2:])


def group_sums(values: Tensor, grouping: Grouping) -> Tensor:
    """(B, d) gradients of items, summed within groups: (groups, d)."""
    if all(run.size == 1 for run in grouping.runs):
        return values
    return torch.cat([grouped(values.unsqueeze(1), run).sum(1) for run in grouping.runs])


def zeroed(values: Tensor, items: Tensor) -> Tensor:
    """A copy of (B, ...) values that is 0 for the marked items."""
    return values.masked_fill(items.view(-1, *(1,) * (values.dim() - 1)), 0)


def product_squares(delta: Tensor, inputs: list[Tensor], ones: float) -> Squares:
    """Squared norms of n gradients Σ_t δ_t ⊗ [x_t, 1, ...] of one linear map, by the cheaper of two forms.

    Either Σ_{t,s} (δ_t·δ_s)(x_t·x_s + ones), with T² (d_in + d_out) multiplications, or the gradients themselves, with
    T d_in d_out. For few positions the products are in float64. ``delta`` is (n, T, d_out), each of ``inputs`` (n, T,
    d_k): of maps that share their output (an LSTM's input and state); ``ones``: how many biases there are.
    """
    steps, d_out, d_in = delta.shape[1], delta.shape[2], sum(x.shape[2] for x in inputs)
    if steps * (d_in + d_out) >= d_in * d_out:
        return Squares(_direct_squares(delta, inputs, ones), _added_up(delta, inputs, ones))

    def squares(delta: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        products = gram(*inputs)
        if ones:
            products.add_(ones)
        products.mul_(gram(delta))
        lengths = products.diagonal(dim1=1, dim2=2).sqrt()
        return products.sum((1, 2)), lengths.sum(1).square_()

    return precise(squares, delta, *inputs)


def precise(squares: Callable[..., tuple[Tensor, Tensor]], *given: Tensor) -> Squares:
    """Squares of n groups, of which ``given`` are (n, T, ...): in float64 for few positions, and where these cancel.

    ``squares`` gives values and what is added up, of tensors like those given.
    """
    if max(each.shape[1] for each in given) <= _FEW_STEPS:
        values, added = _in_float64(squares, given)
    else:
        values, added = squares(*given)
        cancelling = (values < added * CANCELS).nonzero().flatten()
        if len(cancelling):
            values[cancelling], _ = _in_float64(squares, [each[cancelling] for each in given])
    return Squares(values.clamp_min_(0.0), added)


def _in_float64(squares: Callable[..., tuple[Tensor, Tensor]], given: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    at_once = max(1, _EXACT_FLOATS // sum(each[0].numel() for each in given))
    found = []
    for start in range(0, len(given[0]), at_once):
        part = (each[start : start + at_once] for each in given)
        found.append(squares(*(each.double() if each.is_floating_point() else each for each in part)))
    values, added = (torch.cat(each).to(given[-1].dtype) for each in zip(*found, strict=True))
    return values, added


def gram(*parts: Tensor) -> Tensor:
    """(n, T, T) inner products of rows of (n, T, d_k) parts, the squares larger by what those of tiny numbers lose."""
    products = torch.bmm(parts[0], parts[0].transpose(1, 2))
    for x in parts[1:]:
        products.baddbmm_(x, x.transpose(1, 2))
    products.diagonal(dim1=1, dim2=2).add_(sum(x.shape[2] for x in parts) * _LOST)
    return products


def _direct_squares(delta: Tensor, inputs: list[Tensor], ones: float) -> Tensor:
    count, _, d_out = delta.shape
    total = squared_rows(delta.sum(1)).mul_(ones)
    for x in inputs:
        at_once = max(1, _DIRECT_FLOATS // (d_out * x.shape[2]))
        for start in range(0, count, at_once):
            part = slice(start, start + at_once)
            total[part] += squared_rows(_added_products(delta[part], x[part]))
    return total


def _added_products(delta: Tensor, x: Tensor) -> Tensor:
    """(n, d_out·d_in) of (n, T, d_out) and (n, T, d_in); as ``add_product`` does it."""
    if 1 in (delta.shape[2], x.shape[2]) and x.shape[1] > _IN_A_LINE:
        return (delta * x).sum(1)
    return torch.bmm(delta.transpose(1, 2), x).flatten(1)


def _added_up(delta: Tensor, inputs: list[Tensor], ones: float) -> Tensor:
    """(n,) squared sums of the lengths of what the positions add to a gradient."""
    lengths = torch.stack([x.norm(dim=2) for x in inputs]).square_().sum(0).add_(ones).sqrt_()
    return lengths.mul_(delta.norm(dim=2)).sum(1).square_()


def joined(parts: list[Squares]) -> Squares:
    """The squares of several runs, one after another."""
    return parts[0] if len(parts) == 1 else Squares(*_each(torch.cat, parts))


def summed(parts: list[Squares]) -> Squares:
    """The squares of several parameters of the same groups, added up."""
    return parts[0] if len(parts) == 1 else Squares(*_each(lambda found: torch.stack(found).sum(0), parts))


def _each(together: Callable[[list[Tensor]], Tensor], parts: list[Squares]) -> Iterator[Any]:
    for name in ("values", "added"):
        found = [getattr(part, name) for part in parts]
        if all(each is None for each in found):
            yield None
        else:
            yield together([torch.zeros_like(p.values) if f is None else f for p, f in zip(parts, found, strict=True)])


def linear(module: nn.Linear, kept: Tensor, deltas: list[Tensor]) -> LinearCaptured:
    """nn.Linear on (B, d) or (B, ..., d) inputs."""
    inputs, delta = (each.reshape(len(each), -1, each.shape[-1]) for each in (kept, deltas[0]))
    return LinearCaptured(inputs, delta, module.bias is not None)


@dataclass
class LinearCaptured:
    """A layer along T positions: g_i = Σ_t δ_it ⊗ x_it, of rank one where T = 1."""

    inputs: Tensor  # (B, T, d_in)
    delta: Tensor  # (B, T, d_out)
    bias: bool

    def squared_norms(self, grouping: Grouping) -> Squares:
        return joined([self._of_run(run) for run in grouping.runs])

    def _of_run(self, run: Run) -> Squares:
        inputs, delta = grouped(self.inputs, run), grouped(self.delta, run)
        if inputs.shape[1] == 1:  # |g_i|² = |δ_i|² (|x_i|² + 1)
            return Squares(squared_rows(delta[:, 0]) * (squared_rows(inputs[:, 0]) + float(self.bias)))
        return product_squares(delta, [inputs], float(self.bias))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.inputs, self.delta = zeroed(self.inputs, items), zeroed(self.delta, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        scaled = (self.delta * coefficients.items.view(-1, 1, 1)).flatten(0, 1)
        into.add_product("weight", scaled.t(), self.inputs.flatten(0, 1))
        if self.bias:
            into.add("bias", scaled.sum(0))


def embedding(module: nn.Embedding, kept: Tensor, deltas: list[Tensor]) -> EmbeddingCaptured:
    """nn.Embedding on integer inputs (B,) or (B, ...)."""
    delta = deltas[0].reshape(len(kept), -1, module.embedding_dim)
    return EmbeddingCaptured(kept.reshape(len(kept), -1), delta, module.num_embeddings, module.padding_idx)


@dataclass
class EmbeddingCaptured:
    """An item's gradient: the deltas, added to the table's rows that the item reads."""

    indices: Tensor  # (B, T)
    delta: Tensor  # (B, T, E)
    rows: int
    padding: int | None

    def __post_init__(self) -> None:
        if self.padding is not None:
            self.delta = self.delta * (self.indices != self.padding).unsqueeze(2)

    def squared_norms(self, grouping: Grouping) -> Squares:
        return joined([self._of_run(run) for run in grouping.runs])

    def _of_run(self, run: Run) -> Squares:
        return table_squares(grouped(self.indices, run), grouped(self.delta, run), self.rows)

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.delta = zeroed(self.delta, items)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        scaled = self.delta * coefficients.items.view(-1, 1, 1)
        add_rows(into["weight"], self.indices.flatten(), scaled.flatten(0, 1))


def table_squares(indices: Tensor, delta: Tensor, rows: int) -> Squares:
    """Squared norms of n gradients of a table, whose row ``indices`` (n, T) say gets ``delta`` (n, T, E) added."""
    count, steps, width = delta.shape
    if steps == 1:  # one row of the table
        return Squares(squared_rows(delta[:, 0]))
    if rows <= 4 * steps:  # a small table: each group's gradient fits
        offsets = torch.arange(count, device=delta.device).unsqueeze(1) * rows
        table = delta.new_zeros(count * rows, width)
        add_rows(table, (indices + offsets).flatten(), delta.flatten(0, 1))
        return Squares(squared_rows(table.view(count, -1)), delta.norm(dim=2).sum(1).square_())

    def squares(indices: Tensor, delta: Tensor) -> tuple[Tensor, Tensor]:
        products, same = gram(delta), indices.unsqueeze(2) == indices.unsqueeze(1)
        lengths = products.diagonal(dim1=1, dim2=2).sqrt()
        return products.mul_(same).sum((1, 2)), (same * lengths.unsqueeze(1)).sum(2).mul_(lengths).sum(1)

    return precise(squares, indices, delta)


def add_rows(table: Tensor, rows: Tensor, values: Tensor) -> None:
    """Adds ``values`` (n, width) to rows (n,) of a table; those of a row that comes often not one after another."""
    counts = torch.bincount(rows) if len(rows) > _IN_A_LINE else rows[:0]
    often = (counts > _IN_A_LINE).nonzero().flatten().tolist()
    before = table[often]
    table.index_add_(0, rows, values)
    for row, old in zip(often, before, strict=True):
        table[row] = values[rows == row].sum(0).add_(old)


@dataclass
class TiedCaptured:
    """A table that a linear map reads too: ‖O + R‖² = ‖O‖² + ‖R‖² + 2 Σ_st δ_s[r_t] (x_s · d_t)."""

    linear: LinearCaptured
    table: EmbeddingCaptured

    def squared_norms(self, grouping: Grouping) -> Squares:
        return joined([self._of_run(run) for run in grouping.runs])

    def _of_run(self, run: Run) -> Squares:
        given = self.table.indices, self.linear.inputs, self.linear.delta, self.table.delta
        return precise(self._squares, *(grouped(each, run) for each in given))

    def _squares(self, rows: Tensor, inputs: Tensor, delta: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
        read = delta.gather(2, rows.unsqueeze(1).expand(-1, delta.shape[1], -1))
        cross = read.mul_(torch.bmm(inputs, own.transpose(1, 2))).sum((1, 2))
        both = product_squares(delta, [inputs], 0.0).values + table_squares(rows, own, self.table.rows).values
        lengths = (delta.norm(dim=2) * inputs.norm(dim=2)).sum(1) + own.norm(dim=2).sum(1)
        return both + 2 * cross, lengths.square_()

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        self.linear.zero_out(items, groups)
        self.table.zero_out(items, groups)

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        self.linear.add_weighted_sum(coefficients, into)
        self.table.add_weighted_sum(coefficients, into)


def normalisation(module: nn.GroupNorm | nn.LayerNorm, kept: Tensor, deltas: list[Tensor]) -> ItemGradients:
    """nn.GroupNorm on (B, C, ...), and nn.LayerNorm over the last dimensions."""
    if isinstance(module, nn.GroupNorm):
        normed, over = F.group_norm(kept, module.num_groups, None, None, module.eps), range(2, kept.dim())
    else:
        own = module.normalized_shape
        normed, over = F.layer_norm(kept, own, None, None, module.eps), range(1, kept.dim() - len(own))
    gradients = {"weight": normed.mul_(deltas[0])} | ({} if module.bias is None else {"bias": deltas[0]})
    return ItemGradients({name: each.sum(tuple(over)) if over else each for name, each in gradients.items()})


@dataclass
class ItemGradients:
    """Per-item gradients of each parameter, (B, ...); those of the groups once the norms are known."""

    gradients: dict[str, Tensor]

    def squared_norms(self, grouping: Grouping) -> Squares:
        self.gradients = {name: group_sums(g.reshape(len(g), -1), grouping) for name, g in self.gradients.items()}
        return Squares(torch.stack([squared_rows(gradient) for gradient in self.gradients.values()]).sum(0))

    def zero_out(self, items: Tensor, groups: Tensor | None) -> None:
        marked = items if groups is None else groups
        self.gradients = {name: zeroed(gradient, marked) for name, gradient in self.gradients.items()}

    def add_weighted_sum(self, coefficients: Coefficients, into: Sums) -> None:
        for name, gradient in self.gradients.items():
            into.add(name, coefficients.groups @ gradient)
