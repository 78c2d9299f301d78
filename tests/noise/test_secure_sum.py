"""Modular sums: equal to integer sums wherever the ring holds them, refused where they wrap around."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from subjectdp.errors import DataError
from subjectdp.noise.secure_sum import RING, modular_sum

MODULI = st.one_of(st.integers(2, 40), st.integers(2, RING))


@given(MODULI, st.lists(st.integers(-(2**45), 2**45), max_size=6), st.data())
@settings(max_examples=300, deadline=None)
def test_the_modular_sum_is_the_integer_sum_wherever_the_ring_holds_it(
    modulus: int, values: list[int], data: st.DataObject
) -> None:
    """Also where the parts themselves leave the ring: only the sum has to fit."""
    wanted = data.draw(st.integers(max(-(modulus // 2), -(2**50)), min((modulus - 1) // 2, 2**50)))
    parts = [np.array([value]) for value in (*values, wanted - sum(values))]
    assert modular_sum(iter(parts), modulus).tolist() == [wanted]


@given(st.integers(2, 2**20), st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=5))
@settings(max_examples=300, deadline=None)
def test_a_sum_that_leaves_the_ring_is_refused(modulus: int, values: list[int]) -> None:
    if -(modulus // 2) <= sum(values) <= (modulus - 1) // 2:
        assert modular_sum([np.array([value]) for value in values], modulus).tolist() == [sum(values)]
        return
    with pytest.raises(DataError, match="1 of 1 entries wrapped around"):
        modular_sum([np.array([value]) for value in values], modulus)


def test_one_entry_that_wraps_around_is_enough() -> None:
    parts = [np.array([3, 0]), np.array([1, -4])]
    assert modular_sum(parts, 16).tolist() == [4, -4]
    with pytest.raises(DataError, match="1 of 2 entries"):
        modular_sum(parts, 8)
    with pytest.raises(DataError, match="at least one"):
        modular_sum([])
