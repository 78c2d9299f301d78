"""Intervals against scipy.stats and simulated coverage."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from subjectdp.errors import DataError
from subjectdp.results.intervals import bands, mean_interval, paired_difference

values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20).filter(lambda v: np.std(v) > 1e-6)


@given(values)
def test_the_interval_is_that_of_scipys_one_sample_t_test(sample: list[float]) -> None:
    found = mean_interval(sample)
    wanted = stats.ttest_1samp(sample, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(sample))
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-9, abs=1e-9)
    assert found.count == len(sample)


@pytest.mark.parametrize("others", [[1.0], [1.0, 2.0]])
def test_pairs_of_different_numbers_are_refused(others: list[float]) -> None:
    with pytest.raises(DataError, match="of the same length"):
        paired_difference([1.0, 2.0, 3.0], others)


@given(values, st.integers(0, 2**32 - 1))
def test_paired_difference_is_scipys_paired_t_test(sample: list[float], seed: int) -> None:
    first = np.asarray(sample)
    second = first + np.random.default_rng(seed).normal(0.3, 1.0, first.size)
    wanted = stats.ttest_rel(first, second).confidence_interval(0.95)
    found = paired_difference(first, second)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), rel=1e-6, abs=1e-9)


def test_values_that_are_not_finite_are_left_out_and_one_seed_has_no_interval() -> None:
    assert mean_interval([1.0, np.nan, 3.0, np.inf]).count == 2
    alone = mean_interval([0.7, np.nan])
    assert (alone.mean, alone.count) == (0.7, 1) and np.isnan([alone.low, alone.high]).all()
    with pytest.raises(DataError, match="finite"):
        mean_interval([np.nan])


def test_bands_are_the_intervals_of_each_group() -> None:
    frame = pd.DataFrame({"round": [1, 1, 1, 2, 2, 3], "value": [1.0, 2.0, 4.0, 5.0, np.nan, np.nan]})
    table = bands(frame, ["round"], "value").set_index("round")
    alone = mean_interval([1.0, 2.0, 4.0])
    assert table.loc[1, ["mean", "low", "high"]].tolist() == pytest.approx([alone.mean, alone.low, alone.high])
    assert table.loc[2, "seeds"] == 1
    assert np.isnan(table.loc[2, "low"])
    assert 3 not in table.index
