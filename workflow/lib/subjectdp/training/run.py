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
from safetensors.torch import save

from subjectdp.accounting.plan_run import plan_run
from subjectdp.algorithms.base import Algorithm
from subjectdp.algorithms.registry import algorithm
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import Partition, load_partition
from subjectdp.data.store import PreparedData, load_prepared
from subjectdp.engine.clipping import ClippingEngine
from subjectdp.engine.flat import FlatParameters
from subjectdp.errors import ModelError
from subjectdp.io.atomic import write_bytes, write_json
from subjectdp.io.locks import owned
from subjectdp.io.stop_signals import Stopped, StopRequest, stop_requests
from subjectdp.models.build import build_model
from subjectdp.models.catalogue import model_parameters
from subjectdp.models.fixed import fixed_features
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import PrivacyPlan
from subjectdp.training.federation import Federation
from subjectdp.training.items.augmentation import warps
from subjectdp.training.items.device_data import ResidentData
from subjectdp.training.items.feature_cache import FeatureCache
from subjectdp.training.record import environment
from subjectdp.training.record.checkpoints import CheckpointFolder, Checkpoints
from subjectdp.training.record.manifest import (
    MANIFEST,
    RESULT_FILES,
    check_match,
    identity,
    is_complete,
    keep_finished,
    manifest,
    take_back_finished,
)
from subjectdp.training.record.records import Recorder, also_to
from subjectdp.training.record.snapshots import Snapshot, restore, snapshot
from subjectdp.training.workers.messages import Recipe
from subjectdp.training.workers.processes import team_of

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

LOCK = ".lock"
"""Name of the file in a run's folder that says which process trains it."""


def train_run(
    config: Mapping[str, Any],
    prepared_folder: Path | str,
    partition_folder: Path | str,
    output_folder: Path | str,
    cache_dir: Path | str | None = None,
    report: Callable[[str], None] = log.info,
) -> None:
    """Trains one run and writes rounds.parquet, steps.parquet, model.safetensors and, last, manifest.json.

    config.json is there from the start, progress.log grows by a line for each evaluated round. A run that was stopped
    or killed goes on after its last checkpoint and ends as if it had not been (bit by bit on the CPU). The folder is
    locked meanwhile: a second process waits, and trains nothing if the first has finished this very run. Nor is a run
    trained again whose manifest was deleted with the outputs of a failed job (``manifest.take_back_finished``).

    Args:
        config: the run's configuration, as ``RunConfig`` dumps it.
        prepared_folder: the prepared data set.
        partition_folder: the partition of the run's seed.
        output_folder: where the results go.
        cache_dir: where noise calibrations and fixed features are kept between runs.
        report: takes one line of progress for each evaluated round.

    Raises:
        SubjectDPError: configuration, data, model or plan that do not fit, before any training; results that cannot be
            written, or a folder that another process holds for too long.
        Stopped: SIGTERM or SIGINT came; the last round's checkpoint is written.
    """
    started = time.perf_counter()
    run = resolve_defaults(RunConfig.model_validate(dict(config)))
    output = Path(output_folder)
    prepared, partition = load_prepared(prepared_folder, verify=True), load_partition(partition_folder)
    check_match(prepared, partition)
    plan = plan_run(run, partition, None if cache_dir is None else Path(cache_dir))
    privacy = _privacy(plan)
    devices = environment.choose_devices(run.performance.device, run.performance.processes)
    device = devices[0]
    who = identity(run, plan, prepared, partition, device)
    torch.set_num_threads(run.performance.threads)
    environment.keep_freed_memory()
    report = also_to(output / "progress.log", report)
    with owned(output / LOCK, 60.0 * run.performance.lock_wait_minutes, report) as waited:
        if _is_finished(output, who, waited):
            report(f"{run.run_id} was finished by an earlier or another attempt of this job")
            return
        with stop_requests() as stop:
            recorder = Recorder(run.run_id, plan.rounds, report, stop.check)
            federation = make_federation(run, plan, prepared, partition, device, recorder, cache_dir)
            checkpoints = _checkpoints(run, output, who, report)
            before = _begin(federation, recorder, checkpoints, run, output)
            recipe = Recipe(run.model_dump(mode="json"), plan, str(prepared_folder), str(partition_folder))
            with team_of(recipe, devices) as federation.team:
                reached = train(federation, run, recorder, checkpoints, stop, before, started)
            # A signal from here on comes too late to stop anything: the results are written within a moment.
            recorder.write(output)
            _save_model(federation, output / "model.safetensors")
            facts = (run, plan, privacy, prepared, partition, recorder, device, who, output)
            write_json(output / MANIFEST, manifest(*facts, reached.wall_seconds, reached.resumed_after))
            keep_finished(output)
            checkpoints.folder.remove()


def _is_finished(output: Path, who: Mapping[str, str], waited: bool) -> bool:
    """Whether all results are there, because of the process that was waited for or an earlier one."""
    return (waited and is_complete(output, who)) or take_back_finished(output, who)


def _checkpoints(
    run: RunConfig, output: Path, who: Mapping[str, str], report: Callable[[str], None]
) -> Checkpoints:
    performance = run.performance
    folder = CheckpointFolder(output / "checkpoints", who, report)
    return Checkpoints(folder, performance.checkpoint_every, performance.checkpoint_minutes, report)


def _begin(
    federation: Federation, recorder: Recorder, checkpoints: Checkpoints, run: RunConfig, output: Path
) -> Snapshot:
    """What to go on from: the last checkpoint, or nothing. Results of an earlier attempt go away, half or whole."""
    for name in (MANIFEST, *RESULT_FILES):
        (output / name).unlink(missing_ok=True)
    for half in output.glob(".*.tmp*"):
        half.unlink(missing_ok=True)
    found = checkpoints.resume()
    if found is None:
        (output / "progress.log").unlink(missing_ok=True)
        found = snapshot(federation, recorder, 0, 0.0, 0.0, ())
    else:
        restore(federation, found.tensors)
        recorder.resume(found.round, found.steps, found.rounds)
        found = replace(found, resumed_after=(*found.resumed_after, found.round))
    write_json(output / "config.json", run.model_dump(mode="json"))
    return found


def make_federation(
    run: RunConfig,
    plan: PrivacyPlan,
    prepared: PreparedData,
    partition: Partition,
    device: torch.device,
    recorder: Recorder,
    cache_dir: Path | str | None = None,
) -> Federation:
    """Builds model, engine and resident data of a run, and tries the model on one item and on a few.

    ``cache_dir``: where a model's fixed features are kept for other runs; None: computed for this run alone.
    """
    if run.model.name is None:
        raise ModelError("Expected model.name to be resolved, got None.")
    model = build_model(run.model.name, prepared.classes, prepared.kind, run.seed, run.model.parameters).to(
        device
    )
    used = np.concatenate([partition.train_items, partition.validation_items, partition.test_items])
    kept = None
    if cache_dir is not None and device.type == "cpu":
        resolved = {"name": run.model.name, **model_parameters(run.model.name, run.model.parameters)}
        kept = FeatureCache(cache_dir, prepared.meta["sha256"], resolved)
    views = run.training.augmentation
    seen = warps(views.seen, views.magnitude), partition.train_items
    data = ResidentData(prepared, device, fixed_features(model), used, kept, *seen)
    _try_model(model, data, partition, prepared.classes, run.model.name)
    engine = ClippingEngine(FlatParameters(model), run.performance.items_at_once(device.type))
    engine.check_items_apart(*data.batch(partition.train_items[:: max(1, len(partition.train_items) // 3)]))
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
        run.training.averaging,
    )


def train(
    federation: Federation,
    run: RunConfig,
    recorder: Recorder,
    checkpoints: Checkpoints,
    stop: StopRequest,
    before: Snapshot,
    started: float,
) -> Snapshot:
    """The rounds of the plan after ``before``, evaluated every ``training.evaluate_every`` rounds and after the last.

    Returns the run as it is after the last round. ``started``: when this process began (``time.perf_counter``).

    Raises:
        Stopped: a signal came; the checkpoint of the last whole round is written.
    """
    size = run.performance.evaluation_batch_size
    test_items = evaluated_items(federation.partition.test_items, run, "test")
    validation_items = evaluated_items(federation.partition.validation_items, run, "validation")
    reached = before
    try:
        for round_ in range(before.round + 1, federation.plan.rounds + 1):
            seconds = reached.train_seconds + federation.run_round(round_)
            if round_ % run.training.evaluate_every == 0 or round_ == federation.plan.rounds:
                test = federation.score(test_items, size)
                validation = federation.score(validation_items, size)
                recorder.round(round_, test, validation, seconds / round_)
            wall = before.wall_seconds + time.perf_counter() - started
            reached = snapshot(federation, recorder, round_, seconds, wall, before.resumed_after)
            stop.check()
            if round_ < federation.plan.rounds and checkpoints.due(round_):
                checkpoints.save(reached)
    except Stopped as stopped:
        raise Stopped(stopped.signum, _last_words(reached, checkpoints)) from None
    return reached


def _last_words(reached: Snapshot, checkpoints: Checkpoints) -> str:
    if reached.round == 0:
        return " in the first round, nothing to keep; start again to train"
    if checkpoints.save(reached):
        return f", checkpoint after round {reached.round} written; start again to go on"
    return f", no checkpoint of round {reached.round} could be written"


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
    views = federation.engine.flat.views(federation.reported)
    write_bytes(target, save({name: view.detach().cpu().contiguous() for name, view in views.items()}))


def _privacy(plan: PrivacyPlan) -> dict[str, Any]:
    """The manifest's statements and privacy report, made before training: a run without a stated ε does not start."""
    from subjectdp.accounting.privacy_report import report_text
    from subjectdp.accounting.statements import privacy_statements

    statements = privacy_statements(plan)
    return {**statements, "card": report_text(plan, statements).splitlines()}
