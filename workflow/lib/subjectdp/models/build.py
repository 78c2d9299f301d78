"""Building a model of the catalogue."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from subjectdp.errors import ModelError, expected, in_words, listed
from subjectdp.models import fixed, image, linear, text
from subjectdp.models.catalogue import MODELS, SHAPES, model_parameters
from subjectdp.noise.keys import Purpose, key_int

# Imported by name, so that a run's code fingerprint covers them.
_MODULES = {"fixed": fixed, "image": image, "linear": linear, "text": text}


def build_model(
    name: str,
    classes: int,
    kind: str,
    seed: int,
    parameters: Mapping[str, Any] | None = None,
    shape: tuple[int, ...] | None = None,
) -> nn.Module:
    """Builds a model of the catalogue, with the same weights for every algorithm at a run's ``seed``.

    ``kind`` of the data: "image", "vector" or "text". ``parameters``: those that differ from the catalogue's defaults.
    ``shape`` of an item: (channels, height, width), (numbers,) or (characters,); None: LEAF's. ModelError for a model
    for another shape of data or other classes, or impossible parameters.
    """
    module, _, builder_name = MODELS[name].builder.partition(".")
    builder: Callable[..., nn.Module] | None = getattr(_MODULES.get(module), builder_name, None)
    if builder is None:
        allowed = f"a class or function of {listed(_MODULES)}"
        raise expected(f"builder of model {name}", MODELS[name].builder, allowed, ModelError)
    overrides = dict(parameters or {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key_int(seed, Purpose.MODEL_INIT, name) & 0x7FFF_FFFF_FFFF_FFFF)
        try:
            return builder(classes, SHAPES[kind] if shape is None else shape, **model_parameters(name, overrides))
        except ModelError:
            raise
        except (TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
            # RuntimeError: torch finds no memory for absurd sizes.
            reason = str(error).split("\n")[0][:300]
            raise ModelError(
                f"Expected model.parameters that {name!r} takes, got {in_words(overrides)}: {reason}."
            ) from None
