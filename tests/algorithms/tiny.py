"""A tiny federation: 3 silos, 7 subjects spread over them, 6 features, a two-layer network; plans written by hand."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from subjectdp.algorithms.registry import algorithm
from subjectdp.data.partition import Partition
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.plan.plan import (
    AccountingMode,
    Clipping,
    DivisorRule,
    Horizontal,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    SamplingMethod,
    SiloSchedule,
)
from subjectdp.plan.subject_settings import SubjectSettings
from subjectdp.training.federation import Federation
from subjectdp.training.record.records import Recorder

ITEMS, FEATURES, CLASSES, SUBJECTS = (20, 14, 17), 6, 5, 7
RATE, BATCH, CLIP = 0.3, 6, 0.4


@dataclass
class TinyData:
    """Stands in for the resident data set."""

    inputs: Tensor
    labels: Tensor
    views: int = 1

    def batch(self, addresses: Any) -> tuple[Tensor, Tensor]:
        where = torch.from_numpy(np.asarray(addresses, dtype=np.int64))
        return self.inputs[where], self.labels[where]

    def all_views(self, addresses: Any) -> tuple[Tensor, Tensor]:
        inputs, labels = self.batch(addresses)
        rows = [view(item, number) for item in inputs for number in range(self.views)]
        stacked = torch.stack(rows) if rows else inputs
        return stacked, torch.tensor([label for label in labels.tolist() for _ in range(self.views)])


def view(item: Tensor, number: int) -> Tensor:
    """A view of one item: features in another order, other lengths, other signs; number 0 is the item."""
    return item.roll(number, -1) * (1.0 - 0.7 * number)


def with_views(plan: PrivacyPlan, views: int) -> PrivacyPlan:
    return replace(plan, settings=replace(plan.settings, views=views))


def tiny_data(seed: int = 0, views: int = 1) -> TinyData:
    generator = torch.Generator().manual_seed(seed)
    total = sum(ITEMS)
    return TinyData(
        torch.randn(total, FEATURES, generator=generator) * 2,
        torch.randint(0, CLASSES, (total,), generator=generator),
        views,
    )


def tiny_partition(one_item_a_subject: bool = False) -> Partition:
    total = sum(ITEMS)
    offsets = np.concatenate([[0], np.cumsum(ITEMS)]).astype(np.int64)
    subjects = (
        np.arange(total) if one_item_a_subject else np.random.default_rng(4).integers(0, SUBJECTS, total)
    )
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
        subjects[start:stop].sort()
    empty = np.zeros(0, np.int32)
    return Partition(
        np.arange(total, dtype=np.int32),
        subjects.astype(np.int32),
        offsets,
        empty,
        empty,
        {"counts": {"subjects": total}},
    )


def tiny_plan(
    name: str,
    variant: str | None,
    mode: AccountingMode,
    steps: int = 2,
    noise: float = 0.0,
    subject: SubjectSettings = SubjectSettings(),  # noqa: B008 - frozen
) -> PrivacyPlan:
    mechanism = algorithm(name, variant).mechanism(variant, mode)
    whole = mechanism.samples_subjects
    settings = PlanSettings(
        mode=mode,
        horizontal=Horizontal.SOUND,
        sampling=SamplingMethod.POISSON_SUBJECTS if whole else SamplingMethod.POISSON,
        epsilon=4.0,
        delta=1e-5,
        clip_norm=CLIP,
        rounds=1,
        local_steps=steps,
        batch_size=BATCH,
        subject=subject,
    )
    divisor = {DivisorRule.ONE: 1.0, DivisorRule.EXPECTED_SUBJECTS: 4.5}.get(
        mechanism.divisor_rule, float(BATCH)
    )
    silos = tuple(
        SiloSchedule(
            items=items,
            subjects=SUBJECTS,
            sampling_probability=subject.sampling_probability if whole else BATCH / items,
            max_items_per_subject=8,
            steps_per_round=1 if mechanism.one_step_per_round else steps,
            noise_multiplier=0.0 if mechanism.clipping is Clipping.NONE else noise,
            divisor=divisor,
        )
        for items in ITEMS
    )
    grouped = mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
    table = tuple(tuple(noise * z for z in range(1, 9)) for _ in ITEMS) if grouped else ()
    return PrivacyPlan(mechanism, settings, 1, silos, len(ITEMS), True, table)


def tiny_model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def tiny_federation(
    plan: PrivacyPlan,
    partition: Partition | None = None,
    model: nn.Module | None = None,
    seed: int = 3,
    run_id: str = "tiny",
) -> Federation:
    return Federation(
        algorithm(plan.mechanism.algorithm, plan.mechanism.variant),
        plan,
        partition or tiny_partition(),
        tiny_data(views=plan.settings.views),  # type: ignore[arg-type]
        ClippingEngine(FlatParameters(copy.deepcopy(model or tiny_model())), physical_batch_size=4),
        SimpleNamespace(name="sgd", learning_rate=RATE, momentum=0.9, beta2=0.999),
        SimpleNamespace(name="none", learning_rate=1.0, momentum=0.9, beta2=0.99),
        seed,
        Recorder(run_id, 1, lambda line: None),
    )


def without_clipping(plan: PrivacyPlan) -> PrivacyPlan:
    """The plan with C = infinity."""
    return replace(plan, settings=replace(plan.settings, clip_norm=float("inf")))
