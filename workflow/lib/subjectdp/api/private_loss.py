"""The private loss: losses of items from anyone's criterion, and a mean whose ``backward()`` is a private step's."""

import copy
import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo  # torch.compile stays out of what it decorates
from torch.utils._pytree import tree_map

from subjectdp.api.private_step import PrivateStep
from subjectdp.api.watched import Watched
from subjectdp.engine.batches import number_of, of_items, shapes_of, tensors_in
from subjectdp.engine.rules import TERMS
from subjectdp.errors import ModelError, PrivacyError, expected


class PrivateLoss:
    """The mean loss of a batch, whose ``backward()`` gives each parameter its noisy gradient."""

    def __init__(self, step: PrivateStep) -> None:
        self._step = step

    @_disable_dynamo
    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """The mean of the items' losses, a number. It is not private: show it to nobody who may not see the data."""
        step = self._step
        trained = any(each.requires_grad for each in tensors_in(outputs))
        if not (step.busy and step.engine.flat.model.training and trained):
            plain: Tensor = step.engine.losses(outputs, targets).detach().mean()
            return plain.as_subclass(PlainMean)
        losses = step.losses(outputs, targets)
        if not losses.detach().isfinite().all():
            text = "Losses of items are not finite: such items add nothing to a step but its noise."
            warnings.warn(text, stacklevel=2)
        mean: Tensor = _Backward.apply(losses.detach().mean(), step, [losses], *step.parameters)  # type: ignore[no-untyped-call]
        return mean.as_subclass(PrivateMean)


class _Backward(torch.autograd.Function):
    """The mean loss; its backward pass is the step's, scaled before clipping as the loop scaled the loss."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, step: PrivateStep, losses: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.step, ctx.losses = step, losses  # in a list: autograd must not see them
        return mean.clone()

    @staticmethod
    @_disable_dynamo
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        ctx.step.check_factor(float(gradients[0]))
        with torch.enable_grad():
            losses = ctx.losses[0] * gradients[0]
        return (None, None, None, *ctx.step.backward(losses))


_SUMS = {"add", "sub", "rsub", "neg", "negative", "iadd", "isub", "radd"}
_FACTORS = {"mul", "rmul", "div", "truediv", "true_divide", "imul", "itruediv", "multiply", "divide"}
_OF_ONE_NUMBER = {"mean", "sum", "float"}  # as in loops around losses of items
_OF_THE_GRAPH = {"backward", "grad", "get", "register_hook", "retain_grad"}


class PrivateMean(Tensor):
    """The mean loss: one number may scale it in all steps, terms without items be added, and ``backward()`` is private.

    Any other function of it gives a number to look at, without gradient: a factor that depends on the items' losses, as
    in ``loss ** 2``, would be a bound that depends on the data.
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.strip("_"), kwargs or {}
        given = (*args, *kwargs.values())
        losses, tensors = (sum(isinstance(each, kind) for each in given) for kind in (cls | PlainMean, Tensor))
        if name in _FACTORS and tensors > 1:
            raise PrivacyError(
                "Expected the private loss to be multiplied by a number, or added to a term without items. A tensor's "
                "value may depend on the items (that of a GradScaler is not needed): use float(factor). Weigh items in "
                "the criterion."
            )
        if func.__name__ in _OF_ONE_NUMBER and len(args) == 1 and not kwargs:
            return args[0]
        if name not in _FACTORS | _OF_THE_GRAPH and not (name in _SUMS and losses == 1):

            def plain(each: Any) -> Any:
                return each.detach().as_subclass(Tensor) if isinstance(each, cls | PlainMean) else each

            with torch._C.DisableTorchFunctionSubclass():
                result = func(*tree_map(plain, args), **tree_map(plain, kwargs))
            return result.as_subclass(ChangedMean) if isinstance(result, Tensor) else result
        try:
            result = super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        except RuntimeError as problem:
            if "second time" in str(problem):  # a term of hidden values, which the private step has used up
                raise PrivacyError(TERMS) from problem
            raise
        return result.as_subclass(Tensor) if isinstance(result, cls) and not result.requires_grad else result


class PlainMean(Tensor):
    """The mean loss of a pass that no private step can train on; ``backward()`` says why."""

    reason = (
        "Expected the loss of a training pass for a batch of the private loader. A model in eval mode, as "
        "from_pretrained returns it, or under no_grad has none: call model.train() before the loop."
    )

    def backward(self, *args: Any, **kwargs: Any) -> None:
        raise PrivacyError(self.reason)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, PrivateMean) for each in types):
            return NotImplemented  # left to that class
        with torch._C.DisableTorchFunctionSubclass():
            plain = tree_map(lambda each: each.as_subclass(Tensor) if isinstance(each, cls) else each, args)
            result = func(*plain, **(kwargs or {}))
        kept = isinstance(result, Tensor) and (not result.requires_grad or func.__name__.strip("_") in _SUMS | _FACTORS)
        return result.as_subclass(cls) if kept else result


class ChangedMean(PlainMean):
    """Another function of the private loss than a multiple; ``backward()`` says why it has no gradient."""

    reason = (
        "Expected the private loss times one number, plus terms without items, before backward(): another function of "
        "it, such as a power or a minimum, weighs an item by the others' losses. Put it into the criterion. Losses of "
        "several batches are numbers to look at."
    )


def _unreduced(criterion: Any) -> tuple[Any, str | None]:
    """The criterion that returns losses, and the reduction that it had."""
    criterion = getattr(criterion, "_orig_mod", criterion)  # what torch.compile wraps: it would change the user's own
    if isinstance(criterion, nn.Module) and any(each.requires_grad for each in criterion.parameters()):
        raise ModelError("Expected a criterion without parameters to train: make them the module's, or freeze them.")
    if (reduction := getattr(criterion, "reduction", None)) is not None:
        criterion = copy.copy(criterion)
        try:
            criterion.reduction = "none"
        except (AttributeError, RuntimeError) as problem:  # of torch.jit
            raise ModelError(f"Expected a criterion whose reduction can be set to none: {problem}.") from problem
    elif (options := _options(criterion)).get("reduction") in ("mean", "sum", "batchmean"):  # as of F.cross_entropy
        reduction, criterion = options["reduction"], partial(criterion, reduction="none")
        criterion.ignore_index = options.get("ignore_index")
    return criterion, reduction


def _options(function: Any) -> dict[str, Any]:
    try:
        return {name: each.default for name, each in inspect.signature(function).parameters.items()}
    except (TypeError, ValueError):  # torch shows no signature
        return {}


def _fits(values: Tensor, whole: Tensor) -> bool:
    """Whether the values are those of some or all of an item's numbers."""
    return values.dim() == whole.dim() and all(n in (1, m) for n, m in zip(values.shape, whole.shape, strict=True))


def _of_each(values: Tensor, targets: Any, ignored: int | None, reduction: str) -> Tensor:
    own = values.flatten(1)
    read = own.shape[1] if ignored is None else (targets != ignored).flatten(1).sum(1).clamp_min(1)
    return own.sum(1) if reduction in ("sum", "batchmean") else own.sum(1) / read


class ItemLosses:
    """The losses (B,) of items from a criterion: a torch loss with a ``reduction``, or a function that returns them.

    An item's own values (numbers, symbols) are averaged, or summed for the reductions ``sum`` and ``batchmean``; those
    at the criterion's ``ignore_index`` are left out. ModelError for a criterion that has parameters to train;
    ConfigError for what is none.
    """

    def __init__(self, criterion: Any, of_outputs: Callable[[Any], Any] = lambda outputs: outputs) -> None:
        if isinstance(criterion, type) or not callable(criterion):
            raise expected(
                "criterion", getattr(criterion, "__name__", criterion), "a function, or an instance of a loss"
            )
        self.criterion, self._of_outputs = criterion, of_outputs
        _unreduced(criterion)

    def __deepcopy__(self, memo: Any) -> "ItemLosses":
        return ItemLosses(copy.deepcopy(self.criterion, memo), self._of_outputs)

    def __call__(self, outputs: Any, targets: Any, several: int = 1) -> Tensor:
        """The losses (B,) of items that are as many rows each, one after another."""
        unreduced, reduction = _unreduced(self.criterion)  # as it is now: a schedule may have changed it
        outputs = self._of_outputs(outputs)
        each, rows = self._found(unreduced, outputs, targets), number_of(targets)
        if not each.dim():
            return self._one_by_one(unreduced, outputs, targets, each, several)
        each, tensors = each.float(), isinstance(outputs, Tensor) and isinstance(targets, Tensor)
        # a loss of torch reduces over the rest of a row; other shapes come from broadcasting over items
        inner = reduction is not None and tensors and each.dim() > 1 and len(each) == rows
        inner = inner and any(_fits(each, whole) for whole in (outputs, targets))
        if not inner and tuple(each.shape) != (rows,):
            shapes = f"outputs {shapes_of(outputs)} and targets {shapes_of(targets)} shapes"
            allowed = (
                f"one for each item, shape ({rows},), or their mean: give {shapes} that do not broadcast over items"
            )
            raise expected("losses of the criterion", tuple(each.shape), allowed, ModelError)
        if not inner and several == 1:
            return each
        ignored = getattr(unreduced, "ignore_index", None) if isinstance(targets, Tensor) else None
        own = None if ignored is None else targets.reshape(rows // several, -1)
        return _of_each(each.reshape(rows // several, -1), own, ignored, reduction or "mean")

    @staticmethod
    def _found(run: Any, outputs: Any, targets: Any) -> Tensor:
        try:
            found: Any = run(outputs, targets)
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as problem:
            raise ModelError(
                f"The criterion does not take the module's outputs {shapes_of(outputs)} and targets "
                f"{shapes_of(targets)}: {problem}. What the loop does to them in between belongs into the module or "
                "into the criterion; a mapping of one's own comes as a dict."
            ) from problem
        of_all = any(found is each for each in tensors_in(outputs) if not each.dim())
        if of_all or not isinstance(found, Tensor):
            allowed = "a tensor of losses of items: that of a model of its own is of all, so compute it of the logits"
            given = "the model's own loss" if of_all else type(found).__name__
            raise expected("result of the criterion", given, allowed, ModelError)
        return found if found.is_floating_point() else found.float()

    def _one_by_one(self, run: Any, outputs: Any, targets: Any, whole: Tensor, several: int) -> Tensor:
        """Losses of a criterion that gives one number: that of each item by itself. Raises ModelError where neither
        their mean nor their sum is the number of all: what it weighs or compares would be lost."""
        rows, losses, left = number_of(targets), list[Tensor](), Watched(None)
        for i in range(0, rows, several):

            def own(tensor: Tensor, place: int = i) -> Tensor:
                return tensor[place : place + several] if tensor.shape[:1] == (rows,) else tensor

            losses.append(self._found(run, of_items(outputs, own), of_items(targets, own)).sum())
            left = left if i else Watched(run)
        left.check("a criterion of one number that keeps nothing", "each item is a call. Return the items' own losses.")
        each = torch.stack(losses).float()
        if whole.isfinite() and not any(_are_one(whole, likely, outputs) for likely in (each.mean(), each.sum())):
            raise ModelError(
                f"Expected losses of the criterion for each item, shape ({len(each)},), or one number that is the mean "
                f"or the sum of the items' own; it gives {whole.item():.4g} for {len(each)} items, whose own have the "
                f"mean {each.mean().item():.4g}: it weighs or compares them. Give the loss of torch itself, or return "
                "each item's own."
            )
        return each


def _are_one(whole: Tensor, other: Tensor, outputs: Any) -> bool:
    """Whether two losses are one number, with one gradient by the outputs, but for the rounding of the first."""
    own = [each for each in tensors_in(outputs) if each.requires_grad]
    close = max(1e-3, 4 * torch.finfo(whole.dtype).eps)
    if whole.requires_grad != other.requires_grad or not torch.isclose(whole.float(), other, rtol=close, atol=1e-6):
        return False
    if not (own and whole.requires_grad):
        return True
    slopes = (torch.autograd.grad(each, own, retain_graph=True, materialize_grads=True) for each in (whole, other))
    one, two = (torch.cat([slope.float().flatten() for slope in each]) for each in slopes)
    return bool((one - two).norm() <= close * one.norm())
