"""Models by name: adding one is a class and a line in ``MODELS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from subjectdp.errors import ModelError, in_words, unknown
from subjectdp.models.fixed import handwriting_head, scattering_head
from subjectdp.models.image import LeafCNN, SmallCNN
from subjectdp.models.linear import Logistic
from subjectdp.models.ngram import CharacterNGram
from subjectdp.models.text import LeafLSTM
from subjectdp.noise.keys import Purpose, key_int

MODELS: dict[str, tuple[str, Callable[..., nn.Module]]] = {
    "leaf_cnn": ("image", LeafCNN),
    "small_cnn": ("image", SmallCNN),
    "logistic": ("image", Logistic),
    "scattering_head": ("image", scattering_head),
    "handwriting_head": ("image", handwriting_head),
    "leaf_lstm": ("text", LeafLSTM),
    "small_lstm": (
        "text",
        lambda classes, **sizes: LeafLSTM(classes, **{"hidden": 64, "dense": 64, **sizes}),
    ),
    "char_ngram": ("text", CharacterNGram),
}


def model_names(kind: str | None = None) -> list[str]:
    """The known models, or those for data of one kind ("image" or "text")."""
    return [name for name, (data_kind, _) in MODELS.items() if kind is None or data_kind == kind]


def build_model(
    name: str, classes: int, kind: str, seed: int, parameters: Mapping[str, Any] | None = None
) -> nn.Module:
    """Builds a model with weights drawn from the run's seed.

    Args:
        name: a key of ``MODELS``.
        classes: number of output classes.
        kind: kind of the data set, "image" or "text".
        seed: root seed of the run; the same seed gives the same weights for every algorithm.
        parameters: keyword arguments of the model's class.

    Raises:
        ModelError: unknown name, a model for another kind of data, or unknown parameters.
    """
    if name not in MODELS:
        raise unknown("model.name", name, MODELS, ModelError)
    data_kind, factory = MODELS[name]
    if data_kind != kind:
        raise ModelError(
            f"Expected model.name to fit {kind} data ({', '.join(model_names(kind))}), got {name!r}."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(key_int(seed, Purpose.MODEL_INIT, name) & 0x7FFF_FFFF_FFFF_FFFF)
        try:
            return factory(classes, **(parameters or {}))
        except ModelError:
            raise
        except (TypeError, ValueError, RuntimeError, MemoryError, OverflowError) as error:
            # RuntimeError: torch finds no memory for absurd sizes.
            reason = str(error).split("\n")[0][:300]
            raise ModelError(
                f"Expected model.parameters that {name!r} takes, got {in_words(dict(parameters or {}))}: {reason}."
            ) from None
