"""Worst-case sets of silos for one subject: the choices over which its ε is the largest."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, islice, product
from typing import NamedTuple

import numpy as np

from subjectdp.accounting.epsilon import comparing_grid, loss_distribution
from subjectdp.accounting.events import Joined, MixtureSteps, PrivacyLoss, merged
from subjectdp.accounting.gaussian import clt_mu
from subjectdp.accounting.mixture_pld import excess
from subjectdp.plan.plan import SiloSchedule

_ALIKE = 1.005  # sampling probabilities within this factor are accounted as the largest of them
_LIKENESS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, math.inf)  # factors for merging silos, if there are many
_MOST_ENUMERATED = 20_000
_MOST_CHOICES = 200  # that are accounted for one sum
FEW_CHOICES = 12  # that compose silo by silo
_MOST_OUTCOMES = 64  # of the draw of a round's silos
_TOLERATED = 1e-3  # of δ
_MOST_KINDS = 200


class SiloRun(NamedTuple):
    """A silo's schedule and the rounds that it takes part in."""

    schedule: SiloSchedule
    rounds: int


def worst_case_silos(silos: Sequence[SiloRun], count: int, most: int = _MOST_CHOICES) -> list[tuple[SiloRun, ...]]:
    """Choices of ``count`` of the silos, such that any choice is no worse than one of them.

    One is left out if another silo that is at least as bad in every respect could take a place in it. Where many are
    left, silos of similar sampling probability count as one kind, as bad as the worst of them in every respect.
    """
    alike = _rounded_up(silos)
    if count == len(alike):
        return [tuple(alike)]
    for likeness in _LIKENESS:
        kinds = Counter(alike if likeness == 1.0 else _merged(alike, likeness))
        if len(kinds) <= _MOST_KINDS:
            choices = list(islice(_choices(sorted(kinds, key=_badness, reverse=True), kinds, count), most + 1))
            if len(choices) <= most:
                return choices
    return [(worst_of(alike),) * count]


def composed_silos(
    silos: Sequence[SiloRun], count: int, run: Callable[[SiloRun], MixtureSteps], delta: float | None
) -> list[PrivacyLoss]:
    """What a subject at ``count`` of the silos may lose where each silo's releases ``run`` are seen.

    Any choice's silos, by size, have at place j a silo that is no larger than the j-th of all. The worst of these
    (:class:`~subjectdp.accounting.events.Joined`), nearly always the j-th itself, thus takes place j: domination is
    kept by composition. Few choices are written out one by one. ``delta``: that ε is asked for, or None for integer
    noise, whose losses are not computed: a silo then stands for others only if it is as bad in every respect.
    """
    alike = _rounded_up(silos)
    if math.comb(len(alike), count) <= FEW_CHOICES:
        return list(dict.fromkeys(merged(map(run, some)) for some in combinations(alike, count)))
    losses = _Losses(run, alike, None if delta is None else delta / count)
    left: list[SiloRun] = []  # the worst of all that are no larger than the place
    places: list[list[SiloRun]] = []
    for silo in reversed(_grouped(alike, count, losses.size)):
        left = [silo, *(other for other in left if not losses.dominates(silo, other))]
        places.append(left)

    def joined(place: list[SiloRun]) -> MixtureSteps:
        """One series of releases that is as bad as each."""
        first, *others = runs = [run(silo) for silo in place]
        if not others:
            return first
        base, shift = first.noise_multiplier, first.shift
        parts = tuple((each.noise_multiplier / base, each.steps, each.shift) for each in runs)
        return MixtureSteps(base, Joined(shift.sensitivities, shift.probabilities, parts), 1)

    return [merged(map(joined, places[-count:]))]


def drawn_together(silos: Sequence[SiloRun], drawn: int, others: int) -> Iterator[tuple[float, list[SiloRun]]]:
    """Chances of which of ``silos`` are ``drawn``, beside ``others``. Similar ones count as the worst of them."""
    alike = _rounded_up(silos)
    for likeness in _LIKENESS:
        kinds = Counter(alike if likeness == 1.0 else _merged(alike, likeness))
        ranges = [range(min(copies, drawn) + 1) for copies in kinds.values()]
        if math.prod(map(len, ranges)) <= _MOST_OUTCOMES:
            break
    whole = math.comb(len(silos) + others, drawn)
    for counts in product(*ranges):
        if (left := drawn - sum(counts)) >= 0:
            ways = math.prod(map(math.comb, kinds.values(), counts)) * math.comb(others, left)
            yield ways / whole, [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]


def meetings_in_turn(silos: int, together: int, rounds: int, count: int) -> list[list[tuple[int, int]]]:
    """For every kind of choice of ``count`` silos that take turns: how many of them meet, in how many rounds.

    Round t has the ``together`` silos from (t-1)·together on, modulo ``silos``. Where there are too many choices, each
    round that has any of the subject's silos counts as one that has as many as may be.
    """
    if math.comb(silos, count) > _MOST_ENUMERATED:
        each = -(-rounds * together // silos)
        return [[(min(count, together), min(rounds, count * each))]]
    starts = np.arange(min(rounds, silos)) * together  # the same silos again after at most that many rounds
    there = (starts[:, None] + np.arange(together)) % silos
    times = np.bincount(np.arange(rounds) % silos)[: len(starts)]
    meetings: dict[tuple[tuple[int, int], ...], None] = {}
    for held in combinations(range(silos), count):
        rows = np.bincount(np.isin(there, held).sum(axis=1), times).astype(int)
        meetings[tuple((n, int(rows[n])) for n in range(1, len(rows)) if rows[n])] = None

    def more_meet(one: tuple[tuple[int, int], ...], other: tuple[tuple[int, int], ...]) -> bool:
        """Whether in every number of worst rounds as many silos meet in ``one``, and somewhere more."""
        first, second = (np.repeat([n for n, _ in x][::-1], [m for _, m in x][::-1]) for x in (one, other))
        return one != other and len(first) >= len(second) and bool(np.all(first[: len(second)] >= second))

    return [list(each) for each in meetings if not any(more_meet(other, each) for other in meetings)]


def maximal(silos: Sequence[SiloRun]) -> list[SiloRun]:
    """The silos that no other silo is at least as bad as in every respect (one of each kind)."""
    kinds = list({_badness(silo): silo for silo in silos}.values())
    return [s for s in kinds if not any(other is not s and _dominates(other, s) for other in kinds)]


def worst_of(silos: Sequence[SiloRun]) -> SiloRun:
    """A silo that is as bad as the worst of them in every respect."""
    return SiloRun(worst_schedule([silo.schedule for silo in silos]), max(silo.rounds for silo in silos))


def worst_schedule(schedules: Sequence[SiloSchedule]) -> SiloSchedule:
    """A schedule that is as bad as the worst of them in every respect."""
    return replace(
        max(schedules, key=lambda schedule: schedule.sampling_probability),
        max_items_per_subject=max(each.max_items_per_subject for each in schedules),
        steps_per_round=max(each.steps_per_round for each in schedules),
        noise_multiplier=min(each.noise_multiplier for each in schedules),
    )


def _choices(kinds: Sequence[SiloRun], copies: Counter[SiloRun], count: int) -> Iterator[tuple[SiloRun, ...]]:
    """Choices from ``kinds``, worst first; a kind has a place only where all copies of what dominates it have one."""
    if count == 0:
        yield ()
        return
    if not kinds or sum(copies[kind] for kind in kinds) < count:
        return
    kind, rest = kinds[0], kinds[1:]
    for used in range(min(copies[kind], count), -1, -1):
        allowed = [other for other in rest if used == copies[kind] or not _dominates(kind, other)]
        for others in _choices(allowed, copies, count - used):
            yield (kind,) * used + others


def _merged(silos: Sequence[SiloRun], likeness: float) -> list[SiloRun]:
    """The silos, each replaced by the worst of its cluster: sampling probabilities within a factor ``likeness``."""
    clusters: list[list[SiloRun]] = []
    for silo in sorted(silos, key=_badness, reverse=True):
        leader = clusters[-1][0].schedule if clusters else None
        if leader and leader.sampling_probability <= likeness * silo.schedule.sampling_probability:
            clusters[-1].append(silo)
        else:
            clusters.append([silo])
    return [worst_of(cluster) for cluster in clusters for _ in cluster]


def _grouped(silos: Sequence[SiloRun], count: int, size: Callable[[SiloRun], float]) -> list[SiloRun]:
    """The silos, those after the ``count`` largest in groups whose worst is no larger than the least of these."""
    ordered = sorted(silos, key=size, reverse=True)
    least, result = size(ordered[count - 1]), ordered[:count]
    group: list[SiloRun] = []
    for silo in ordered[count:]:
        if group and size(worst_of([*group, silo])) > least:
            result += [worst_of(group)] * len(group)
            group = []
        group.append(silo)
    return result + [worst_of(group)] * len(group)


class _Losses:
    """Privacy losses of silos' releases, on one grid, to tell which dominate which.

    Between two points of the grid δ is linear in e^ε for both silos. A silo is dominated whose δ is larger nowhere, but
    for a part of the δ that ε is asked for (``_TOLERATED``, all exchanges together): less than rounding losses up adds.
    Both directions are compared: what is tolerated at -ε in one of them would be e^ε times as much at ε in the other.
    """

    def __init__(self, run: Callable[[SiloRun], MixtureSteps], silos: Sequence[SiloRun], delta: float | None) -> None:
        self._run, self._tolerated = run, None if delta is None else _TOLERATED * delta
        self._grid = max(comparing_grid((run(silo),)) for silo in set(silos))
        self._losses = cache(lambda silo: loss_distribution((run(silo),), self._grid))

    def size(self, silo: SiloRun) -> float:
        """The variance of its loss in the central limit."""
        return clt_mu((self._run(silo),))

    def dominates(self, worse: SiloRun, better: SiloRun) -> bool:
        """Whether any number of releases is no safer with ``worse`` in the place of ``better``."""
        in_every_respect = _dominates(worse, better)
        if in_every_respect or self._tolerated is None:
            return in_every_respect
        return excess(self._losses(worse), self._losses(better), self._grid) <= self._tolerated


def _rounded_up(silos: Sequence[SiloRun]) -> list[SiloRun]:
    """Silos whose sampling probabilities nearly agree share the largest of them, so that their steps compose as one."""
    result = list(silos)
    leader: SiloSchedule | None = None
    for index in sorted(range(len(silos)), key=lambda i: silos[i].schedule.sampling_probability, reverse=True):
        schedule, rounds = silos[index]
        if leader is None or leader.sampling_probability > schedule.sampling_probability * _ALIKE:
            leader = schedule
        q, items = leader.sampling_probability, leader.items
        result[index] = SiloRun(replace(schedule, sampling_probability=q, items=items), rounds)
    return result


def _badness(silo: SiloRun) -> tuple[float, int, int, float, int]:
    schedule = silo.schedule
    return (
        schedule.sampling_probability,
        schedule.max_items_per_subject,
        schedule.steps_per_round,
        -schedule.noise_multiplier,
        silo.rounds,
    )


def _dominates(worse: SiloRun, better: SiloRun) -> bool:
    return all(a >= b for a, b in zip(_badness(worse), _badness(better), strict=True))
