"""The generators that anyone's code may draw from: torch's of each device in use, Python's and NumPy's."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class States(NamedTuple):
    """Of all generators."""

    torch: list[Tensor]  # of the CPU, then of each GPU
    python: tuple[Any, ...]
    numpy: tuple[Any, ...]

    @classmethod
    def now(cls) -> "States":
        """As they are."""
        gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        known: Any = np.random.get_state()  # noqa: NPY002 - what a model of anyone's may use
        return cls([torch.get_rng_state(), *gpus], random.getstate(), known)

    def put_back(self) -> None:
        torch.set_rng_state(self.torch[0])
        for number, state in enumerate(self.torch[1:]):
            torch.cuda.set_rng_state(state, number)
        random.setstate(self.python)
        np.random.set_state(self.numpy)  # noqa: NPY002

    def are(self, other: "States") -> bool:
        """Whether nothing was drawn between the two."""
        numbers = zip(self.numpy, other.numpy, strict=True)
        same = self.python == other.python and all(np.array_equal(one, two) for one, two in numbers)
        return same and all(map(torch.equal, self.torch, other.torch))


@contextmanager
def generators_kept(inside: States | None = None) -> Iterator[None]:
    """All are put back at the end of the block, in which they begin as they were, or at states."""
    before = States.now()
    try:
        if inside is not None:
            inside.put_back()
        yield
    finally:
        before.put_back()


def seed_all(seed: int = 1) -> None:
    """Not torch.manual_seed: it seeds CUDA for later where it is not in use, and nobody would put that back."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
