"""One private step at a time: draw, forward, loss, backward with noise, optimizer.step(). No other order releases."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from subjectdp.engine.clipping import Clip, ClippingEngine, Tape
from subjectdp.engine.groups import Part
from subjectdp.errors import DataError, ModelError, PrivacyError, expected


@dataclass(frozen=True)
class Draw:
    """Items of a step, in the order in which the loader hands them over."""

    positions: list[int]  # in the data set
    parts: tuple[Part, ...]  # that go through the model at once
    weights: list[float] | None  # of the items; 0 for padding


@dataclass(frozen=True)
class _Pass:
    """A part of the batch in the forward pass, and the generator's state before it if it is run again."""

    part: Part
    tape: Tape | None
    generators: list[Tensor] | None


class PrivateStep:
    """Turns one batch into one noisy gradient; each item counts once, however the loop is written.

    Args:
        engine: clips.
        grouped: subjects are clipped, not items.
        clip_norm: C.
        release: called with each step's whole clipped sum (P,); returns the gradient that the optimiser sees.
        try_out: called before each forward pass: tries the model again at a few steps.
    """

    def __init__(
        self,
        engine: ClippingEngine,
        grouped: bool,
        clip_norm: float,
        release: Callable[[Tensor], Tensor],
        try_out: Callable[[], None],
    ) -> None:
        self.engine, self.grouped, self.clip_norm = engine, grouped, clip_norm
        self._release, self._try_out, self._running = release, try_out, False
        self.parameters = list(engine.flat.model.parameters())
        self.abandon()
        for parameter in self.parameters:  # plain training afterwards stays possible
            parameter.requires_grad_(True)
        engine.flat.model.register_forward_pre_hook(PlainPassGuard(self))

    def abandon(self) -> None:
        """Forgets a step that was begun and not released."""
        self._draw: Draw | None = None
        self._batch: tuple[Tensor, Tensor] | None = None
        self._passes: list[_Pass] = []
        self._output: Tensor | None = None
        self._released = False

    def begin(self, draw: Draw, batch: Any) -> None:
        """Hands over the next items. Raises PrivacyError if the ones before have not been stepped with."""
        if self._draw is not None:
            raise PrivacyError(
                "Expected loss.backward() and optimizer.step() for each batch of the private loader, the last batch "
                "was left without. Steps cannot be skipped or gathered: raise batch_size instead."
            )
        self.abandon()
        self._draw, self._batch = draw, tensors_of(batch)
        for parameter in self.parameters:
            parameter.grad = None

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's output for the drawn items, recorded."""
        if self._draw is None or self._batch is None or self._passes:
            raise PrivacyError(
                "Expected one forward pass of the training model for each batch of the private loader. For anything "
                "else call model.eval() first."
            )
        self._check_trained_as_made(inputs)
        self._check_same(inputs, self._batch[0], "inputs")
        self._try_out()
        with self._run():
            if len(self._draw.parts) == 1:
                part = self._draw.parts[0]
                output, tape = self.engine.record(inputs)
                self._passes = [_Pass(part, tape, None)]
            else:
                output = self._in_parts(inputs, self._draw.parts).requires_grad_()
        self._output, self._version = output, output._version
        return output

    def _in_parts(self, inputs: Tensor, parts: tuple[Part, ...]) -> Tensor:
        """The output without a graph; :meth:`backward` runs each part again, under the same state of the generators."""
        pieces = []
        for part in parts:
            self._passes.append(_Pass(part, None, _generators(inputs.device)))
            with torch.no_grad():
                pieces.append(self.engine.flat.model(inputs[part.items]))
        order = torch.cat([torch.arange(len(inputs))[part.items] for part in parts])
        return torch.cat(pieces)[torch.argsort(order).to(inputs.device)]

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The losses of the items (B,), of the model's own output and the loaded targets."""
        own = self._output
        if own is None or self._batch is None:
            raise PrivacyError("Expected the output of the model that make_private returned, for the batch at hand.")
        view = outputs.untyped_storage().data_ptr() == own.untyped_storage().data_ptr()
        if not (outputs is own or view) or own._version != self._version:
            raise PrivacyError(
                "Expected the output of the private model as it is, or a view of it. What else is done to it belongs "
                "into the module or into the criterion, where it is tried item by item."
            )
        self._check_same(targets, self._batch[1], "targets")
        return self.engine.losses(outputs, targets)

    def backward(self, losses: Tensor) -> tuple[Tensor, ...]:
        """The noisy gradient of each parameter. ``losses`` (B,) of the recorded pass, factors of the loss included."""
        draw, own = self._draw, self._output
        if draw is None or own is None or self._released or self._batch is None:
            raise PrivacyError("Expected one backward pass for each batch of the private loader.")
        self._released = True
        weights = None if draw.weights is None else losses.new_tensor(draw.weights)
        total: Tensor | None = None
        with self._run(), torch.enable_grad():
            if self._passes[0].tape is None:
                (slopes,) = torch.autograd.grad(losses.sum(), own)
            for each in self._passes:
                items, tape = each.part.items, each.tape
                own_losses = losses
                if tape is None:
                    with _generators_at(each.generators):
                        output, tape = self.engine.record(self._batch[0].to(own.device)[items])
                    own_losses = (output * slopes[items]).flatten(1).sum(1)
                own_weights = None if weights is None else weights[items]
                clip = Clip(each.part.grouping, self.clip_norm, own_weights, self.grouped)
                total, _ = self.engine.add_recorded(tape, own_losses, clip, total)
        if total is None:
            raise PrivacyError("Expected a batch with items.")
        return tuple(self.engine.flat.views(self._release(total)).values())

    def before_optimizer_step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Raises PrivacyError where the optimiser would step with anything but a private gradient."""
        given = [each for each in (*arguments, options.get("closure")) if each is not None]
        if any(each is not optimizer for each in given):
            raise PrivacyError("Expected optimizer.step() without a closure.")
        held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if held != {id(parameter) for parameter in self.parameters}:
            raise PrivacyError("Expected an optimizer of the module's parameters alone, others were added.")
        if not self._released:
            raise PrivacyError(
                "Expected loss.backward(), with the private loss, before optimizer.step(). For plain training make a "
                "new optimizer."
            )
        self.abandon()

    @contextmanager
    def _run(self) -> Iterator[None]:
        """The engine's own passes: parameters are constants in them."""
        self._running = True
        for parameter in self.parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            self._running = False
            for parameter in self.parameters:
                parameter.requires_grad_(True)

    @property
    def busy(self) -> bool:
        """Whether a batch is drawn and the engine does not run the module itself."""
        return self._draw is not None and not self._running

    def _check_trained_as_made(self, inputs: Tensor) -> None:
        for name, parameter in self.engine.flat.model.named_parameters():
            if not parameter.requires_grad:
                raise PrivacyError(
                    f"Expected the parameters that make_private saw, {name!r} was frozen since: make a new engine."
                )
        if torch.is_autocast_enabled(inputs.device.type):
            raise ModelError("Expected float32, autocast is on: mixed precision is not supported.")

    def _check_same(self, given: Tensor, loaded: Tensor, kind: str) -> None:
        """The loop may move, convert and reshape what the loader drew; what mixes, sorts or drops items is refused."""
        if given is loaded:
            return
        if len(given) != len(loaded):
            raise expected(
                f"{kind} of the forward pass",
                len(given),
                f"the {len(loaded)} items of the batch",
                PrivacyError,
            )
        wanted = loaded.to(given.device, given.dtype)
        if given.numel() != wanted.numel() or not torch.equal(given.reshape(-1), wanted.reshape(-1)):
            raise PrivacyError(
                f"Expected the {kind} that the private loader drew, in their order: the loop changed them, and what "
                "mixes items cannot be told from what does not. Change them in the data set, the module or the "
                "criterion."
            )


class PlainPassGuard:
    """A hook that refuses a plain training pass of the module in the middle of a private step.

    Copies of the module have one that guards nothing.
    """

    def __init__(self, step: PrivateStep | None = None) -> None:
        self.step = step

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if self.step is not None and self.step.busy and module.training and torch.is_grad_enabled():
            raise PrivacyError(
                "Expected the model that make_private returned, the module itself was called in the middle of a "
                "private step: nothing would clip its gradient."
            )

    def __reduce_ex__(self, protocol: Any) -> Any:
        return PlainPassGuard, ()


def tensors_of(batch: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets of a batch. Raises DataError for anything else."""
    if not (isinstance(batch, list | tuple) and len(batch) > 1 and all(isinstance(x, Tensor) for x in batch[:2])):
        found = type(batch).__name__
        if isinstance(batch, list | tuple):
            found += f" of {', '.join(type(part).__name__ for part in batch)}"
        raise expected("a batch of the data loader", found, "two tensors, (inputs, targets)", DataError)
    return batch[0], batch[1]


def _generators(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@contextmanager
def _generators_at(states: list[Tensor] | None) -> Iterator[None]:
    devices = [torch.cuda.current_device()] if states is not None and len(states) > 1 else []
    with torch.random.fork_rng(devices):
        if states is not None:
            torch.set_rng_state(states[0])
            if devices:
                torch.cuda.set_rng_state(states[1])
        yield


class PrivateModule(nn.Module):
    """A module whose training passes belong to private steps; its parameters are the wrapped module's own.

    In ``eval()`` mode, or without gradients, it is the plain module. Its state and its other attributes are the plain
    module's, without a prefix.

    Attributes:
        module: the wrapped module.
    """

    def __init__(self, module: nn.Module, step: PrivateStep) -> None:
        super().__init__()
        self.module = module
        self._step = step

    def forward(self, inputs: Tensor) -> Tensor:
        """The module's output for (B, ...) inputs."""
        if self.training and torch.is_grad_enabled():
            return self._step.forward(inputs)
        output: Tensor = self.module(inputs)
        return output

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """That of the wrapped module."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Into the wrapped module."""
        return self.module.load_state_dict(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError(
            "A private model cannot be pickled or copied: it belongs to its engine. Save or copy model.module."
        )


class PrivateLoss:
    """The mean loss of a batch, whose ``backward()`` gives each parameter its noisy gradient."""

    def __init__(self, step: PrivateStep) -> None:
        self._step = step

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean of the items' losses, a number. It is not private: show it to nobody who may not see the data."""
        step = self._step
        if not (step.busy and step.engine.flat.model.training and outputs.requires_grad):
            return step.engine.losses(outputs, targets).detach().mean()
        losses = step.losses(outputs, targets)
        mean: Tensor = _Backward.apply(losses.detach().mean(), step, [losses], *step.parameters)  # type: ignore[no-untyped-call]
        return mean.as_subclass(PrivateMean)


class _Backward(torch.autograd.Function):
    """The mean loss; its backward pass is the step's, scaled before clipping as the loop scaled the loss."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, step: PrivateStep, losses: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.step, ctx.losses = step, losses  # in a list: autograd must not see them
        return mean.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        with torch.enable_grad():
            losses = ctx.losses[0] * gradients[0]
        return (None, None, None, *ctx.step.backward(losses))


_SUMS = {"add", "sub", "rsub", "neg", "negative", "iadd", "isub", "radd"}
_FACTORS = {"mul", "rmul", "div", "truediv", "true_divide", "imul", "itruediv", "multiply", "divide"}
_OF_THE_GRAPH = {"backward", "get", "register_hook", "retain_grad"}


class PrivateMean(Tensor):
    """The mean loss: numbers may scale it, terms without items may be added, and ``backward()`` is private.

    Any other function of it gives a plain number without gradient: a factor that depends on the items' losses, as in
    ``loss ** 2``, would be a bound that depends on the data.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.strip("_"), kwargs or {}
        if name in _SUMS | _FACTORS:
            private = sum(isinstance(each, cls) for each in args)
            tensors = sum(isinstance(each, Tensor) for each in args)
            if private > 1 or (name in _FACTORS and tensors > 1):
                raise PrivacyError(
                    "Expected the private loss to be multiplied by a number, or added to a term without items. A "
                    "tensor's value may depend on the items (that of a GradScaler is not needed): use float(factor)."
                )
        elif name not in _OF_THE_GRAPH:
            with torch._C.DisableTorchFunctionSubclass():
                args = [each.detach().as_subclass(Tensor) if isinstance(each, cls) else each for each in args]
                return func(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]


def item_losses(criterion: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The losses (B,) of items from a criterion: a torch loss with a ``reduction``, or a function that returns them."""
    reduced = getattr(criterion, "reduction", None) is not None
    if reduced:
        criterion = copy.copy(criterion)
        criterion.reduction = "none"

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        try:
            each: Tensor = criterion(outputs, targets)
        except (TypeError, ValueError, IndexError, RuntimeError) as problem:
            shapes = f"outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)}"
            raise ModelError(f"The criterion does not take the module's {shapes}: {problem}") from problem
        items = len(targets)
        # a loss of torch averages over the rest of an item; other shapes come from broadcasting over items
        if reduced and each.dim() > 1 and each.shape in (outputs.shape, targets.shape) and len(each) == items:
            return each.flatten(1).mean(1)
        if tuple(each.shape) != (items,):
            allowed = (
                f"one for each item, shape ({items},): leave out mean and sum, and give outputs "
                f"{tuple(outputs.shape)} and targets {tuple(targets.shape)} shapes that do not broadcast over items"
            )
            raise expected("losses of the criterion", tuple(each.shape), allowed, ModelError)
        return each

    return losses
