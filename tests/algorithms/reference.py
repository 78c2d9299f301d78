"""One round in float64, item by item: it shares nothing with the library but the drawn mini-batches."""

import math
from collections import Counter
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms import tiny
from subjectdp.plan.plan import AccountingMode, SamplingMethod
from subjectdp.sampling import StepKey, sample_items

Batch = list[tuple[int, int]]
"""Addresses and subjects of the drawn items."""


class Reference:
    """Items, gradients and local steps; the law of the mini-batches is tested with the samplers."""

    def __init__(self) -> None:
        self.data, self.partition = tiny.tiny_data(), tiny.tiny_partition()
        self.model = tiny.tiny_model().double()
        self.start = torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def gradient(self, theta: Tensor, address: int) -> Tensor:
        torch.nn.utils.vector_to_parameters(theta, self.model.parameters())
        inputs = self.data.inputs[address : address + 1].double()
        loss = F.cross_entropy(self.model(inputs), self.data.labels[address : address + 1])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(self.model.parameters()))])

    @staticmethod
    def clip(vector: Tensor, clip_norm: float = tiny.CLIP) -> Tensor:
        return vector / max(1.0, float(vector.norm()) / clip_norm)

    def item_sum(self, theta: Tensor, batch: Batch, clip_norm: float) -> Tensor:
        return sum((self.clip(self.gradient(theta, a), clip_norm) for a, _ in batch), torch.zeros_like(theta))

    def subject_mean_sum(self, theta: Tensor, batch: Batch) -> Tensor:
        total = torch.zeros_like(theta)
        for subject in {owner for _, owner in batch}:
            own = [item for item in batch if item[1] == subject]
            total += self.item_sum(theta, own, tiny.CLIP) / len(own)
        return total

    def batch(self, silo: int, step: int) -> Batch:
        schedule = tiny.tiny_plan("local_item_dp", None, AccountingMode.SOUND).silos[silo]
        items, owners = self.partition.silo(silo)
        key = StepKey(tiny.SEED, tiny.ROUND, silo, step)
        chosen = sample_items(len(items), schedule, SamplingMethod.POISSON, tiny.BATCH, key)
        return [(int(items[i]), int(owners[i])) for i in chosen]

    def descended(self, silo: int, steps: int, rule: Callable[[Tensor, Batch], Tensor]) -> Tensor:
        """The silo's model after local steps."""
        theta = self.start.clone()
        for step in range(steps):
            theta = theta - tiny.RATE * rule(theta, self.batch(silo, step))
        return theta


class PapersRules(Reference):
    """The local gradients of the papers' pseudo-code."""

    def local_gradient(self, name: str, theta: Tensor, batch: Batch) -> Tensor:
        if name == "fed_avg":
            return self.item_sum(theta, batch, math.inf) / tiny.BATCH
        if name == "user_ldp":
            return self.clip(self.item_sum(theta, batch, math.inf) / max(1, len(batch)))
        if name.startswith("higrad"):
            drawn = len(Counter(owner for _, owner in batch))
            divisors = {"higrad_v1": tiny.BATCH, "higrad_v3": max(1, drawn), "higrad_v3_sound": 4.5}
            return self.subject_mean_sum(theta, batch) / divisors[name]
        return self.item_sum(theta, batch, tiny.CLIP) / tiny.BATCH

    def averaged(self, name: str, steps: int) -> Tensor:
        silos = range(len(tiny.ITEMS))
        models = [self.descended(silo, steps, lambda *given: self.local_gradient(name, *given)) for silo in silos]
        return torch.stack(models).mean(0)
