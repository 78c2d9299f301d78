"""One private step at a time: draw, forward, loss, backward, noise. No other order releases anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from subjectdp.engine.clipping import Clip, ClippingEngine, Tape
from subjectdp.engine.groups import Grouping
from subjectdp.errors import ModelError, PrivacyError, expected


@dataclass(frozen=True)
class Draw:
    """Items of a step that go through the model at once, in the order of their groups."""

    positions: list[int]  # in the data set
    grouping: Grouping
    weights: list[float] | None  # of the items; 0 for padding
    last: bool  # of its step


class PrivateStep:
    """Collects the clipped sum of one step over its draws; each item counts once, however the loop is written.

    Args:
        engine: clips.
        grouped: subjects are clipped, not items.
        clip_norm: C.
        release: called with each step's whole clipped sum (P,); returns the gradient that the optimiser sees.
    """

    def __init__(
        self,
        engine: ClippingEngine,
        grouped: bool,
        clip_norm: float,
        release: Callable[[Tensor], Tensor],
    ) -> None:
        self.engine, self.grouped, self.clip_norm, self.release = engine, grouped, clip_norm, release
        self.abandon()

    def abandon(self) -> None:
        """Forgets a step that was begun and not released."""
        self._draw: Draw | None = None
        self._tape: Tape | None = None
        self._used = False
        self._total: Tensor | None = None

    def begin(self, draw: Draw) -> None:
        """Hands over the next items. Raises PrivacyError if the ones before have not been stepped with."""
        if self._draw is not None:
            raise PrivacyError(
                "Expected loss.backward() and optimizer.step() for each batch of the private loader, the last batch "
                "was left without. Steps cannot be skipped or gathered: raise batch_size instead."
            )
        self._draw, self._tape, self._used = draw, None, False

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's output for the drawn items, recorded."""
        if self._draw is None or self._tape is not None:
            raise PrivacyError(
                "Expected one forward pass of the training model for each batch of the private loader. For anything "
                "else call model.eval() first."
            )
        if len(inputs) != len(self._draw.positions):
            allowed = f"the {len(self._draw.positions)} of the batch"
            raise expected("items of the forward pass", len(inputs), allowed, PrivacyError)
        output, self._tape = self.engine.record(inputs)
        return output

    def backward(self, losses: Tensor) -> None:
        """Adds the clipped gradients of the recorded pass. ``losses`` (B,)."""
        draw, tape = self._draw, self._tape
        if draw is None or tape is None or self._used:
            raise PrivacyError("Expected one backward pass for each batch of the private loader.")
        weights = None if draw.weights is None else losses.new_tensor(draw.weights)
        clip = Clip(draw.grouping, self.clip_norm, weights, self.grouped)
        self._total, _ = self.engine.add_recorded(tape, losses, clip, self._total)
        self._used = True

    @property
    def recorded(self) -> bool:
        """Whether a loss now belongs to a recorded pass."""
        return self._tape is not None and not self._used

    def before_optimizer_step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        """Puts the noisy gradient where the optimiser reads it; nothing before the step's last draw."""
        given = [each for each in (*arguments, options.get("closure")) if each is not None]
        if any(each is not optimizer for each in given):
            raise PrivacyError("Expected optimizer.step() without a closure.")
        if self._draw is None or not self._used or self._total is None:
            raise PrivacyError("Expected loss.backward(), with the private loss, before optimizer.step().")
        parameters = dict(self.engine.flat.model.named_parameters())
        if self._draw.last:
            for name, view in self.engine.flat.views(self.release(self._total)).items():
                parameters[name].grad = view
            self.abandon()
            return
        for parameter in parameters.values():
            parameter.grad = None
        self._draw = None


class PrivateModule(nn.Module):
    """A module whose training passes belong to private steps; its parameters are the wrapped module's own.

    In ``eval()`` mode, or without gradients, it is the plain module.

    Attributes:
        module: the wrapped module: save its ``state_dict`` as ever.
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


class PrivateLoss:
    """The mean loss of a batch, whose ``backward()`` adds clipped gradients to the private step."""

    def __init__(self, step: PrivateStep) -> None:
        self._step = step

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean of the items' losses, a number. It is not private: show it to nobody who may not see the data."""
        losses = self._step.engine.losses(outputs, targets)
        if not (self._step.recorded and losses.requires_grad):
            return losses.mean()
        anchor = torch.zeros((), requires_grad=True, device=losses.device)
        result: Tensor = _Backward.apply(anchor, losses.detach().mean(), self._step, [losses])  # type: ignore[no-untyped-call]
        return result


class _Backward(torch.autograd.Function):
    """The mean loss; its backward pass is the step's."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, mean: Tensor, step: PrivateStep, losses: list[Tensor]) -> Tensor:
        ctx.step, ctx.losses = step, losses  # in a list: autograd must not see them
        return mean.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None, None]:
        ctx.step.backward(ctx.losses[0])
        return None, None, None, None


def item_losses(criterion: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """The losses (B,) of items from a criterion: a torch loss with a ``reduction``, or a function that returns them."""
    if getattr(criterion, "reduction", None) is not None:
        criterion = _unreduced(criterion)

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        each: Tensor = criterion(outputs, targets)
        if each.dim() == 0 or len(each) != len(targets):
            allowed = f"one for each item, shape ({len(targets)},): leave out mean and sum"
            raise expected("losses of the criterion", tuple(each.shape), allowed, ModelError)
        return each if each.dim() == 1 else each.flatten(1).mean(1)

    return losses


def _unreduced(criterion: Any) -> Any:
    own = copy.copy(criterion)
    own.reduction = "none"
    return own
