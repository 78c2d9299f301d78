"""Numbers in their ranges. The configuration's keys and the plan's settings share these types.

``true`` is not a number: pydantic alone would read it as 1.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

LARGEST_INTEGER = 2**63 - 1


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a truth value is not a number")
    return value


NotBool = BeforeValidator(_refuse_bool)
Count = Annotated[int, Field(ge=1, le=LARGEST_INTEGER), NotBool]
NaturalNumber = Annotated[int, Field(ge=0, le=LARGEST_INTEGER), NotBool]
Positive = Annotated[float, Field(gt=0), NotBool]
NonNegative = Annotated[float, Field(ge=0), NotBool]
OpenFraction = Annotated[float, Field(gt=0, lt=1), NotBool]
Delta = Annotated[float, Field(gt=0, lt=0.1), NotBool]
ClipNorm = Annotated[float, Field(ge=1e-6, le=1e6), NotBool]
Probability = Annotated[float, Field(gt=0, le=1), NotBool]
Decay = Annotated[float, Field(ge=0, lt=1), NotBool]
GradientBits = Annotated[int, Field(ge=1, le=32), NotBool]
