"""Planted bugs of sampling, clipping, noise and the training loop."""

from __future__ import annotations

from mutants.mutant import mutant

BATCHES, KEYS, NOISE = "sampling/batches.py", "noise/keys.py", "noise/gaussian.py"
LOOP, STEP = "training/rounds.py", "training/steps/silo_step.py"
FEDERATION = "training/federation.py"
CLIPPING, PLAN = "engine/clipping.py", "plan/plan.py"
SKELLAM, RING = "noise/skellam.py", "noise/secure_sum.py"

T_BATCHES, T_NOISE = "sampling/test_batches.py::", "noise/test_gaussian.py::"
T_NORMALS, NORMALS = "noise/test_normals.py::", "noise/normals.py"
T_GROUPS = "engine/test_groups.py::"
T_CLIP, MOVED = "engine/test_clipping.py::", "algorithms/test_sensitivity.py::"
ROUND = "algorithms/test_rules.py::test_a_round_is_the_papers_round"
AMOUNT = "algorithms/test_noise_placement.py::test_noise_on_the_model_has_the_stated_standard_deviation"
NEVER_SHARED = "algorithms/test_equivalences.py::test_rounds_steps_and_silos_never_share_noise"
SECRETS = "training/test_secret.py::"
GROUPS = "algorithms/test_noise_placement.py::test_published_group_noise_grows_with_the_largest_group"

SAMPLING = (
    mutant(
        "a mini-batch is cut to the expected size",
        BATCHES,
        "size = int(generator.binomial(n_items, probability))",
        "size = min(int(generator.binomial(n_items, probability)), round(n_items * probability))",
        T_BATCHES + "test_batch_size_is_binomial_at_full_scale",
    ),
    mutant(
        "batches of fixed size pose as Poisson batches",
        BATCHES,
        "size = int(generator.binomial(n_items, probability))",
        "size = round(n_items * probability)",
        T_BATCHES + "test_every_subset_has_its_poisson_probability",
    ),
    mutant(
        "an empty mini-batch is filled with an item",
        BATCHES,
        "size = int(generator.binomial(n_items, probability))",
        "size = max(1, int(generator.binomial(n_items, probability)))",
        T_BATCHES + "test_poisson_batches_can_be_empty_and_are_so_as_often_as_they_should",
    ),
    mutant(
        "the sampler takes items with a probability of its own",
        BATCHES,
        "probability = plan_silo.sampling_probability",
        "probability = min(1.0, 1.1 * plan_silo.sampling_probability)",
        T_BATCHES + "test_inclusion_probability_of_each_item_over_steps",
    ),
    mutant(
        "every step of a round draws the same mini-batch",
        BATCHES,
        "Purpose.ITEM_SAMPLING, key.round_, key.silo, key.step)",
        "Purpose.ITEM_SAMPLING, key.round_, key.silo)",
        T_BATCHES + "test_no_batch_repeats_in_a_whole_run",
    ),
    mutant(
        "the same silos take part in every round",
        BATCHES,
        "Purpose.SILO_SAMPLING, round_)",
        "Purpose.SILO_SAMPLING)",
        T_BATCHES + "test_every_set_of_silos_is_equally_likely",
    ),
    mutant(
        "the largest group is the mean group",
        BATCHES,
        "int(sizes.max())",
        "int(round(sizes.mean()))",
        T_BATCHES + "test_statistics_of_special_batches",
    ),
    mutant(
        "seed 0 counts as unset",
        KEYS,
        "str(int(root_seed))",
        "str(int(root_seed or 1))",
        T_NOISE + "test_the_same_key_gives_the_same_bits_and_seed_zero_is_a_seed",
    ),
    mutant(
        "the seed is ignored",
        KEYS,
        "str(int(root_seed))",
        'str("0")',
        "algorithms/test_equivalences.py::test_a_round_is_reproducible_and_seeds_differ",
    ),
    mutant(
        "sampling and noise share their randomness",
        KEYS,
        "str(int(root_seed)), purpose.value,",
        "str(int(root_seed)),",
        "noise/test_keys.py::test_no_two_purposes_share_a_key",
    ),
    mutant(
        "a random generator is seeded with 32 bits",
        NOISE,
        "np.frombuffer(key, dtype",
        "np.frombuffer(key[:4] * 8, dtype",
        T_NOISE + "test_keys_that_share_their_first_64_bits_still_differ",
    ),
)

NOISE_AND_CLIPPING = (
    mutant(
        "the variance for the standard deviation",
        NOISE,
        "numbers.dtype.type(std)",
        "numbers.dtype.type(std * std)",
        T_NOISE + "test_noise_has_the_planned_law",
    ),
    mutant(
        "tails of the noise are cut off",
        NORMALS,
        "if radii.min() < uint32(_RARE):",
        "if radii.min() < uint32(0):",
        T_NORMALS + "test_a_draw_takes_its_rare_radii_from_the_tail",
    ),
    mutant(
        "two noise multipliers share their noise",
        "training/federation.py",
        "content = [run_id, facts, partition.facts",
        "content = [run_id, partition.facts",
        "algorithms/test_equivalences.py::test_releases_of_different_mechanisms_never_share_noise",
    ),
    mutant(
        "all silos draw the same noise",
        STEP,
        "return self.federation.noise_name, round_, self.silo, self.step",
        "return self.federation.noise_name, round_, self.step",
        NEVER_SHARED,
    ),
    mutant(
        "every round repeats the noise of the first",
        STEP,
        "return self.federation.noise_name, round_, self.silo, self.step",
        "return self.federation.noise_name, self.silo, self.step",
        NEVER_SHARED,
    ),
    mutant(
        "all steps of a round reuse one noise key",
        STEP,
        "return self.federation.noise_name, round_, self.silo, self.step",
        "return self.federation.noise_name, round_, self.silo, 0",
        NEVER_SHARED,
    ),
    mutant(
        "algorithms of one seed share their noise",
        FEDERATION,
        "content = [run_id, facts, partition.facts, partition.data_hashes, code, rounding]",
        "content = [run_id, partition.facts, partition.data_hashes]",
        NEVER_SHARED,
    ),
    mutant(
        "sums that are rounded in another way share their noise",
        FEDERATION,
        "partition.data_hashes, code, rounding]",
        "partition.data_hashes, code]",
        "algorithms/test_equivalences.py::test_sums_that_are_rounded_in_another_way_share_no_noise",
    ),
    mutant(
        "secure noise is drawn from the seed",
        "training/build.py",
        "seed=run.seed if inputs.secret is None else inputs.secret,",
        "seed=run.seed,",
        SECRETS + "test_two_runs_of_one_configuration_share_no_noise",
    ),
    mutant(
        "everybody may read the secret of a run",
        "training/record/secret.py",
        "_OWNER_ALONE = 0o600",
        "_OWNER_ALONE = 0o644",
        SECRETS + "test_no_file_of_a_finished_run_holds_the_secret",
    ),
    mutant(
        "a checkpoint goes on with another secret",
        "training/record/secret.py",
        "shutil.rmtree(checkpoints, ignore_errors=True)",
        "(checkpoints / SECRET).unlink(missing_ok=True)",
        SECRETS + "test_a_checkpoint_without_its_secret_is_not_continued",
    ),
    mutant(
        "secure noise is one draw",
        NOISE,
        "DRAWS = 4",
        "DRAWS = 1",
        T_NOISE + "test_a_secure_draw_is_more_than_one_float32_number",
    ),
    mutant(
        "secure noise shows the last digits of the sum",
        NOISE,
        "noisy.div_(grid).round_().mul_(grid)",
        "noisy",
        T_NOISE + "test_secure_noise_leaves_no_trace_of_the_sum_in_the_last_digits",
    ),
    mutant(
        "runs of one seed share their noise",
        FEDERATION,
        "content = [run_id, facts",
        "content = [facts",
        "algorithms/test_equivalences.py::test_runs_of_one_seed_never_share_noise",
    ),
    mutant(
        "the noise is the same with and without a subject",
        FEDERATION,
        "content = [run_id, facts, partition.facts, partition.data_hashes, code, rounding]",
        "content = [run_id, facts, code]",
        "algorithms/test_equivalences.py::test_runs_of_one_seed_never_share_noise",
    ),
    mutant(
        "noise is dropped on the last of several steps",
        STEP,
        "0.0 if noise_multiplier == 0.0 else",
        "0.0 if noise_multiplier == 0.0 or 0 < self.step == self.plan.silos[0].steps_per_round - 1 else",
        NEVER_SHARED,
    ),
    mutant(
        "the noise forgets the clip norm",
        STEP,
        "else noise_multiplier * self._clip_norm()",
        "else noise_multiplier",
        AMOUNT,
    ),
    mutant(
        "an empty mini-batch is skipped without noise",
        STEP,
        "return self._noisy(total, self._std(noise_multiplier))",
        "if not self._statistics.items and self.silo != SERVER:\n"
        "            return total\n"
        "        return self._noisy(total, self._std(noise_multiplier))",
        "algorithms/test_noise_placement.py::test_an_empty_batch_is_still_a_step_with_noise",
    ),
    mutant(
        "a trusted server divides its noise among the silos",
        LOOP,
        "return step.add_noise(total, self._federation.plan.silos[0].noise_multiplier)",
        "return step.add_noise(total, self._federation.plan.silos[0].noise_multiplier / self.silo_count)",
        AMOUNT,
    ),
    mutant(
        "the divisor is the size of the drawn mini-batch",
        STEP,
        "return self.plan.silos[self.silo].divisor",
        "return float(max(1, batch.items))",
        ROUND,
    ),
    mutant(
        "items are not clipped",
        STEP,
        "total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, clip_norm, weights)",
        'total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, float("inf"), weights)',
        MOVED + "test_a_subject_moves_the_sums_by_no_more_than_the_plan_states",
    ),
    mutant(
        "the norm of a long vector is torch's",
        "engine/norms.py",
        "while rows.shape[1] > _PIECE:",
        "while False:",
        "engine/test_norms.py::test_norms_are_right_within_the_engines_margin",
        "engine/test_norms.py::test_updates_of_silos_and_subjects_are_clipped_to_the_clip_norm",
    ),
    mutant(
        "whole mini-batches are not clipped",
        STEP,
        "return vector * clip_factors(norm, clip_norm)",
        "return vector",
        MOVED + "test_another_silos_data_move_user_ldps_release_by_at_most_twice_the_clip_norm",
    ),
    mutant(
        "a step too many a round",
        LOOP,
        "for number in range(schedule.steps_per_round):",
        "for number in range(schedule.steps_per_round + 1):",
        ROUND,
    ),
    mutant(
        "HiGradAvgDP ignores whose item it is",
        STEP,
        "counts[inverse].astype(np.float32)",
        "np.ones(len(inverse), np.float32)",
        MOVED + "test_a_subject_moves_the_sums_by_no_more_than_the_plan_states",
    ),
    mutant(
        "the noise follows the mean group, not the largest",
        STEP,
        "self.plan.noise_multiplier(self.silo, batch.largest_group)",
        "self.plan.noise_multiplier(self.silo, round(batch.items / max(1, batch.subjects)))",
        GROUPS,
    ),
    mutant(
        "the noise of the next smaller group",
        PLAN,
        "return table[size - 1]",
        "return table[max(0, size - 2)]",
        GROUPS,
    ),
    mutant(
        "all silos take part where some are asked for",
        LOOP,
        "silos_of_round(all_silos, settings, federation.seed, round_).tolist()",
        "list(range(all_silos))",
        "training/test_run.py::test_some_of_the_silos",
    ),
    mutant(
        "the noise stands after the division",
        "algorithms/local_item_dp.py",
        "noisy = step.add_noise(total, step.noise_multiplier(batch))\n    return noisy.div_(step.divisor(batch))",
        "return step.add_noise(total / step.divisor(batch), step.noise_multiplier(batch))",
        AMOUNT,
    ),
    mutant(
        "the mean is clipped instead of each item",
        "algorithms/local_item_dp.py",
        "total = step.clipped_sum(batch)",
        "total = step.clip(step.gradient_sum(batch) / max(1, batch.items)) * batch.items",
        MOVED + "test_an_item_moves_the_sum_by_no_more_than_the_plan_states",
    ),
    mutant(
        "UserLDP clips its noise as well",
        "algorithms/user_ldp.py",
        "clipped = step.clip(mean)  # line 7\n    return step.add_noise(clipped, step.noise_multiplier(batch))",
        "return step.clip(step.add_noise(mean, step.noise_multiplier(batch)))",
        AMOUNT,
    ),
    mutant(
        "HiGradAvgDP v3 divides by the drawn subjects in sound mode",
        "algorithms/higrad_avg_dp.py",
        "DivisorRule.EXPECTED_SUBJECTS",
        "DivisorRule.REALISED_SUBJECTS",
        "algorithms/test_declarations.py::test_what_the_algorithms_declare",
    ),
    mutant(
        "HiGradAvgDP v3 claims the sampling fraction of an item",
        "algorithms/higrad_avg_dp.py",
        "published_sampling=PublishedSampling.SUBJECT_UNION_BOUND",
        "published_sampling=PublishedSampling.ITEM",
        "algorithms/test_declarations.py::test_what_the_algorithms_declare",
    ),
    mutant(
        "layers that mix items are trusted",
        CLIPPING,
        "        _refuse_mixing(flat.model)\n",
        "",
        T_CLIP + "test_batch_norm_is_refused",
        T_CLIP + "test_batch_norm_without_parameters_is_refused_too",
    ),
    mutant(
        "inputs that were written over are taken for those that a layer saw",
        CLIPPING,
        "                taped.check_unchanged(name)\n",
        "",
        T_CLIP + "test_inputs_that_are_changed_in_place_are_refused",
    ),
    mutant(
        "short gradients are stretched to the clip norm",
        "engine/norms.py",
        ".clamp_min_(1e-30)).clamp_(max=1.0)",
        ".clamp_min_(1e-30))",
        T_CLIP + "test_clipped_sum_is_that_of_the_float64_loop",
    ),
    mutant(
        "the label is left out of a linear model's gradient",
        "engine/linear_models.py",
        "gradients.new_full((len(labels), 1), -1.0)",
        "gradients.new_full((len(labels), 1), 0.0)",
        T_CLIP + "test_clipped_sum_is_that_of_the_float64_loop",
        T_CLIP + "test_gradient_sum_is_that_of_the_float64_loop",
    ),
    mutant(
        "what a model does after its linear layer is forgotten",
        "engine/linear_models.py",
        "logits is output and output._version == 0",
        "True",
        T_CLIP + "test_clipped_sum_is_that_of_the_float64_loop",
        T_CLIP + "test_gradient_sum_is_that_of_the_float64_loop",
    ),
    mutant(
        "each layer is clipped by the norm of the largest",
        CLIPPING,
        "total = summed(squares)",
        "total = Squares(torch.stack([square.values for square in squares]).amax(0))",
        T_CLIP + "test_clipped_sum_is_that_of_the_float64_loop",
    ),
    mutant(
        "a gradient that is not a number poisons the sum",
        CLIPPING,
        "bad = ~torch.isfinite(bounds)",
        "bad = torch.zeros_like(bounds, dtype=torch.bool)",
        T_CLIP + "test_an_item_that_is_not_finite_contributes_nothing",
    ),
    mutant(
        "items beyond the physical batch are dropped",
        CLIPPING,
        "parts, count = item_parts(items, self",
        "parts, count = item_parts(min(items, self.physical_batch_size), self",
        T_GROUPS + "test_items_beyond_the_capacity_take_another_pass",
    ),
    mutant(
        "a subject's items are clipped one by one",
        CLIPPING,
        "parts = group_parts(numbers, self",
        "parts = item_parts(items, self",
        T_GROUPS + "test_clipped_groups_are_those_of_the_float64_loop",
    ),
    mutant(
        "rounding of norms from products is not counted",
        "engine/layers/base.py",
        "GRAM_ROUNDING = 2.0**-21",
        "GRAM_ROUNDING = 0.0",
        T_GROUPS + "test_gradients_that_almost_cancel_are_not_taken_for_short_ones",
    ),
    mutant(
        "half the variance of integer noise",
        SKELLAM,
        "noise = generator.poisson(variance / 2.0, size)\n    noise -= generator.poisson(variance / 2.0, size)",
        "noise = generator.poisson(variance / 4.0, size)\n    noise -= generator.poisson(variance / 4.0, size)",
        "noise/test_skellam.py::test_noise_is_skellam",
    ),
    mutant(
        "integer noise is sized before rounding",
        SKELLAM,
        "return rounded_l2_bound(self.scaled_norm, self.dimension, self.condition)",
        "return self.scaled_norm",
        "algorithms/test_joint_noise.py::test_coarse_integers_carry_the_noise_that_their_rounding_needs",
    ),
    mutant(
        "the secure sum forgets the modulus",
        RING,
        "residues = self.residues(part)\n"
        "            total = residues if total is None else np.mod(total + residues, self.modulus)",
        "total = part if total is None else total + part",
        "noise/test_secure_sum.py::test_wrapping_around_is_arithmetic_modulo_m",
    ),
    mutant(
        "the ring is a bit too small",
        RING,
        "needed = bound.bit_length() + 1",
        "needed = bound.bit_length()",
        "noise/test_secure_sum.py::test_the_chosen_ring_is_the_smallest_that_holds_the_bound",
    ),
    mutant(
        "an update is noised without being clipped",
        "training/steps/silo_step.py",
        "clipped = self.clip(update)",
        "clipped = update",
        "algorithms/test_joint_updates.py::test_a_round_is_the_float64_loop",
    ),
    mutant(
        "an update that is not finite is released",
        "training/steps/silo_step.py",
        "vector = torch.where(norm.isfinite(), vector, 0.0)",
        "vector = vector + 0.0",
        "algorithms/test_joint_updates.py::test_an_update_that_is_not_finite_contributes_nothing",
    ),
)
