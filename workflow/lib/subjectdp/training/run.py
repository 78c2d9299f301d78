"""One run from its configuration to its results: plan, train, evaluate, record."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from subjectdp.algorithms.base import Algorithm
from subjectdp.algorithms.registry import algorithm, label
from subjectdp.config.models import RunConfig
from subjectdp.config.resolve import resolve_defaults
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.errors import ModelError, PrivacyError, expected
from subjectdp.io.atomic import atomic_path, write_json
from subjectdp.mechanisms.clipping import ClippingEngine
from subjectdp.mechanisms.flat import FlatParameters
from subjectdp.mechanisms.plan import (
    AccountingMode,
    FederationFacts,
    Horizontal,
    NoiseDistribution,
    PlanSettings,
    PrivacyPlan,
    SamplingMethod,
    SiloTerms,
)
from subjectdp.models import build_model
from subjectdp.sampling.keys import Purpose, numpy_generator
from subjectdp.training import environment
from subjectdp.training.evaluation import evaluate
from subjectdp.training.federation import Federation
from subjectdp.training.records import Recorder, also_to
from subjectdp.training.resident import ResidentData

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)


def plan_settings(run: RunConfig, cache_dir: Path | None) -> PlanSettings:
    """The privacy and schedule settings of a configuration."""
    privacy, training, joint = run.privacy, run.training, run.joint
    return PlanSettings(
        mode=AccountingMode(privacy.mode),
        horizontal=Horizontal(privacy.horizontal),
        sampling=SamplingMethod(training.sampling),
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        clip_norm=privacy.clip_norm,
        rounds=training.rounds,
        local_steps=training.local_steps,
        batch_size=training.batch_size,
        silos_per_round=training.silos_per_round,
        noise_multiplier=privacy.noise_multiplier,
        noise_before_average=privacy.noise_placement == "before_average",
        accountant="rdp_integer" if joint.noise == "skellam" else privacy.accountant,
        cache_dir=None if cache_dir is None else str(cache_dir),
        own_noise_only=joint.own_noise_only,
        colluding_silos=joint.colluding_silos,
        noise_distribution=NoiseDistribution(joint.noise),
        gradient_bits=joint.bits,
        ring_bits=joint.ring_bits,
        wrap_probability=joint.wrap_probability,
    )


def silo_terms(run: RunConfig) -> list[SiloTerms]:
    """Each silo's clip norm, learning rate and noise over the common ones."""
    joint, silos = run.joint, run.partition.silos
    equal = (1.0,) * silos
    columns = [joint.clip_norm_factors, joint.learning_rate_factors, joint.noise_factors]
    return [SiloTerms(*terms) for terms in zip(*(column or equal for column in columns), strict=True)]


def plan_run(run: RunConfig, partition: Partition, cache_dir: Path | None = None) -> PrivacyPlan:
    """The privacy plan of a run on a partition (see ``accounting.planning.make_plan`` for what it refuses)."""
    from subjectdp.accounting.planning import make_plan

    settings = plan_settings(run, cache_dir)
    mechanism = algorithm(run.algorithm.name, run.algorithm.variant).mechanism(
        run.algorithm.variant, settings.mode
    )
    return make_plan(mechanism, _facts(run, partition), settings, silo_terms(run))


def _facts(run: RunConfig, partition: Partition) -> FederationFacts:
    """The partition's public facts, with a larger bound k on a subject's items where the user states one."""
    facts, bound = partition.federation_facts(), run.privacy.max_items_per_subject
    if bound is None:
        return facts
    largest = max(facts.largest_subject)
    if bound < largest:
        allowed = f"at least {largest}, the items of a subject at one silo (partition.max_items_per_subject caps them)"
        raise expected("privacy.max_items_per_subject", bound, allowed, PrivacyError)
    return replace(facts, max_items_per_subject=bound, largest_subject=(bound,) * len(facts.items))


def train_run(
    config: Mapping[str, Any],
    prepared_folder: Path | str,
    partition_folder: Path | str,
    output_folder: Path | str,
    cache_dir: Path | str | None = None,
    report: Callable[[str], None] = log.info,
) -> None:
    """Trains one run and writes rounds.parquet, steps.parquet, model.safetensors and, last, manifest.json.

    config.json is there from the start, progress.log grows by a line for each evaluated round.

    Args:
        config: the run's configuration, as ``RunConfig`` dumps it.
        prepared_folder: the prepared data set.
        partition_folder: the partition of the run's seed.
        output_folder: where the results go.
        cache_dir: where noise calibrations are kept between runs.
        report: takes one line of progress for each evaluated round.

    Raises:
        SubjectDPError: configuration, data, model or plan that do not fit, before any training.
    """
    started = time.perf_counter()
    run = resolve_defaults(RunConfig.model_validate(dict(config)))
    output = Path(output_folder)
    prepared, partition = load_prepared(prepared_folder), load_partition(partition_folder)
    plan = plan_run(run, partition, None if cache_dir is None else Path(cache_dir))
    privacy = _privacy(plan)
    device = environment.choose_device(run.performance.device)
    torch.set_num_threads(run.performance.threads)
    recorder = Recorder(run.run_id, plan.rounds, also_to(output / "progress.log", report))
    federation = make_federation(run, plan, prepared, partition, device, recorder)
    (output / "progress.log").unlink(missing_ok=True)
    write_json(output / "config.json", run.model_dump(mode="json"))
    train(federation, run, recorder)
    recorder.write(output)
    _save_model(federation, output / "model.safetensors")
    manifest = _manifest(
        run, plan, privacy, prepared, partition, recorder, device, time.perf_counter() - started
    )
    write_json(output / "manifest.json", manifest)


def make_federation(
    run: RunConfig,
    plan: PrivacyPlan,
    prepared: PreparedData,
    partition: Partition,
    device: torch.device,
    recorder: Recorder,
) -> Federation:
    """Builds model, engine and resident data of a run, and tries the model on one item."""
    if run.model.name is None:
        raise ModelError("Expected model.name to be resolved, got None.")
    model = build_model(run.model.name, prepared.classes, prepared.kind, run.seed, run.model.parameters).to(
        device
    )
    data = ResidentData(prepared, device)
    _try_model(model, data, partition, prepared.classes, run.model.name)
    engine = ClippingEngine(FlatParameters(model), run.performance.physical_batch_size)
    found: Algorithm = algorithm(run.algorithm.name, run.algorithm.variant)
    return Federation(
        found,
        plan,
        partition,
        data,
        engine,
        run.training.optimizer,
        run.training.server_optimizer,
        run.seed,
        recorder,
    )


def train(federation: Federation, run: RunConfig, recorder: Recorder) -> None:
    """All rounds of the plan, evaluated every ``training.evaluate_every`` rounds and after the last."""
    model, size = federation.engine.flat.model, run.performance.evaluation_batch_size
    test_items = evaluated_items(federation.partition.test_items, run, "test")
    validation_items = evaluated_items(federation.partition.validation_items, run, "validation")
    seconds = 0.0
    for round_ in range(1, federation.plan.rounds + 1):
        seconds += federation.run_round(round_)
        if round_ % run.training.evaluate_every == 0 or round_ == federation.plan.rounds:
            test = evaluate(model, federation.data, test_items, size)
            validation = evaluate(model, federation.data, validation_items, size)
            recorder.round(round_, test, validation, seconds / round_)


def evaluated_items(items: NDArray[np.int32], run: RunConfig, part: str) -> NDArray[np.int32]:
    """All pooled items of a part, or a random ``training.evaluation_items`` of them, the same for a seed's runs."""
    limit = run.training.evaluation_items
    if limit is None or limit >= len(items):
        return items
    chosen = numpy_generator(run.seed, Purpose.EVALUATION, part).choice(len(items), limit, replace=False)
    return items[np.sort(chosen)]


def _try_model(
    model: torch.nn.Module, data: ResidentData, partition: Partition, classes: int, name: str
) -> None:
    inputs, _ = data.batch(partition.train_items[:1])
    try:
        with torch.no_grad():
            shape = tuple(model(inputs).shape)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ModelError(
            f"Expected model.name {name!r} to take items of shape {tuple(inputs.shape)}: {error}"
        ) from None
    if shape != (1, classes):
        raise ModelError(f"Expected model.name {name!r} to give logits of shape (1, {classes}), got {shape}.")


def _save_model(federation: Federation, target: Path) -> None:
    views = federation.engine.flat.views(federation.theta)
    with atomic_path(target) as temporary:
        save_file({name: view.detach().cpu().contiguous() for name, view in views.items()}, temporary)


def _privacy(plan: PrivacyPlan) -> dict[str, Any]:
    """The statements of the manifest, made before training: a run whose ε cannot be stated does not start."""
    from subjectdp.accounting.statements import privacy_statements

    return privacy_statements(plan)


def _manifest(
    run: RunConfig,
    plan: PrivacyPlan,
    privacy: dict[str, Any],
    prepared: PreparedData,
    partition: Partition,
    recorder: Recorder,
    device: torch.device,
    seconds: float,
) -> dict[str, Any]:
    from subjectdp.config.fingerprint import fingerprint

    return {
        "run_id": run.run_id,
        "algorithm": label(run.algorithm.name, run.algorithm.variant),
        "config": run.model_dump(mode="json"),
        "synthetic": prepared.synthetic,
        "plan": plan.to_dict(),
        "privacy": privacy,
        "partition": partition.facts,
        "data": {"sha256": prepared.meta["sha256"], "inputs": prepared.meta.get("inputs", [])},
        "code_fingerprint": fingerprint(f"train:{run.algorithm.name}"),
        "environment": environment.describe(device, run.performance.threads),
        "rounds_executed": plan.rounds,
        "final": recorder.final(),
        "wall_seconds": round(seconds, 3),
        "peak_memory_mb": round(environment.peak_memory_mb(device), 1),
    }
