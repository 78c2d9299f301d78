"""One round of every algorithm against a float64 loop that was written from the papers' pseudo-code.

The reference shares nothing with the library but the drawn mini-batches (their law is tested with the samplers). Noise
is zero here; its amount and place are tested in test_noise_placement.py.
"""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from algorithms import tiny
from subjectdp.plan.plan import AccountingMode, SamplingMethod
from subjectdp.sampling.batches import StepKey, sample_items

PUBLISHED, SOUND = AccountingMode.AS_PUBLISHED, AccountingMode.SOUND
ROUND, SEED = 1, 3


class Reference:
    """Plain float64 re-statement of one round."""

    def __init__(self, steps: int) -> None:
        self.data, self.partition, self.steps = tiny.tiny_data(), tiny.tiny_partition(), steps
        self.model = tiny.tiny_model().double()
        self.start = torch.cat([p.detach().flatten() for p in self.model.parameters()])

    def gradient(self, theta: Tensor, address: int) -> Tensor:
        torch.nn.utils.vector_to_parameters(theta, self.model.parameters())
        inputs = self.data.inputs[address : address + 1].double()
        loss = F.cross_entropy(self.model(inputs), self.data.labels[address : address + 1])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(self.model.parameters()))])

    @staticmethod
    def clip(vector: Tensor) -> Tensor:
        return vector / max(1.0, float(vector.norm()) / tiny.CLIP)

    def batch(self, silo: int, step: int) -> list[tuple[int, int]]:
        plan = tiny.tiny_plan("local_item_dp", None, PUBLISHED)
        items, owners = self.partition.silo(silo)
        chosen = sample_items(
            len(items), plan.silos[silo], SamplingMethod.POISSON, tiny.BATCH, StepKey(SEED, ROUND, silo, step)
        )
        return [(int(items[i]), int(owners[i])) for i in chosen]

    def local_gradient(self, name: str, theta: Tensor, batch: list[tuple[int, int]]) -> Tensor:
        zero = torch.zeros_like(theta)
        if name == "fed_avg":
            return sum((self.gradient(theta, a) for a, _ in batch), zero) / tiny.BATCH
        if name == "user_ldp":
            mean = sum((self.gradient(theta, a) for a, _ in batch), zero) / max(1, len(batch))
            return self.clip(mean)
        if name.startswith("higrad"):
            count = Counter(owner for _, owner in batch)
            total = zero
            for subject in sorted(count):
                own = [self.clip(self.gradient(theta, a)) for a, owner in batch if owner == subject]
                total = total + sum(own, zero) / len(own)
            divisor = {"higrad_v1": tiny.BATCH, "higrad_v3": max(1, len(count)), "higrad_v3_sound": 4.5}[name]
            return total / divisor
        return sum((self.clip(self.gradient(theta, a)) for a, _ in batch), zero) / tiny.BATCH

    def averaged(self, name: str) -> Tensor:
        models = []
        for silo in range(len(tiny.ITEMS)):
            theta = self.start.clone()
            for step in range(self.steps):
                theta = theta - tiny.RATE * self.local_gradient(name, theta, self.batch(silo, step))
            models.append(theta)
        return torch.stack(models).mean(0)

    def central(self) -> Tensor:
        gradients = [self.local_gradient("central", self.start, self.batch(silo, 0)) for silo in range(3)]
        return self.start - tiny.RATE * torch.stack(gradients).mean(0)


CASES = [
    ("fed_avg", None, PUBLISHED, "fed_avg"),
    ("local_item_dp", None, PUBLISHED, "local_item_dp"),
    ("local_item_dp", None, SOUND, "local_item_dp"),
    ("user_ldp", None, PUBLISHED, "user_ldp"),
    ("user_ldp", None, SOUND, "user_ldp"),
    ("local_group_dp", None, PUBLISHED, "local_group_dp"),
    ("local_group_dp", None, SOUND, "local_group_dp"),
    ("higrad_avg_dp", "v1", PUBLISHED, "higrad_v1"),
    ("higrad_avg_dp", "v1", SOUND, "higrad_v1"),
    ("higrad_avg_dp", "v3", PUBLISHED, "higrad_v3"),
    ("higrad_avg_dp", "v3", SOUND, "higrad_v3_sound"),
    ("joint_noise", None, PUBLISHED, "joint_noise"),
    ("joint_noise", None, SOUND, "joint_noise"),
    ("capped_item_dp", None, SOUND, "capped_item_dp"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant", "mode", "rule"), CASES)
@pytest.mark.parametrize("steps", [1, 3])
def test_a_round_is_the_papers_round(
    name: str, variant: str | None, mode: AccountingMode, rule: str, steps: int
) -> None:
    run = tiny.tiny_run(tiny.tiny_plan(name, variant, mode, steps), seed=SEED)
    run.run_round(ROUND)
    expected = Reference(steps).averaged(rule)
    assert torch.allclose(run.theta.double(), expected, atol=3e-6)
    moved = (expected - Reference(steps).start).norm()
    assert float(moved) > 0.01, "the reference must move, or the comparison is empty"


@pytest.mark.parametrize("mode", [PUBLISHED, SOUND])
def test_a_central_round_is_one_descent_on_the_mean_of_the_silos(mode: AccountingMode) -> None:
    run = tiny.tiny_run(tiny.tiny_plan("central_sub_dp", "v0", mode), seed=SEED)
    run.run_round(ROUND)
    assert torch.allclose(run.theta.double(), Reference(1).central(), atol=3e-6)


def test_the_rules_differ_where_they_should() -> None:
    """Guards the comparison itself: every rule of the reference gives a result of its own."""
    reference = Reference(2)
    rules = ["fed_avg", "user_ldp", "local_item_dp", "higrad_v1", "higrad_v3", "higrad_v3_sound"]
    results = [reference.averaged(rule) for rule in rules]
    for i, first in enumerate(results):
        for second in results[:i]:
            assert float((first - second).norm()) > 1e-3
