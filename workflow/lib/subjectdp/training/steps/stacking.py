"""Silos in step: one batched pass for a local step of all silos of a group, each with its own model.

The pseudo-code of a local step is written for one silo. It runs twice a step: up to its gradient sum, which is noted
and answered with an exception; then, with the sums of all silos at hand, from the start to its end. Mini-batch and
noise have keys of their own, so that nothing is drawn anew in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from subjectdp.engine.stacked_engine import StackedEngine
from subjectdp.errors import expected
from subjectdp.training.steps.graphs import replayed
from subjectdp.training.steps.optimisers import descend, make_optimiser
from subjectdp.training.steps.padded import Places, drawn
from subjectdp.training.steps.silo_step import SiloStep

if TYPE_CHECKING:
    from subjectdp.algorithms.protocols import Batch
    from subjectdp.training.federation import Federation


@dataclass(frozen=True)
class Request:
    """What a local step wants to know: Σ_i w_i Clip(g_i, C) of its mini-batch (C infinite: nothing is clipped)."""

    addresses: NDArray[np.int32]
    clip_norm: float
    weights: Tensor | None


class Asked(Exception):
    """A local step has come to its gradient sum."""


class Deferred:
    """``training.steps.gradients.Gradients`` of one local step; its sum is found together with other silos'."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.answer: tuple[Tensor, Tensor] | None = None

    def gradient_sum(self, batch: Batch) -> Tensor:
        return self._ask(batch, float("inf"), None)[0]

    def clipped_sum(
        self, batch: Batch, clip_norm: float, weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        return self._ask(batch, clip_norm, weights)

    def clipped_group_sum(
        self, batch: Batch, groups: Tensor, weights: Tensor, clip_norms: Tensor
    ) -> tuple[Tensor, Tensor]:
        raise expected("performance.execution", "stacked", "another one where subjects are clipped as one")

    def trustworthy(self) -> bool:
        return True  # whoever answers knows

    def _ask(self, batch: Batch, clip_norm: float, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.answer is None:
            self.request = Request(drawn(batch), clip_norm, weights)
            raise Asked
        return self.answer


class StackedSilos:
    """Trains up to ``silos`` silos of a round in step, with ``capacity`` places for each one's mini-batch."""

    def __init__(self, federation: Federation, silos: int, capacity: int) -> None:
        self._federation, self.silos, self._capacity = federation, silos, capacity
        self._engine = StackedEngine(federation.engine.flat, silos, silos * capacity)
        self._places = Places(silos * capacity, federation.device)
        self._clip_norms = torch.full((silos * capacity,), float("inf"), device=federation.device)
        self._engine.doubt = torch.zeros((), dtype=torch.bool, device=federation.device)
        self._pass: Callable[[], tuple[Tensor, ...]] | None = None

    def train(self, round_: int, silos: Sequence[int], local_step: Callable[[Any], Tensor]) -> Tensor | None:
        """The silos' models (len(silos), P) after their local steps; None where a gradient was not finite."""
        federation, models = self._federation, self._engine.flat.vector[: len(silos)]
        models.copy_(federation.theta)
        rows = list(models)
        plans = [federation.plan.silos[silo] for silo in silos]
        optimisers = [make_optimiser(row, federation.optimiser) for row in rows]
        for plan, optimiser in zip(plans, optimisers, strict=True):
            for group in optimiser.param_groups:
                group["lr"] *= plan.learning_rate_factor
        for step in range(max(plan.steps_per_round for plan in plans)):
            active = [place for place, plan in enumerate(plans) if step < plan.steps_per_round]
            steps = {place: (silos[place], Deferred()) for place in active}
            gradients = self._step(round_, step, steps, local_step)
            for place, gradient in gradients.items():
                descend(optimisers[place], rows[place], gradient)
        return models.clone() if self._trustworthy() else None

    def _step(
        self,
        round_: int,
        step: int,
        deferred: dict[int, tuple[int, Deferred]],
        local_step: Callable[[Any], Tensor],
    ) -> dict[int, Tensor]:
        """The direction of each silo's local step, by the silo's place."""
        running = {
            place: SiloStep(self._federation, round_, silo, step, gradients)
            for place, (silo, gradients) in deferred.items()
        }
        found: dict[int, Tensor] = {}
        requests: dict[int, Request] = {}
        for place, silo_step in running.items():
            try:
                found[place] = local_step(silo_step)
            except Asked:
                request = deferred[place][1].request
                if request is not None:
                    requests[place] = request
        for place, answer in self._answers(requests).items():
            deferred[place][1].answer = answer
            found[place] = local_step(running[place])
        return found

    def _answers(self, requests: dict[int, Request]) -> dict[int, tuple[Tensor, Tensor]]:
        """Sums (P,) and norms (items,); as many passes as the largest mini-batch needs."""
        room = self._capacity
        most = max((len(request.addresses) for request in requests.values()), default=0)
        totals = torch.zeros_like(self._engine.flat.vector)
        norms: dict[int, list[Tensor]] = {place: [] for place in requests}
        for start in range(0, most, room):
            self._fill(requests, slice(start, start + room))
            found, lengths = self._run()
            totals.add_(found)
            for place, request in requests.items():
                count = len(request.addresses[start : start + room])
                norms[place].append(lengths[place * room : place * room + count])
        return {
            place: (totals[place], torch.cat(norms[place]) if norms[place] else totals.new_zeros(0))
            for place in requests
        }

    def _fill(self, requests: dict[int, Request], part: slice) -> None:
        for place in range(self.silos):
            first, request = place * self._capacity, requests.get(place)
            if request is None:
                self._places.fill(first, self._capacity, np.zeros(0, np.int64), None)
                continue
            weights = None if request.weights is None else request.weights[part]
            self._places.fill(first, self._capacity, request.addresses[part], weights)
            self._clip_norms[first : first + self._capacity].fill_(request.clip_norm)

    def _run(self) -> tuple[Tensor, ...]:
        if self._pass is None:
            self._pass = replayed(self._sums, self._federation.device)
        return self._pass()

    def _sums(self) -> tuple[Tensor, ...]:
        inputs, labels = self._federation.data.at(self._places.addresses)
        return self._engine.clipped_sum(inputs, labels, self._clip_norms, self._places.weights)

    def _trustworthy(self) -> bool:
        doubt = self._engine.doubt
        if doubt is None or not bool(doubt):
            return True
        doubt.zero_()
        return False
