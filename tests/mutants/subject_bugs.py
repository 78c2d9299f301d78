"""Planted bugs of sampled subjects, budgets over silos, predicted noise."""

from __future__ import annotations

from mutants.mutant import mutant

WEIGHTS = "noise/subject_weights.py"
SAMPLER, STEP = "sampling/batches.py", "training/silo_step.py"
UPDATES, PLANS = "training/subject_updates.py", "accounting/make_plan.py"
LOSSES, EVENTS = "accounting/sound.py", "accounting/events.py"

T_WEIGHTS = "noise/test_subject_weights.py::"
T_SAMPLER, T_PLANS = "sampling/test_subjects.py::", "accounting/test_subject_plans.py::"
T_RELEASE = "algorithms/test_subject_release.py::"
ROUND, COINS = (
    T_RELEASE + "test_a_round_is_the_float64_loop",
    T_RELEASE + "test_coins_are_shared_by_all_silos_of_a_release_and_by_no_others",
)
CONFORMS = "auditing/test_conformance.py::test_an_algorithm_does_what_its_plan_says"
NOT_FINITE = T_RELEASE + "test_sums_of_subjects_with_items_that_are_not_numbers_stay_bounded"

SUBJECTS = (
    mutant(
        "local budgets are used where only the sum is seen",
        WEIGHTS,
        "squared = trust is TrustModel.LOCAL",
        "squared = True",
        T_WEIGHTS + "test_the_budget_is_used_where_a_silo_holds_the_subject",
    ),
    mutant(
        "every silo clips a subject to the whole clip norm",
        WEIGHTS,
        "weights: Weights = np.divide(shares, scale, out=np.zeros_like(shares), where=held)",
        "weights: Weights = held.astype(np.float64)",
        T_WEIGHTS + "test_values_of_the_simple_rules",
    ),
    mutant(
        "weights beyond the budget are believed",
        WEIGHTS,
        "and np.all(used <= 1 + 1e-12)",
        "and np.all(used < np.inf)",
        T_WEIGHTS + "test_weights_beyond_the_budget_are_refused",
    ),
    mutant(
        "clip norms are rounded to nearest",
        WEIGHTS,
        "return np.where(above, np.nextafter(near, np.float32(0.0)), near).astype(np.float32)",
        "return near",
        T_WEIGHTS + "test_no_subject_has_more_than_its_budget_to_the_bit",
    ),
    mutant(
        "weights depend on all subjects",
        WEIGHTS,
        "shares = (counts if rule is BudgetWeights.PROPORTIONAL else held).astype(np.float64)",
        "shares = ((counts + counts.mean()) * held if rule is BudgetWeights.PROPORTIONAL else held).astype(np.float64)",
        T_WEIGHTS + "test_a_subject_decides_over_nobody_elses_weights",
    ),
    mutant(
        "a subject's coin is more likely than planned",
        SAMPLER,
        "coins.random(subjects) < probability",
        "coins.random(subjects) < min(1.0, 1.1 * probability)",
        T_SAMPLER + "test_every_subset_has_its_poisson_probability",
    ),
    mutant(
        "every round tosses the same coins",
        SAMPLER,
        "Purpose.SUBJECT_SAMPLING, round_, *place)",
        "Purpose.SUBJECT_SAMPLING, *place)",
        T_SAMPLER + "test_a_round_has_coins_of_its_own_and_so_has_a_place",
    ),
    mutant(
        "a subject brings more items than it may",
        SAMPLER,
        "order[rank < most]",
        "order[rank <= most]",
        T_SAMPLER + "test_at_most_so_many_items_of_each_subject",
    ),
    mutant(
        "a subject always brings its first items",
        SAMPLER,
        "order = np.lexsort((numbers, owners[positions]))",
        "order = np.lexsort((positions, owners[positions]))",
        T_SAMPLER + "test_the_kept_items_of_a_subject_are_a_uniform_subset",
    ),
    mutant(
        "silos of one release toss coins of their own",
        STEP,
        "*(() if self.plan.mechanism.shared_budget else (self.silo, self.step)),",
        "*(self.silo, self.step),",
        COINS,
    ),
    mutant(
        "all silos and steps of sampled subjects share a coin",
        STEP,
        "*(() if self.plan.mechanism.shared_budget else (self.silo, self.step)),",
        "",
        COINS,
    ),
    mutant(
        "a subject's gradient is its sum, not its mean",
        STEP,
        "weights = (1.0 / counts)[places].astype(np.float32)",
        "weights = np.ones(len(places), np.float32)",
        ROUND,
    ),
    mutant(
        "items are clipped before their subject's mean",
        STEP,
        "total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, clip_norms, weights, groups)",
        "item_norms = clip_norms[groups]\n"
        "        total, norms = self.engine.clipped_sum(batch.inputs, batch.labels, item_norms, weights)\n"
        "        clip_norms = item_norms",
        ROUND,
    ),
    mutant(
        "a subject's budget is forgotten in training",
        STEP,
        "to_device(self.federation.subject_clip_norms[self.silo, subjects], self.federation.device)",
        "to_device(self.federation.subject_clip_norms.max(0)[subjects] * 3, self.federation.device)",
        CONFORMS,
    ),
    mutant(
        "a subject's update is not clipped",
        UPDATES,
        "return kept * torch.where(finite, clip_factors(norms, clip_norms), 0.0)[:, None]",
        "return kept",
        CONFORMS,
    ),
    mutant(
        "places that no item of a subject fills count",
        UPDATES,
        "weights[items] * counted.to(device)",
        "weights[items]",
        T_RELEASE + "test_subjects_that_train_at_once_are_those_that_train_alone",
    ),
    mutant(
        "a subject's update that is not finite is released",
        UPDATES,
        "finite = torch.isfinite(norms)",
        "finite = torch.ones_like(norms, dtype=torch.bool)",
        NOT_FINITE,
    ),
    mutant(
        "an item is taken for a whole subject",
        EVENTS,
        "return sampled_gaussian(q) if unit is PrivacyUnit.SUBJECT else Turned.by(q, 2.0)",
        "return sampled_gaussian(q, 1.0)",
        T_PLANS + "test_an_item_may_turn_its_subject_around",
    ),
    mutant(
        "subjects are accounted with half their probability",
        EVENTS,
        "return sampled_gaussian(q) if unit is PrivacyUnit.SUBJECT else Turned.by(q, 2.0)",
        "return sampled_gaussian(q / 2) if unit is PrivacyUnit.SUBJECT else Turned.by(q, 2.0)",
        T_PLANS + "test_subsampled_releases_are_dp_accountings_and_below_opacus",
    ),
    mutant(
        "a subject's other silos keep their parts when it leaves one",
        LOSSES,
        "elif unit is PrivacyUnit.SUBJECT and not every_silo and plan.silos_per_subject > 1:",
        "elif False:",
        CONFORMS,
    ),
    mutant(
        "predicted noise passes for the run's own",
        PLANS,
        "return replace(plan, silos=tuple(silos), prediction=Prediction(wanted, present, full))",
        "return replace(plan, silos=tuple(silos))",
        T_PLANS + "test_predicted_noise_is_that_of_the_average_of_more_subjects",
    ),
    mutant(
        "the ε of predicted noise is the target's",
        "accounting/sound.py",
        "return budget_losses(plan, unit,",
        "from subjectdp.accounting.make_plan import predicted_plan\n\n"
        "        plan = predicted_plan(plan) or plan\n"
        "        return budget_losses(plan, unit,",
        T_PLANS + "test_predicted_noise_is_that_of_the_average_of_more_subjects",
    ),
    mutant(
        "the divisor is what the silo holds of subjects",
        PLANS,
        "divisor = max(1.0, whole) / len(facts.items)",
        "divisor = float(facts.subjects[silo])",
        T_PLANS + "test_noise_on_the_average_gradient",
    ),
    mutant(
        "predicted runs are averaged with the others",
        "results/collect.py",
        '"label": label if predicted is None else predicted_label',
        '"label": label if predicted is None or predicted else predicted_label',
        "figures/test_predicted.py::test_the_index_of_runs_names_the_subjects_and_their_epsilon",
    ),
    mutant(
        "ULDP-FL divides by silos",
        "algorithms/uldp_fl.py",
        "vector_sum(updates) / server.divisor",
        "vector_sum(updates) / server.silo_count",
        "algorithms/test_uldp_fl.py::test_a_round_is_the_float64_loop",
    ),
    mutant(
        "a statement on each silo's own noise names the wrong observer",
        "accounting/statements.py",
        "OBSERVERS[TrustModel.LOCAL if sound.own_noise_alone(plan) else plan.mechanism.trust]",
        "OBSERVERS[plan.mechanism.trust]",
        "algorithms/test_uldp_fl.py::test_the_noise_of_silos_that_tell_it_does_not_count",
    ),
    mutant(
        "who is honest is not read by a release under secure aggregation",
        "algorithms/subject_release.py",
        '"subject", "joint.colluding_silos", "joint.own_noise_only")',
        '"subject")',
        T_PLANS + "test_the_noise_of_silos_that_tell_it_does_not_count",
    ),
    mutant(
        "keys that an algorithm does not read are dropped",
        "config/run.py",
        "[*unread, *_problems(read)]",
        "[*_problems(read)]",
        "config/test_unread_keys.py::test_a_key_that_is_not_read_is_refused",
    ),
    mutant(
        "an item is charged one part of its subject's budget under any weights",
        LOSSES,
        "and settings.subject.weights is BudgetWeights.FIXED",
        "",
        T_PLANS + "test_an_item_may_turn_its_subject_around",
    ),
)
