"""One private step at a time: draw, forward, loss, backward with noise, optimizer.step(). No other order releases."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # torch.compile stays out of what it decorates
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map

from subjectdp.api.watched import Watched
from subjectdp.engine.batches import (
    Call,
    Part,
    autocast_on,
    leaves_of,
    number_of,
    of_items,
    plain,
    shapes_of,
    taken,
    tensors_in,
)
from subjectdp.engine.clipping import Clip, ClippingEngine, Tape
from subjectdp.engine.generators import States, generators_kept
from subjectdp.engine.layout import refuse_by_name
from subjectdp.engine.probe import check_among_few, check_batch, check_others_stay, is_larger
from subjectdp.errors import ModelError, PrivacyError, expected

_MODULES_REMEDY = "it may have been read from the items. Change it before a batch is drawn."


@dataclass(frozen=True)
class Draw:
    """Items of a step, in the order in which the loader hands them over."""

    positions: list[int]  # in the data set
    parts: tuple[Part, ...]  # that go through the model at once
    weights: list[float] | None  # of the items; 0 for padding


@dataclass(frozen=True)
class _Pass:
    """A part of the batch in the forward pass, and the generators before it if it is run again."""

    part: Part
    tape: Tape | None
    generators: States | None = None


class PrivateStep:
    """Turns one batch into one noisy gradient; each item counts once, however the loop is written.

    ``grouped``: subjects are clipped, not items. ``release`` is called with each step's whole clipped sum (P,), and
    returns the gradient that the optimiser sees; ``try_out`` before each forward pass, with what module and criterion
    are: it tries the model again at a few steps, and says whether the batch is to be tried too.
    """

    def __init__(
        self,
        engine: ClippingEngine,
        grouped: bool,
        clip_norm: float,
        release: Callable[[Tensor], Tensor],
        try_out: Callable[[Sequence[Watched]], bool],
    ) -> None:
        self.engine, self.grouped, self.clip_norm = engine, grouped, clip_norm
        self._release, self._try_out, self._running = release, try_out, False
        self.parameters = list(engine.flat.parameters.values())
        self._criterion = getattr(engine.item_loss, "criterion", None)
        self._flags: dict[str, list[Any]] = {}
        self._factor: float | None = None  # of the loss, in every step
        self.abandon()
        engine.flat.require_gradients(True)  # plain training afterwards stays possible
        guard(engine.flat.model, self)

    def abandon(self) -> None:
        """Forgets a step that was begun and not released."""
        self._draw: Draw | None = None
        self._batch: list[Tensor] | None = None
        self._inputs: Call | None = None
        self._passes: list[_Pass] = []
        self._output: Any = None
        self._own: list[Tensor] = []
        self._released = False

    def check_stepped(self, wanted: bool = False) -> None:
        """Raises PrivacyError where a step is begun (``wanted``) or released that no optimiser has made."""
        if wanted or self._released:
            raise PrivacyError(
                "Expected loss.backward() and optimizer.step() for each batch of the private loader, the last batch "
                "was left without. Steps cannot be skipped or gathered: raise batch_size instead."
            )

    def begin(self, draw: Draw, batch: Any) -> None:
        """Hands over the next items. Raises PrivacyError if the ones before have not been stepped with."""
        if torch.is_inference_mode_enabled():
            raise PrivacyError("Expected private steps outside of torch.inference_mode, which keeps no gradients.")
        self.check_stepped(self._draw is not None)
        self.abandon()
        sizes, drawn = {len(each) if each.dim() else 0 for each in tensors_in(batch)}, len(draw.positions)
        if sizes != {drawn}:
            raise expected(
                "items of a batch", sorted(sizes), f"the {drawn} that were drawn: leave items out before make_private"
            )
        self._draw, self._batch = draw, tensors_in(batch)
        self._loaded = [each._version for each in self._batch]
        self._settings, self._read = self._watched()
        for parameter in self.parameters:
            parameter.grad = None

    def forward(self, inputs: Call) -> Any:
        """The model's output for the drawn items, recorded."""
        draw = self._drawn()
        check_processes(DistributedDataParallel._active_ddp_module)
        self._check_trained_as_made()
        module = self._settings.check("the module as it was when its batch was drawn", _MODULES_REMEDY)
        now = module, self._check_criterion()
        self._check_loaded(inputs, "inputs")
        self._check_flags(sorted(inputs.named), "arguments", ())
        largest = max(draw.parts, key=lambda part: part.grouping.runs[-1].items.stop)
        self._tried = self._try_out(now) or is_larger(self.engine, largest.grouping.runs[-1].items.stop)
        inputs = plain(inputs)
        self._inputs, self._mixed = inputs, autocast_on(self.engine.flat.vector.device)
        with self._run():
            if self._tried:
                check_batch(self.engine, taken(inputs, largest.items))
            if len(draw.parts) == 1:
                output, tape = self.engine.record(inputs)
                self._passes = [_Pass(draw.parts[0], tape)]
            else:
                output = self._in_parts(inputs, draw.parts)
                self._settings, _ = self._watched()
        self._output, self._read = output, Watched(self._criterion)  # the engine's own calls may have changed it
        self._own = [each for each in tensors_in(output) if each.requires_grad]
        self._versions = [each._version for each in self._own]
        return output

    def _drawn(self) -> Draw:
        """The draw whose items have not been through the model. Raises PrivacyError where there is none."""
        if self._draw is None or self._batch is None:
            raise PrivacyError(
                "Expected one training pass for each batch of the loader that make_private returned, and none of "
                "anything else. To look at outputs call model.eval() first."
            )
        if self._passes:
            raise PrivacyError(
                "Expected one forward pass of the training model for each batch of the private loader: a loss of "
                "several, as of pairs or of generated items, needs a module that takes them all. To look at outputs "
                "call model.eval() first."
            )
        return self._draw

    def _watched(self) -> tuple[Watched, Watched]:
        return watched(self.engine.flat.model, self._criterion)

    def _check_criterion(self) -> Watched:
        remedy = "it may have been read from the items. Change it before a batch is drawn, or weigh items alone."
        return self._read.check("the criterion as it was when its batch was drawn", remedy)

    def _in_parts(self, inputs: Call, parts: tuple[Part, ...]) -> Any:
        """The output without a graph; :meth:`backward` runs each part again, with the same draws."""
        pieces, sizes = [], []
        for part in parts:
            self._passes.append(_Pass(part, None, States.now()))
            given = taken(inputs, part.items)
            sizes.append((number_of(given),))
            output, _ = self.engine.record(given)  # its graph goes at once
            pieces.append(tree_map(lambda each: each.detach() if isinstance(each, Tensor) else each, output))
        order = torch.argsort(torch.cat([torch.arange(number_of(inputs))[part.items] for part in parts]))

        def whole(*each: Any) -> Any:
            if not isinstance(each[0], Tensor):
                return each[0]
            if [piece.shape[:1] for piece in each] != sizes:
                raise ModelError(
                    "Expected outputs with their items in the first dimension where a mini-batch goes in parts, got "
                    f"{shapes_of(pieces[0])}: return them so, or raise batch_size."
                )
            joined = torch.cat(each)[order.to(each[0].device)]
            return joined.requires_grad_() if joined.is_floating_point() else joined

        return tree_map(whole, pieces[0], *pieces[1:])

    def losses(self, outputs: Any, targets: Any) -> Tensor:
        """The losses of the items (B,), of the model's own output and the loaded targets."""
        if not self._own or self._batch is None:
            raise PrivacyError("Expected the output of the model that make_private returned, for the batch at hand.")
        items = number_of(self._batch)
        if items == 1:  # a loop's squeeze() takes the dimension of one item away
            outputs, targets = (
                of_items(given, lambda each: each.reshape(each.shape or (1,))) for given in (outputs, targets)
            )
        own = tensors_in(self._output)
        views = all(any(_is_view(each, one, items) for one in own) for each in tensors_in(outputs))
        if not views or [each._version for each in self._own] != self._versions:
            raise PrivacyError(
                "Expected the output of the private model as it is, or a view of it. What else is done to it belongs "
                "into the module or into the criterion, where it is tried item by item."
            )
        self._check_criterion()
        self._check_loaded(targets, "targets")
        targets = plain(targets)
        self._check_flags(outputs, "outputs", leaves_of(self._output))
        several = number_of(targets) // items
        if self._tried:
            self._try_criterion(outputs, targets, several)
        return self._losses(outputs, targets, several)

    def _losses(self, outputs: Any, targets: Any, several: int) -> Tensor:
        found: Tensor = cast(Any, self.engine.item_loss)(outputs, targets, several)
        return found

    def _try_criterion(self, outputs: Any, targets: Any, several: int) -> None:
        rows = number_of(targets)

        def losses(places: Tensor) -> list[Tensor]:
            own = (several * places.unsqueeze(1) + torch.arange(several)).flatten()
            seen = of_items(outputs, lambda each: (each[own] if each.shape[:1] == (rows,) else each).detach())
            return [self._losses(seen, taken(targets, own), several)]

        check_others_stay(losses, rows // several)
        check_among_few(lambda places: losses(places)[0], rows // several)

    def backward(self, losses: Tensor) -> tuple[Tensor, ...]:
        """The noisy gradient of each parameter. ``losses`` (B,) of the recorded pass, factors of the loss included."""
        draw, inputs = self._draw, self._inputs
        if draw is None or inputs is None or self._released:
            raise PrivacyError("Expected one backward pass for each batch of the private loader.")
        self._released = True
        weights = None if draw.weights is None else losses.new_tensor(draw.weights)
        total: Tensor | None = None
        device = self.engine.flat.vector.device
        with self._run(), torch.enable_grad():
            slopes: tuple[Tensor, ...] = ()
            if self._passes[0].tape is None:
                self._settings.check("the module as the first pass of its batch left it", _MODULES_REMEDY)
                slopes = torch.autograd.grad(losses.sum(), self._own, materialize_grads=True)
            for each in self._passes:
                items, tape, own_losses = each.part.items, each.tape, losses
                if tape is None:
                    precision = torch.autocast(device.type, torch.bfloat16, enabled=self._mixed)  # of the forward pass
                    with generators_kept(each.generators), precision:
                        output, tape = self.engine.record(taken(inputs, items))
                    own = [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]
                    terms = [(o * s[items]).reshape(len(o), -1).sum(1) for o, s in zip(own, slopes, strict=True)]
                    own_losses = torch.stack(terms).sum(0)
                own_weights = None if weights is None else weights[items]
                clip = Clip(each.part.grouping, self.clip_norm, own_weights, grouped=self.grouped)
                total, _ = self.engine.add_recorded(tape, own_losses, clip, total)
        if total is None:
            raise PrivacyError("Expected a batch with items.")
        return tuple(self.engine.flat.views(self._release(total)).values())

    def check_factor(self, factor: float) -> None:
        """Raises PrivacyError for a factor of the loss that changes: read from the items, it is in no bound."""
        if self._factor is None:
            self._factor = factor
        if factor != self._factor:
            raise PrivacyError(
                f"Expected the private loss times the same number in each step, {self._factor:g}, got {factor:g}: it "
                "may have been read from the items, as len(inputs) or float(loss) are. The loss is a mean already; "
                "change the learning rate instead."
            )

    def before_optimizer_step(self, optimizer: Any, arguments: Any, options: Any) -> Any:
        """Raises PrivacyError where the optimiser would step with anything but a private gradient, also that of the
        closure that it is given: the step ends when that is called."""
        given = [each for each in (*arguments, options.get("closure")) if each is not None and each is not optimizer]
        if len(given) > 1 or not all(map(callable, given)):
            raise PrivacyError("Expected optimizer.step() without arguments, or with a closure.")
        held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
        if held != {id(parameter) for parameter in self.parameters}:
            raise PrivacyError("Expected an optimizer of the module's trained parameters alone, others were added.")
        if given:
            return (optimizer,), {"closure": partial(self._end, given[0])}
        return self._end(lambda: None)

    def _end(self, closure: Callable[[], Any]) -> Any:
        found = closure()
        if not self._released:
            raise PrivacyError(
                "Expected loss.backward(), with the private loss, once before optimizer.step() or in its closure. For "
                "plain training make a new optimizer."
            )
        self.abandon()
        return found

    @contextmanager
    def _run(self) -> Iterator[None]:
        """The engine's own passes: parameters are constants in them."""
        self._running = True
        self.engine.flat.require_gradients(False)
        try:
            yield
        finally:
            self._running = False
            self.engine.flat.require_gradients(True)

    @property
    def busy(self) -> bool:
        """Whether a batch is drawn and the engine does not run the module itself."""
        return self._draw is not None and not self._running

    def _check_trained_as_made(self) -> None:
        trained = self.engine.flat.parameters
        present = dict(self.engine.flat.model.named_parameters())
        for name, parameter in present.items():
            if parameter.requires_grad != (name in trained):
                change = "trained" if parameter.requires_grad else "frozen"
                raise PrivacyError(
                    f"Expected the parameters that make_private saw, {name!r} was {change} since: make a new engine."
                )
        for name, parameter in trained.items():
            shape = self.engine.flat.shapes[name]
            if present.get(name) is not parameter or (parameter.dtype, parameter.shape) != (torch.float32, shape):
                raise PrivacyError(
                    f"Expected the float32 parameters that make_private saw, {name!r} was replaced since: make a new "
                    "engine."
                )
        refuse_by_name(self.engine.flat.model)  # frozen statistics may have been thawed
        device = self.engine.flat.vector.device
        if autocast_on(device) and torch.get_autocast_dtype(device.type) is not torch.bfloat16:
            raise ModelError("Expected autocast with bfloat16: float16 overflows, and such items would add nothing.")

    def _check_flags(self, given: Any, kind: str, own: Sequence[Any]) -> None:
        """A number may be read from the items, such as their largest value; flags are as in the first step."""
        others = [each for each in leaves_of(given) if not isinstance(each, Tensor) and not any(each is o for o in own)]
        wrong = [each for each in others if not (each is None or isinstance(each, bool | str))]
        if wrong or self._flags.setdefault(kind, others) != others:
            raise PrivacyError(
                f"Expected tensors that the private loader drew, and the same flags in each step, as {kind}, got "
                f"{(wrong or others or ['none'])[0]!r}: it may have been read from the items. Put constants into the "
                "module."
            )

    def _check_loaded(self, given: Any, kind: str) -> None:
        """The loop may move, convert and reshape what the loader drew; what mixes, sorts or drops items is refused."""
        self._check_flags(given, kind, ())
        loaded = self._batch or []
        changed = [each._version for each in loaded] != self._loaded  # in place
        for tensor in tensors_in(given):
            if changed or not any(tensor is each or _equal(tensor, each, kind == "targets") for each in loaded):
                sizes = ", ".join(str(len(each)) for each in loaded if each.dim())
                items = f" of {len(tensor)} items (the batch has {sizes})" if tensor.dim() else ""
                raise PrivacyError(
                    f"Expected the {kind} that the private loader drew, in their order, got others{items}: the loop "
                    "changed them, and what mixes items cannot be told from what does not. Change them in the data "
                    "set, the module or the criterion."
                )


def _equal(given: Tensor, loaded: Tensor, rows: bool) -> bool:
    """``rows``: each item may be several, one after another."""
    items = len(loaded) if loaded.dim() else 0
    if given.dim() == 0 or given.numel() != loaded.numel() or not _has(given, items, rows):
        return False
    own, other = given.reshape(-1), loaded.to(given.device, given.dtype).reshape(-1)
    return bool(((own == other) | (own.isnan() & other.isnan())).all())


def _has(tensor: Tensor, items: int, rows: bool) -> bool:
    return len(tensor) == items or (rows and items > 0 and len(tensor) % items == 0)


def _is_view(tensor: Tensor, output: Tensor, items: int) -> bool:
    """Whether a tensor is a view that keeps the items in their order, or in rows of theirs one after another."""
    if tensor.untyped_storage().data_ptr() != output.untyped_storage().data_ptr():
        return False
    if tensor.shape[:1] == output.shape[:1]:
        return items == 1 or tensor.stride()[:1] == output.stride()[:1]
    whole = tensor.is_contiguous() and output.is_contiguous() and tensor.numel() == output.numel()
    return whole and _has(tensor, items, rows=True)


def guard(module: nn.Module, owner: Any) -> None:
    """Marks the module and its trained parts as those of a training, ``owner``, which says whether it is ``busy``."""
    for each in module.modules():
        if any(parameter.requires_grad for parameter in each.parameters()):
            own = PlainPassGuard(owner)
            each.register_forward_pre_hook(own)
            each.register_forward_hook(own.after)


def check_processes(module: nn.Module | None) -> None:
    """PrivacyError for a ``module`` whose gradients are averaged over processes; a warning for others among several."""
    if module is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    if any(isinstance(each, DistributedDataParallel) for each in module.modules()):
        raise PrivacyError(
            "Expected one process, got DistributedDataParallel over several: each draws from its own data and counts "
            "its own steps, and a person may be at many. Average the models of the processes instead, as silos, with "
            "the epsilon of subjectdp.account."
        )
    text = "Epsilon counts this process alone: a person whose items other processes train on has more."
    warnings.warn(text, stacklevel=4)


def refuse_second_training(module: nn.Module) -> None:
    """Raises ModelError for a module of which a part is in a private training already: ε of one is not that of both."""
    hooks = (hook for each in module.modules() for hook in each._forward_pre_hooks.values())
    if isinstance(module, PrivateModule) or any(isinstance(hook, PlainPassGuard) and hook.step for hook in hooks):
        raise ModelError(
            "Expected a module that no engine has made private yet. For a new training, such as a further round of a "
            "federation, keep the engine (its epsilon counts all rounds), or give copy.deepcopy(module)."
        )


class PlainPassGuard:
    """Hooks that refuse a plain training pass of the module, or of a part, in the middle of a private step.

    In eval mode a pass is allowed, and its gradient is not: the optimiser would see it. Those of copies guard nothing.
    """

    changes_nothing = True  # for layer rules

    def __init__(self, step: Any = None) -> None:
        self.step = step

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if self.step is not None and self.step.busy and module.training and torch.is_grad_enabled():
            self.refuse()

    def after(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Lets no gradient through the outputs."""
        if self.step is not None and self.step.busy and torch.is_grad_enabled():
            for each in tensors_in(outputs):
                if each.requires_grad:
                    each.register_hook(self.refuse)  # type: ignore[no-untyped-call]

    def refuse(self, gradient: Tensor | None = None) -> None:
        raise PrivacyError(
            "Expected the model that make_private returned, the module itself, or a part of it, was called in the "
            "middle of a private step: nothing would clip its gradient. Step first, or let the module take what else "
            "the loss needs, such as generated items, beside the batch's."
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        return PlainPassGuard, ()


class PrivateModule(nn.Module):
    """A module whose training passes belong to private steps; its parameters are those of the wrapped one, ``module``.

    In ``eval()`` mode, or without gradients, it is that module, and so are its state and its other attributes.
    """

    def __init__(self, module: nn.Module, step: PrivateStep) -> None:
        super().__init__()
        self.module, self._step = module, step

    @_disable_dynamo
    def forward(self, *arguments: Any, **named: Any) -> Any:
        """The module's output; every tensor has its items in the first dimension."""
        if self.training and torch.is_grad_enabled():
            return self._step.forward(Call(arguments, named))
        return self.module(*arguments, **named)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        inner = self.__dict__.get("_modules", {}).get("module")
        of_torch = name in self.__dict__ or hasattr(nn.Module, name)  # a trainer may wrap this one's forward
        own = inner is None or of_torch or name.startswith("_") or not hasattr(inner, name)
        super().__setattr__(name, value) if own else setattr(inner, name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError(
            "A private model cannot be pickled or copied: it belongs to its engine. Save or copy model.module."
        )


def watched(module: nn.Module, criterion: Any) -> tuple[Watched, Watched]:
    """What a loop may change of the module, its hooks included, and of the criterion."""
    return Watched({"": module, "hooks": _hooks(module)}), Watched(criterion)


def _hooks(model: nn.Module) -> list[Any]:
    every = ((*each._forward_pre_hooks.values(), *each._forward_hooks.values()) for each in model.modules())
    return [h for some in every for h in some if not isinstance(getattr(h, "__self__", h), PlainPassGuard)]
