"""Joint noise: S local steps, integer noise through secure aggregation, whole updates, fused steps."""

import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from accounting import plans
from algorithms import tiny
from algorithms.reference import Reference
from subjectdp.accounting import published, sound
from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, sampled_gaussian
from subjectdp.accounting.make_plan import make_plan, plan_from_dict
from subjectdp.accounting.statements import privacy_statements
from subjectdp.algorithms import joint_noise
from subjectdp.algorithms.joint_noise import ALGORITHM
from subjectdp.auditing.lower_bounds import counts_epsilon
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import DataError, PrivacyError
from subjectdp.noise.skellam import Grid, modular_sum, rounded_l2_bound
from subjectdp.plan.plan import AccountingMode, NoiseDistribution, PrivacyPlan, PrivacyUnit
from subjectdp.training import rounds
from subjectdp.training.silo_step import UPDATE, rounded_sum

pytestmark = pytest.mark.slow

PUBLISHED = AccountingMode.AS_PUBLISHED
SIZE = sum(p.numel() for p in tiny.WIDE.parameters())
LONG, SHORT = 0.02, 50.0  # clip norms that cut every update, and none


def joint_plan(steps: int = 1, noise: float = 0.0, bits: int | None = None) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, PUBLISHED, steps, noise)
    if bits is None:
        return plan
    skellam = replace(plan.settings, noise_distribution=NoiseDistribution.SKELLAM, gradient_bits=bits)
    return replace(plan, settings=skellam)


def silo_average(plan: PrivacyPlan) -> Tensor:
    """Float64 loop with each silo's number of fused steps, no noise."""
    reference = Reference()

    def local_model(silo: int) -> Tensor:
        terms = plan.silos[silo]
        limit = tiny.CLIP / terms.fused_steps
        return reference.descended(
            silo, terms.local_steps, lambda *given: reference.item_sum(*given, limit) / tiny.BATCH
        )

    return torch.stack([local_model(silo) for silo in range(len(plan.silos))]).mean(0)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_round_of_integer_steps_is_the_papers_round(steps: int) -> None:
    plan = joint_plan(steps, 0.0, 18)
    assert torch.allclose(tiny.after_a_round(plan), silo_average(plan), atol=1e-5)


def test_the_integer_sum_has_the_noise_of_all_silos() -> None:
    """Variance γ²/(NB)² Σ_i (C σ_i)², the appendix's formula; not of σ x 0.8 or x 1.25."""
    std = tiny.RATE / tiny.BATCH / 3 * math.sqrt(3) * 2.0 * tiny.CLIP
    noise = tiny.noise_of_a_round(joint_plan(1, 2.0, 18))
    assert [tiny.fits(noise, std * factor) for factor in (0.8, 1.0, 1.25)] == [False, True, False]


def test_coarse_integers_carry_the_noise_that_their_rounding_needs() -> None:
    """At 6 bits the rounded sensitivity is well above the clip norm, and the noise with it."""
    bits, sigma = 6, 2.0
    inflation = rounded_l2_bound(2.0**bits, SIZE) / 2.0**bits
    assert inflation > 1.2
    std = tiny.RATE * sigma * tiny.CLIP * inflation / tiny.BATCH / math.sqrt(3)
    noise = tiny.noise_of_a_round(joint_plan(1, sigma, bits))
    assert tiny.fits(noise, std) and not tiny.fits(noise, std / inflation)


def test_updates_are_whole_multiples_of_the_unit_and_reproducible() -> None:
    run = tiny.tiny_run(joint_plan(3, 1.5, 8))
    before = run.theta.clone()
    run.run_round(tiny.ROUND)
    integers = (run.theta - before).double() * 3 / run.federation.unit
    assert float((integers - integers.round()).abs().max()) < 0.05
    assert float(integers.abs().max()) > 100
    assert torch.equal(tiny.after_a_round(joint_plan(3, 1.5, 8)), run.theta.double())
    assert [row.noise_multiplier for row in run.rows] == [1.5] * 9


def test_an_item_moves_the_sum_on_the_grid_by_no_more_than_the_rounded_bound() -> None:
    """The last item comes and goes, the others' roundings stay what they are."""
    engine = ClippingEngine(FlatParameters(tiny.LINEAR))
    grid = Grid.of_bits(3, tiny.CLIP, engine.flat.size)
    ratios = []
    for seed in range(300):
        draws = torch.Generator().manual_seed(seed)
        inputs = torch.randn(4, tiny.FEATURES, generator=draws) * 10 ** (2.5 * torch.rand(4, 1, generator=draws) - 1.5)
        sums = []
        for items in (4, 3):
            batch: Any = SimpleNamespace(inputs=inputs[:items], labels=torch.arange(items), items=items)
            sums.append(rounded_sum(engine, batch, grid, tiny.CLIP, np.random.default_rng(seed))[0])
        ratios.append(float((sums[0] - sums[1]).double().norm()) / grid.l2)
    assert 0.5 < max(ratios) <= 1.0


def test_a_sum_that_leaves_the_ring_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "modular_sum", partial(modular_sum, modulus=256))
    with pytest.raises(DataError, match="wrapped around"):
        tiny.tiny_run(joint_plan(1, 1.0, 10)).run_round(tiny.ROUND)


def test_what_integers_cannot_do_is_refused_before_training() -> None:
    plan = joint_plan(1, 1.0, 10)
    with pytest.raises(PrivacyError, match="clips nothing|positive number"):
        tiny.tiny_run(replace(plan, settings=replace(plan.settings, clip_norm=math.inf)))
    with pytest.raises(PrivacyError, match="joint.bits"):
        tiny.tiny_run(joint_plan(1, 1e5, 32))


# --- whole updates: local steps without noise, one clipping and one noise a silo and round ---------------------------


def update_plan(steps: int, noise: float = 0.0, clip_norm: float = LONG) -> PrivacyPlan:
    plan = tiny.tiny_plan("joint_noise", None, AccountingMode.SOUND, steps, noise)
    if ALGORITHM.of_updates is None:
        raise AssertionError("joint noise declares no mechanism for updates")
    return replace(plan, mechanism=ALGORITHM.of_updates, settings=replace(plan.settings, clip_norm=clip_norm))


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("clip_norm", [LONG, SHORT])
def test_a_round_of_updates_is_the_float64_loop(steps: int, clip_norm: float) -> None:
    """Plain local steps, the update scaled to C at most, the mean over silos."""
    reference, updates = Reference(), []
    for silo in range(3):
        model = reference.descended(silo, steps, lambda *given: reference.item_sum(*given, math.inf) / tiny.BATCH)
        updates.append(reference.clip(model - reference.start, clip_norm))
    moved = torch.stack(updates).mean(0)
    plan = update_plan(steps, 0.0, clip_norm)
    assert torch.allclose(tiny.after_a_round(plan), reference.start + moved, atol=1e-5)
    assert 1e-3 < float(moved.norm()) <= clip_norm
    if clip_norm == LONG:  # clipping items instead would be another round
        gradients = replace(plan, mechanism=ALGORITHM.mechanism(None, AccountingMode.SOUND))
        assert not torch.allclose(tiny.after_a_round(gradients), reference.start + moved, atol=1e-3)


def test_steps_are_recorded_with_noise_and_clipping_at_the_last_one() -> None:
    run = tiny.tiny_run(update_plan(3, 1.5))
    run.run_round(tiny.ROUND)
    rows = run.rows
    assert [(row.silo, row.step, row.noise_multiplier) for row in rows] == [
        (silo, step, 1.5 if step == 2 else 0.0) for silo in range(3) for step in range(3)
    ]
    assert [row.clipped_fraction for row in rows[2::3]] == [1.0] * 3
    assert all(math.isnan(row.clipped_fraction) for row in rows[0::3])
    assert all(row.items > 0 for row in rows)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan, 3e38])
def test_an_update_that_is_not_finite_contributes_nothing(bad: float) -> None:
    """Local steps without clipping may diverge; what has no length cannot be brought to one."""
    run = tiny.tiny_run(update_plan(2))
    update = torch.ones_like(run.theta)
    update[:3] = bad
    released = run.step(tiny.ROUND, 0, UPDATE).release(update)
    assert torch.equal(released, torch.zeros_like(released))


def test_a_unit_that_no_mini_batch_holds_changes_nothing() -> None:
    """What the sampling probability 1 - (1 - q)^(k S) of the accountant rests on."""
    run, changed = tiny.tiny_run(update_plan(3)), tiny.tiny_run(update_plan(3))
    drawn = {a for silo in range(3) for step in range(3) for a, _ in Reference().batch(silo, step)}
    absent = sorted(set(range(sum(tiny.ITEMS))) - drawn)
    assert absent, "the draws of this seed must leave an item out"
    changed.federation.data.inputs[absent] = 1e6  # type: ignore[attr-defined]
    run.run_round(tiny.ROUND)
    changed.run_round(tiny.ROUND)
    assert torch.equal(run.theta, changed.theta)


# --- fused local steps (arXiv 2407.19286, eqs. 26, 27): what a silo does, what is claimed of it, and what holds -------

FUSED = (1, 2, 3)
Q = 0.1


def fused_plan(steps: int = 1, noise: float = 0.0, fused: tuple[int, ...] = FUSED) -> PrivacyPlan:
    plan = joint_plan(steps, noise)
    silos = [replace(silo, fused_steps=k) for silo, k in zip(plan.silos, fused, strict=True)]
    return replace(plan, silos=tuple(silos))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_round_is_equation_26(steps: int) -> None:
    """Silo i takes k_i steps for each of the others' and clips each item's gradient to C/k_i."""
    plan = fused_plan(steps)
    assert torch.allclose(tiny.after_a_round(plan), silo_average(plan), atol=1e-5)
    assert not torch.allclose(silo_average(plan), silo_average(fused_plan(steps, fused=(1, 1, 1))), atol=1e-3)


def test_the_last_of_k_steps_alone_is_noised_with_the_noise_of_the_whole_clip_norm() -> None:
    plan = fused_plan(1, 2.0)
    std = tiny.RATE / tiny.BATCH / 3 * math.sqrt(3 * (2.0 * tiny.CLIP) ** 2)
    noise = tiny.noise_of_a_round(plan)
    assert [tiny.fits(noise, std * factor) for factor in (0.8, 1.0, 1.25)] == [False, True, False]
    run = tiny.tiny_run(fused_plan(2, 2.0))
    run.run_round(1)
    assert [row.noise_multiplier for row in run.rows] == [2.0, 2.0] + [0.0, 2.0] * 2 + [0.0, 0.0, 2.0] * 2


def planned(fused: tuple[int, ...], items: int = 460, batch: int = 46) -> PrivacyPlan:
    """The paper's claim of ε = 1 for 20 rounds of one noised step."""
    silos = len(fused)
    facts = replace(plans.facts(silos), items=(items,) * silos)
    mode = AccountingMode.AS_PUBLISHED
    schedule = {"rounds": 20, "local_steps": 1, "batch_size": batch, "fused_steps": fused}
    return make_plan(replace(plans.JOINT, mode=mode), facts, plans.settings(mode=mode, epsilon=1.0, **schedule))


def test_the_claim_takes_a_fused_step_for_one_of_sensitivity_c() -> None:
    """Drawn with probability 1 - (1 - q)^k, and all silos' noise counts."""
    plan = planned((1, 1, 2, 4))
    sigma = plan.silos[0].noise_multiplier * math.sqrt(4)
    claim = MixtureSteps(sigma, sampled_gaussian(1 - (1 - Q) ** 4), 20)
    assert epsilon_of((claim,), plan.settings.delta) == pytest.approx(published.published_epsilon(plan))
    assert published.published_epsilon(plan) == pytest.approx(1.0, rel=2e-3)
    assert planned((1, 1, 1, 1)).silos[0].noise_multiplier < plan.silos[0].noise_multiplier


def test_no_epsilon_is_given_beside_the_claim() -> None:
    fused, plain = planned((1, 1, 2, 2)), planned((1, 1, 1, 1))
    assert sound.unit_epsilon(plain, PrivacyUnit.ITEM, False) == pytest.approx(1.0, rel=2e-3)
    with pytest.raises(PrivacyError, match="2 local steps without noise in between"):
        sound.unit_epsilon(fused, PrivacyUnit.ITEM, False)
    stated = privacy_statements(fused)
    assert "without noise in between" in str(stated)
    assert plan_from_dict(fused.to_dict()) == fused


MIRRORS, SILOS, RUNS = 50, 10, 20_000


class _Round:
    """``RUNS`` independent rounds of a model of one number: silo 0 fuses two steps, the others' gradients are zero."""

    def __init__(self, sigma: float, target: bool) -> None:
        self.sigma, self.target, self.silo_count = sigma, target, SILOS
        self.random = np.random.default_rng([7, target])
        self.model = self.released = torch.zeros(RUNS, dtype=torch.float64)

    def models(self) -> Any:
        for silo in range(SILOS):
            theta = self.model.clone()
            for step in range(2 if silo == 0 else 1):
                local: Any = _Step(self, silo, theta, last=silo > 0 or step == 1)
                theta -= joint_noise.local_step(local)
            yield theta

    def set_model(self, model: Tensor) -> None:
        self.released = model


class _Step:
    """In clip norms of 1, each item drawn in every step.

    Silo 0 has 50 items of loss |θ|/2, one of gradient 1/4 that decides where the first step goes, and the target of
    gradient -1/2, which decides otherwise.
    """

    def __init__(self, round_: _Round, silo: int, theta: Tensor, last: bool) -> None:
        self.round, self.silo, self.theta, self.last = round_, silo, theta, last

    def sample_batch(self) -> None:
        return None

    def clipped_sum(self, batch: None) -> Tensor:
        if self.silo > 0:
            return torch.zeros(RUNS, dtype=torch.float64)
        gradients = MIRRORS * 0.5 * self.theta.sign() + 0.25
        return gradients - 0.5 if self.round.target else gradients

    def noise_multiplier(self, batch: None) -> float:
        return self.round.sigma if self.last else 0.0

    def add_noise(self, total: Tensor, noise_multiplier: float) -> Tensor:
        return total + noise_multiplier * torch.from_numpy(self.round.random.standard_normal(RUNS))

    def divisor(self, batch: None) -> float:
        return 1.0


def test_an_attack_on_one_round_refutes_the_claim_for_twenty() -> None:
    """One item turns the gradients of fifty others before any noise is added."""
    plan = planned((2,) + (1,) * (SILOS - 1), items=MIRRORS + 2, batch=MIRRORS + 2)
    released = []
    for target in (False, True):
        rounds: Any = _Round(plan.silos[0].noise_multiplier, target)
        joint_noise.aggregate(rounds, rounds.models())
        released.append(rounds.released * -SILOS)
    absent, present = released
    assert float(present.mean() - absent.mean()) == pytest.approx(MIRRORS - 1, rel=0.05)
    hits, alarms = int((present > 0).sum()), int((absent > 0).sum())
    proven = counts_epsilon(hits, RUNS, alarms, RUNS, plan.settings.delta)
    assert published.published_epsilon(plan) < 1.01 < 2 < proven
