"""Figures that cannot be drawn are found before anything is trained."""

from pathlib import Path
from typing import Any

import pytest

from subjectdp.config import Scenario, load_scenario_from_mapping
from subjectdp.errors import ConfigError
from subjectdp.figures.catalogue import FIGURES, entry
from subjectdp.forecast.before_start import (
    check_before_start,
    partly_drawn_figures,
    undrawable_figures,
    unread_variables,
)

CLIP_NORMS = {"algorithm": ["fed_avg", "local_item_dp"], "privacy.clip_norm": [0.1, 0.2, 1, 2, 3, 4, 5], "seed": [0, 1]}


def scenario_of(sweep: dict[str, Any], *figures: str, **more: Any) -> Scenario:
    run = {"data": {"dataset": "femnist"}, "training": {"batch_size": 16}}
    return load_scenario_from_mapping({"name": "some", "run": run, "sweep": [sweep], "figures": [*figures], **more})


def test_more_values_of_a_key_than_a_figure_shows_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        check_before_start(scenario_of(CLIP_NORMS, "figure1", "partition", "cost"))
    assert str(caught.value) == (
        "The figure figure1 cannot be drawn. Expected runs of LocalItemDP with seed 0 to be one: choose it "
        "(`selections`), or leave the figure out, got '7 that differ in privacy.clip_norm'."
    )


def test_a_selection_makes_the_figure_drawable() -> None:
    selections = {"figure1": {"privacy.clip_norm": 0.2}}
    assert not [*undrawable_figures(scenario_of(CLIP_NORMS, "figure1", selections=selections))]
    assert len([*undrawable_figures(scenario_of(CLIP_NORMS, "figure1", "privacy", selections=selections))]) == 1


@pytest.mark.parametrize(
    ("key", "values", "undrawable"),
    [
        ("seed", [0, 1], {"figure2"}),
        ("partition.alpha", [1, 4], set()),
        ("privacy.epsilon", [1, 4], {"figure2"}),
        ("training.local_steps", [1, 2], {"figure2"}),
        ("privacy.clip_norm", [0.1, 0.2], {"figure2"}),
        ("privacy.clip_norm", [0.1, 0.2, 1, 2, 3, 4, 5], {"figure1", "figure2", "privacy", "accuracy_privacy"}),
    ],
)
def test_a_figure_is_refused_only_for_what_it_neither_shows_nor_chooses(
    key: str, values: list[Any], undrawable: set[str]
) -> None:
    sweep = {"algorithm": ["local_item_dp", "higrad_avg_dp:v3"], "partition.distribution": "power", key: values}
    problems = undrawable_figures(scenario_of(sweep, "figure1", "figure2", "privacy", "accuracy_privacy", "cost"))
    assert {line.split()[2] for line in problems} == undrawable


def test_a_figure_that_leaves_settings_out_says_so_before_training() -> None:
    epsilons: dict[str, Any] = {"algorithm": ["fed_avg", "local_item_dp"], "privacy.epsilon": [*range(1, 9)]}
    assert not [*partly_drawn_figures(scenario_of({**epsilons, "privacy.epsilon": [1, 2]}, "figure1"))]
    (told,) = partly_drawn_figures(scenario_of(epsilons, "figure1", "cost"))
    assert told.startswith(
        "The figure figure1 leaves runs out: FEMNIST: only ε = 4 shown (at most 6 settings side by side)."
    )
    assert "selections: {figure1-LABEL: {KEY: VALUES}}" in told


def test_a_figure_may_be_drawn_again_with_a_selection_of_its_own() -> None:
    selections = {"figure1": {"privacy.clip_norm": 0.1}, "figure1-large": {"privacy.clip_norm": [4, 5]}}
    scenario = scenario_of(CLIP_NORMS, "figure1", "figure1-large", selections=selections)
    assert not [*undrawable_figures(scenario)]
    norms = {run.privacy.clip_norm for run in scenario.runs_of_figure("figure1-large")}
    assert norms == {1.0, 4.0, 5.0}, "FedAvg has 1"
    assert entry("figure1-large").title.endswith("(large)") and entry("figure1-large").name == "figure1"


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        (["figure1-Large"], "Expected the label of figure1 in figures to be lower case letters, digits and _"),
        (["figur1-large"], "Unknown figure in figures 'figur1'. Did you mean 'figure1'?"),
    ],
)
def test_a_label_or_figure_that_is_none_is_refused(figures: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario_of(CLIP_NORMS, *figures)
    assert str(caught.value).startswith(told)


def test_a_variable_that_nothing_reads_is_named(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("run: {data: {path: '${SUBJECTDP_MY_DATA:-data}'}}\n")
    known = ("SUBJECTDP_MY_DATA", "SUBJECTDP_CONTAINER")
    (told,) = unread_variables([scenario], dict.fromkeys([*known, "SUBJECTDP_MY_DATE"], "x"))
    assert told.startswith("Nothing reads the variable SUBJECTDP_MY_DATE. Did you mean 'SUBJECTDP_MY_DATA'?")


def test_a_paper_s_figure_needs_an_algorithm_that_it_shows() -> None:
    (problem,) = undrawable_figures(scenario_of({"algorithm": "fed_avg"}, "privacy"))
    assert "at least one with noise" in problem


def test_every_figure_of_runs_says_which_it_shows_or_chooses_itself() -> None:
    chooses = {name for name, entry in FIGURES.items() if entry.shown is None and "runs" in entry.needs}
    chosen = {name for name in FIGURES if name.startswith(("beyond_", "joint_")) and "runs" in FIGURES[name].needs}
    assert chooses == {"cost", *chosen}
