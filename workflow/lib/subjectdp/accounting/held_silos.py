"""Which silos one subject may be at: the choices over which its ε is the largest."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from subjectdp.plan.plan import SiloSchedule

_ALIKE = 1.005  # sampling probabilities within this factor are accounted as the largest of them
_LIKENESS = (
    1.0,
    1.02,
    1.05,
    1.1,
    1.2,
    1.5,
    math.inf,
)  # factors within which silos are merged, if there are many
_MOST_CHOICES = 12
_MOST_KINDS = 24


class SiloRun(NamedTuple):
    """A silo's schedule and the rounds that it takes part in."""

    schedule: SiloSchedule
    rounds: int


def held_silos(silos: Sequence[SiloRun], count: int) -> list[tuple[SiloRun, ...]]:
    """Choices of ``count`` of the silos, such that any choice is no worse than one of them.

    A choice is left out if another silo that is at least as bad in every respect could take a place in it. Where more
    than a few are left, silos of similar sampling probability count as one kind, as bad as the worst of them in every
    respect.
    """
    alike = _rounded_up(silos)
    if count == len(alike):
        return [tuple(alike)]
    for likeness in _LIKENESS:
        kinds = Counter(_merged(alike, likeness))
        if len(kinds) <= _MOST_KINDS:
            found = list(
                islice(_choices(sorted(kinds, key=_badness, reverse=True), kinds, count), _MOST_CHOICES + 1)
            )
            if len(found) <= _MOST_CHOICES:
                return found
    return [(worst_of(alike),) * count]


def maximal(silos: Sequence[SiloRun]) -> list[SiloRun]:
    """The silos that no other silo is at least as bad as in every respect (one of each kind)."""
    kinds = list({_badness(silo): silo for silo in silos}.values())
    return [s for s in kinds if not any(other is not s and _dominates(other, s) for other in kinds)]


def worst_of(silos: Sequence[SiloRun]) -> SiloRun:
    """A silo that is as bad as the worst of them in every respect."""
    first = max((silo.schedule for silo in silos), key=lambda schedule: schedule.sampling_probability)
    schedule = replace(
        first,
        max_items_per_subject=max(silo.schedule.max_items_per_subject for silo in silos),
        steps_per_round=max(silo.schedule.steps_per_round for silo in silos),
        noise_multiplier=min(silo.schedule.noise_multiplier for silo in silos),
    )
    return SiloRun(schedule, max(silo.rounds for silo in silos))


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
    if likeness == 1.0:
        return list(silos)
    clusters: list[list[SiloRun]] = []
    for silo in sorted(silos, key=_badness, reverse=True):
        leader = clusters[-1][0].schedule if clusters else None
        if leader and leader.sampling_probability <= likeness * silo.schedule.sampling_probability:
            clusters[-1].append(silo)
        else:
            clusters.append([silo])
    return [worst_of(cluster) for cluster in clusters for _ in cluster]


def _rounded_up(silos: Sequence[SiloRun]) -> list[SiloRun]:
    """Silos whose sampling probabilities nearly agree share the largest of them, so that their steps compose as one."""
    order = sorted(range(len(silos)), key=lambda i: silos[i].schedule.sampling_probability, reverse=True)
    result = list(silos)
    leader = silos[order[0]].schedule
    for index in order:
        schedule, rounds = silos[index]
        if leader.sampling_probability <= schedule.sampling_probability * _ALIKE:
            q, items = leader.sampling_probability, leader.items
            result[index] = SiloRun(replace(schedule, sampling_probability=q, items=items), rounds)
        else:
            leader = schedule
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
