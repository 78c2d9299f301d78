"""The block ``private_selection``: what it draws, and what it refuses."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import stats

from subjectdp.config import load_scenario_from_mapping
from subjectdp.config.private_selection import RepetitionsConfig, draw_number
from subjectdp.config.scenario import Scenario, load_scenario_from_layers
from subjectdp.errors import ConfigError

RUN = {
    "algorithm": "subject_release",
    "privacy": {"mode": "sound", "epsilon": 2.0},
    "partition": {"silos": 4},
}
BLOCK = {
    "candidates": {"privacy.clip_norm": [0.1, 0.2], "training.optimizer.learning_rate": [1.0, 2.0, 3.0]},
    "epsilon": 4.0,
}


def content(
    block: dict[str, Any] | None = None, run: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "name": "test",
        "run": {**RUN, **(run or {})},
        "private_selection": {**BLOCK, **(block or {})},
        **more,
    }


def scenario(block: dict[str, Any] | None = None, **more: Any) -> Scenario:
    return load_scenario_from_mapping(content(block, **more))


def test_runs_of_the_sweep_become_repetitions_with_seeds_of_their_own() -> None:
    made = scenario(sweep=[{"seed": list(range(40))}])
    groups = made.selection_groups
    assert len(groups) == 40 and sum(len(group.runs) for group in groups) == len(made.runs)
    assert len({run.seed for run in made.runs}) == len(made.runs)
    for group in groups:
        assert [run.seed for run in group.runs] == [
            1000 * (group.run.seed + 1) + n for n in range(len(group.runs))
        ]
        assert len(group.candidates) == 6
        for given, run in zip(group.drawn, group.runs, strict=True):
            assert given["privacy.clip_norm"] == run.privacy.clip_norm
            assert given["training.optimizer.learning_rate"] == run.training.optimizer.learning_rate
    drawn = Counter(tuple(given.values()) for group in groups for given in group.drawn)
    assert len(drawn) == 6 and 2.2 < len(made.runs) / 40 < 3.9


def test_the_seed_of_the_selection_decides_the_draw() -> None:
    sweep = [{"seed": list(range(5))}]
    first, again, other = (scenario({"seed": seed}, sweep=sweep).selection_groups for seed in (1, 1, 2))
    assert [group.drawn for group in first] == [group.drawn for group in again]
    assert [group.drawn for group in first] != [group.drawn for group in other]


@pytest.mark.parametrize("mean", [1.5, 3.0, 12.0])
def test_numbers_have_the_distribution_that_is_accounted_for(mean: float) -> None:
    """Against scipy, with γ as dp-accounting finds it."""
    points, numbers = (np.arange(500) + 0.5) / 500, np.arange(1, 2000)
    for name, shape in (("geometric", 1.0), ("logarithmic", 0.0)):
        repetitions = RepetitionsConfig(distribution=name, mean=mean)  # type: ignore[arg-type]
        gamma = rdp_privacy_accountant._gamma_truncated_negative_binomial(shape, mean)
        law = stats.geom(gamma) if shape else stats.logser(1 - gamma)
        quantiles = np.searchsorted(np.cumsum(law.pmf(numbers)), points, side="right") + 1
        drawn = [draw_number(repetitions, point) for point in points]
        assert np.mean(drawn == quantiles) >= 0.996
        assert draw_number(RepetitionsConfig(distribution=name, mean=1.0), 0.999999) == 1  # type: ignore[arg-type]
    poisson = [draw_number(RepetitionsConfig(mean=mean), point) for point in points]
    assert poisson == stats.poisson(mean).ppf(points).tolist()


@pytest.mark.parametrize(
    ("block", "run", "words"),
    [
        ({"candidates": {"privacy.epsilon": [1, 2]}}, {}, "private_selection.candidates.privacy.epsilon"),
        ({"candidates": {"partition.alpha": [1, 2]}}, {}, "private_selection.candidates.partition.alpha"),
        ({"candidates": {"training.optimizer.rate": [1]}}, {}, "candidates.training.optimizer.rate"),
        ({"candidates": {"privacy.clip_norm": []}}, {}, "at least one value"),
        ({"repetitions": {"mean": 0.5}}, {}, "private_selection.repetitions.mean"),
        ({"epsilon": -1}, {}, "private_selection.epsilon"),
        ({}, {"algorithm": "fed_avg"}, "algorithm.name"),
        ({}, {"algorithm": "local_item_dp", "privacy": {"mode": "as_published"}}, "privacy.mode"),
        ({}, {"privacy": {**RUN["privacy"], "noise_source": "secure"}}, "privacy.noise_source"),  # type: ignore[dict-item]
        ({}, {"privacy": {**RUN["privacy"], "predicted_subjects": 99999}}, "privacy.predicted_subjects"),  # type: ignore[dict-item]
    ],
)
def test_refused(block: dict[str, Any], run: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _ = scenario(block, run=run).runs


def test_a_draw_of_no_repetitions_is_told() -> None:
    nothing = next(
        seed
        for seed in range(200)
        if draw_is_empty({"seed": seed, "repetitions": {"distribution": "poisson", "mean": 1.0}})
    )
    with pytest.raises(ConfigError, match="repetitions drawn"):
        _ = scenario({"seed": nothing, "repetitions": {"mean": 1.0}}).runs


def draw_is_empty(block: dict[str, Any]) -> bool:
    try:
        return not scenario(block).runs
    except ConfigError:
        return True


def test_an_overlay_may_not_give_all_repetitions_one_seed() -> None:
    with pytest.raises(ConfigError, match="seed"):
        _ = load_scenario_from_layers([content(sweep=[{"seed": [1]}]), {"run": {"seed": 5}}]).runs


def test_other_scenarios_are_as_before() -> None:
    plain = load_scenario_from_mapping({"name": "test", "run": RUN})
    assert (
        plain.selection_groups == () and len(plain.runs) == 1 and math.isfinite(plain.runs[0].privacy.epsilon)
    )
