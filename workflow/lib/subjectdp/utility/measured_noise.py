"""The noise on the averaged gradient of each algorithm: as its plan predicts, and as measured in rounds of the run.

A round is run twice from the same model, with the same mini-batches and different noise. In the difference of the two
models gradients cancel: what remains has √2 times the std of one draw of noise.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from subjectdp.accounting.make_plan import plan_run
from subjectdp.accounting.sound import averaged_noise
from subjectdp.algorithms.registry import label, mechanism
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.sections import OptimizerConfig
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_frame
from subjectdp.plan.plan import AccountingMode, PrivacyPlan
from subjectdp.training.federation import RunInputs, make_federation
from subjectdp.training.records import StepLog
from subjectdp.training.rounds import GlobalModel, run_round
from subjectdp.utility import NOISE_COLUMNS, PAPERS, SCENARIO

log = logging.getLogger(__name__)

PAPER_ROUNDS, PAPER_STEPS = 100, 50
PAPER_PROBABILITY = 512 / 25_375
"""The papers' FEMNIST: an item's probability in a mini-batch of a silo."""


def write_noise(
    runs: Iterable[tuple[Mapping[str, Any], Path | str, Path | str]], target_parquet: Path | str
) -> pd.DataFrame:
    """Writes noise.parquet (columns: ``utility.NOISE_COLUMNS``) and returns it: each run with both schedules.

    ``runs``: configuration, prepared data set and partition of each, in sound mode. Raises DataError for none, and
    SubjectDPError for one whose plan is refused, or whose noise depends on the data.
    """
    rows = []
    for config, prepared_folder, partition_folder in runs:
        run = load_run(config)
        if run.privacy.mode != AccountingMode.SOUND:
            raise expected(f"privacy.mode of {run.run_id}", run.privacy.mode, "sound, as the figure says", DataError)
        prepared, partition = load_prepared(prepared_folder), load_partition(partition_folder)
        for schedule in (SCENARIO, PAPERS):
            rows.append(_row(run, schedule, prepared, partition))
            log.info("%(label)s, %(schedule)s: planned %(planned).4g, measured %(measured).4g", rows[-1])
    if not rows:
        raise expected("runs to measure the noise of", "none", "at least one run with noise", DataError)
    table = pd.DataFrame(rows, columns=list(NOISE_COLUMNS))
    write_frame(target_parquet, table)
    return table


def measured_noise(
    run: RunConfig, plan: PrivacyPlan, prepared: PreparedData, partition: Partition
) -> tuple[float, int]:
    """Std of the noise on the averaged gradient in clip norms, and the number of coordinates it is averaged over.
    Runs the plan's last round, with one local step of plain SGD at a rate of 1 at each silo."""
    single = replace(plan, silos=tuple(replace(silo, steps_per_round=1) for silo in plan.silos))
    training = run.training.model_copy(update={"optimizer": OptimizerConfig(name="sgd", learning_rate=1.0)})
    inputs = RunInputs(run.model_copy(update={"training": training}), single, prepared, partition)
    models = []
    for noise in ("one", "other"):
        federation = replace(make_federation(inputs, torch.device("cpu")), noise_name=noise)
        model = GlobalModel(federation)
        run_round(federation, model, plan.rounds, StepLog())
        models.append(model.vector)
    difference = (models[0] - models[1]).double()
    return float(difference.square().mean().div(2).sqrt()) / plan.settings.clip_norm, difference.numel()


def paper_schedule(run: RunConfig, partition: Partition) -> RunConfig:
    """The run with the papers' 100 rounds, 50 local steps a round and sampling fraction.
    An algorithm with one release a round still has one: 100 releases where the others have 5,000."""
    items = len(partition.train_items) / partition.silos
    changes = {"rounds": PAPER_ROUNDS, "local_steps": PAPER_STEPS, "sampling_fraction": None}
    changes["batch_size"] = max(1, math.ceil(PAPER_PROBABILITY * items))
    training = run.training.model_copy(update=changes)
    subject = run.subject
    declared = mechanism(run.algorithm.name, run.algorithm.variant, AccountingMode(run.privacy.mode))
    if declared.samples_subjects and not declared.shared_budget:  # sampled in each step, as items are
        subject = subject.model_copy(update={"sampling_probability": PAPER_PROBABILITY})
    return run.model_copy(update={"training": training, "subject": subject})


def _row(run: RunConfig, schedule: str, prepared: PreparedData, partition: Partition) -> dict[str, Any]:
    chosen = run if schedule == SCENARIO else paper_schedule(run, partition)
    plan = plan_run(chosen, partition)
    planned = averaged_noise(plan)
    measured, coordinates = measured_noise(chosen, plan, prepared, partition)
    name, variant = run.algorithm.name, run.algorithm.variant
    predicted = plan.settings.predicted_subjects
    return {
        "dataset": prepared.dataset,
        "synthetic": bool(prepared.synthetic),
        "algorithm": name if variant is None else f"{name}:{variant}",
        "label": label(name, variant),
        "unit": str(plan.mechanism.claimed_unit),
        "schedule": schedule,
        "rounds": plan.rounds,
        "local_steps": max(silo.steps_per_round for silo in plan.silos),
        "sampling_probability": sum(silo.sampling_probability for silo in plan.silos) / len(plan.silos),
        "epsilon": plan.settings.epsilon if plan.settings.noise_multiplier is None else math.inf,
        "delta": plan.settings.delta,
        "clip_norm": plan.settings.clip_norm,
        "subjects": partition.subjects,
        "predicted_subjects": math.nan if predicted is None else float(predicted),
        "planned": planned,
        "measured": measured,
        "coordinates": coordinates,
    }
