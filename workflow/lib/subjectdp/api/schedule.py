"""How a federation trains: what accounting has to know of it beside the counts and the mechanism.

Last, rounds, clip norm and rate of SubjectRelease from public numbers alone (docs/own-algorithms.md, "Without tuning"),
for plain SGD on a linear head that starts from public data, with features of mean square norm about 1. The constants
were chosen on generated writers (``benchmarks/untuned_rule.py`` of commit d061a81): they cost nobody any privacy.
"""

import math
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from subjectdp.accounting.gaussian import gdp_mu
from subjectdp.api.counts import Counts, SiloSizes
from subjectdp.errors import check_numbers, expected, number, unknown, whole_number
from subjectdp.plan.plan import FederationFacts, Mechanism, People, SamplingMethod, SiloChoice

_MOST_KINDS = 10_000  # of subjects by what they hold, among whom the worst is searched for


@dataclass(frozen=True)
class Schedule:
    """Rounds, local steps and sampling; the same at all silos.

    Give ``batch_size`` or ``sampling_probability``. With a batch size B, a silo of n items samples each item with
    probability B/n, so that silos differ.

    Attributes:
        rounds: rounds of training, all silos (or ``silos_per_round`` of them) in each.
        steps: local steps of a silo in a round; None for ``epochs``.
        epochs: local epochs of a round, ⌈n/B⌉ steps each.
        batch_size: expected items of a mini-batch (exact ones with ``sampling="fixed_batch_size"``).
        sampling_probability: of an item, or of a subject where the mechanism samples subjects; 0 < q ≤ 1.
        sampling: ``"poisson"`` (a coin for each item or subject and step) or ``"fixed_batch_size"``.
        max_items_per_subject: the cap on a subject's items at a silo, *enforced* by dropping the surplus before
            training; None for no cap.
        silos_per_subject: most silos that may hold one subject, *enforced* before training; None for the largest number
            in the counts, on which ε of a subject over all its silos is then conditional.
        silos_per_round: silos that take part in a round; None for all.
        silo_choice: ``"random"``: drawn anew for each round, or ``"in_turn"``: all equally often, as everybody knows.
    """

    rounds: int
    steps: int | None = None
    batch_size: int | None = None
    sampling_probability: float | None = None
    sampling: str = SamplingMethod.POISSON
    max_items_per_subject: int | None = None
    silos_per_subject: int | None = None
    silos_per_round: int | None = None
    silo_choice: str = SiloChoice.RANDOM
    epochs: int = 1

    def __post_init__(self) -> None:
        whole_number("rounds", self.rounds)
        limits = ("max_items_per_subject", "silos_per_subject", "silos_per_round")
        check_numbers(self, ("steps", "batch_size", "epochs", *limits), ("sampling_probability",))

    def method(self, mechanism: Mechanism) -> SamplingMethod:
        """The sampler; raises ConfigError for an unknown one."""
        known = [SamplingMethod.POISSON, SamplingMethod.FIXED_BATCH_SIZE]
        if self.sampling not in known:
            raise expected("sampling", self.sampling, " or ".join(known))
        coins = self.sampling == SamplingMethod.POISSON and mechanism.samples_subjects
        return SamplingMethod.POISSON_SUBJECTS if coins else SamplingMethod(self.sampling)

    def facts(self, counts: Counts | SiloSizes) -> FederationFacts:
        """The public facts of a federation that trains in this way.

        Raises ConfigError where a subject of the counts is at more silos than ``silos_per_subject``.
        """
        facts = counts.facts(self.max_items_per_subject)
        seen, most = facts.silos_per_subject, self.silos_per_subject
        if isinstance(counts, SiloSizes):
            return replace(facts, silos_per_subject=seen if most is None else min(most, seen))
        if most is None:
            people = () if facts.cap_enforced or seen == 1 else _people(counts)
            return replace(facts, silos_bounded=seen == len(facts.items), people=people)
        if not seen <= most <= len(facts.items):
            allowed = f"from {seen}, the silos of a subject in the counts, to {len(facts.items)}, all silos"
            raise expected("silos_per_subject", most, allowed)
        return replace(facts, silos_per_subject=most)

    def check(self, mechanism: Mechanism, facts: FederationFacts) -> None:
        """Raises ConfigError where the sampling is not stated, stated twice, or does not fit the mechanism."""
        q, batch = self.sampling_probability, self.batch_size
        given = "both" if batch is not None and q is not None else "neither"
        if (batch is None) == (q is None):
            raise expected("one of batch_size and sampling_probability", given, "given")
        if self.epochs > 1 and self.steps is not None:
            raise expected("epochs", self.epochs, "left out where steps are given")
        if self.silo_choice not in list(SiloChoice):
            raise unknown("silo_choice", self.silo_choice, list(SiloChoice))
        if q is not None and not 0 < q <= 1:
            raise expected("sampling_probability", q, "in (0, 1]")
        if q is not None and self.sampling == SamplingMethod.FIXED_BATCH_SIZE:
            raise expected("sampling_probability", q, "left out with batches of fixed size: give batch_size")
        if mechanism.samples_subjects and q is None:
            allowed = f"given, that of a subject, with {mechanism.title}, instead of batch_size"
            raise expected("sampling_probability", None, allowed)
        if mechanism.counts_items and not facts.cap_enforced:
            allowed = f"a cap that is enforced before training, with {mechanism.title}: a maximum that is read from "
            raise expected("max_items_per_subject", None, allowed + "the data is itself private")
        self.check_steps(mechanism)

    def check_steps(self, mechanism: Mechanism) -> None:
        """Raises ConfigError for several steps of a mechanism whose round is one; an update is clipped once."""
        key, value = ("epochs", self.epochs) if self.steps is None else ("steps", self.steps)
        if mechanism.one_step_alone and value > 1:
            raise expected(key, value, f"left out with {mechanism.title}: a round is one step, so count them as rounds")

    def local_steps(self) -> int | None:
        """Local steps of a round; None for one epoch of the silo's own batches."""
        if self.steps is None and self.sampling_probability is not None:
            return self.epochs * math.ceil(1 / self.sampling_probability)
        return self.steps

    def nominal_batch(self, facts: FederationFacts) -> int:
        """A batch size that the plan accepts; the sampling probability, where given, replaces it silo by silo."""
        if self.batch_size is not None:
            return self.batch_size
        return max(1, round((self.sampling_probability or 0.0) * min(facts.items)))


def _people(counts: Counts) -> People:
    """What each subject holds, without those of whom another holds as much at every one of their silos."""
    rows = counts.rows[np.lexsort((counts.rows[:, 1], counts.rows[:, 0]))]
    first, length = np.unique(rows[:, 0], return_index=True, return_counts=True)[1:]
    alike: list[NDArray[np.int64]] = []  # (kinds, silos held, 2): a matrix of all subjects and silos would not fit
    for silos in np.unique(length):
        own = rows[first[length == silos, None] + np.arange(silos), 1:]
        alike.append(np.unique(own.reshape(len(own), -1), axis=0).reshape(-1, silos, 2))
    if sum(map(len, alike)) > _MOST_KINDS:
        return ()  # each silo's largest number takes the place of real subjects'
    kinds = np.zeros((sum(map(len, alike)), len(counts.silos)), np.int64)
    for index, kind in enumerate(chain.from_iterable(alike)):
        kinds[index, kind[:, 0]] = kind[:, 1]
    kinds = np.unique(kinds, axis=0)
    kinds = kinds[np.argsort(-kinds.sum(axis=1), kind="stable")]
    kept: list[int] = []
    present: list[list[int]] = [[] for _ in counts.silos]  # of each silo, those of the kept that hold items there
    for index, own in enumerate(kinds):
        there = np.flatnonzero(own)
        others = min((present[silo] for silo in there), key=len)
        if not (kinds[others][:, there] >= own[there]).all(axis=1).any():
            kept.append(index)
            for silo in there:
                present[silo].append(index)
    return tuple(tuple((int(silo), int(own[silo])) for silo in np.flatnonzero(own)) for own in kinds[kept])


CLIP_NORM = 0.05  # far below the gradients': every part is clipped, and only directions count
_LEAST_ROUNDS = 40
_LONGEST = 20.0  # N μ κ for each round: longer steps would oscillate
_NOISE = 4.0  # κ over its unit √(N μ/p)


@dataclass(frozen=True)
class UntunedSchedule:
    """What the rule chooses: ``training.rounds``, ``privacy.clip_norm`` and the rate of plain SGD, with
    ``training.averaged_rounds: 0.5`` and all of a silo's data in one step a round."""

    rounds: int
    clip_norm: float
    learning_rate: float
    weight_noise: float  # κ: standard deviation of the noise of all rounds on one weight


def untuned_schedule(
    subjects: int,
    weights: int,
    epsilon: float,
    delta: float = 1e-5,
    silos: int = 1,
    silos_per_subject: int | None = None,
) -> UntunedSchedule:
    """The rule's schedule for everybody in every round.

    Args:
        subjects: N, those who are there, or those whose noise is predicted.
        weights: p, the number of trained weights.
        epsilon, delta: the target of the whole run.
        silos: s, of a federation under local trust; 1 under secure aggregation or a trusted server.
        silos_per_subject: m, most silos that may hold one subject (default: all). N subjects at m of s silos have the
            noise of √(m/s) N.

    Raises:
        ConfigError: a number out of range.
    """
    held = silos if silos_per_subject is None else silos_per_subject
    for name, value in (("subjects", subjects), ("weights", weights), ("silos", silos), ("silos_per_subject", held)):
        whole_number(name, value)
    if held > silos:
        raise expected("silos_per_subject", held, f"1 to {silos}, the number of silos")
    epsilon, delta = number("epsilon", epsilon), number("delta", delta, below=1)
    signal = max(1, round(subjects * math.sqrt(held / silos))) * gdp_mu(epsilon, delta)
    noise = min(1.0, _NOISE * math.sqrt(signal / weights))
    rounds = max(_LEAST_ROUNDS, int(noise * signal / _LONGEST))
    return UntunedSchedule(rounds, CLIP_NORM, noise * signal / (CLIP_NORM * rounds), noise)
