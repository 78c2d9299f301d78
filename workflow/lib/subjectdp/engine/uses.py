"""Parameters that no layer rule covers: what the model's code does with them, seen function by function.

A mode of torch sees every function that takes such a parameter, whatever module or loose code calls it:

* a function of parameters and constants alone makes a *derived* value (``weight.t()``, ``positions(arange(T))``);
* a function of data too is a *use*: an item's gradient is that of the function on the item's part of the data, given
  the gradient of the item's part of the output; products and look-ups keep their factors, others are formed;
* gradients of derived values are led back to their parameters, item by item.

So any code is exact. Where the items are in a tensor is learned from three passes (:func:`learned`), never guessed. A
module inside which that cannot be said (routed experts, packed sequences) is one function: each item goes through it by
itself (:class:`Alone`).
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge
from torch.func import functional_call, vjp, vmap
from torch.overrides import TorchFunctionMode, handle_torch_function
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from subjectdp.engine.batches import autocast_on, edges_of
from subjectdp.engine.generators import generators_kept, seed_all
from subjectdp.engine.ragged import DRAWING, Ragged, tensors_of
from subjectdp.engine.rules import (
    Captured,
    EmbeddingCaptured,
    ItemGradients,
    LinearCaptured,
    TiedCaptured,
    in_float32,
    wanted,
)
from subjectdp.errors import ModelError


class NotFollowed(ModelError):
    """Functions of some parameters in which the items cannot be told apart."""

    def __init__(self, message: str, parameters: Iterable[str]) -> None:
        super().__init__(message)
        self.parameters = tuple(parameters)


class Key(NamedTuple):
    """A function of some parameters, and how often it was called with them before in the pass."""

    function: str
    parameters: tuple[str, ...]
    before: int

    def __str__(self) -> str:
        return f"{self.function} of {', '.join(self.parameters)}"


class Place(NamedTuple):
    """Where the items of a tensor are: entry (o, i, k) of dimension ``dim`` is item i's.
    ``inner``: how many k there are; None where there is one o, so that k may be any number (the length of a text)."""

    dim: int
    inner: int | None

    def shape(self, whole: Sequence[int], items: int) -> tuple[int, ...]:
        """The shape (..., o, i, k, ...). Raises ModelError where the items do not fit."""
        size = whole[self.dim]
        inner = size // items if self.inner is None else self.inner
        if size % items or (inner and size % (items * inner)):
            raise ModelError(f"Expected a model that keeps its items apart: {items} are in a tensor of {tuple(whole)}.")
        return (*whole[: self.dim], (size // (items * inner) if inner else 1), items, inner, *whole[self.dim + 1 :])

    def parts(self, tensor: Tensor, items: int) -> Tensor:
        """(items, ...): each item's part of the tensor."""
        split = tensor.reshape(self.shape(tensor.shape, items)).movedim(self.dim + 1, 0)
        return split.flatten(self.dim + 1, self.dim + 2)

    def whole(self, parts: Tensor) -> Tensor:
        """The tensor of which these are the items' :meth:`parts`."""
        inner = parts.shape[self.dim + 1] if self.inner is None else self.inner
        shape = parts.shape
        split = parts.reshape(*shape[: self.dim + 1], -1, max(1, inner), *shape[self.dim + 2 :])
        return split.movedim(0, self.dim + 1).flatten(self.dim, self.dim + 2)

    def alone(self, parts: Tensor, whole: torch.Size) -> Tensor:
        """(items, *whole): tensors that are zero but for each item's own part."""
        items, shape = len(parts), self.shape(whole, len(parts))
        result = parts.new_zeros(items, *whole)
        view = result.view(items, *shape).movedim(2 + self.dim, 1)
        every = torch.arange(items, device=parts.device)
        view[every, every] = parts.reshape(items, *shape[: self.dim + 1], *shape[self.dim + 2 :])
        return result


class Seen(NamedTuple):
    """A function's tensors in one of the passes from which places are learned."""

    arguments: list[Tensor | None]
    outputs: list[Tensor | None]
    shared: set[int]  # which arguments depend on no item
    ragged: bool  # values of the data say how many rows there are


Places = tuple[list[Place | None], list[Place | None]]
"""Of a function's arguments and of its outputs."""


@dataclass
class Value:
    """A parameter, or what is made of parameters (``names``) and constants; ``pieces`` of its items' gradients."""

    names: tuple[str, ...]
    tensor: Tensor
    pieces: list[Piece] = field(default_factory=list)


@dataclass(frozen=True)
class Outer:
    """Σ_t δ_t ⊗ x_t of each item."""

    delta: Tensor  # (B, T, rows)
    inputs: Tensor  # (B, T, columns)

    def formed(self, shape: torch.Size) -> Tensor:
        return self.delta.transpose(1, 2) @ self.inputs


@dataclass(frozen=True)
class Rows:
    """Σ_t e_{r_t} ⊗ δ_t of each item: δ_t is added to row r_t."""

    rows: Tensor  # (B, T)
    delta: Tensor  # (B, T, columns)

    def formed(self, shape: torch.Size) -> Tensor:
        result = self.delta.new_zeros(len(self.delta), *shape)
        return result.scatter_add_(1, self.rows.unsqueeze(2).expand_as(self.delta), self.delta)


Piece = Outer | Rows | Tensor


def formed(value: Value) -> Tensor:
    """(B, *shape) the items' gradients of a value, which has pieces."""
    parts = [p if isinstance(p, Tensor) else p.formed(value.tensor.shape) for p in value.pieces]
    return sum(parts[1:], parts[0])


@dataclass(frozen=True)
class _Derived:
    values: list[Value]
    leaves: list[Tensor]  # that stand for the values
    made: list[Tensor]
    outputs: list[Value]


@dataclass(frozen=True)
class _Use:
    key: Key
    func: Callable[..., Any]
    arguments: list[Any]
    spec: TreeSpec
    values: dict[int, Value]  # by place among the arguments
    outputs: list[int]  # which of the function's are differentiated
    edges: list[GradientEdge]
    shapes: list[torch.Size]
    places: Places
    versions: list[int]  # of the arguments, as torch counts changes in place


class Alone:
    """A module as a function of its parameters and arguments, called with one item at a time."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.__name__ = name or "the whole model"
        places = {id(parameter): place for place, parameter in enumerate(module.parameters())}
        self._holder = _Held(module)
        self._places = {  # each part once: torch would not put back the parameters of one held under two names
            f"{part}.{name}": places[id(parameter)]
            for part, each in self._holder.named_modules()
            for name, parameter in each.named_parameters(recurse=False, remove_duplicate=False)
        }

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """In place of the module's own, in a pass that :class:`Uses` sees."""
        parameters: list[Tensor] = list(self._holder.module.parameters())
        return handle_torch_function(self, parameters, parameters, arguments, named, seed=None)

    def __call__(self, parameters: list[Tensor], arguments: Any, named: Any, seed: Tensor | None) -> Any:
        given = {name: parameters[place] for name, place in self._places.items()}
        run = partial(functional_call, self._holder, given, arguments, named, tie_weights=False)
        if seed is None:
            return run()
        with generators_kept():  # the same draws when the item's gradient is computed
            seed_all(int(seed) % 2**32)
            return run()


class _Held(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.forward = module, module.forward


class Uses(TorchFunctionMode):
    """Records a pass of some items.

    ``constants``: frozen parameters and buffers, which do not depend on the data either. ``places``: of all functions'
    items; None in the passes from which they are learned.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        constants: Iterable[Tensor],
        items: int,
        places: Mapping[Key, Places] | None = None,
    ) -> None:
        super().__init__()
        self.roots = [Value((name,), parameter) for name, parameter in parameters.items()]
        self.items, self.places = items, places
        self.seen: dict[Key, Seen] = {}
        self.owners: dict[str, set[str]] = {}
        self.inside: list[str] = [""]
        self._values = {id(value.tensor): value for value in self.roots}
        self._shared = {id(tensor): tensor for tensor in constants}
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        known = self._shared, self._values  # a method as the argument would be a cycle, which keeps all tensors
        self.is_shared: Callable[[Tensor], bool] = lambda tensor: any(id(tensor) in each for each in known)
        """Whether a tensor depends on no item: made of parameters and constants."""
        self._ragged = Ragged(items, self.is_shared)
        self._uses: list[_Use] = []
        self._derived: list[_Derived] = []
        self._by_items: dict[Key, Callable[[Places, int], tuple[list[Any], TreeSpec]]] = {}

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, types.FunctionType) and func.__globals__ is vars(F):  # not the pools, which look up others
            with self:  # its parts are seen
                return _body(func)(*args, **kwargs)
        output = self._followed(func, args, kwargs)
        if self.places is None:
            name = str(getattr(func, "__name__", ""))
            if name in DRAWING and output.shape[:1] == (self.items,):
                output.copy_(output[:1].clone())  # the same for all items: by values of its own none is told apart
            self._ragged.see(name, args, kwargs, output)
        return output

    def _followed(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = list(tensors_of((args, kwargs)))
        known = all(map(self.is_shared, given))
        if not any(id(each) in self._values for each in given):
            output = func(*args, **kwargs)
            if known:
                self._shared.update({id(each): each for each in tensors_of(output)})
            return output
        arguments, spec = tree_flatten((args, kwargs))
        tensors = [(n, each) for n, each in enumerate(arguments) if isinstance(each, Tensor)]
        values = {n: self._values[id(each)] for n, each in tensors if id(each) in self._values}
        names = tuple(sorted({name for value in values.values() for name in value.names}))
        for name in names:
            self.owners.setdefault(name, set()).add(self.inside[-1])
        if not _in_place(func):
            return (self._derive if known else self._use)(func, arguments, spec, values, names)
        if known or 0 in values:
            return (self._derive if known else self._use)(_of_a_copy(func), arguments, spec, values, names)
        changed, arguments[0] = arguments[0], arguments[0].clone()  # a use keeps its arguments as they are
        return changed.copy_(self._use(_of_a_copy(func), arguments, spec, values, names))

    def is_ragged(self, tensor: Tensor) -> bool:
        """Whether values of the data say how many rows a tensor has."""
        return tensor in self._ragged

    def _derive(
        self, func: Any, arguments: list[Any], spec: TreeSpec, values: dict[int, Value], names: tuple[str, ...]
    ) -> Any:
        distinct = {id(value): value for value in values.values()}
        tensors = {key: value.tensor for key, value in distinct.items()}
        leaves = {key: each.detach().requires_grad_(each.is_floating_point()) for key, each in tensors.items()}
        given = [leaves[id(values[n])] if n in values else each for n, each in enumerate(arguments)]
        args, kwargs = tree_unflatten(given, spec)
        with torch.enable_grad():
            outputs, shape = tree_flatten(func(*args, **kwargs))
        made, ends = [], []
        for n, each in enumerate(outputs):
            if not isinstance(each, Tensor):
                continue
            outputs[n] = each.detach()
            if each.requires_grad:
                made.append(each)
                ends.append(Value(names, outputs[n]))
                self._values[id(outputs[n])] = ends[-1]
            else:
                self._shared[id(outputs[n])] = outputs[n]
        if made:
            self._derived.append(_Derived(list(distinct.values()), list(leaves.values()), made, ends))
        return tree_unflatten(outputs, shape)

    def _use(
        self, func: Any, arguments: list[Any], spec: TreeSpec, values: dict[int, Value], names: tuple[str, ...]
    ) -> Any:
        function = str(getattr(func, "__name__", func))
        key = Key(function, names, self._counts[function, names])
        places = None if self.places is None else self.places.get(key)
        if isinstance(func, Alone) and places is not None:
            arguments = [*arguments[:-1], torch.randint(2**62, (self.items,))]
            places = [*places[0][:-1], Place(0, 1)], places[1]
            outputs, shape = _one_by_one(func, arguments, spec, places, self.items)
        else:
            args, kwargs = tree_unflatten(arguments, spec)
            outputs, shape = tree_flatten(func(*args, **kwargs))
        which = [n for n, each in enumerate(outputs) if isinstance(each, Tensor) and each.is_floating_point()]
        if not which:
            return tree_unflatten(outputs, shape)
        self._counts[function, names] += 1
        kept = [each.detach() if isinstance(each, Tensor) else each for each in arguments]
        versions = [each._version for each in kept if isinstance(each, Tensor)]
        if self.places is None:
            shared = {n for n, each in enumerate(arguments) if n in values or id(each) in self._shared}
            made, ragged = _copies([outputs[n] for n in which]), any(map(self.is_ragged, tensors_of(arguments)))
            self.seen[key] = Seen(_copies(kept, values), made, shared, ragged)
            if func not in _FACTORS:
                self._by_items[key] = partial(_one_by_one, func, kept, spec)
            return tree_unflatten(outputs, shape)
        if places is None:
            raise ModelError(f"Expected a model that takes the same path in every pass, '{key}' was not there before.")
        for n in which:  # of several one may be made of the other, as in an LSTM cell
            outputs[n] = wanted(outputs[n].clone() if which[1:] else outputs[n])
        edges, shapes = edges_of((outputs[n] for n in which), f"'{key}'"), [outputs[n].shape for n in which]
        self._uses.append(_Use(key, func, kept, spec, values, which, edges, shapes, places, versions))
        return tree_unflatten(outputs, shape)

    def check_by_items(self, places: Mapping[Key, Places]) -> None:
        """Raises NotFollowed where a function gives an item another output by itself than among the others, or none."""
        for key, seen in self.seen.items():
            if key not in self._by_items:
                continue
            try:
                outputs = self._by_items[key](places[key], self.items)[0]
            except (RuntimeError, ValueError, TypeError, IndexError) as problem:
                message = f"Expected a model that treats items one by one: '{key}': {problem}"
                raise NotFollowed(message, key.parameters) from problem
            tensors = [each for each in outputs if isinstance(each, Tensor) and each.is_floating_point()]
            among = [each for each in seen.outputs if each is not None]
            if not all(_alike(one, other) for one, other in zip(tensors, among, strict=True)):
                raise NotFollowed(_CHANGED.format(key), key.parameters)

    def without(self, parameters: Set[str]) -> Self:
        """This pass as if some parameters had not been followed: their functions are left out."""
        self.seen = {key: seen for key, seen in self.seen.items() if not parameters >= set(key.parameters)}
        return self

    @property
    def edges(self) -> list[GradientEdge]:
        return [edge for use in self._uses for edge in use.edges]

    def take(self, gradients: Sequence[Tensor | None]) -> list[Value]:
        """The parameters with their items' gradients, from those of :attr:`edges`."""
        found = iter(gradients)
        for use in self._uses:
            own = [next(found) for _ in use.edges]
            if all(each is None for each in own):
                continue
            if use.versions != [each._version for each in use.arguments if isinstance(each, Tensor)]:
                raise ModelError(f"Expected a model that does not change in place what '{use.key}' has read.")
            zeros = next(iter(use.values.values())).tensor
            deltas = [zeros.new_zeros(s) if d is None else d.float() for d, s in zip(own, use.shapes, strict=True)]
            _add(replace(use, arguments=in_float32(use.arguments)), deltas, self.items)
        for node in reversed(self._derived):
            _lead_back(node)
        return self.roots


def _one_by_one(
    func: Callable[..., Any], arguments: list[Any], spec: TreeSpec, places: Places, items: int
) -> tuple[list[Any], TreeSpec]:
    """The function's outputs for all items, from those for each item by itself."""
    split = {n: place.parts(arguments[n], items) for n, place in enumerate(places[0]) if place is not None}
    rows = []
    for item in range(items):
        args, kwargs = tree_unflatten([split[n][item] if n in split else a for n, a in enumerate(arguments)], spec)
        outputs, shape = tree_flatten(func(*args, **kwargs))
        rows.append(outputs)
    ends, joined = iter(places[1]), []
    for column in zip(*rows, strict=True):
        floating = isinstance(column[0], Tensor) and column[0].is_floating_point()
        end = next(ends) if floating else None
        if isinstance(column[0], Tensor) and end is None:
            raise ModelError(f"Expected a model that keeps its items apart: an output of {func} does not.")
        joined.append(column[0] if end is None else end.whole(torch.stack(column)))
    return joined, shape


_ROUNDING = 1e-4  # of the largest number of a tensor
_CHANGED = "Expected a model that treats items one by one: in '{}' one item changes what others see."
_RAGGED = "Expected a model that keeps its items apart: how many rows '{}' sees depends on their values."
_ONE_FOR_ALL = "Expected a model that keeps its items apart: the output of '{}' is one for all items."


def _in_place(func: Any) -> bool:
    """Whether a function changes its first argument, ``__setitem__`` left out."""
    name = str(getattr(func, "__name__", ""))
    return name in ("__iadd__", "__isub__", "__imul__", "__itruediv__") or (name[-1:] == "_" and name[-2:] != "__")


def _of_a_copy(func: Any) -> Callable[..., Any]:
    """The function, changing a copy of its first argument."""

    def changed(first: Tensor, *others: Any, **named: Any) -> Any:
        return func(first.clone(), *others, **named)

    changed.__name__ = func.__name__
    return changed


def _body(func: types.FunctionType) -> types.FunctionType:
    """A function of torch.nn.functional that does not look for modes itself."""
    modes = {f"has_torch_function{kind}": lambda *_: False for kind in ("", "_unary", "_variadic")}
    names = {**func.__globals__, **modes}
    body = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
    body.__kwdefaults__ = func.__kwdefaults__
    return body


def _copies(tensors: list[Any], values: Mapping[int, Value] | None = None) -> list[Any]:
    """Of all but ``values``, which nothing changes and which are as large as the model."""
    detached = [each.detach() if isinstance(each, Tensor) else None for each in tensors]
    return [each if each is None or n in (values or ()) else each.clone() for n, each in enumerate(detached)]


# --- where the items are ------------------------------------------------------------------------------------


def learned(fewer: Uses, more: Uses, moved: Uses) -> dict[Key, Places]:
    """The places of all functions' items, from passes of fewer and of more items, and one of the same moved on by one.
    Raises ModelError for a model that takes another path, or that does not keep its items apart."""
    if keys := (fewer.seen.keys() ^ more.seen.keys()) | (more.seen.keys() ^ moved.seen.keys()):
        message = "Expected a model that takes the same path whatever the number of items and their values."
        raise NotFollowed(message, (name for key in keys for name in key.parameters))
    passes = (fewer, more, moved)
    return {key: _places(key, [uses.seen[key] for uses in passes], fewer.items, more.items) for key in more.seen}


def _places(key: Key, passes: list[Seen], fewer: int, more: int) -> Places:
    """Where one place is possible, that one; else that of a tensor beside it whose dimension has the same size."""
    if any(seen.ragged for seen in passes):  # in one a size may be that of another dimension
        raise NotFollowed(_RAGGED.format(key), key.parameters)
    tensors = list(zip(*([*seen.arguments, *seen.outputs] for seen in passes), strict=True))
    possible = [_possible(key, values, fewer, more) for values in tensors]
    sizes = [values[1].shape[each[0].dim] if each else 0 for each, values in zip(possible, tensors, strict=True)]
    sure = {(each[0].dim, size): each[0] for each, size in zip(possible, sizes, strict=True) if len(each) == 1}
    chosen: list[Place | None] = []
    for n, (each, size) in enumerate(zip(possible, sizes, strict=True)):
        beside = sure.get((each[0].dim, size)) if each else None
        if len(each) > 1 and beside is None and n not in passes[1].shared:
            reason = "to see how the model keeps them apart: those tried are alike"
            raise ModelError(f"Expected items that differ, {reason} in '{key}'.")
        chosen.append(beside or each[0] if each else None)
    count = len(passes[1].arguments)
    if None in chosen[count:]:
        raise NotFollowed(_ONE_FOR_ALL.format(key), key.parameters)
    return chosen[:count], chosen[count:]


def _possible(key: Key, values: tuple[Any, Any, Any], fewer: int, more: int) -> list[Place]:
    """The places by which each item's part moves as the items do, item-major first; none: the tensor has no items."""
    small, large, moved = values
    if large is None or small.shape == large.shape:
        return []
    dims = [d for d, (s, m) in enumerate(zip(small.shape, large.shape, strict=True)) if s != m]
    if len(dims) != 1 or small.shape[dims[0]] * more != large.shape[dims[0]] * fewer:
        raise NotFollowed(
            f"Expected a model that keeps its items apart: '{key}' sees tensors of {tuple(small.shape)} for {fewer} "
            f"items and of {tuple(large.shape)} for {more}.",
            key.parameters,
        )
    each = large.shape[dims[0]] // more
    places = [Place(dims[0], None if inner == each else inner) for inner in range(each, 0, -1) if each % inner == 0]
    found = [place for place in places if _alike(place.parts(moved, more), place.parts(large, more).roll(1, 0))]
    if not found:
        raise NotFollowed(_CHANGED.format(key), key.parameters)
    return found


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same numbers, but for rounding that depends on places in a batch."""
    rounding = _ROUNDING if not autocast_on(one.device) else 2.0**-7
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    return bool((one - other).abs().amax() <= rounding * other.abs().amax()) if one.numel() else True


# --- gradients ----------------------------------------------------------------------------------------------


def _add(use: _Use, deltas: list[Tensor], items: int) -> None:
    kept = _FACTORS.get(use.func)
    if kept is not None and kept(use, deltas[0], items):
        return
    places, ends = ([place for place in each if place is not None] for each in use.places)
    where = [n for n, place in enumerate(use.places[0]) if place is not None]
    split = {n: place.parts(use.arguments[n], items) for n, place in zip(where, places, strict=True)}
    whole = {id(value): value for n, value in use.values.items() if n not in split}
    own = [number for number, n in enumerate(where) if n in use.values]  # derived values with a part for each item
    part_deltas = tuple(place.parts(delta, items) for delta, place in zip(deltas, ends, strict=True))
    values = [value.tensor.detach() for value in whole.values()]
    run = _again(use, list(whole), where, [where[number] for number in own])
    found = _item_gradients(run, values, list(split.values()), own, part_deltas)
    for value, gradient in zip(whole.values(), found, strict=False):
        value.pieces.append(gradient)
    for number, gradient in zip(own, found[len(values) :], strict=True):
        n = where[number]
        use.values[n].pieces.append(places[number].alone(gradient, use.arguments[n].shape))


Run = Callable[[list[Tensor], list[Tensor], list[Tensor]], tuple[Tensor, ...]]


def _again(use: _Use, whole: list[int], split: list[int], own: list[int]) -> Run:
    """The use's function of the values that it has whole, of those that it has by items, and of an item's arguments."""

    def run(values: list[Tensor], aligned: list[Tensor], parts: list[Tensor]) -> tuple[Tensor, ...]:
        stand = dict(zip(whole, values, strict=True))
        rows = dict(zip(split, parts, strict=True)) | dict(zip(own, aligned, strict=True))
        given = [
            rows[n] if n in rows else stand[id(use.values[n])] if n in use.values else each
            for n, each in enumerate(use.arguments)
        ]
        args, kwargs = tree_unflatten(given, use.spec)
        outputs = tree_leaves(use.func(*args, **kwargs))
        return tuple(outputs[n] for n in use.outputs)

    return run


def _item_gradients(
    run: Run, values: list[Tensor], parts: list[Tensor], own: list[int], deltas: tuple[Tensor, ...]
) -> list[Tensor]:
    """Gradients (items, ...) of the values, then of the parts ``own``: at once, or item by item where torch cannot."""

    def one(rows: list[Tensor], ends: tuple[Tensor, ...]) -> list[Tensor]:
        first = vjp(lambda v, a: run(v, a, rows), values, [rows[n] for n in own])[1](ends)
        return [*first[0], *first[1]]

    try:
        return list(vmap(one)(parts, deltas))
    except (RuntimeError, ValueError, TypeError):  # no rule for batches, as of recurrent layers
        pass
    rows = []
    for item in range(len(deltas[0])):
        own_parts = [part[item] for part in parts]
        with torch.enable_grad():
            given = [value.detach().requires_grad_() for value in values]
            aligned = [own_parts[n].detach().requires_grad_() for n in own]
            outputs = run(given, aligned, own_parts)
        ends = [delta[item] for delta in deltas]
        rows.append(torch.autograd.grad(outputs, [*given, *aligned], ends, materialize_grads=True))
    return [torch.stack(column) for column in zip(*rows, strict=True)]


def _lead_back(node: _Derived) -> None:
    """Adds the gradients of what was made to the values that it was made of."""
    known = [(made, formed(value)) for made, value in zip(node.made, node.outputs, strict=True) if value.pieces]
    if not known:
        return
    made, gradients = zip(*known, strict=True)
    leaves = [leaf for leaf in node.leaves if leaf.requires_grad]
    found = torch.autograd.grad(made, leaves, gradients, is_grads_batched=True, allow_unused=True, retain_graph=True)
    values = (value for value, leaf in zip(node.values, node.leaves, strict=True) if leaf.requires_grad)
    for value, gradient in zip(values, found, strict=True):
        if gradient is not None:
            value.pieces.append(gradient)


def _positions(use: _Use, n: int, items: int) -> Tensor | None:
    """(items, T, width) argument n's rows; None unless it is data with its items before the last dimension."""
    place, tensor = use.places[0][n], use.arguments[n]
    if place is None or n in use.values or place.dim == tensor.dim() - 1:
        return None
    return place.parts(tensor, items).flatten(1, -2)


def _product(weight: int, data: int, bias: int | None, turned: bool) -> Callable[[_Use, Tensor, int], bool]:
    """x Wᵀ + b (``turned``: x W + b) by the places of its arguments."""

    def kept(use: _Use, delta: Tensor, items: int) -> bool:
        end, inputs = use.places[1][0], _positions(use, data, items)
        matrix, shift = use.values.get(weight), None if bias is None else use.values.get(bias)
        if inputs is None or end is None or end.dim == delta.dim() - 1 or len(use.arguments) > 3:
            return False
        if use.arguments[weight].dim() != 2 or (shift is not None and shift.tensor.dim() != 1):
            return False
        rows = end.parts(delta, items).flatten(1, -2)
        if matrix is not None:
            matrix.pieces.append(Outer(inputs, rows) if turned else Outer(rows, inputs))
        if shift is not None:
            shift.pieces.append(rows.sum(1))
        return True

    return kept


def _look_up(use: _Use, delta: Tensor, items: int) -> bool:
    place, end = use.places[0][1], use.places[1][0]
    if 0 not in use.values or place is None or end is None:
        return False
    rows = place.parts(use.arguments[1], items).flatten(1)
    own = end.parts(delta, items).flatten(1, -2)
    padding = use.arguments[2] if len(use.arguments) > 2 else -1
    use.values[0].pieces.append(Rows(rows, own if padding < 0 else own * (rows != padding).unsqueeze(2)))
    return True


_FACTORS: dict[Any, Callable[[_Use, Tensor, int], bool]] = {
    torch._C._nn.linear: _product(1, 0, 2, turned=False),
    torch.addmm: _product(2, 1, 0, turned=True),
    torch.matmul: _product(1, 0, None, turned=True),
    Tensor.matmul: _product(1, 0, None, turned=True),
    Tensor.__matmul__: _product(1, 0, None, turned=True),
    torch.embedding: _look_up,
}
"""Functions whose gradients keep their factors, which are small."""


# --- what the engine clips ----------------------------------------------------------------------------------


def captured_of(value: Value) -> Captured:
    """A parameter's part of the book-keeping, under the name ``weight``: by factors where it has no other pieces."""
    outer = [piece for piece in value.pieces if isinstance(piece, Outer)]
    rows = [piece for piece in value.pieces if isinstance(piece, Rows)]
    if len(outer) + len(rows) < len(value.pieces):
        return ItemGradients({"weight": formed(value)})
    table = None
    if rows:
        table = EmbeddingCaptured(_joined(rows, "rows"), _joined(rows, "delta"), len(value.tensor), None)
        if not outer:
            return table
    linear = LinearCaptured(_joined(outer, "inputs"), _joined(outer, "delta"), bias=False)
    return linear if table is None else TiedCaptured(linear, table)


def _joined(pieces: Sequence[Outer | Rows], name: str) -> Tensor:
    parts = [getattr(each, name) for each in pieces]
    return torch.cat(parts, 1) if len(parts) > 1 else parts[0]
