"""The columns of utility.parquet, for readers without torch."""

from __future__ import annotations

EMPIRICAL, POPULATION = "empirical", "population"
COLUMNS = (
    "dataset",
    "synthetic",
    "algorithm",  # name or name:variant
    "label",
    "theorem",
    "seed",
    "quantity",  # empirical: on the training items; population: on the test items
    "steps",  # t: the average of the first t iterates is scored
    "loss",  # nats
    "optimum",  # nats: a certified lower bound on the least loss in the ball
    "excess",  # nats: loss - optimum
    "excess_at_start",  # nats: of w_1 = 0, before the first step
    "bound",  # nats, with the noise that was added
    "bound_printed",  # nats, the theorem as printed; NaN except at the last step
    "last",  # whether t is the last step
    "subjects",
    "items",
    "batch_size",
    "parameters",  # d
    "radius",  # M
    "learning_rate",  # η
    "noise_std",  # root mean square of the noise on a step's gradient, each coordinate
    "epsilon",
)
"""Columns of utility.parquet: one row an algorithm, seed, quantity and number of steps."""
