"""Worst-case sets of silos for one subject: the choices over which its ε is the largest.

Many choices are bounded place by place. A choice's silos, by size, have at place j a silo that is no larger than the
j-th of all. What is as bad as each of these takes the place: domination is kept by composition, by sums, and by a draw
that takes no regard of who is at which silo.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from subjectdp.accounting.epsilon import comparing_grid, loss_distribution, total_spread, truncated
from subjectdp.accounting.events import Joined, MixtureSteps, Shift
from subjectdp.accounting.mixture_pld import excess
from subjectdp.plan.plan import SiloSchedule

_ALIKE = 1.005  # sampling probabilities within this factor are accounted as the largest of them
_MOST_ENUMERATED = 20_000
_FEW_CHOICES = 3  # that are written out
_MOST_OUTCOMES = 256  # of the draw of a round's silos
_TOLERATED = 1e-3  # of δ


class SiloRun(NamedTuple):
    """A silo's schedule and the rounds that it takes part in."""

    schedule: SiloSchedule
    rounds: int


def few_choices(silos: Sequence[SiloRun], count: int) -> list[tuple[SiloRun, ...]]:
    """All choices of ``count`` of the silos, or none where they are many. Similar ones count as the worst of them."""
    few = math.comb(len(silos), count) <= _FEW_CHOICES
    return list(dict.fromkeys(combinations(_rounded_up(silos), count))) if few else []


def shifts_by_place(silos: Sequence[SiloRun], count: int, shift: Callable[[SiloRun], Shift]) -> list[Shift]:
    """A sum's shifts at ``count`` places: each is as likely as any silo that may take it to move the sum as far."""
    kinds = Counter(map(shift, _rounded_up(silos)))
    values = sorted({0.0, *(value for each in kinds for value in each.sensitivities)})
    places, chances = list[Shift](), np.zeros(len(values))  # of moving the sum as far
    for each in sorted(kinds, key=lambda kind: float(np.dot(kind.sensitivities, kind.probabilities))):
        beyond = np.append(np.cumsum(each.probabilities[::-1])[::-1], 0.0)
        chances = np.maximum(chances, beyond[np.searchsorted(each.sensitivities, values)])
        places += [Shift.of(values, -np.diff(np.append(chances, 0.0)))] * kinds[each]
    return places[-count:][::-1]


def losses_by_place(
    silos: Sequence[SiloRun], count: int, run: Callable[[SiloRun], MixtureSteps], delta: float | None
) -> list[MixtureSteps]:
    """Releases at ``count`` places that are as bad as those that each silo that may take the place would ``run``.

    The worst of these (:class:`~subjectdp.accounting.events.Joined`) is nearly always the j-th itself. ``delta``: that
    ε is asked for, or None for integer noise, whose losses are not computed: a silo then stands for others only if it
    is as bad in every respect.
    """
    alike = _rounded_up(silos)
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

    return [joined(place) for place in reversed(places[-count:])]


def many_outcomes(held: Sequence[MixtureSteps], drawn: int, summed: bool) -> bool:
    """Whether a draw of so many silos has too many outcomes for each to be composed; a sum takes longer."""
    ways = np.ones(1)  # that 0, 1, .. of the silos are drawn
    for copies in Counter(held).values():
        ways = np.convolve(ways, np.ones(min(copies, drawn) + 1))[: drawn + 1]
    return bool(ways.sum() > (_MOST_OUTCOMES / 4 if summed else _MOST_OUTCOMES))


def few_kinds(places: Sequence[MixtureSteps], drawn: int, summed: bool) -> list[MixtureSteps]:
    """Places of which each is as bad as the next: one stands for the next, where they differ the least, until a draw
    has few outcomes."""
    kinds = list(places)
    while many_outcomes(kinds, drawn, summed) and len(copies := Counter(kinds)) > 1:  # largest first, as the places
        rises = [
            (copies[small] * (total_spread((large,)) ** 2 - total_spread((small,)) ** 2), large, small)
            for large, small in pairwise(copies)
        ]
        _, large, small = min(rises, key=lambda each: each[0])
        kinds = [large if kind == small else kind for kind in kinds]
    return kinds


def drawn_together(held: Sequence[MixtureSteps], drawn: int, others: int) -> Iterator[tuple[float, list[MixtureSteps]]]:
    """Chances of which of the ``held`` silos' releases are ``drawn``, beside ``others``."""
    kinds = Counter(held)
    outcomes: list[tuple[int, ...]] = [()]
    for copies in kinds.values():
        outcomes = [(*some, more) for some in outcomes for more in range(min(copies, drawn - sum(some)) + 1)]
    whole = math.comb(len(held) + others, drawn)
    for counts in outcomes:
        ways = math.prod(map(math.comb, kinds.values(), counts)) * math.comb(others, drawn - sum(counts))
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
    kinds = {_badness(silo): silo for silo in silos}
    table = np.array(list(kinds))
    return [silo for row, silo in zip(table, kinds.values(), strict=True) if (table >= row).all(axis=1).sum() == 1]


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


def _grouped(silos: Sequence[SiloRun], count: int, size: Callable[[SiloRun], float]) -> list[SiloRun]:
    """The silos, those after the ``count`` largest in groups whose worst is no larger than the least of these."""
    ordered = sorted(silos, key=size, reverse=True)
    least, groups = size(ordered[count - 1]), list[list[SiloRun]]()
    for silo in ordered[count:]:
        if groups and size(worst_of([*groups[-1], silo])) <= least:
            groups[-1].append(silo)
        else:
            groups.append([silo])
    return ordered[:count] + [worst_of(group) for group in groups for _ in group]


class _Losses:
    """Privacy losses of silos' releases, on one grid, to tell which dominate which.

    Between two points of the grid δ is linear in e^ε for both silos. A silo is dominated whose δ is larger nowhere, but
    for a part of the δ that ε is asked for (``_TOLERATED``, all exchanges together): less than rounding losses up adds.
    Half of it are the far tails of the moves: a grid up to their losses may have a billion points.
    Both directions are compared: what is tolerated at -ε in one of them would be e^ε times as much at ε in the other.
    """

    def __init__(self, run: Callable[[SiloRun], MixtureSteps], silos: Sequence[SiloRun], delta: float | None) -> None:
        self._tolerated = None if delta is None else _TOLERATED * delta / 2
        self._shorter = cache(lambda silo: truncated((run(silo),), self._tolerated or 0.0)[0])
        self._grid = max(comparing_grid(self._shorter(silo)) for silo in set(silos))
        self._losses = cache(lambda silo: loss_distribution(self._shorter(silo), self._grid))

    def size(self, silo: SiloRun) -> float:
        """The standard deviation of its loss."""
        return total_spread(self._shorter(silo))

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
