"""The vectorised worst case is the training loop's own step: same mini-batch and noise, same release.

A worst-case subject for the training loop's own code: one parameter, one gradient an item, known to the test.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from algorithms import tiny
from auditing.generated_setup import partition_of
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.conformance import _KnownGradient
from subjectdp.auditing.suite import divisor_leak, divisor_separation, noise_level_leak
from subjectdp.auditing.vector import (
    SERVER,
    UPDATE,
    MinibatchDistribution,
    VectorBatch,
    VectorFederation,
    VectorStep,
    World,
    check_auditable,
)
from subjectdp.errors import PrivacyError
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.plan.plan import (
    AccountingMode,
    DivisorRule,
    Horizontal,
    Mechanism,
    NoiseDistribution,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloSchedule,
)
from subjectdp.sampling import StepKey, batch_statistics, sample_items
from subjectdp.training import silo_step
from subjectdp.training.federation import Federation

SILOS, OTHERS, ITEMS, CANARY_ITEMS, CLIP = 3, 12, 3, 4, 0.7
SILO_ITEMS = OTHERS * ITEMS + CANARY_ITEMS
CANARY = OTHERS  # the canary's subject index


def plan(name: str, variant: str | None, mode: AccountingMode, noise: float = 1.3, q: float = 0.15) -> PrivacyPlan:
    """A plan by hand, equal silos, one step a round."""
    return plan_of(algorithm(name, variant).mechanism(variant, mode), noise, q)


def plan_of(mechanism: Mechanism, noise: float = 1.3, q: float = 0.15) -> PrivacyPlan:
    batch_size = max(1, round(q * SILO_ITEMS))
    settings = PlanSettings(mechanism.mode, Horizontal.SOUND, SamplingMethod.POISSON, 4.0, 1e-5, CLIP, 1, 1, batch_size)
    divisor = {DivisorRule.ONE: 1.0, DivisorRule.EXPECTED_SUBJECTS: 4.5}.get(mechanism.divisor_rule, 6.0)
    silo = SiloSchedule(SILO_ITEMS, OTHERS + 1, q, CANARY_ITEMS, 1, noise, divisor)
    grouped = mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
    table = tuple(tuple(noise * z for z in range(1, CANARY_ITEMS + 1)) for _ in range(SILOS)) if grouped else ()
    return PrivacyPlan(mechanism, settings, 1, (silo,) * SILOS, SILOS, True, table)


def real_run(plan: PrivacyPlan, others: float, seed: int = 5) -> tiny.TinyRun:
    """The real federation at work: the canary's items have a huge gradient at every silo, all others ``others``."""
    subjects = np.tile(np.append(np.repeat(np.arange(OTHERS), ITEMS), [CANARY] * CANARY_ITEMS), (SILOS, 1))
    gradients = torch.where(torch.from_numpy(subjects).flatten() == CANARY, 1e6, others).float()
    items = tiny.TinyData(-gradients.unsqueeze(1), torch.ones(len(gradients), dtype=torch.int64))
    return tiny.tiny_run(plan, partition_of(subjects), _KnownGradient(1), seed, "worst", items, rate=1.0)


def update_plan(steps: int, unit: PrivacyUnit = PrivacyUnit.SUBJECT, q: float = 0.05) -> PrivacyPlan:
    """A plan by hand whose updates of some local steps are clipped and noised once, read for a unit."""
    mechanism = algorithm("joint_noise").of_updates
    assert mechanism is not None
    made = plan_of(replace(mechanism, claimed_unit=unit), q=q)
    return replace(made, silos=tuple(replace(silo, steps_per_round=steps) for silo in made.silos))


def same_batch(real: Any) -> VectorBatch:
    """The vector batch of one run that holds what the real mini-batch holds."""
    schedule = SiloSchedule(SILO_ITEMS, OTHERS + 1, 0.15, CANARY_ITEMS, 1, 1.0, 1.0)
    batch = VectorBatch(MinibatchDistribution(schedule, SamplingMethod.POISSON, CANARY_ITEMS), 1, torch.Generator())
    batch.canary = torch.tensor([float((real.owners == CANARY).sum())])
    batch.__dict__["subjects"] = torch.tensor([float(real.subjects)])
    batch.__dict__["largest_group"] = torch.tensor([real.largest_group])
    batch.__dict__["others_present"] = torch.tensor([bool((real.owners != CANARY).any())])
    return batch


PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND
LOCAL = [("local_item_dp", None, PUBLISHED), ("user_ldp", None, SOUND), ("higrad_avg_dp", "v1", PUBLISHED)]
LOCAL += [("local_group_dp", None, mode) for mode in AccountingMode]
LOCAL += [("higrad_avg_dp", "v3", mode) for mode in AccountingMode]


def twin(real: Federation, round_: int, silo: int, batches: dict[Any, Any], step: int = 0) -> VectorStep:
    """The vector step that sees the mini-batch of the real one and its noise: a normal number for its one parameter."""
    key = key_bytes(real.seed, Purpose.NOISE, real.noise_name, round_, silo, step)
    noise = float(add_gaussian(torch.zeros(1), 1.0, key))
    return VectorStep(real.plan, silo, lambda: same_batch(batches[silo, step]), lambda total, std: total + std * noise)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant", "mode"), LOCAL)
def test_local_steps_are_equal(name: str, variant: str | None, mode: AccountingMode) -> None:
    real = real_run(plan(name, variant, mode), others=-50.0 if name == "user_ldp" else 0.0)
    local_step = real.federation.rule.local_step
    # training clips to a 2^-18th less than C, which nothing divides where a whole mini-batch is clipped
    margin = 1e-6 + (CLIP * 2.0**-18 if name == "user_ldp" else 0.0)
    seen = set()
    for round_ in range(1, 40):
        step = real.step(round_, 0, 0)
        batch = step.sample_batch()
        expected = local_step(step)
        result = local_step(twin(real.federation, round_, 0, {(0, 0): batch}))
        torch.testing.assert_close(result, expected, rtol=2e-5, atol=margin)
        seen.add(int((batch.owners == batch.owners.max()).sum()))
    assert len(seen) > 2, "mini-batches with different counts were compared"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executed", "update"),
    [
        (plan("central_sub_dp", "v0", SOUND), False),
        (plan("joint_noise", None, SOUND), False),
        (update_plan(1), True),
        (update_plan(4), True),
    ],
    ids=["central", "joint", "updates of a step", "updates of four"],
)
def test_rounds_are_equal(executed: PrivacyPlan, update: bool) -> None:
    """A round on one run of the worst case and in training: same mini-batches, noise and model."""
    real = real_run(executed, others=-50.0 if update else 0.0)
    audited, steps, drawn = algorithm(executed.mechanism.algorithm), executed.silos[0].steps_per_round, set()
    for round_ in range(1, 20):
        places = [(silo, step) for silo in range(SILOS) for step in range(steps)]
        batches = {place: real.step(round_, *place).sample_batch() for place in places}
        drawn.add(sum(any(CANARY in batches[i, t].owners for t in range(steps)) for i in range(SILOS)))
        before = real.theta.clone()
        real.run_round(round_)

        class Twin(VectorFederation):
            def step(self, round_: int, silo: int, step: int) -> VectorStep:
                return twin(real.federation, round_, silo, batches, step if update else 0)  # noqa: B023

        released = Twin(audited, executed, World(0, "twin", True, 1)).aggregated(round_)
        torch.testing.assert_close(released, before - real.theta, rtol=1e-4, atol=1e-5)
        real.theta.zero_()
        real.federation.engine.flat.load(real.theta)
    assert len(drawn) > 2, "rounds in which different numbers of silos draw the canary were compared"
    assert (SERVER, UPDATE) == (-1, silo_step.UPDATE)


def release_of_updates(unit: PrivacyUnit, present: bool, q: float = 0.05) -> torch.Tensor:
    """(2000,) the sum of a round's updates of 4 steps in units of C, without noise."""
    quiet = update_plan(4, unit, q)
    quiet = replace(quiet, silos=tuple(replace(silo, noise_multiplier=0.0) for silo in quiet.silos))
    audited = VectorFederation(algorithm("joint_noise"), quiet, World(0, "sum", present, 2000))
    ((kind, release),) = list(audited.releases())
    assert kind == 0
    return release


@pytest.mark.parametrize(
    ("unit", "turned"),
    [
        (PrivacyUnit.SILO, {1: 1.0}),
        (PrivacyUnit.ITEM, {0: 0.6561, 1: 0.3439}),  # 0.9^4
        # k = 4 items at each of 3 silos, p = 1 - 0.9^16 = 0.8147 a silo
        (PrivacyUnit.SUBJECT, {0: 0.00636, 1: 0.08392, 2: 0.36894, 3: 0.54078}),
    ],
)
def test_a_unit_turns_as_many_updates_around_as_draw_it(unit: PrivacyUnit, turned: dict[int, float]) -> None:
    """Absent: every silo's update is -C. Present: +C at the silos whose steps draw the unit (worked out by hand)."""
    absent = release_of_updates(unit, False, 0.1)
    torch.testing.assert_close(absent, torch.full_like(absent, -float(SILOS)))
    counts = (release_of_updates(unit, True, 0.1) + SILOS) / 2
    torch.testing.assert_close(counts, counts.round(), rtol=0, atol=1e-4)
    for count in range(SILOS + 1):
        share, expected = float((counts.round() == count).float().mean()), turned.get(count, 0.0)
        assert share == pytest.approx(expected, abs=4.5 * (expected * (1 - expected) / 2000) ** 0.5)


def test_releases_are_scaled_to_the_sum() -> None:
    """Without noise the release counts what the canary adds, in units of C, for LOCAL and for summed releases."""
    for name, variant, mode in (("local_group_dp", None, SOUND), ("central_sub_dp", "v0", SOUND)):
        quiet = plan(name, variant, mode, noise=0.0, q=0.999999)
        runs = VectorFederation(algorithm(name, variant), quiet, World(0, "scale", True, 50)).releases()
        totals = [float(release.median()) for _, release in runs]
        summed = name == "central_sub_dp"
        assert totals == pytest.approx([CANARY_ITEMS * SILOS] if summed else [CANARY_ITEMS] * SILOS, rel=1e-5)
    assert CLIP != 1.0


def real_batches(schedule: SiloSchedule, owners: np.ndarray, draws: int) -> np.ndarray:
    """(draws, 3): canary's items, distinct other subjects, largest other group, from the real sampler."""
    rows = []
    for step in range(draws):
        chosen = owners[sample_items(len(owners), schedule, SamplingMethod.POISSON, 1, StepKey(1, 1, 0, step))]
        others = batch_statistics(chosen[chosen != 0])
        rows.append(((chosen == 0).sum(), others.subjects, others.largest_group))
    return np.array(rows)


@pytest.mark.slow
def test_batch_law_is_the_samplers() -> None:
    sizes = [5] + [3] * 10 + [4] * 5  # the canary, then the others
    owners = np.repeat(np.arange(len(sizes)), sizes)
    schedule = SiloSchedule(len(owners), len(sizes), 0.2, 5, 1, 1.0, 1.0)
    real = real_batches(schedule, owners, 6000)
    law = MinibatchDistribution(schedule, SamplingMethod.POISSON, 5)
    assert law.other_sizes == {3: 10, 4: 5}
    generator = torch.Generator().manual_seed(3)
    absent = MinibatchDistribution(schedule, SamplingMethod.POISSON, 5, present=False)
    batch, others = (VectorBatch(each, 60_000, generator) for each in (law, absent))
    drawn = np.stack([each.numpy() for each in (batch.canary, others.subjects, others.largest_group)], axis=1)
    for column in range(3):
        values = np.unique(real[:, column])
        counts = np.array([[(t[:, column] == v).sum() for v in values] for t in (real, drawn)])
        common = counts[:, counts.min(axis=0) >= 5]
        assert stats.chi2_contingency(common).pvalue > 1e-3
    assert absent.other_sizes == law.other_sizes
    replaced = MinibatchDistribution(schedule, SamplingMethod.POISSON, 5, present=False, replaced=True)
    assert replaced.other_items == len(owners) and replaced.canary_items == 0
    assert not others.canary.any()


def test_what_the_worst_case_does_not_run_is_refused() -> None:
    fine = plan("joint_noise", None, SOUND)
    check_auditable(fine)
    check_auditable(update_plan(5))
    silo, settings = fine.silos[0], fine.settings
    refused = [
        (plan("fed_avg", None, SOUND), "no noise"),
        (replace(fine, settings=replace(settings, noise_distribution=NoiseDistribution.SKELLAM)), "integer noise"),
        (replace(fine, settings=replace(settings, silos_per_round=2)), "silos of a round"),
        (replace(fine, silos=(replace(silo, steps_per_round=2),)), "several local steps"),
        (plan("central_sub_dp", "v0", PUBLISHED), "average at the server"),
    ]
    for wrong, message in refused:
        with pytest.raises(PrivacyError, match=message):
            VectorFederation(algorithm(wrong.mechanism.algorithm), wrong, World(0, "x", True, 4))


@pytest.mark.parametrize(("size", "expected"), [(10_000, 0.30), (100_000, 0.94), (1_000_000, 2.97), (6_603_710, 7.64)])
def test_separation_of_divisors_by_numbers_of_parameters(size: int, expected: float) -> None:
    assert divisor_separation(475, size) == pytest.approx(expected, abs=0.02)


def test_divisor_leak_grows_with_the_model() -> None:
    small, large = (divisor_leak(475, parameters, 20_000, 1e-5, 0) for parameters in (10_000, 6_603_710))
    assert small.epsilon < 1 and large.epsilon > 7
    assert large.true_positive_rate > 0.999 and large.false_positive_rate < 0.001


def test_group_noise_tells_who_is_there() -> None:
    leaky = plan("local_group_dp", None, PUBLISHED)
    found = noise_level_leak(leaky, 1000, 1, 400, 0)
    low = stats.binom.sf(1, 4, 0.15)  # the canary has 2 items or more in the mini-batch
    assert found.true_positive_rate > low, "others have groups as well here"
