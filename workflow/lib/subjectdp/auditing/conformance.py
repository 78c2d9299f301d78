"""Whether an algorithm's code does what its plan says: what neighbours move, the noise, the divisor, the sampling.

The training loop itself runs on items whose gradients are known, with and without a unit. Everything is sampled, so
that the accountant's largest shift is the bound. Nothing here knows an algorithm: observer, bound and noise are read
from the plan, and the scale of a release from its answer to one small item.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from subjectdp.accounting.make_plan import make_plan, with_noise_multipliers
from subjectdp.accounting.sound import unit_losses
from subjectdp.algorithms.base import Algorithm, IntegerServer, IntegerStep, RoundRule, SiloTask
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.partition import Partition
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import Factor, FlatParameters
from subjectdp.errors import ConfigError, PrivacyError, SubjectDPError, unknown
from subjectdp.plan.plan import (
    AccountingMode,
    BudgetWeights,
    Clipping,
    DivisorRule,
    FederationFacts,
    Horizontal,
    Mechanism,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SubjectSettings,
    TrustModel,
)
from subjectdp.training.federation import Federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round, train_silo

CLIP, NOISE, PARAMETERS, RARE = 0.5, 2.0, 4000, 0.3
_Z = 4.5  # standard errors: a right algorithm fails one of its statistical checks in 100,000 seeds
# Items of subjects (columns) at silos (rows): most and one everywhere, unevenly spread, at one silo; a crowd, so that
# what a rule makes of all others by one item's presence is far beyond C. The second is a class of its own.
COUNTS = np.hstack([[[3, 1, 2, 0], [3, 1, 1, 0], [3, 1, 0, 1]], np.ones((3, 28), int)])
SILOS, MOST = len(COUNTS), int(COUNTS.max())
FACTS = FederationFacts(
    items=tuple(map(int, COUNTS.sum(axis=1))),
    subjects=tuple(map(int, (COUNTS > 0).sum(axis=1))),
    largest_subject=(MOST,) * SILOS,
    cap_enforced=True,
    max_items_per_subject=MOST,
    silos_per_subject=SILOS,
    total_subjects=COUNTS.shape[1],
)
LARGE, HUGE = 1e3 * CLIP, 1e6 * CLIP


@dataclass(frozen=True)
class Check:
    """One thing that was checked: ``text`` says what was measured, and what the plan states."""

    passed: bool
    text: str


@dataclass(frozen=True)
class _Items:
    """Items by silo: gradients (n, P), subjects (n,) and silos (n,), both int64."""

    gradients: Tensor
    owners: NDArray[np.int64]
    silos: NDArray[np.int64]

    def kept(self, keep: NDArray[np.bool_]) -> _Items:
        return _Items(self.gradients[torch.from_numpy(keep)], self.owners[keep], self.silos[keep])

    def batch(self, addresses: Any) -> tuple[Tensor, Tensor]:
        chosen = np.asarray(addresses, dtype=np.int64)
        return -self.gradients[torch.from_numpy(chosen)], torch.from_numpy((self.owners[chosen] == 1).astype(np.int64))


class _KnownGradient(nn.Module):
    """The gradient of an item x of class 0 or 1 is −x, wherever the model is near 0."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.slope = nn.Linear(parameters, 1, bias=False)
        nn.init.zeros_(self.slope.weight)

    def forward(self, items: Tensor) -> Tensor:
        value = self.slope(items)
        return torch.cat([value - 1e4, value - 1e4, torch.full_like(value, 1e4)], dim=1)


class _ProtocolOnly:
    """A step or a server with what its protocol names alone: what is checked is then all that a rule can do."""

    def __init__(self, inner: object, protocol: type) -> None:
        self._inner, self._protocol = inner, protocol

    def __getattr__(self, name: str) -> Any:
        known = [each for each in dir(self._protocol) if not each.startswith("_")]
        if name not in known:
            raise AttributeError(str(unknown(f"member of {self._protocol.__name__}", name, known)))
        return getattr(self._inner, name)


def _restricted(rule: RoundRule) -> RoundRule:
    return replace(
        rule,
        local_step=lambda step: rule.local_step(_ProtocolOnly(step, IntegerStep)),
        aggregate=lambda server, results: rule.aggregate(_ProtocolOnly(server, IntegerServer), results),
    )


class _WithoutFactors(ClippingEngine):
    """Leaves an algorithm's own factors of an item out, so that a short gradient is as long in the sum as it is."""

    def clipped_sum(self, *given: Any, factor: Factor | None = None, **named: Any) -> tuple[Tensor, Tensor]:
        return super().clipped_sum(*given, **named)


def plans(audited: Algorithm, q: float = 1.0) -> list[tuple[str, PrivacyPlan]]:
    """The titled plans of every variant, mode, trust and rule of weights; ConfigError or PrivacyError if all are
    refused."""
    found = list(_plans_or_reasons(audited, q))
    made = [(title, plan) for title, plan in found if isinstance(plan, PrivacyPlan)]
    if not made:
        raise next(reason for _, reason in found if isinstance(reason, SubjectDPError))
    return made


def _plans_or_reasons(audited: Algorithm, q: float) -> Iterator[tuple[str, PrivacyPlan | SubjectDPError]]:
    declared = [m for m in audited.mechanisms if not (m.beyond_papers and m.mode is AccountingMode.AS_PUBLISHED)]
    for own in (*declared, *([] if audited.of_updates is None else [audited.of_updates])):
        for trust in TrustModel if audited.reads_key("subject.trust") else (own.trust,):
            for weights in BudgetWeights if audited.reads_key("subject.weights") else (BudgetWeights.UNIFORM,):
                words = [own.mode.value, trust.value, *([weights.value] if own.shared_budget else [])]
                title = f"{own.title} ({', '.join([*words, own.clipping.value])})"
                try:
                    yield title, make_plan(replace(own, trust=trust), FACTS, _settings(own, weights, q))
                except (ConfigError, PrivacyError) as problem:
                    yield title, problem


def _settings(own: Mechanism, weights: BudgetWeights, q: float) -> PlanSettings:
    return PlanSettings(
        mode=own.mode,
        horizontal=Horizontal.SOUND if own.mode is AccountingMode.SOUND else Horizontal.STEPS_TIMES_S,
        sampling=SamplingMethod.POISSON_SUBJECTS if own.samples_subjects else SamplingMethod.POISSON,
        epsilon=4.0,
        delta=1e-5,
        clip_norm=CLIP,
        rounds=1,
        local_steps=2 if own.clips_updates and not own.samples_subjects else 1,
        batch_size=1,
        sampling_fraction=None if own.samples_subjects else q,
        noise_multiplier=NOISE,
        subject=SubjectSettings(q if own.samples_subjects else 1.0, weights=weights, local_steps=2),
    )


def checks(audited: Algorithm) -> Iterator[tuple[str, Check]]:
    """All checks of an algorithm, each with the title of its plan."""
    for title, reason in _plans_or_reasons(audited, 1.0):
        if isinstance(reason, SubjectDPError):
            yield title, Check(True, f"no plan, nothing is checked: {reason}")
    for rule in audited.rounds:
        if rule.silo_task is not SiloTask.INTEGER_STEPS and not any(rule.executes(plan) for _, plan in plans(audited)):
            words = f"server_noise={rule.server_noise}, of_updates={rule.of_updates}"
            yield audited.name, Check(False, f"no plan executes the round with {words}")
    for (title, plan), (_, rare) in zip(plans(audited), plans(audited, RARE), strict=True):
        for each in (*check(audited, plan), check_sampling(audited, rare)):
            yield title, each


def check(audited: Algorithm, plan: PrivacyPlan) -> Iterator[Check]:
    """Checks the algorithm's rounds against a plan of :func:`plans` with q = 1."""
    if plan.mechanism.noise_rule is NoiseRule.NONE or plan.mechanism.claimed_unit is None:
        yield Check(True, "no privacy is stated: nothing is checked")
        return
    bench = _Bench(audited, plan)
    if not bool((bench.scale > 0).all() and bench.scale.isfinite().all()):
        yield Check(False, "a short gradient does not show in the release: nothing can be measured")
        return
    before = bench.release(bench.probe, NOISE)
    yield from bench.noise()
    for reason in plan.mechanism.data_dependence:
        yield Check(True, f"no ε is stated: {reason}")
    if plan.mechanism.divisor_rule is not DivisorRule.REALISED_SUBJECTS:  # a group's σ is a constant here
        yield bench.divisor()
        yield from bench.moves()
    if not torch.allclose(before, bench.release(bench.probe, NOISE), rtol=1e-3):
        yield Check(False, "the same round gives something else later: it remembers other rounds, or draws by itself")
    if not bench.trains():
        yield Check(False, "the server leaves the model as it was")


def check_sampling(audited: Algorithm, plan: PrivacyPlan, rounds: int = 200) -> Check:
    """Whether as many items (or subjects) are drawn as a plan of :func:`plans` with q < 1 says."""
    by_subject, q = plan.mechanism.samples_subjects, plan.silos[0].sampling_probability
    engine, log = ClippingEngine(FlatParameters(_KnownGradient(1))), StepLog()
    federation = _federation(audited, plan, _world(1), NOISE, engine)
    for round_ in range(1, rounds + 1):
        train_silo(federation, federation.engine.flat.vector.clone().zero_(), round_, 0, log)
    rows = log.take()
    drawn = sum(batch.subjects if by_subject else batch.items for batch in rows)
    trials = len(rows) * int((COUNTS[0] > 0).sum() if by_subject else COUNTS[0].sum())
    right = abs(drawn / trials - q) <= _Z * math.sqrt(q * (1 - q) / trials)
    return Check(right, f"sampled with probability {drawn / trials:.3f}, the plan says {q:g}")


def _world(parameters: int = PARAMETERS) -> _Items:
    """Gradients of any direction, from far below to far above the clip norm."""
    silos, owners = (np.repeat(x, COUNTS.ravel()) for x in np.indices(COUNTS.shape).reshape(2, -1))
    draws = torch.Generator().manual_seed(1)
    directions = torch.randn(len(owners), parameters, generator=draws)
    lengths = 10.0 ** (4 * torch.rand(len(owners), 1, generator=draws) - 1) * CLIP
    return _Items(lengths * directions / directions.norm(dim=1, keepdim=True), owners, silos)


def _federation(tried: Algorithm, plan: PrivacyPlan, items: _Items, noise: float, engine: ClippingEngine) -> Federation:
    """The training's own federation over the items; the plan's public constants stay what they are."""
    engine.flat.load(torch.zeros(engine.flat.size))
    sizes, none = np.bincount(items.silos, minlength=SILOS), np.zeros(0, np.int32)
    plan = replace(plan, silos=tuple(replace(s, items=int(n)) for s, n in zip(plan.silos, sizes, strict=True)))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    addresses, facts = np.arange(len(items.owners), dtype=np.int32), {"counts": {"subjects": COUNTS.shape[1]}}
    if noise != NOISE:
        plan = with_noise_multipliers(plan, [silo.noise_multiplier * noise / NOISE for silo in plan.silos])
    return Federation(
        rule=_restricted(tried.round_rule(plan)),
        plan=plan,
        partition=Partition(addresses, items.owners.astype(np.int32), offsets, none, none, facts),
        data=items,  # type: ignore[arg-type]
        engine=engine,
        seed=7,
        noise_name="conformance",
        optimiser=OptimizerConfig(learning_rate=1.0),
    )


class _Bench:
    """An algorithm's releases under one plan, in units of the clip norm on the un-noised sum."""

    def __init__(self, audited: Algorithm, plan: PrivacyPlan) -> None:
        self.audited, self.plan = audited, plan
        self.engine: ClippingEngine = _WithoutFactors(FlatParameters(_KnownGradient(PARAMETERS)))
        self.local = plan.mechanism.trust is TrustModel.LOCAL
        gradients = torch.zeros(SILOS, PARAMETERS)  # a short one at each silo, or at the first where their sum is seen
        gradients[: SILOS if self.local else 1, 0] = CLIP / 10
        self.probe = _Items(gradients, np.arange(SILOS), np.arange(SILOS))
        # what a gradient of length 1 becomes before it is clipped: rate (1) times steps, over the silo's divisor
        clipping, answer = plan.mechanism.clipping, self._seen(self.probe, 0.0)
        length = torch.ones(len(answer))
        if clipping is Clipping.PER_UPDATE:
            length = torch.tensor([silo.steps_per_round / silo.divisor for silo in plan.silos[: len(answer)]])
        elif clipping is Clipping.PER_SUBJECT_UPDATE:
            length *= plan.settings.subject.local_steps
        self.scale = (answer.norm(dim=1) / (CLIP / 10 * length)).unsqueeze(1)
        self.engine = ClippingEngine(self.engine.flat)  # one: each would try its first mini-batches anew

    def _seen(self, items: _Items, noise: float, round_: int = 1) -> Tensor:
        """What the plan's observer sees of a round: (silos, P), or (1, P) for the sum. The first starts at 0."""
        federation = _federation(self.audited, self.plan, items, noise, self.engine)
        model, log = GlobalModel(federation), StepLog()
        model.vector.fill_(round_ - 1)
        if self.local:
            return torch.stack([train_silo(federation, model.vector, round_, silo, log) for silo in range(SILOS)])
        run_round(federation, model, round_, log)
        return model.vector.clone().unsqueeze(0)

    def trains(self) -> bool:
        """Whether a round changes the model, also where the server's part is not what is seen."""
        federation = _federation(self.audited, self.plan, self.probe, NOISE, self.engine)
        model = GlobalModel(federation)
        run_round(federation, model, 1, StepLog())
        return bool(model.vector.any())

    def release(self, items: _Items, noise: float = 0.0, round_: int = 1) -> Tensor:
        released: Tensor = self._seen(items, noise, round_) / (self.scale * CLIP)
        return released

    def noise(self) -> Iterator[Check]:
        """The noise of two rounds (of two steps, where each is seen): its size, its law, and that none is shared."""
        stated = unit_losses(self.plan, PrivacyUnit.ITEM, every_silo=False)[0][0].noise_multiplier
        several = self.local and self.audited.round_rule(self.plan).silo_task is SiloTask.LOCAL_STEPS
        steps = 2 if several else self.plan.silos[0].steps_per_round
        at = self._with_silos(steps_per_round=steps)
        rows = [at.release(self.probe, NOISE, r) - at.release(self.probe, 0.0, r) for r in (1, 2)]
        drawn = torch.cat(rows).double().numpy() / math.sqrt(2 if several else 1)
        if bare := int((drawn == 0).any(axis=0).sum()):
            yield Check(False, f"noise: {bare} of {PARAMETERS} coordinates have none")
        for share in (0.2, 50.0):  # the same draws, whose σ was not rounded, squared or cut off
            again = (at.release(self.probe, share * NOISE) - at.release(self.probe)) / share
            if not torch.allclose(again, rows[0], rtol=1e-2, atol=1e-2):
                yield Check(False, f"noise: not {share:g} times as much where the plan's σ is")
        measured = float(np.sqrt(np.mean(drawn**2)))
        near = abs(measured / stated - 1) <= _Z / math.sqrt(2 * drawn.size)
        yield Check(near, f"noise: σ of the sum is {measured:.3f}, the plan says {stated:.3f}")
        if bare == PARAMETERS:
            return
        law = float(stats.kstest(drawn.ravel() / measured, "norm").pvalue)
        shared = float(np.abs(np.corrcoef(drawn) - np.eye(len(drawn))).max())
        words = f"noise: Gaussian (p = {law:.2g}), releases correlated by {shared:.2f} at most"
        yield Check(law > 1e-6 and shared <= 5 / math.sqrt(PARAMETERS), words)

    def divisor(self) -> Check:
        """The noise of a release must not know the data: the same draw, on other data and on an empty mini-batch."""
        world, empty = _world(), self._with_silos(sampling_probability=1e-12)
        longest = replace(world, gradients=torch.eye(1, PARAMETERS).expand_as(world.gradients) * HUGE)  # as a sum
        seen = [(self, x) for x in (self.probe, world, longest, world.kept(world.owners == 1))]
        lengths = torch.stack([(at.release(x, NOISE) - at.release(x)).norm(dim=1) for at, x in (*seen, (empty, world))])
        for length, words in ((lengths[0], "a release"), (lengths[-1], "a step on an empty mini-batch")):
            if not length.all():
                return Check(False, f"noise: {words} has none")
        if (change := float((lengths / lengths[0] - 1).abs().max())) <= 1e-5:  # float32's own is 1e-7
            return Check(True, "divisor: public, the noise of a release is the same on other data")
        words = f"other data change the noise of a release by {100 * change:.2g} %"
        return Check(False, f"divisor: not public, {words}")

    def _with_silos(self, **changes: Any) -> _Bench:
        other = copy(self)
        other.plan = replace(self.plan, silos=tuple(replace(silo, **changes) for silo in self.plan.silos))
        return other

    def moves(self) -> Iterator[Check]:
        """How far neighbours move the un-noised release, against the accountant's largest shift."""
        world = _world()
        places = [(world.silos == s) & (world.owners == a) for s, a in ((0, 0), (0, 1), (0, 2))]
        firsts = [place & (np.cumsum(place) == 1) for place in places]
        everywhere = [world.owners == a for a in (0, 1)]
        yield self._moved("an item", PrivacyUnit.ITEM, False, firsts)
        yield self._moved("a subject's items at one silo", PrivacyUnit.SUBJECT, False, places)
        yield self._moved("a subject's items at all its silos", PrivacyUnit.SUBJECT, True, everywhere)
        if self.plan.mechanism.clipping in (Clipping.PER_BATCH, Clipping.PER_UPDATE):
            yield self._moved("a silo's whole data", PrivacyUnit.SILO, False, [world.silos == 0])

    def _moved(self, words: str, unit: PrivacyUnit, every: bool, masks: list[NDArray[np.bool_]]) -> Check:
        measured: list[tuple[float, float, float]] = []
        for mask in masks:
            most = int(np.bincount(_world().silos[mask]).max())  # its items at a silo
            items = MOST if unit is PrivacyUnit.ITEM else most
            try:
                losses = unit_losses(self._with_silos(max_items_per_subject=items).plan, unit, every)
            except PrivacyError as none:
                return Check(True, f"{words}: no ε is stated ({none})")
            # the length of the accountant's largest shifts over what is seen
            squares = [sum(p.steps * p.shift.sensitivities[-1] ** 2 for p in loss) for loss in losses]
            allowed = math.sqrt(max(squares) / self.plan.rounds)
            moved = max(self._moves(unit, mask))
            measured.append((round(moved / allowed, 3), moved, allowed))
        ratio, moved, allowed = max(measured)
        text = f"{words}: moved the un-noised sum by {moved:.4g} C, the plan allows {allowed:.4g} C"
        return Check(0 < ratio <= 1, text)

    def _moves(self, unit: PrivacyUnit, mask: NDArray[np.bool_]) -> Iterator[float]:
        """For each kind of gradients: what is replaced is a silo's data, all else is taken away."""
        world, axis = _world(), torch.zeros(PARAMETERS)
        axis[1] = 1.0
        chosen = torch.from_numpy(mask).unsqueeze(1)
        short = world.gradients / world.gradients.norm(dim=1, keepdim=True) * CLIP / 2
        same = world.gradients
        for own, others in ((HUGE * axis, short), (HUGE * axis, -LARGE * axis), (same, same)):
            before = replace(world, gradients=torch.where(chosen, own, others))
            after = before.kept(~mask)
            if unit is PrivacyUnit.SILO:
                after = replace(world, gradients=torch.where(chosen, -own, others))
            moved = float((self.release(before) - self.release(after)).norm())
            yield moved if math.isfinite(moved) else math.inf
