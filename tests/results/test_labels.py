"""Numbers as figures and tables show them."""

from __future__ import annotations

import pytest

from subjectdp.results.labels import format_epsilon


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (4.0, "4"),
        (8.33, "8.33"),
        (0.5, "0.5"),
        (9.996, "10"),
        (57.94, "57.9"),
        (144.6, "145"),
        (99.97, "100"),
        (10_131_055.5, "1e7"),
        (99_999.4, "99,999"),
        (float("inf"), "∞"),
        (float("nan"), "–"),
    ],
)
def test_epsilon_in_three_figures(value: float, words: str) -> None:
    assert format_epsilon(value) == words
