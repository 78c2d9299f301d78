"""Tries a model on a few items as training will run it: what an item adds to the sum must be its own, and right.

Two comparisons, on copies, under generators whose states are put back:

* without dropout, each item's norm and the clipped sum with a loop over single items by plain autograd: finds models
  that mix items, whatever the batch size, losses that do, and layers whose gradient the engine gets wrong;
* in training mode, under a state of the generators of its own, an item among the others with the same item among copies
  of itself: finds what mixes items in training alone, or keeps something of them between passes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from subjectdp.engine.batches import Inputs, call, number_of, taken, tensors_in
from subjectdp.engine.clipping import ClippingEngine, ItemLoss
from subjectdp.engine.flat import FlatParameters
from subjectdp.engine.generators import States, generators_kept, seed_all
from subjectdp.engine.layout import Layout, in_words, layout_of, refuse_by_name
from subjectdp.engine.ragged import DRAWING, tensors_of
from subjectdp.errors import ModelError
from subjectdp.io.freed_memory import return_freed_memory

TRIED = 5
"""Items that a model is tried on, from all over the data."""

_ALIKE = 0.02  # relative tolerance of norms and of each parameter's gradient: kernels may differ between batch sizes
_STAYS = 2e-6  # relative, of losses in batches of one size
TRIED_AGAIN = (1, 10, 100)
"""Steps after which a module, which has moved, is tried once more."""

DRAWN = 32  # states of the generators that a model or a loss is tried under, if it draws numbers
_SEEDS = count(DRAWN + 1)  # of further tries
_NEXT_TO_NOTHING = 1e-7  # of the whole gradient: rounding leaves as much of one that is 0
_OF_ALL = 1e-3  # and of the whole gradient, for parameters whose part is next to nothing


def tried_positions(items: int) -> list[int]:
    """Positions of the items to try, evenly from the first to the last."""
    return [int(place) for place in np.unique(np.linspace(0, items - 1, TRIED).round())]


def check_model(
    model: nn.Module, item_loss: ItemLoss, inputs: Inputs, targets: Any, layout: Layout | None = None
) -> list[str]:
    """Tries a model in training mode on some items that differ; it and all generators are left as they are.

    Returns the parameters that the loss does not depend on: they are trained by noise alone. Raises ModelError where an
    item's gradient depends on other items, so that clipping bounds nothing, or is not what a loop over items finds,
    where a pass changes parameters or buffers, and for a model that cannot be copied.
    """
    with _trial(model, item_loss, inputs, targets, layout) as trial:
        unused = trial.check_with_loop()
        trial.check_others_stay()
        trial.check_among_copies()
    return_freed_memory()
    return unused


def check_keeps_nothing(*given: Any) -> list[str]:
    """Tries a model whose passes are each of one person alone; arguments as of :func:`check_model`. Returns no names.
    Raises ModelError where a pass changes parameters, buffers or what the next pass gives; a model without a copy."""
    with _trial(*given):
        return []


def check_others_stay(run: Callable[[Tensor], list[Tensor]], items: int, seed: int | None = None) -> None:
    """One item in the places of half of them must leave what a pass of the training gives the other half as it is.

    Args:
        run: from places (B,) among the items to tensors, with the items first, of a pass on those.
        items: B.
        seed: of what the passes draw; None: another one at each call, for what mixes with some probability.

    Raises ModelError for what mixes items, also where it does so in mini-batches of that size alone.
    """

    seed = next(_SEEDS) if seed is None else seed

    def given(places: Tensor) -> list[Tensor]:
        seed_all(seed)
        found = [each.detach() for each in run(places)]
        return [each.nan_to_num() for each in found if each.is_floating_point() and each.shape[:1] == (items,)]

    places, half = torch.arange(items), items // 2
    with generators_kept():
        usual = given(places)
        for kept, one in ((places >= half, items - 1), (places < half, 0)) if half else ():
            for before, after in zip(usual, given(places.where(kept, one)), strict=True):
                own = kept.to(before.device)
                if before.shape == after.shape and not _stay(before[own], after[own], float(before.abs().amax())):
                    raise ModelError(
                        "Expected a model and a loss that treat items one by one: with other items in the batch, what "
                        "an item gets changes."
                    )


def _stay(before: Tensor, after: Tensor, largest: float | None = None) -> bool:
    if not before.is_floating_point() or not before.numel():
        return torch.equal(before, after)
    return torch.allclose(
        after, before, rtol=_STAYS, atol=_STAYS * (float(before.abs().amax()) if largest is None else largest)
    )


def _two_of(items: int) -> Tensor:
    """Positions of two items, if possible none of :func:`tried_positions`: the longest of all is seldom one of two."""
    others = sorted({*range(items)} - {*tried_positions(items)}) or [0]
    return torch.tensor([others[0], others[-1] if len(others) > 1 else items - 1])


def check_among_few(run: Callable[[Tensor], Tensor], items: int) -> None:
    """A few items by themselves must get what they get among all: of mini-batches of one size alone nobody sees what
    their size changes. ``run`` gives one tensor, else as of :func:`check_others_stay`. Raises ModelError."""
    few = _two_of(items)
    with generators_kept(), _DrawsAlike():
        if _draws(lambda: run(few)):
            return
        alone, among = run(few), run(torch.arange(items))[few]
    alone, among = (each.detach().nan_to_num(0.0, 0.0, 0.0) for each in (alone, among))
    if not torch.allclose(among, alone, rtol=0.0, atol=_ALIKE * float(alone.abs().amax())):
        raise ModelError(
            f"Expected a model and a loss that treat items one by one: among {items} items an item gets something else "
            f"than among {len(few)}."
        )


def is_larger(engine: ClippingEngine, items: int) -> bool:
    """Whether a mini-batch is larger by a tenth than all that were tried: some models mix items in large ones alone."""
    return min(items, engine.physical_batch_size) > 1.1 * engine.largest_tried


def check_batch(engine: ClippingEngine, inputs: Inputs, targets: Any = None) -> None:
    """Tries a mini-batch: its losses, as far as it goes through the model at once, or without targets its outputs.
    Raises as :func:`check_others_stay`, and where an item's gradient is another among all of them than among a few."""

    def given(places: Tensor) -> list[Tensor]:
        output = engine.record(taken(inputs, places))[0]
        return tensors_in(output) if targets is None else [engine.losses(output, taken(targets, places))]

    items = number_of(inputs) if targets is None else min(number_of(inputs), engine.physical_batch_size)
    with in_words("The module"):
        check_others_stay(given, items)
        if items > TRIED:
            wanted, loss = (None, _of_outputs) if targets is None else (taken(targets, slice(items)), engine.item_loss)
            _check_gradients(engine, taken(inputs, slice(items)), wanted, loss)
    engine.largest_tried = max(engine.largest_tried, items)


def _check_gradients(engine: ClippingEngine, inputs: Inputs, targets: Any, item_loss: ItemLoss) -> None:
    """Two items' gradients among all beside those of each among copies of itself: of mini-batches of one size alone
    nobody sees what their size changes, how far they are padded, or whose a function's rows are where other items have
    other numbers of them."""
    two = _two_of(number_of(inputs))
    targets = torch.zeros(number_of(inputs), device=engine.flat.vector.device) if targets is None else targets
    with generators_kept(), _DropoutOff(), _DrawsAlike():
        model = _without_dropout(copied(engine.flat.model).train(engine.flat.model.training), taken(inputs, two))
        if _draws(lambda: item_loss(call(model, taken(inputs, two)), taken(targets, two))):
            return
        flat = FlatParameters(model, engine.flat.parameters)
        own = ClippingEngine(flat, number_of(inputs), item_loss, engine.layout)
        for item in two.tolist():
            others, copies = torch.arange(number_of(inputs)), torch.tensor([item, item])
            _compare_among(own, inputs, targets, (item, others), (0, copies))
            return_freed_memory()


def _compare_among(
    engine: ClippingEngine, inputs: Inputs, targets: Any, *each: tuple[int, Tensor], seed: int | None = None
) -> None:
    """The gradient of one item, which is at a place among others (their positions), twice."""
    found = []
    for place, positions in each:
        if seed is not None:
            seed_all(seed)
        weights = engine.flat.vector.new_zeros(len(positions))
        weights[place] = 1.0
        total, norms = engine.clipped_sum(taken(inputs, positions), taken(targets, positions), float("inf"), weights)
        found.append((total, norms[place : place + 1]))
    _compare_norms(found[1][1], found[0][1])
    _compare(engine, found[0][0], found[1][0])


def _of_outputs(output: Any, targets: Tensor) -> Tensor:
    """A loss (B,) that reads the outputs alone; the targets are zeros."""
    losses = targets
    for each in tensors_in(output):
        if each.is_floating_point() and each.shape[:1] == targets.shape:
            rows = each.float().nan_to_num(0.0, 0.0, 0.0).reshape(len(targets), -1)
            losses = losses + rows @ torch.arange(rows.shape[1], device=rows.device).cos()
    return losses


def check_padding(model: nn.Module, item_loss: ItemLoss, layout: Layout, whole: Any, alone: list[Any]) -> None:
    """Tries items that a batch (inputs, targets) pads as they are by themselves: ``alone``, with places in the batch.
    Raises ModelError where an item has another gradient then: how far it is padded depends on the others."""
    with in_words("The module"), generators_kept(), torch.enable_grad():
        flat = FlatParameters(_without_dropout(copied(model), whole[0]), layout.trained)
        engine = ClippingEngine(flat, item_loss=item_loss, layout=layout)
        for place, own in alone:
            found = []
            for batch in (taken(whole, [place]), own):
                seed_all()
                found.append(engine.gradient_sum(*batch))
            try:
                _compare(engine, *found)
            except ModelError as problem:
                raise ModelError(
                    "Expected a model and a loss that do not read padding: an item's gradient changes with the longest "
                    "item of its batch. Mask it (ignore_index in the criterion), or pad all items to one length."
                ) from problem


def find_layout(model: nn.Module, trained: Collection[str], inputs: Inputs) -> Layout:
    """The layout of a model in training, by a copy; the model and all generators are left as they are.

    ``trained`` names its trained parameters, ``inputs`` are at least three items, which differ. Raises ModelError for a
    layer that cannot be trained, and a model that mixes items, takes another path for others, or cannot be copied.
    """
    with in_words("The module"), generators_kept():
        trial = copied(model)
        refuse_by_name(trial)
        quiet = _without_dropout(trial, inputs)
        try:
            with _DropoutOff():
                return layout_of(quiet, trained, inputs)
        except ModelError as problem:
            if not _draws(lambda: call(quiet, inputs)):
                raise
            wanted = "a model that draws numbers for its items in training alone: ask self.training before"
            raise ModelError(f"Expected {wanted}. It draws some in evaluation too. ({problem})") from problem


@contextmanager
def _trial(*given: Any) -> Iterator[_Trial]:
    """A trial of a model whose passes leave it as it is."""
    trial = _Trial(*given)
    trial = replace(trial, item_loss=own_copy(trial.item_loss))
    with in_words("The module"), generators_kept(), torch.enable_grad():
        trial.check_left_alone()
        trial.check_forgets()
        yield trial


def copied(model: nn.Module) -> nn.Module:
    """A copy in training mode. Raises ModelError where there can be none."""
    held: dict[int, Any] = {id(p): nn.Parameter(p.detach().clone(), p.requires_grad) for p in model.parameters()}
    held |= {id(buffer): buffer.detach().clone() for buffer in model.buffers()}
    own = [each for module in model.modules() for each in vars(module).values()]
    held = {id(each): each.detach().clone() for each in tensors_of(own)} | held  # as of weight norm, or kept values
    own += [each for part in own if isinstance(part, dict) for each in part.values()]  # hooks
    held |= {id(each): each for each in own if isinstance(each, torch.jit.ScriptFunction)}
    try:
        return copy.deepcopy(model, held).train()
    except Exception as problem:  # whatever a module of anyone's raises
        wanted = "a model that copy.deepcopy can copy, to try it on a few items"
        raise ModelError(f"Expected {wanted}: {problem}") from problem


def own_copy(value: Any, shared: Iterable[Any] = ()) -> Any:
    """A copy of a criterion, ``collate_fn`` or item, so that a trial leaves nothing in it; itself if it has none.
    What is ``shared``, such as the data that it holds, is not copied."""
    try:
        with _OwnNumbersAlone():
            return copy.deepcopy(value, {id(each): each for each in shared})
    except Exception:  # whatever anyone's code raises
        return value


class _OwnNumbersAlone(TorchFunctionMode):
    """Copies a tensor, not all that it is a view of (of an item the data set); what a graph computed has no copy."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.__deepcopy__ or type(args[0]) is not Tensor or not args[0].is_leaf:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        memo[id(tensor)] = own = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return own


@dataclass(frozen=True)
class _Trial:
    model: nn.Module
    item_loss: ItemLoss
    inputs: Inputs
    targets: Any
    layout: Layout | None

    @property
    def items(self) -> int:
        return number_of(self.targets)

    def _taken(self, places: Any) -> tuple[Any, Any]:
        return taken(self.inputs, places), taken(self.targets, places)

    def check_forgets(self) -> None:
        """A pass of one item after some of all items beside the same after some of that item alone; the first item,
        which may be the largest, and the last."""
        every = torch.arange(self.items)
        for one in (torch.zeros_like(every), torch.full_like(every, self.items - 1)):
            for after_all, alone in zip(self._passes(every, one), self._passes(one, one), strict=True):
                if after_all.shape != alone.shape or not _stay(after_all, alone):
                    raise ModelError(
                        "Expected a model and a loss that keep nothing of the items from one pass to the next, what "
                        "they give changes with the items of the pass before: no noise covers that."
                    )

    def _passes(self, before: Tensor, then: Tensor) -> list[Tensor]:
        """The buffers that two passes of some items leave, and the losses of a pass of others then."""
        model, item_loss = self._copied(), own_copy(self.item_loss)

        def losses(places: Tensor) -> Tensor:
            seed_all()
            inputs, targets = self._taken(places)
            with torch.no_grad():
                found: Tensor = item_loss(call(model, inputs), targets)
            return found.nan_to_num()

        losses(before), losses(before)
        left = [each.nan_to_num().clone() for each in model.buffers()]
        return [*left, losses(then)]

    def check_left_alone(self) -> None:
        trial = self._copied()
        with torch.no_grad():
            found = call(trial, self.inputs)
            output = tree_map(lambda each: each.detach() if isinstance(each, Tensor) else each, found)
        if not tensors_in(output):
            raise ModelError(
                "Expected a model that returns tensors, or tuples, lists or mappings of them, got "
                f"{type(output).__name__}: return its fields, or a NamedTuple."
            )
        if own_copy(self.item_loss)(output, self.targets).requires_grad:
            raise ModelError(
                "Expected a criterion of outputs and targets, it reads parameters that are trained: compute what it "
                "needs in the module, or add a term of the weights in the loop."
            )
        before, after = (dict(each.named_parameters()) | dict(each.named_buffers()) for each in (self.model, trial))
        for name, value in after.items():
            made = name not in before or value.shape != before[name].shape  # of the sizes alone: check_forgets
            if not made and not torch.equal(value, before[name]):
                raise ModelError(
                    f"Expected a model that a forward pass in training mode leaves as it is, {name!r} keeps values of "
                    "the items, which no noise covers, or counts: count in the loop; for spectral_norm take orthogonal."
                )

    def check_with_loop(self) -> list[str]:
        quiet = _without_dropout(self._copied(), self.inputs)
        engine = self._engine(quiet, quiet.training)
        clip_norm, alone, wanted, unused = self._of_loop(engine)
        read = {name for key in (self.layout.places if self.layout else ()) for name in key.parameters}
        if self.layout and (unseen := set(engine.followed) - read - set(unused)):
            raise ModelError(
                f"Expected functions of torch to bring {', '.join(map(repr, sorted(unseen)))} and items together: "
                "code of torch.jit, an autograd.Function, complex numbers and writes into a tensor are not seen, "
                "and an output of parameters alone has no items."
            )
        return_freed_memory()
        seed_all()
        total, together = engine.clipped_sum(self.inputs, self.targets, clip_norm)
        _compare_norms(alone, together)
        _compare(engine, total, wanted)
        return unused

    def _of_loop(self, engine: ClippingEngine) -> tuple[float, Tensor, Tensor, list[str]]:
        """A clip norm, and what a loop over items finds: norms, the clipped sum (P,), parameters without any gradient.
        The loop runs twice: the items' gradients together would take more memory than a step of the training."""
        used: set[str] = set()
        norms = []
        for gradients in self._loop(engine.flat):
            norms.append(torch.stack([each.norm() for each in gradients.values()]).norm() if gradients else None)
            used |= gradients.keys()
            gradients.clear()  # before the next ones, which are as large as the model
        alone = torch.stack([engine.flat.vector.new_zeros(()) if norm is None else norm for norm in norms])
        finite = torch.isfinite(alone) & (alone > 0)
        clip_norm = float(alone[finite].median()) / 2 if finite.any() else 1.0
        factors = torch.where(finite, (clip_norm / alone).clamp_max(1.0), 0.0)
        total = torch.zeros_like(engine.flat.vector)
        sums = engine.flat.views(total)
        for factor, gradients in zip(factors, self._loop(engine.flat), strict=True):
            if factor > 0:  # a gradient that is not finite counts for nothing
                for name, gradient in gradients.items():
                    sums[name].add_(gradient, alpha=float(factor))
                del gradient
            gradients.clear()
        return clip_norm, alone, total, [name for name in engine.flat.parameters if name not in used]

    def _loop(self, flat: FlatParameters) -> Iterator[dict[str, Tensor]]:
        """Each item's gradients of the trained parameters; without those that it does not depend on.

        Each goes through the model by itself, unless the model draws numbers in evaluation mode too: not those of the
        batch.
        """
        model, parameters, batch = flat.model, flat.parameters, None
        flat.require_gradients(True)
        if self._draw(model):
            seed_all()
            batch = self.item_loss(call(model, self.inputs), self.targets)
        for i in range(self.items):
            if batch is None:
                inputs, targets = self._taken([i])
                loss = self.item_loss(call(model, inputs), targets).sum()
            else:
                loss = batch[i]
            kept = batch is not None
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, retain_graph=kept)
            yield {n: g.detach() for n, g in zip(parameters, found, strict=True) if g is not None}
            del found, loss
        flat.require_gradients(False)

    def check_others_stay(self) -> None:
        quiet = _without_dropout(self._copied(), self.inputs)
        check_batch(self._engine(quiet, quiet.training), self.inputs, self.targets)
        with _DropoutOff():
            if not self._draw(_silent(self._copied())):
                return
        model = self._copied()

        def losses(places: Tensor) -> list[Tensor]:
            inputs, targets = self._taken(places)
            with torch.no_grad():
                return [self.item_loss(call(model, inputs), targets)]

        for seed in range(1, DRAWN + 1):
            check_others_stay(losses, self.items, seed)

    def _draw(self, model: nn.Module) -> bool:
        """Whether a pass and its losses draw numbers."""
        return _draws(lambda: self.item_loss(call(model, self.inputs), self.targets))

    def check_among_copies(self) -> None:
        engine, every = self._engine(self._copied(), training=True), torch.arange(self.items)
        for item in range(self.items):  # another seed for each, for what mixes in some passes
            among, copies = (item, every), (item, torch.full_like(every, item))
            _compare_among(engine, self.inputs, self.targets, among, copies, seed=item + 1)

    def _copied(self) -> nn.Module:
        return_freed_memory()  # so that the memory of a trial does not come on top of that of a step
        return copied(self.model)

    def _engine(self, model: nn.Module, training: bool) -> ClippingEngine:
        flat = FlatParameters(model.train(training), None if self.layout is None else self.layout.trained)
        return ClippingEngine(flat, self.items, self.item_loss, self.layout)


def _silent(model: nn.Module) -> nn.Module:
    """The model, with torch's own dropout off."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0
    return model


class _DropoutOff(TorchFunctionMode):
    """torch's dropout as functions is off: it is each item's own."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if "dropout" in name and name[0] != "_":
            return args[0] if args else kwargs["input"]
        if name == "scaled_dot_product_attention":
            args, kwargs = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args, dict(kwargs)
            kwargs.pop("dropout_p", None)
        return func(*args, **kwargs)


class _DrawsAlike(TorchFunctionMode):
    """Each item draws the same number, however many items there are, and the generators stay as they are."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") not in DRAWING:
            return func(*args, **(kwargs or {}))
        with generators_kept():
            seed_all()
            output = func(*args, **(kwargs or {}))
        return output.fill_(0.5 if output.is_floating_point() else output.flatten()[:1].sum())


def _without_dropout(model: nn.Module, inputs: Inputs) -> nn.Module:
    return model.eval() if _draws(lambda: call(_silent(model), inputs)) else model


def _draws(run: Callable[[], Any]) -> bool:
    """Whether a pass draws numbers, of which some decide seldom, or gives something else another time."""
    found = []
    with torch.no_grad():
        for _ in range(2):
            seed_all()
            before = States.now()
            found.append(tensors_in(run()))
            if not before.are(States.now()):
                return True
    return not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(*found, strict=True))


def _compare_norms(alone: Tensor, together: Tensor) -> None:
    """Where each gradient is 0, as of blank images, the engine's norms are above it: the sums alone are compared."""
    longest = float(alone.nan_to_num(0.0, 0.0, 0.0).amax()) if len(alone) else 0.0
    if not torch.allclose(together, alone, rtol=_ALIKE, atol=_OF_ALL * longest or np.inf, equal_nan=True):
        raise ModelError(
            "Expected a model and a loss that treat items one by one: the gradients of some items are as long as "
            f"{[round(value, 4) for value in alone.tolist()]} alone and "
            f"{[round(value, 4) for value in together.tolist()]} among others. A gradient taken inside the model "
            "(torch.autograd.grad in its forward) is not followed."
        )


def _compare(engine: ClippingEngine, total: Tensor, wanted: Tensor) -> None:
    """``total`` (P,) is used up: a third vector as large as the model would be the most memory of the training."""
    whole, rights = float(wanted.norm()), engine.flat.views(wanted)
    for name, given in engine.flat.views(total).items():
        right = float(rights[name].norm())
        dropped = right > _NEXT_TO_NOTHING * whole and not bool(given.any())
        if dropped or not float(given.sub_(rights[name]).norm()) <= _ALIKE * right + _OF_ALL * whole:
            raise ModelError(
                f"Expected a model and a loss that treat items one by one, and parameters used by their own layer "
                f"alone: the clipped gradient of {name!r} is not that of a loop over items."
            )


_FEWEST = {"cpu": 192, "cuda": 1024}
"""On a CPU more items of LEAF's networks are hardly faster, and would take more memory than plain SGD."""

_SAVED_VALUES = 1 << 23  # that a pass of a lighter model holds


def items_in_a_pass(saved_values: int, device_type: str) -> int:
    """Items in one forward and backward pass of a model that saves so many numbers for each item."""
    return max(_FEWEST.get(device_type, _FEWEST["cuda"]), _SAVED_VALUES // max(1, saved_values))


def saved_values(model: nn.Module, item: Tensor) -> int:
    """Numbers that autograd saves of a batch of one item for the backward pass, parameters left out."""
    parameters = {p.untyped_storage()._cdata for p in model.parameters()}
    saved = {}

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()  # views share it
        saved[storage._cdata] = storage
        return tensor

    with saved_tensors_hooks(save, lambda tensor: tensor):
        model(item.clone())  # a slice would count the storage of all items
    return sum(storage.nbytes() // 4 for key, storage in saved.items() if key not in parameters)
