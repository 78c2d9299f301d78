"""Small cases, on which every method takes milliseconds."""

from __future__ import annotations

import pytest

from benchmarks.problem import Case


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    return {
        "cnn": Case("cnn", "leaf_cnn", 6, 3, (("hidden", 12),)),
        "lstm": Case("lstm", "leaf_lstm", 6, 3, (("hidden", 5), ("dense", 7))),
    }
