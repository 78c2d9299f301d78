"""Sampling-only statistics: against exact laws, the papers' numbers, and wrong readings of the papers."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from subjectdp.data.statistics import (
    FEMNIST_ITEMS,
    IMAGES_OF_WRITERS,
    SHAKESPEARE_MEAN,
    Setting,
    SubjectSizes,
    paper_scale_statistics,
    paper_settings,
    shakespeare_counts,
    silo_counts,
    simulate_batches,
    simulate_setting,
    summary_table,
)
from subjectdp.data.statistics import femnist_counts as femnist_counts_of
from subjectdp.errors import ConfigError

COLUMNS = ["setting", "silo", "step", "items", "subjects", "largest_group"]
Counts = NDArray[np.int64]


def femnist_counts(alpha: float, seed: int = 0) -> Counts:
    return silo_counts(seed, np.full(3500, FEMNIST_ITEMS), alpha=alpha)


# Exact laws of one silo's mini-batch, by other means than drawing it.


def exact_subjects(row: Counts, batch: int, replaced: bool = False) -> float:
    """Expected distinct subjects: the sum over subjects of 1 - P(none of its items is drawn)."""
    n = row.sum()
    row, subjects = np.unique(row, return_counts=True)
    missed = (1 - row / n) ** batch if replaced else stats.hypergeom.pmf(0, n, row, batch)
    return float((subjects * (1 - missed)).sum())


def exact_largest_group(row: Counts, batch: int, most: int) -> float:
    """P(Z <= most) without replacement, from generating functions.

    Independent Binomial(c, q) counts given that their sum is the batch size are the hypergeometric counts, so
    P(Z <= z) is the coefficient of x^batch in the product of the truncated binomials, over P(sum = batch).
    """
    n = int(row.sum())
    q = batch / n
    product = np.array([1.0])
    for size, subjects in zip(*np.unique(row[row > 0], return_counts=True), strict=True):
        truncated = stats.binom.pmf(np.arange(min(most, size) + 1), size, q)
        for _ in range(subjects):
            product = np.convolve(product, truncated)[: batch + 1]
    return float(product[batch] / stats.binom.pmf(batch, n, q))


def z_score(values: pd.Series, mean: float) -> float:
    return float((values.mean() - mean) / (values.std() / math.sqrt(len(values))))


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [1.0, 16.0])
def test_distinct_subjects_follow_the_exact_expectation(alpha: float) -> None:
    counts = femnist_counts(alpha)[:3]
    frame = simulate_batches(0, counts, 512, 3)
    wanted, with_replacement = (np.mean([exact_subjects(row, 512, w) for row in counts]) for w in (False, True))
    assert abs(z_score(frame["subjects"], float(wanted))) < 4.5
    assert abs(z_score(frame["subjects"], float(with_replacement))) > 3


def test_largest_group_follows_its_exact_law() -> None:
    counts = femnist_counts(1.0)[:4]
    frame = simulate_batches(0, counts, 512, 10)
    for most in (2, 3):
        exact = float(np.mean([exact_largest_group(row, 512, most) for row in counts]))
        inside = int((frame["largest_group"] <= most).sum())
        assert stats.binomtest(inside, len(frame), exact).pvalue > 1e-5


@pytest.mark.slow
def test_papers_numbers() -> None:
    """475 and 86 distinct subjects, dominant groups 3 and 3, 4 for Small-FEMNIST, 3 to 6 and 475 to 310."""
    frames = [simulate_setting(0, replace(setting, rounds=1)) for setting in paper_settings()]
    table = summary_table(pd.concat([f.astype({"setting": str}) for f in frames])).set_index("setting")
    assert table["subjects_mean"]["femnist"] == pytest.approx(475, rel=0.01)
    assert table["subjects_mean"]["shakespeare"] == pytest.approx(86, rel=0.01)
    assert table["subjects_mean"]["femnist_alpha_16"] == pytest.approx(310, rel=0.04)
    assert table["largest_group_mode"][["femnist", "shakespeare", "small_femnist"]].tolist() == [3, 3, 4]
    assert table["largest_group_mean"]["small_femnist"] == pytest.approx(4, abs=0.5)
    assert table["largest_group_mean"]["femnist_alpha_2"] == pytest.approx(3, abs=0.25)
    assert table["largest_group_mean"]["femnist_alpha_16"] == pytest.approx(6, abs=0.25)
    sweep = table.loc[[f"femnist{suffix}" for suffix in ("", "_alpha_2", "_alpha_4", "_alpha_8", "_alpha_16")]]
    assert sweep["largest_group_mean"].is_monotonic_increasing
    assert sweep["subjects_mean"].is_monotonic_decreasing
    shares = table.loc["femnist", [f"share_of_group_{z}" for z in (2, 3, 4)]]
    assert shares.tolist() == pytest.approx([0.175, 0.75, 0.07], abs=0.06)


def test_shakespeare_model_has_the_published_moments() -> None:
    counts = shakespeare_counts()
    assert counts.dtype == np.int64 and len(counts) == 660
    assert counts.mean() == pytest.approx(SHAKESPEARE_MEAN, abs=0.1)
    assert counts.std() / counts.mean() == pytest.approx(1.16, abs=1e-3)
    assert np.all(np.diff(counts) >= 0) and counts.min() >= 1
    even = shakespeare_counts(variation=1e-9)
    assert even.min() >= 4457 and even.max() <= 4460


def test_frame_is_tidy_and_complete() -> None:
    counts = np.array([[5, 3, 2], [1, 1, 19]])
    frame = simulate_batches(0, counts, 4, 3, setting="tiny")
    assert list(frame.columns) == COLUMNS
    assert frame.groupby("silo")["step"].apply(list).tolist() == [list(range(9)), list(range(18))]
    assert set(frame["setting"]) == {"tiny"} and frame["setting"].dtype == "category"
    assert (frame["items"] == 4).all()
    assert frame["subjects"].between(1, 3).all()
    assert (frame["largest_group"] >= np.ceil(4 / frame["subjects"])).all()
    assert (frame["largest_group"] + frame["subjects"] <= 5).all()


def test_keys_are_apart() -> None:
    twice = np.repeat(femnist_counts(1.0)[:1], 2, axis=0)
    frames = [simulate_batches(seed, twice, 512, 1, setting=name) for seed, name in ((0, "a"), (1, "a"), (0, "b"))]
    drawn = [frame["subjects"][frame["silo"] == silo].tolist() for frame in frames for silo in (0, 1)]
    assert len(set(map(tuple, drawn))) == 6
    pd.testing.assert_frame_equal(frames[0], simulate_batches(0, twice, 512, 1, setting="a"))


def test_paper_scale_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    short = [replace(setting, rounds=1) for setting in paper_settings() if setting.name != "shakespeare"]
    monkeypatch.setattr("subjectdp.data.statistics.paper_settings", lambda: short[:2])
    frame = paper_scale_statistics(0)
    assert list(frame.columns) == COLUMNS
    compared = [f"{name}_{sizes}" for sizes in ("equal", "leaf_spread") for name in ("small_femnist", "femnist")]
    assert frame["setting"].cat.categories.tolist() == ["small_femnist", "femnist", *compared]
    table = summary_table(frame)
    assert table["setting"].tolist() == ["small_femnist", "femnist", *compared]
    assert table["sizes"].tolist() == ["real_writers"] * 2 + ["equal"] * 2 + ["leaf_spread"] * 2
    assert table["mini_batches"].sum() == len(frame)
    shares = table[[f"share_of_group_{size}" for size in range(1, 9)]].sum(axis=1)
    assert shares.tolist() == pytest.approx([1] * 6, abs=0.01)
    assert math.isnan(table["subjects_published"][0]) and table["subjects_published"][1] == 475


@pytest.mark.parametrize("sizes", list(SubjectSizes))
def test_sizes_keep_the_papers_mean(sizes: SubjectSizes) -> None:
    assert (len(IMAGES_OF_WRITERS), sum(IMAGES_OF_WRITERS)) == (180, 27_696), "those of the public output"
    counts = femnist_counts_of(3500, sizes)
    assert counts.dtype == np.int64 and counts.min() >= 1
    assert counts.mean() == pytest.approx(FEMNIST_ITEMS, rel=2e-3)
    variation = {"equal": 0.0, "leaf_spread": 88.94 / 226.83, "real_writers": 0.26}[sizes]
    assert counts.std() / counts.mean() == pytest.approx(variation, abs=0.01)


@pytest.mark.slow
def test_distinct_subjects_at_alpha_16_depend_on_the_sizes() -> None:
    """Exact laws, no draws: equal subjects give 320, real writers' sizes 314, LEAF's spread 309; v1 prints 310."""
    wanted = {"equal": (320.4, 1.0), "real_writers": (313.5, 1.5), "leaf_spread": (309.0, 1.5)}
    assert set(wanted) == set(SubjectSizes)
    for sizes in SubjectSizes:
        rows = silo_counts(0, femnist_counts_of(3500, sizes), alpha=16.0)
        weights = np.ceil(rows.sum(axis=1) / 512)
        each = [exact_subjects(row, 512) for row in rows]
        mean, tolerance = wanted[sizes]
        assert np.average(each, weights=weights) == pytest.approx(mean, abs=tolerance)


def test_given_counts_replace_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting("shakespeare", "shakespeare", 660, 1.0, 100, 1)
    monkeypatch.setattr("subjectdp.data.statistics.paper_settings", lambda: [setting])
    frame = paper_scale_statistics(0, shakespeare_items=np.full(100, 200))
    assert frame["subjects"].max() <= 100
    assert frame.groupby("silo", observed=True)["step"].max().between(10, 14).all()


def test_bad_input() -> None:
    counts = np.array([[5, 5], [2, 3]])
    for batch in (0, 6):
        with pytest.raises(ConfigError, match=f"batch_size to be 1 to 5.*got {batch}"):
            simulate_batches(0, counts, batch, 1)
    with pytest.raises(ConfigError, match="rounds to be at least 1"):
        simulate_batches(0, counts, 2, 0)
