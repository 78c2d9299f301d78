"""Planted bugs of the accountant, and of the facts and the data that it is handed."""

from __future__ import annotations

from mutants.mutant import mutant

EVENTS, SOUND, PLANNING, PLAN = (
    "accounting/events.py",
    "accounting/sound.py",
    "accounting/make_plan.py",
    "plan/plan.py",
)
PUBLISHED, CALIBRATION, TERMS = (
    "accounting/published.py",
    "accounting/calibration.py",
    "accounting/silo_terms.py",
)
SPREAD, SPLITS, PARTITION = "data/spread.py", "data/splits.py", "data/partition.py"

T_EVENTS, T_PLANNING = "accounting/test_events.py::", "accounting/test_make_plan.py::"
T_SPREAD, T_SPLITS = "data/test_partition_spread.py::", "data/test_splits.py::"
SAFE = "accounting/test_safe_side.py::"
T_SILOS, HELD_SILOS = "accounting/test_held_silos.py::", "accounting/held_silos.py"
HELD = T_PLANNING + "test_silos_of_a_subject"
CLAIMED = T_PLANNING + "test_published_noise"

ACCOUNTING = (
    mutant(
        "k off by one",
        EVENTS,
        "return k if unit is PrivacyUnit.SUBJECT else 1",
        "return max(1, k - 1) if unit is PrivacyUnit.SUBJECT else 1",
        T_EVENTS + "test_sensitivities",
    ),
    mutant(
        "sensitivity C instead of 2C where mini-batches are clipped",
        EVENTS,
        "if clipping is Clipping.PER_BATCH:\n        return 2.0",
        "if clipping is Clipping.PER_BATCH:\n        return 1.0",
        T_EVENTS + "test_sensitivities",
    ),
    mutant(
        "a claim without a finite epsilon counts as refuted",
        "scorecard/verdicts.py",
        "    if measured.epsilon_lower > allowed:",
        "    if measured.epsilon_lower > allowed or math.isinf(sound):",
        "scorecard/test_verdicts.py::test_the_rule",
    ),
    mutant(
        "a bound that cannot fail counts as reproduced",
        "scorecard/verdicts.py",
        "measured.high <= 0 and measured.cannot_fail",
        "measured.high < -math.inf and measured.cannot_fail",
        "scorecard/test_verdicts.py::test_the_rule",
    ),
    mutant(
        "targets that repeat others are counted",
        "scorecard/verdicts.py",
        'table[table["counted"].astype(bool)]',
        "table",
        "scorecard/test_scorecard.py::test_what_is_not_run_comes_last_and_every_verdict_is_counted",
    ),
    mutant(
        "own noise alone refutes joint noise",
        "scorecard/table_measures.py",
        'epsilon_lower=float(row["epsilon_lower"]),\n    )\n\n\ndef measure_accounting',
        'epsilon_lower=float(row["epsilon_sound"]),\n    )\n\n\ndef measure_accounting',
        "scorecard/test_scorecard.py::test_a_joint_claim_is_refuted_by_the_counterexample_alone",
    ),
    mutant(
        "every FEMNIST subject has the same number of items",
        "data/statistics.py",
        "sizes: SubjectSizes = SubjectSizes.REAL_WRITERS",
        "sizes: SubjectSizes = SubjectSizes.EQUAL",
        "data/test_statistics.py::test_paper_scale_frame",
    ),
    mutant(
        "UserLDP of v3 without the second condition of Theorem 3.11",
        "accounting/make_plan.py",
        "if mechanism.published_local_bound:",
        "if False:",
        "accounting/test_make_plan.py::test_published_noise",
    ),
    mutant(
        "sensitivity C instead of 2C as local privacy",
        EVENTS,
        "return sampled_gaussian(1.0, 2.0)",
        "return sampled_gaussian(1.0, 1.0)",
        "accounting/test_known_answers.py::test_user_ldp_as_local_privacy",
    ),
    mutant(
        "batches of fixed size are accounted as Poisson batches",
        EVENTS,
        "fixed = sampling is SamplingMethod.FIXED_BATCH_SIZE",
        "fixed = False",
        T_EVENTS + "test_no_neighbour_moves_the_sum_by_more",
    ),
    mutant(
        "a subject is sampled as seldom as an item",
        EVENTS,
        "return float(-np.expm1(items * np.log1p(-sampling_probability)))",
        "return float(sampling_probability)",
        T_EVENTS + "test_subject_sampling_probability",
    ),
    mutant(
        "fixed batches are rounded to no item at all",
        EVENTS,
        "if not 1 <= batch <= items or abs(q * items - batch) > 0.01:",
        "if batch > items:",
        "cli/test_account.py::test_a_fixed_batch_is_a_whole_number_of_items",
    ),
    mutant(
        "a cap of one is invented where none is given",
        PLANNING,
        "max_items_per_subject=int(cap or 0)",
        "max_items_per_subject=int(cap or 1)",
        "cli/test_account.py::test_without_a_cap_a_subject_has_no_epsilon",
    ),
    mutant(
        "a far tail is dropped to the smaller shift",
        EVENTS,
        "values = (*self.sensitivities[:keep], self.sensitivities[-1])",
        "values = (*self.sensitivities[:keep], self.sensitivities[keep])",
        T_EVENTS + "test_trimming_moves_mass_upwards",
    ),
    mutant(
        "equal silos count once",
        EVENTS,
        "counts[key] = counts.get(key, 0) + part.steps",
        "counts[key] = part.steps",
        T_EVENTS + "test_equal_silos_are_merged",
    ),
    mutant(
        "a subject's silos do not add up under one noise",
        EVENTS,
        "values.extend(value + further for further in other.sensitivities)",
        "values.extend(max(value, further) for further in other.sensitivities)",
        T_EVENTS + "test_convolution_by_enumeration",
    ),
    mutant(
        "a bound for each silo instead of all that hold the subject",
        SOUND,
        "for silo in held) for held in choices]",
        "for silo in held[:1]) for held in choices]",
        HELD,
    ),
    mutant(
        "the number of silos of a subject is ignored",
        SOUND,
        "choices = held_silos(silos, plan.silos_per_subject)",
        "choices = held_silos(silos, 1)",
        HELD,
    ),
    mutant(
        "a subject at one silo is charged a silo that does not exist",
        SOUND,
        "choices = held_silos(silos, plan.silos_per_subject)",
        "choices = [(worst_of(silos),) * plan.silos_per_subject]",
        T_SILOS + "test_a_subject_suffers_the_worst_choice_of_silos_and_no_worse",
    ),
    mutant(
        "rounds off by one",
        SOUND,
        "releases(plan, schedule) * rounds)",
        "releases(plan, schedule) * (rounds - 1))",
        "cli/test_account.py::test_account_v3_at_sixteen_silos",
    ),
    mutant(
        "Adam at the silos leaves joint noise in the sum",
        SOUND,
        "return plan.mechanism.noised_after_steps or plan.settings.linear_updates",
        "return True",
        "accounting/test_statements.py::test_joint_noise_under_adam_counts_own_noise",
    ),
    mutant(
        "joint noise counts over several local steps",
        SOUND,
        "return single and sums_noisy_gradients(plan)",
        "return sums_noisy_gradients(plan)",
        T_PLANNING + "test_joint_noise_over_several_steps",
    ),
    mutant(
        "a clipped update moves by C, not 2C",
        EVENTS,
        "own, items, local_steps), 2.0)",
        "own, items, local_steps), 1.0)",
        "accounting/test_joint_terms.py::test_what_an_update_gives_items_and_subjects",
    ),
    mutant(
        "an item is in a round as seldom as in a step",
        EVENTS,
        "return subject_sampling_probability(q, k * steps)",
        "return subject_sampling_probability(q, k)",
        "accounting/test_joint_terms.py::test_a_unit_takes_part_in_an_update_as_often_as_enumeration_says",
    ),
    mutant(
        "a worst silo has the most noise of all",
        HELD_SILOS,
        "noise_multiplier=min(silo.schedule.noise_multiplier for silo in silos)",
        "noise_multiplier=max(silo.schedule.noise_multiplier for silo in silos)",
        T_SILOS + "test_a_worst_silo_is_as_bad_as_each",
    ),
    mutant(
        "Opacus' accountant certifies mixtures in sound mode",
        "plan/rules.py",
        "if settings.accountant in (Accountant.GDP, Accountant.OPACUS):",
        "if settings.accountant in (Accountant.GDP,):",
        "accounting/test_opacus_claims.py::test_it_certifies_nothing_in_sound_mode",
    ),
    mutant(
        "copies of an image are not counted",
        "data/content.py",
        "most = max(most, int(",
        "most = min(most, int(",
        "data/test_content.py::test_copies_of_an_item_within_a_subject_are_counted",
    ),
    mutant(
        "runs of one seed compose as if they shared no coins",
        "accounting/ledger.py",
        "return [_shared_coins(losses) for losses in zip(*found, strict=True)]",
        "return [merged(part for loss in losses for part in loss) for losses in zip(*found, strict=True)]",
        "accounting/test_ledger.py::test_runs_of_one_seed_share_their_coins",
    ),
    mutant(
        "one run of several is counted",
        "accounting/ledger.py",
        "for entry in group]\n    if len(group) == 1:",
        "for entry in group[:1]]\n    if True:",
        "accounting/test_ledger.py::test_runs_without_sampling_compose_to_one_gaussian",
    ),
    mutant(
        "a bound that was read from private data is a guarantee",
        "accounting/statements.py",
        "return CONDITIONAL if rests_on_items and not plan.cap_enforced else True",
        "return True",
        "accounting/test_statements.py::test_an_epsilon_on_a_bound_that_was_read_from_data_is_conditional",
    ),
    mutant(
        "a better silo takes the place of a worse one",
        HELD_SILOS,
        "for used in range(min(copies[kind], count), -1, -1):",
        "for used in (min(copies[kind], count),):",
        T_SILOS + "test_every_choice_has_one_that_is_no_better_in_any_respect",
    ),
    mutant(
        "silos in turn are charged a round too few",
        PLAN,
        "below = -((silo - self.rounds * chosen) // silos)",
        "below = self.rounds * chosen // silos",
        T_SILOS + "test_silos_in_turn_take_part_as_often_as_they_are_charged",
    ),
    mutant(
        "silos drawn at random are charged as silos in turn",
        PLAN,
        "chosen >= silos or self.settings.silo_choice is SiloChoice.RANDOM:",
        "chosen >= silos:",
        T_SILOS + "test_silos_in_turn_need_less_noise_than_silos_drawn_at_random",
    ),
    mutant(
        "a budget is charged its silos' rounds under coins too",
        "accounting/subject_losses.py",
        "if len(shift.sensitivities) > 1:\n        return turns(plan)",
        "if len(shift.sensitivities) > 9:\n        return turns(plan)",
        T_SILOS + "test_a_budget_is_spent_in_the_rounds_of_its_silos",
    ),
    mutant(
        "R/√s rounds in sound mode",
        PLANNING,
        "settings.mode is AccountingMode.AS_PUBLISHED\n        and mechanism",
        "mechanism",
        T_PLANNING + "test_horizontal_rounds",
    ),
    mutant(
        "T off by one",
        PLANNING,
        "steps = math.ceil(items / batch) if",
        "steps = items // batch if",
        T_PLANNING + "test_unequal_silos_have_their_own_noise",
        CLAIMED,
    ),
    mutant(
        "the divisor is one for every silo",
        PLANNING,
        "return 1.0 if rule is DivisorRule.ONE else float(settings.batch_size)",
        "return 1.0",
        T_PLANNING + "test_divisors",
    ),
    mutant(
        "a cap is taken for granted in sound mode",
        "plan/plan.py",
        "return self.claimed_unit is PrivacyUnit.SUBJECT and",
        "return self.claimed_unit is PrivacyUnit.SILO and",
        T_PLANNING + "test_sound_needs_a_cap",
    ),
    mutant(
        "noise that depends on the data passes as sound",
        "plan/rules.py",
        "    if mechanism.data_dependence:\n",
        "    if len(mechanism.data_dependence) > 2:\n",
        T_PLANNING + "test_sound_refuses_data_dependent_noise_and_divisor",
    ),
    mutant(
        "v3's fraction is that of an item",
        PUBLISHED,
        "return min(1.0, schedule.max_items_per_subject * schedule.sampling_probability)",
        "return schedule.sampling_probability",
        CLAIMED,
    ),
    mutant(
        "epsilon and delta change places in the group rule",
        PUBLISHED,
        "return share, math.log(delta) - math.log(size) - (size - 1) * share",
        "return share * math.exp((1 - size) * share), math.log(delta) - math.log(size)",
        SAFE + "test_group_privacy_of_the_groups_target_is_the_target",
    ),
    mutant(
        "the group rule forgets e^((Z-1)ε/Z)",
        PUBLISHED,
        "- math.log(size) - (size - 1) * share",
        "- math.log(size)",
        SAFE + "test_group_privacy_of_the_groups_target_is_the_target",
    ),
    mutant(
        "calibration ends on the unsafe side",
        CALIBRATION,
        "_ENOUGH * self.epsilon <= reached <= self.epsilon:",
        "_ENOUGH * self.epsilon <= reached <= self.epsilon / _ENOUGH**9:",
        SAFE + "test_a_guess_on_the_unsafe_side_is_not_taken",
    ),
    mutant(
        "noise that colluding silos know counts",
        TERMS,
        "others = participants - 1 - colluding_silos",
        "others = participants - 1",
        "accounting/test_joint_terms.py::test_honest_but_curious_silos_cost_the_root_of_n_over_n_minus_1",
    ),
)

TAILS = (
    mutant(
        "the tail's share of delta is spent twice",
        "accounting/capped.py",
        "return bound(parts, delta - missed)",
        "return bound(parts, delta)",
        "accounting/test_capped.py::test_the_bound_spends_delta_once",
    ),
    mutant(
        "the tail of one step stands for that of all",
        "accounting/capped.py",
        "log_kept += part.steps * math.log1p(-missed)",
        "log_kept += math.log1p(-missed)",
        "accounting/test_capped.py::test_the_chance_that_any_step_exceeds_its_cap",
    ),
)

DATA = (
    mutant(
        "the cap lets one item more through",
        SPREAD,
        "by_silo[rank < cap]",
        "by_silo[rank <= cap]",
        T_SPREAD + "test_cap_keeps_as_much_as_it_may",
    ),
    mutant(
        "a subject may be at any number of silos",
        SPREAD,
        "settings.silos if settings.silos_per_subject is None else settings.silos_per_subject",
        "settings.silos",
        T_SPREAD + "test_silos_per_subject_bounds_the_silos_of_each_subject",
    ),
    mutant(
        "validation items are trained on",
        SPLITS,
        "np.split(order, [n_fit, n_train])",
        "(order[:n_train], order[n_fit:n_train], order[n_train:])",
        T_SPLITS + "test_image_splits_are_a_partition_of_each_subject",
    ),
    mutant(
        "test windows share characters with train windows",
        SPLITS,
        "test = np.maximum(0, test - (WINDOW - 1))",
        "test = np.maximum(0, test - (WINDOW - 2))",
        T_SPLITS + "test_text_splits_are_leafs_with_a_gap_each",
    ),
    mutant(
        "a maximum that was seen passes as a cap",
        PARTITION,
        "cap_enforced=cap is not None",
        "cap_enforced=True",
        "data/test_partition.py::test_federation_facts_carry_the_enforced_bounds",
    ),
    mutant(
        "the silos that were seen pass as a bound",
        PARTITION,
        'silos_per_subject=facts["silos_per_subject_limit"]',
        'silos_per_subject=facts["most_silos_of_a_subject"]',
        "data/test_partition_bounds.py::test_silos_of_a_subject_are_bounded_by_the_settings_not_by_what_is_seen",
    ),
)
