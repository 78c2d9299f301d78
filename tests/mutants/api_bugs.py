"""Planted bugs of the public API: the private loop, its noise and draws, and the counts."""

from __future__ import annotations

from mutants.mutant import mutant

ENGINE, STEP, LOADER = "api/engine.py", "api/private_step.py", "api/loader.py"
T_ENGINE, T_COUNTS = "api/test_engine.py::", "api/test_counts.py::"

API = (
    mutant(
        "the private optimiser's noise forgets the clip norm",
        ENGINE,
        "std = silo.noise_multiplier * self.plan.settings.clip_norm",
        "std = silo.noise_multiplier * min(0.28, self.plan.settings.clip_norm)",
        T_ENGINE + "test_noise_has_the_variance_that_is_accounted_and_a_wrong_one_is_seen",
    ),
    mutant(
        "a second backward pass counts every item twice",
        STEP,
        "draw is None or tape is None or self._used",
        "draw is None or tape is None",
        T_ENGINE + "test_no_other_order_releases_anything",
    ),
    mutant(
        "the padding of an empty mini-batch is trained on",
        LOADER,
        "Grouping.of_items(1), [0.0], last=True",
        "Grouping.of_items(1), [1.0], last=True",
        T_ENGINE + "test_an_empty_mini_batch_is_a_step_with_noise_and_nothing_else",
    ),
    mutant(
        "every loss of one linear layer is taken for cross-entropy",
        "engine/clipping.py",
        "one_linear and item_loss is cross_entropy",
        "one_linear",
        T_ENGINE + "test_clip_sum_of_any_loss",
    ),
    mutant(
        "steps beyond the planned ones are made",
        ENGINE,
        "if planned is not None and self._steps >= planned:",
        "if planned is not None and self._steps > planned:",
        T_ENGINE + "test_noise_for_a_target_and_no_step_more",
    ),
    mutant(
        "counts are accounted as capped and left as they are",
        "api/counts.py",
        "np.minimum(rows[:, 2], most)",
        "np.maximum(rows[:, 2], 0)",
        T_COUNTS + "test_a_cap_drops_the_surplus",
    ),
)
