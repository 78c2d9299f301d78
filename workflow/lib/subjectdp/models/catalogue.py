"""The models by name: a new one is a class or function that builds it, and an entry here.

Imports nothing heavy: the configuration reads it. ``subjectdp.models.build`` builds the models.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from subjectdp.errors import expected, unknown

Kind = Literal["image", "text", "vector"]

SHAPES: dict[str, tuple[int, ...]] = {"image": (1, 28, 28), "text": (80,), "vector": (10,)}
"""Items that costs are measured on: LEAF's images and text, and a row of ten numbers."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a model: its default (true or false, or a whole number) and the numbers that it may be."""

    default: bool | int
    least: int = 1
    most: int = 100_000
    multiple_of: int = 1
    choices: tuple[int, ...] = ()

    @property
    def allowed(self) -> str:
        if isinstance(self.default, bool):
            return "true or false"
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        multiple = f" that is a multiple of {self.multiple_of}" if self.multiple_of > 1 else ""
        return f"a whole number from {self.least} to {self.most}{multiple}"

    def allows(self, value: object) -> bool:
        if isinstance(self.default, bool) or isinstance(value, bool) or not isinstance(value, int):
            return isinstance(self.default, bool) and isinstance(value, bool)
        if self.choices:
            return value in self.choices
        return self.least <= value <= self.most and value % self.multiple_of == 0


@dataclass(frozen=True)
class ModelSpec:
    """One model.

    Attributes:
        kind: kind of data that it takes.
        builder: ``module.name`` in this package, called with the number of classes, the shape of an item and the
            parameters.
        parameters: all its parameters by name (``model.parameters`` overrides their defaults).
        forward_flops: floating point operations of a forward pass on an item of the first data set of its kind, with
            default parameters and without a fixed feature map. A test compares them with torch's counter.
        fixed_features: whether all layers but the last are a fixed feature map, computed once for each item.
        not_all_zero: parameters of which one is above 0.
        not_both: two parameters of which one is 0.
    """

    kind: Kind
    builder: str
    parameters: Mapping[str, Parameter]
    forward_flops: int
    fixed_features: bool = False
    not_all_zero: tuple[str, ...] = ()
    not_both: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises ConfigError for a kind that no data set has, or what is no parameter."""
        if self.kind not in get_args(Kind):
            raise unknown(f"kind of the model {self.builder}", self.kind, get_args(Kind))
        for name, each in self.parameters.items():
            if not isinstance(each, Parameter) or not isinstance(each.default, int):
                raise expected(f"{name} of the model {self.builder}", each, "a Parameter, of a whole number or a bool")


def _lstm_parameters(size: int) -> dict[str, Parameter]:
    wide = Parameter(size, most=8192)
    return {"embedding": Parameter(8, most=4096), "hidden": wide, "dense": wide}


_POOLS = (1, 2, 4, 7, 8, 14, 16, 28, 32)  # divisors of usual images' sides
_WIDTHS = Parameter(16, least=4, most=4096, multiple_of=4)
MODELS: dict[str, ModelSpec] = {
    "leaf_cnn": ModelSpec("image", "image.LeafCNN", {"hidden": Parameter(2048)}, 34_423_808),
    "small_cnn": ModelSpec("image", "image.SmallCNN", {"width": _WIDTHS}, 6_583_680),
    "tanh_cnn": ModelSpec("image", "image.TanhCNN", {}, 792_448),
    "logistic": ModelSpec("image", "linear.Logistic", {"pool": Parameter(2, choices=_POOLS)}, 24_428),
    "scattering_head": ModelSpec(
        "image",
        "fixed.scattering_head",
        {
            "scales": Parameter(2, choices=(1, 2)),
            "angles": Parameter(8, most=64),
            "directions": Parameter(0, least=0),
            "components": Parameter(0, least=0, most=999),
        },
        492_156,
        fixed_features=True,
        not_both=("components", "directions"),
    ),
    "handwriting_head": ModelSpec(
        "image",
        "fixed.handwriting_head",
        {"from_synthetic": Parameter(True), "typefaces": Parameter(False)},
        15_872,
        fixed_features=True,
    ),
    "stroke_head": ModelSpec("image", "fixed.stroke_head", {}, 5_952, fixed_features=True),
    "leaf_lstm": ModelSpec("text", "text.LeafLSTM", _lstm_parameters(256), 127_311_872),
    "small_lstm": ModelSpec("text", "text.LeafLSTM", _lstm_parameters(64), 8_210_432),
    "char_ngram": ModelSpec(
        "text",
        "text.CharacterNGram",
        {"singles": Parameter(4, least=0, most=80), "pairs": Parameter(2, least=0, most=79)},
        51_200,
        not_all_zero=("singles", "pairs"),
    ),
    "english_head": ModelSpec(
        "text", "fixed.english_head", {"from_public": Parameter(True)}, 20_640, fixed_features=True
    ),
    "linear": ModelSpec("vector", "linear.Linear", {}, 292),
    "mlp": ModelSpec("vector", "linear.Perceptron", {"hidden": Parameter(64)}, 9_600),
}
"""The first model of each kind is the default; of images and text it is LEAF's."""


def model_names(kind: str | None = None) -> list[str]:
    """The known models, or those for data of one kind."""
    return [name for name, facts in MODELS.items() if kind is None or facts.kind == kind]


def model_parameters(name: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a known model: its defaults, where ``overrides`` has no other value."""
    return {key: parameter.default for key, parameter in MODELS[name].parameters.items()} | dict(overrides)
