"""What privacy costs on a convex loss: the papers' bounds, and the excess loss of the same algorithms measured.

The columns of the two tables stand here, for readers without torch.
"""

EMPIRICAL, POPULATION = "empirical", "population"
EXCESS_COLUMNS = (
    *("dataset", "synthetic", "algorithm", "label", "theorem", "seed"),  # algorithm: name or name:variant
    "quantity",  # empirical: on the training items; population: on the test items
    "steps",  # t: the average of the first t iterates is scored
    *("loss", "optimum", "excess"),  # nats; optimum: a certified lower bound on the least loss in the ball
    "excess_at_start",  # nats: of w_1 = 0, before the first step
    *("bound", "bound_printed"),  # nats: with the noise that was added; as printed, NaN except at the last step
    "last",  # whether t is the last step
    *("subjects", "items", "batch_size"),
    *("parameters", "radius", "learning_rate"),  # d, M and η
    "noise_std",  # root mean square of the noise on a step's gradient, each coordinate
    "epsilon",
)
"""Columns of utility.parquet: one row an algorithm, seed, quantity and number of steps."""

SCENARIO, PAPERS = "scenario", "papers"
"""Schedules: the run's own rounds and local steps, or the papers' 100 rounds of 50 steps."""

NOISE_COLUMNS = (
    *("dataset", "synthetic", "algorithm", "label"),  # algorithm: name or name:variant
    *("unit", "schedule", "rounds", "local_steps"),  # unit: of privacy that the noise was calibrated for
    "sampling_probability",  # of an item or a subject, mean over the silos
    *("epsilon", "delta", "clip_norm"),
    *("subjects", "predicted_subjects"),  # of the run; NaN: the noise is for the run's own subjects
    *("planned", "measured"),  # std of the noise on the averaged gradient, in clip norms: by the plan, from two rounds
    "coordinates",  # that the measurement averages over
)
"""Columns of noise.parquet: one row an algorithm and schedule."""
