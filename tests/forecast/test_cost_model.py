"""The work of runs by their configuration."""

import pytest

from forecast.runs import PAPER, SHAKESPEARE, run_of
from subjectdp.forecast.cost_model import expected_items, forecast_seconds, work_of
from subjectdp.models.catalogue import MODELS


def test_work_counts_every_step_and_every_evaluation():
    run = run_of(training={"rounds": 3, "batch_size": 10, "evaluate_every": 2})
    work = work_of(run, silo_items=[25, 40], evaluated=100)
    assert work.steps == 3 * (3 + 4) * 4 / 2, "two silos stand for the four of the configuration"
    assert work.train_items == work.steps * 10
    assert work.evaluated_items == 2 * 100, "after round 2, and after the last"
    shorter = work_of(run, silo_items=[25, 40], evaluated=100, rounds=1)
    assert shorter.steps * 3 == work.steps


def test_a_part_of_the_silos_and_of_the_evaluation_costs_a_part():
    whole, part = run_of(), run_of(training={"silos_per_round": 1, "evaluation_items": 3})
    assert work_of(part).steps * 4 == work_of(whole).steps
    assert work_of(part).evaluated_items == 2 * 3 * part.training.rounds


def test_a_forecast_counts_the_rounds_that_are_run():
    """As published, HiGradAvgDP runs floor(100/√16) = 25 rounds of 100; made sound it runs them all."""

    def seconds(mode: str, rounds: int) -> float:
        changes = {"partition": {"silos": 16, "max_items_per_subject": 50}, "training": {"rounds": rounds}}
        return forecast_seconds(run_of(algorithm={"name": "higrad_avg_dp"}, privacy={"mode": mode}, **changes))

    assert pytest.approx(seconds("sound", 25)) == seconds("as_published", 100) < seconds("sound", 100)


def test_expected_items_are_those_of_the_papers():
    items = expected_items(PAPER)
    assert items.subjects == 3500
    assert items.train / items.subjects == pytest.approx(145, rel=0.005)
    text = expected_items(SHAKESPEARE)
    assert text.subjects == 660
    assert text.train == pytest.approx(3678452 * 0.8, rel=1e-6)


def test_training_costs_three_passes_and_an_evaluation_one():
    run = run_of(training={"rounds": 3, "batch_size": 10})
    work, flops = work_of(run), MODELS[str(run.model.name)].forward_flops
    assert work.operations == flops * (3 * work.train_items + work.evaluated_items)
