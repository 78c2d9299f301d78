"""What privacy costs on a convex loss: the papers' bounds, and the excess loss of the same algorithms measured.

The columns of the two tables stand here, for readers without torch.
"""

from __future__ import annotations

EMPIRICAL, POPULATION = "empirical", "population"
EXCESS_COLUMNS = (
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

SCENARIO, PAPERS = "scenario", "papers"
"""Schedules: the run's own rounds and local steps, or the papers' 100 rounds of 50 steps."""

NOISE_COLUMNS = (
    "dataset",
    "synthetic",
    "algorithm",  # name or name:variant
    "label",
    "unit",  # of privacy that the noise was calibrated for
    "schedule",
    "rounds",
    "local_steps",
    "sampling_probability",  # of an item or a subject, mean over the silos
    "epsilon",
    "delta",
    "clip_norm",
    "subjects",  # of the run
    "predicted_subjects",  # NaN: the noise is for the run's own subjects
    "planned",  # std of the noise on the averaged gradient, in clip norms, by the plan
    "measured",  # the same, from two rounds of the run that differ only in the noise
    "coordinates",  # that the measurement averages over
)
"""Columns of noise.parquet: one row an algorithm and schedule."""
