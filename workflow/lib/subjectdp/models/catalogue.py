"""The models by name: a new one is a class or function that builds it, and an entry here.

Imports nothing heavy: the configuration reads it. ``subjectdp.models.build`` builds the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["image", "text"]


@dataclass(frozen=True)
class ModelFacts:
    """One model.

    Attributes:
        kind: kind of data that it takes.
        builder: ``module.name`` in this package, called with the number of classes and the parameters.
        parameters: all its parameters, with their defaults (``model.parameters`` overrides them).
        forward_flops: floating point operations of a forward pass on one item, with the default parameters and
            without a fixed feature map. ``subjectdp.forecast.model_cost`` measures them; a test compares.
        fixed_features: whether all layers but the last are a fixed feature map, computed once for each item.
    """

    kind: Kind
    builder: str
    parameters: Mapping[str, bool | int]
    forward_flops: int
    fixed_features: bool = False


MODELS: dict[str, ModelFacts] = {
    "leaf_cnn": ModelFacts("image", "image.LeafCNN", {"hidden": 2048}, 34_423_808),
    "small_cnn": ModelFacts("image", "image.SmallCNN", {"width": 16}, 6_583_680),
    "logistic": ModelFacts("image", "linear.Logistic", {"pool": 2}, 24_428),
    "scattering_head": ModelFacts(
        "image", "fixed.scattering_head", {"scales": 2, "angles": 8}, 492_156, fixed_features=True
    ),
    "handwriting_head": ModelFacts(
        "image", "fixed.handwriting_head", {"from_synthetic": True}, 15_872, fixed_features=True
    ),
    "leaf_lstm": ModelFacts(
        "text", "text.LeafLSTM", {"embedding": 8, "hidden": 256, "dense": 256}, 127_311_872
    ),
    "small_lstm": ModelFacts("text", "text.LeafLSTM", {"embedding": 8, "hidden": 64, "dense": 64}, 8_210_432),
    "char_ngram": ModelFacts("text", "ngram.CharacterNGram", {"singles": 4, "pairs": 2}, 0),
}
"""The first model of each kind is LEAF's, the default."""


def model_names(kind: str | None = None) -> list[str]:
    """The known models, or those for data of one kind."""
    return [name for name, facts in MODELS.items() if kind is None or facts.kind == kind]


def model_parameters(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a known model: its defaults, where ``overrides`` has no other value."""
    return {**MODELS[name].parameters, **overrides}
