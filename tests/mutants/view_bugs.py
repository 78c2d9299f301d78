"""Planted bugs of several views of an item."""

from __future__ import annotations

from mutants.mutant import mutant

GRADIENTS, STEP, RESIDENT = (
    "training/steps/augmented.py",
    "training/steps/silo_step.py",
    "training/items/device_data.py",
)
CACHE, WARPS = "training/items/feature_cache.py", "training/items/augmentation.py"

T_VIEWS, T_DATA = "algorithms/test_views.py::", "training/items/test_augmentation.py::"
ITEMS = T_VIEWS + "test_clipped_sums_and_norms_are_those_of_the_mean_over_views"
ROUND = T_VIEWS + "test_a_round_is_the_loop_over_items_and_views"
RELEASE = T_VIEWS + "test_a_release_is_the_loop_over_subjects_items_and_views"
MOVED = T_VIEWS + "test_neither_a_subject_nor_an_item_moves_the_sum_by_more_than_without_views"

VIEWS = (
    mutant(
        "each view is clipped as an item of its own",
        GRADIENTS,
        "groups = torch.arange(len(labels) // copies).repeat_interleave(copies)",
        "groups = torch.arange(len(labels))\n"
        "    if weights is not None:\n"
        "        weights = weights.repeat_interleave(copies)\n"
        "        return engine.clipped_sum(inputs, labels, clip_norm, weights)",
        ITEMS,
        MOVED,
    ),
    mutant(
        "each view is clipped on its own, then averaged",
        GRADIENTS,
        "groups = torch.arange(len(labels) // copies).repeat_interleave(copies)",
        "parts = torch.full((len(labels),), 1 / copies)\n"
        "    parts = parts if weights is None else parts * weights.repeat_interleave(copies)\n"
        "    total, norms = engine.clipped_sum(inputs, labels, clip_norm, parts)\n"
        "    return total, norms[::copies]\n"
        "    groups = torch.arange(len(labels) // copies).repeat_interleave(copies)",
        ITEMS,
    ),
    mutant(
        "views are added up where nothing is clipped",
        STEP,
        "return self.engine.gradient_sum(inputs, labels, equal_shares(labels, self._copies))",
        "return self.engine.gradient_sum(inputs, labels)",
        ROUND,
    ),
    mutant(
        "views of a subject's items are added up, not averaged",
        GRADIENTS,
        "return groups.repeat_interleave(copies), weights.repeat_interleave(copies) / copies",
        "return groups.repeat_interleave(copies), weights.repeat_interleave(copies)",
        RELEASE,
    ),
    mutant(
        "views go to other subjects",
        GRADIENTS,
        "return groups.repeat_interleave(copies), weights.repeat_interleave(copies) / copies",
        "return groups.repeat(copies), weights.repeat(copies) / copies",
        RELEASE,
    ),
    mutant(
        "an item's weight goes into its norm",
        GRADIENTS,
        "bounds = torch.where(weights > 0, weights * clip_norm, 0.0)",
        "bounds = torch.full_like(weights, clip_norm)",
        ITEMS,
    ),
    mutant(
        "views count as items",
        STEP,
        "self.statistics = batch_statistics(owners)",
        "self.statistics = batch_statistics(np.repeat(owners, copies))",
        T_VIEWS + "test_everything_is_counted_in_items",
    ),
    mutant(
        "evaluation sees a warped view",
        RESIDENT,
        "return self._computed[0].index_select(0, where), self._targets(where)",
        "return self._computed[-1].index_select(0, where), self._targets(where)",
        T_DATA + "test_features_of_views_are_the_same_to_the_bit_with_without_and_from_the_cache",
    ),
    mutant(
        "all views share one file of features",
        CACHE,
        "other.path = other._path(other._content)",
        "",
        T_DATA + "test_features_of_views_are_the_same_to_the_bit_with_without_and_from_the_cache",
        T_DATA + "test_a_view_has_its_file_by_its_warp_alone",
    ),
    mutant(
        "a warp goes the other way",
        WARPS,
        "@ np.linalg.inv(warp.matrix()).T",
        "@ warp.matrix().T",
        T_DATA + "test_a_warp_is_scipys_affine_map",
    ),
)
