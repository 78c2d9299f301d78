"""Small cases, on which every method takes milliseconds."""

from collections.abc import Callable

import pytest

from benchmarks.methods import Case
from benchmarks.tables import Table
from benchmarks.timing import Outcome


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    return {
        "cnn": Case("cnn", "leaf_cnn", 6, 3, (("hidden", 12),)),
        "lstm": Case("lstm", "leaf_lstm", 6, 3, (("hidden", 5), ("dense", 7))),
        "head": Case("head", "handwriting_head", 6, 3),
    }


@pytest.fixture
def table() -> Callable[..., Table]:
    """A maker of made-up tables."""
    return _table


def _table(workload: str, batch: int, memory: int | None = 300, **factors: float) -> Table:
    """A table whose methods take these multiples of plain SGD, which varies from round to round."""
    base = [1.0, 2.0, 4.0, 3.0, 1.5]
    outcomes = {
        name: Outcome("ok", "fine", [f * b for b in base], [2 * f * b for b in base], memory)
        for name, f in {"sgd": 1.0, **factors}.items()
    }
    outcomes["sgd"].memory = 200
    return Table(workload, batch, "sgd", outcomes)
