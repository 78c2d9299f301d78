"""A worst-case subject for the training loop's own code: one parameter, one gradient an item, known to the test."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from algorithms import tiny
from subjectdp.algorithms.registry import algorithm
from subjectdp.auditing.conformance import _KnownGradient
from subjectdp.auditing.vector import MinibatchDistribution, VectorBatch
from subjectdp.data.partition import Partition
from subjectdp.noise.gaussian import add_gaussian
from subjectdp.noise.keys import Purpose, key_bytes
from subjectdp.plan.plan import (
    AccountingMode,
    DivisorRule,
    Horizontal,
    Mechanism,
    NoiseRule,
    PlanSettings,
    PrivacyPlan,
    PrivacyUnit,
    SamplingMethod,
    SiloSchedule,
)
from subjectdp.training.federation import Federation

SILOS, OTHERS, ITEMS, CANARY_ITEMS, CLIP = 3, 12, 3, 4, 0.7
SILO_ITEMS = OTHERS * ITEMS + CANARY_ITEMS
CANARY = OTHERS  # the canary's subject index


def plan(
    name: str,
    variant: str | None,
    mode: AccountingMode,
    noise: float = 1.3,
    q: float = 0.15,
    mechanism: Mechanism | None = None,
) -> PrivacyPlan:
    """A plan by hand, equal silos, one step a round."""
    mechanism = algorithm(name, variant).mechanism(variant, mode) if mechanism is None else mechanism
    settings = PlanSettings(
        mode, Horizontal.SOUND, SamplingMethod.POISSON, 4.0, 1e-5, CLIP, 1, 1, max(1, round(q * SILO_ITEMS))
    )
    divisor = {DivisorRule.ONE: 1.0, DivisorRule.EXPECTED_SUBJECTS: 4.5}.get(mechanism.divisor_rule, 6.0)
    silo = SiloSchedule(SILO_ITEMS, OTHERS + 1, q, CANARY_ITEMS, 1, noise, divisor)
    grouped = mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
    table = tuple(tuple(noise * z for z in range(1, CANARY_ITEMS + 1)) for _ in range(SILOS)) if grouped else ()
    return PrivacyPlan(mechanism, settings, 1, (silo,) * SILOS, SILOS, True, table)


def real_run(plan: PrivacyPlan, others: float, seed: int = 5) -> tiny.TinyRun:
    """The real federation at work: the canary's items have a huge gradient at every silo, all others ``others``."""
    subjects = np.tile(np.append(np.repeat(np.arange(OTHERS), ITEMS), [CANARY] * CANARY_ITEMS), SILOS)
    gradients = torch.where(torch.from_numpy(subjects) == CANARY, 1e6, others).float()
    none = np.zeros(0, np.int32)
    partition = Partition(
        np.arange(len(subjects), dtype=np.int32),
        subjects.astype(np.int32),
        np.arange(SILOS + 1, dtype=np.int64) * SILO_ITEMS,
        none,
        none,
        {"counts": {"subjects": OTHERS + 1}},
    )
    items = tiny.TinyData(-gradients.unsqueeze(1), torch.ones(len(gradients), dtype=torch.int64))
    return tiny.tiny_run(plan, partition, _KnownGradient(1), seed, "worst", items, rate=1.0)


def update_plan(steps: int, unit: PrivacyUnit = PrivacyUnit.SUBJECT, q: float = 0.05) -> PrivacyPlan:
    """A plan by hand whose updates of some local steps are clipped and noised once, read for a unit."""
    mechanism = algorithm("joint_noise").of_updates
    assert mechanism is not None
    mechanism = replace(mechanism, claimed_unit=unit)
    made = plan("joint_noise", None, AccountingMode.SOUND, q=q, mechanism=mechanism)
    return replace(made, silos=tuple(replace(silo, steps_per_round=steps) for silo in made.silos))


def same_batch(real: Any) -> VectorBatch:
    """The vector batch of one run that holds what the real mini-batch holds."""
    schedule = SiloSchedule(SILO_ITEMS, OTHERS + 1, 0.15, CANARY_ITEMS, 1, 1.0, 1.0)
    batch = VectorBatch(MinibatchDistribution(schedule, SamplingMethod.POISSON, CANARY_ITEMS), 1, torch.Generator())
    batch.canary = torch.tensor([float((real.owners == CANARY).sum())])
    batch.__dict__["subjects"] = torch.tensor([float(real.subjects)])
    batch.__dict__["largest_group"] = torch.tensor([real.largest_group])
    batch.__dict__["others_present"] = torch.tensor([bool((real.owners != CANARY).any())])
    return batch


def same_noise(federation: Federation, round_: int, silo: int, step: int) -> float:
    """The standard normal number that the real step of that key draws for its one parameter."""
    key = key_bytes(federation.seed, Purpose.NOISE, federation.noise_name, round_, silo, step)
    return float(add_gaussian(torch.zeros(1), 1.0, key))
