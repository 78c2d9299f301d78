"""A tiny federation: 3 silos, 7 subjects spread over them, 6 features, a two-layer network; plans written by hand."""

import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from accounting import plans
from noise.test_gaussian import fits as gaussian_fits
from subjectdp.algorithms.registry import algorithm
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.partition import Partition
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.plan.plan import (
    AccountingMode,
    Clipping,
    DivisorRule,
    Horizontal,
    NoiseRule,
    PrivacyPlan,
    SamplingMethod,
    SiloSchedule,
    SubjectSettings,
)
from subjectdp.training.federation import Federation, noise_name
from subjectdp.training.records import LoggedStep, StepLog
from subjectdp.training.rounds import GlobalModel, run_round, train_silo
from subjectdp.training.silo_step import SiloStep

ITEMS, FEATURES, CLASSES, SUBJECTS = (20, 14, 17), 6, 5, 7
RATE, BATCH, CLIP = 0.3, 6, 0.4
ROUND, SEED = 1, 3
LINEAR = nn.Linear(FEATURES, CLASSES)
WIDE = nn.Sequential(nn.Linear(FEATURES, 400), nn.Tanh(), nn.Linear(400, CLASSES))


@dataclass
class TinyData:
    """Stands in for the resident data set."""

    inputs: Tensor
    labels: Tensor

    def batch(self, addresses: Any) -> tuple[Tensor, Tensor]:
        where = torch.from_numpy(np.asarray(addresses, dtype=np.int64))
        return self.inputs[where], self.labels[where]


def tiny_data(seed: int = 0) -> TinyData:
    generator = torch.Generator().manual_seed(seed)
    total = sum(ITEMS)
    inputs = torch.randn(total, FEATURES, generator=generator) * 2
    return TinyData(inputs, torch.randint(0, CLASSES, (total,), generator=generator))


def tiny_partition() -> Partition:
    total = sum(ITEMS)
    offsets = np.concatenate([[0], np.cumsum(ITEMS)]).astype(np.int64)
    subjects = np.random.default_rng(4).integers(0, SUBJECTS, total)
    for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
        subjects[start:stop].sort()
    items, empty = np.arange(total, dtype=np.int32), np.zeros(0, np.int32)
    return Partition(items, subjects.astype(np.int32), offsets, empty, empty, {"counts": {"subjects": total}})


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
    schedule = {"horizontal": Horizontal.SOUND, "clip_norm": CLIP, "rounds": 1, "local_steps": steps}
    sampling = SamplingMethod.POISSON_SUBJECTS if whole else SamplingMethod.POISSON
    settings = plans.settings(mode=mode, sampling=sampling, batch_size=BATCH, subject=subject, **schedule)
    at_once, sigma = mechanism.one_step_per_round, 0.0 if mechanism.clipping is Clipping.NONE else noise
    divisor = {DivisorRule.ONE: 1.0, DivisorRule.EXPECTED_SUBJECTS: 4.5}.get(mechanism.divisor_rule, float(BATCH))
    drawn = [subject.sampling_probability if whole else BATCH / items for items in ITEMS]
    silos = tuple(
        SiloSchedule(items, SUBJECTS, q, 8, 1 if at_once else steps, sigma, divisor)
        for items, q in zip(ITEMS, drawn, strict=True)
    )
    grouped = mechanism.noise_rule is NoiseRule.GROUP_SIZE_IN_BATCH
    table = tuple(tuple(noise * z for z in range(1, 9)) for _ in ITEMS) if grouped else ()
    return PrivacyPlan(mechanism, settings, 1, silos, len(ITEMS), True, table)


def tiny_model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.Tanh(), nn.Linear(8, CLASSES))


@dataclass
class TinyRun:
    """A tiny federation at work: its global model, and the rows of its local steps so far."""

    federation: Federation
    model: GlobalModel = field(init=False)
    rows: list[LoggedStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = GlobalModel(self.federation)

    @property
    def theta(self) -> Tensor:
        """The global model (P,)."""
        return self.model.vector

    def change(self, **parts: Any) -> None:
        """Goes on with a federation of other parts."""
        self.federation = replace(self.federation, **parts)

    def run_round(self, round_: int) -> None:
        log = StepLog()
        run_round(self.federation, self.model, round_, log)
        self.rows += log.take()

    def step(self, round_: int, silo: int, step: int) -> SiloStep:
        return SiloStep(self.federation, round_, silo, step)

    def result(self, round_: int, silo: int) -> Tensor:
        """What a silo gives to the server."""
        return train_silo(self.federation, self.theta, round_, silo, StepLog())


def tiny_run(
    plan: PrivacyPlan,
    partition: Partition | None = None,
    model: nn.Module | None = None,
    seed: int = SEED,
    run_id: str = "tiny",
    data: TinyData | None = None,
    rate: float = RATE,
) -> TinyRun:
    partition = partition or tiny_partition()
    return TinyRun(
        Federation(
            rule=algorithm(plan.mechanism.algorithm, plan.mechanism.variant).round_rule(plan),
            plan=plan,
            partition=partition,
            data=data or tiny_data(),  # type: ignore[arg-type]
            engine=ClippingEngine(FlatParameters(copy.deepcopy(model or tiny_model())), physical_batch_size=4),
            seed=seed,
            noise_name=noise_name(plan, run_id, partition),
            optimiser=OptimizerConfig(learning_rate=rate),
        )
    )


def after_a_round(plan: PrivacyPlan, model: nn.Module | None = None) -> Tensor:
    run = tiny_run(plan, model=model)
    run.run_round(ROUND)
    return run.theta.double()


def noise_of_a_round(plan: PrivacyPlan) -> Tensor:
    """Noise on a wide model: a round with noise minus the same without, in the same integers where there are any."""
    silos = tuple(replace(silo, noise_multiplier=0.0) for silo in plan.silos)
    tables = tuple((0.0,) * len(row) for row in plan.group_noise_multipliers)
    return after_a_round(plan, WIDE) - after_a_round(replace(plan, silos=silos, group_noise_multipliers=tables), WIDE)


def fits(noise: Tensor, std: float) -> bool:
    return gaussian_fits(noise.double().numpy(), std)
