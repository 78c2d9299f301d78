"""Planted bugs of the public API: the private loop, its noise and draws, and the counts."""

from __future__ import annotations

from mutants.mutant import mutant

ENGINE, STEP, LOADER = "api/engine.py", "api/private_step.py", "api/loader.py"
CLIPPING = "engine/clipping.py"
T_ENGINE, T_COUNTS = "api/test_engine.py::", "api/test_counts.py::"
T_LOOP, T_PROBE = "api/test_own_loop.py::", "engine/test_probe.py::"

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
        "own is None or self._released or self._batch is None",
        "own is None or self._batch is None",
        T_ENGINE + "test_no_other_order_releases_anything",
    ),
    mutant(
        "the padding of an empty mini-batch is trained on",
        LOADER,
        "(part,), [0.0])",
        "(part,), [1.0])",
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
    mutant(
        "a layer that does not run hands out memory that nobody wrote",
        "engine/layers/base.py",
        "        for name in self._unwritten:\n            self._views[name].zero_()",
        "        self._unwritten.clear()",
        T_PROBE + "test_models_whose_layers_share_a_gradient_or_do_not_run",
    ),
    mutant(
        "a gradient that two layers share is scaled in place",
        "engine/layers/dense.py",
        "(self.delta * coefficients.items.view(-1, 1, 1)).flatten(0, 1)",
        "self.delta.mul_(coefficients.items.view(-1, 1, 1)).flatten(0, 1)",
        T_PROBE + "test_models_whose_layers_share_a_gradient_or_do_not_run",
    ),
    mutant(
        "models are not tried in training mode",
        "engine/probe.py",
        "        _check_among_copies(model, item_loss, inputs, targets)\n    return unused",
        "    return unused",
        T_PROBE + "test_models_that_mix_items_are_refused",
    ),
    mutant(
        "a layer may see another dimension than the batch's",
        CLIPPING,
        "given[0].shape[place] != items",
        "given[0].shape[place] < 0",
        T_PROBE + "test_a_first_dimension_that_is_not_the_batch",
    ),
    mutant(
        "the factor of the loss is dropped",
        STEP,
        "losses = ctx.losses[0] * gradients[0]",
        "losses = ctx.losses[0]",
        T_LOOP + "test_factors_and_terms_without_items_are_honoured",
    ),
    mutant(
        "a factor may depend on the items",
        STEP,
        "elif name not in _OF_THE_GRAPH:",
        "elif name in ():",
        T_LOOP + "test_factors_and_terms_that_read_items_are_refused",
    ),
    mutant(
        "another term of the loss may read the outputs",
        "engine/layers/base.py",
        'raise PrivacyError(\n            "Expected a model in private training',
        'str(\n            "Expected a model in private training',
        T_LOOP + "test_what_would_not_be_private_is_refused",
    ),
    mutant(
        "the loop may change what it loaded",
        STEP,
        "        if given is loaded:\n            return",
        "        if given is not None:\n            return",
        T_LOOP + "test_what_would_not_be_private_is_refused",
    ),
    mutant(
        "steps before a checkpoint was loaded again are forgotten",
        ENGINE,
        'self._steps = max(self._steps, int(state["steps"]))',
        'self._steps = int(state["steps"])',
        T_LOOP + "test_a_checkpoint_loaded_again_uses_no_draw_twice_and_forgets_no_step",
    ),
    mutant(
        "an older iterator goes on",
        LOADER,
        "if own != self._live:",
        "if own < 0:",
        T_LOOP + "test_two_live_iterators",
    ),
    mutant(
        "a forked engine makes its parent's noise",
        ENGINE,
        "if os.getpid() != self._process:",
        "if self._process < 0:",
        T_LOOP + "test_a_forked_engine_is_refused",
    ),
    mutant(
        "a missing name is a person",
        "data/names.py",
        "if missing or name.casefold() in MISSING:",
        "if not name:",
        T_LOOP + "test_an_item_of_nobody_is_refused",
    ),
    mutant(
        "1 and 1.0 are two people",
        "data/names.py",
        "return whole[1] if whole else name",
        "return name",
        T_LOOP + "test_one_person_has_one_name",
    ),
    mutant(
        "the coin of a subject is not that of the settings",
        ENGINE,
        "return wanted / subjects",
        "return wanted / (subjects + 1)",
        T_LOOP + "test_where_subjects_are_drawn_the_number_of_items_sets_nothing",
    ),
)
