"""One run from its configuration to its results: read, plan, lock, build, train round by round, write."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.statements import ItemFacts, privacy_statements
from subjectdp.config.paths import PROGRESS
from subjectdp.config.run import RunConfig
from subjectdp.data.partition import Partition
from subjectdp.io.atomic import write_bytes, write_json
from subjectdp.io.job_log import Stopped, StopRequest, stop_requests
from subjectdp.io.locks import owned
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.plan.plan import NoiseSource
from subjectdp.training.build import RunInputs, make_federation, read_inputs
from subjectdp.training.evaluation import Score, evaluate_federation
from subjectdp.training.federation import Federation
from subjectdp.training.global_model import GlobalModel
from subjectdp.training.record import environment
from subjectdp.training.record.checkpoints import CheckpointFolder, Checkpoints
from subjectdp.training.record.manifest import (
    MANIFEST,
    RESULT_FILES,
    identity,
    is_complete,
    keep_finished,
    manifest,
    take_back_finished,
)
from subjectdp.training.record.records import Recorder, also_to
from subjectdp.training.record.secret import forget_secret, run_secret
from subjectdp.training.record.snapshots import Snapshot
from subjectdp.training.record.steplog import StepLog
from subjectdp.training.rounds import run_round

log = logging.getLogger(__name__)

LOCK = ".lock"
"""Name of the file in a run's folder that says which process trains it."""

CHECKPOINTS = "checkpoints"
"""Name of the folder in a run's folder for what it needs to go on; removed when the run is done."""

LOG = "progress.log"
"""Name of the file in a run's folder with a line for each evaluated round."""


@dataclass(frozen=True)
class Run:
    """One run at work: its inputs, its folder, and what its rounds use."""

    inputs: RunInputs
    folder: Path
    identity: Mapping[str, str]
    federation: Federation
    model: GlobalModel
    recorder: Recorder
    checkpoints: Checkpoints
    stop: StopRequest
    report: Callable[[str], None]

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.inputs.run

    @cached_property
    def evaluated(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Test and validation items that the model is scored on."""
        partition: Partition = self.inputs.partition
        test = evaluated_items(partition.test_items, self.config, "test")
        return test, evaluated_items(partition.validation_items, self.config, "validation")


def train_run(
    config: Mapping[str, Any],
    prepared_folder: Path | str,
    partition_folder: Path | str,
    output_folder: Path | str,
    cache_dir: Path | str | None = None,
    report: Callable[[str], None] = log.info,
) -> None:
    """Trains one run and writes rounds.parquet, steps.parquet, model.safetensors and, last, manifest.json.

    config.json is written first; after each evaluated round progress.log gets a line and progress.json is replaced. A
    run that was stopped or killed continues after its last checkpoint, with the same result (the same bits on the CPU).
    The folder is locked meanwhile: a second process waits, and trains nothing if the first has finished this very run.
    A run whose manifest was deleted with the outputs of a failed job is not trained again
    (``manifest.take_back_finished``).

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
    cache, folder = None if cache_dir is None else Path(cache_dir), Path(output_folder)
    inputs = read_inputs(config, prepared_folder, partition_folder, cache)
    privacy, performance = _privacy(inputs), inputs.run.performance
    device = environment.choose_device(performance.device)
    own = identity(inputs, device)
    torch.set_num_threads(performance.threads)
    environment.keep_freed_memory()
    report = also_to(folder / LOG, report)
    with owned(folder / LOCK, 60.0 * performance.lock_wait_minutes, report) as waited:
        if (waited and is_complete(folder, own)) or take_back_finished(folder, own):
            _clear(folder)  # it may have been killed before it did so itself
            report(f"{inputs.run.run_id} was finished by an earlier or another attempt of this job")
            return
        if inputs.plan.settings.noise_source is NoiseSource.SECURE:
            inputs = replace(inputs, secret=run_secret(folder / CHECKPOINTS))
        with stop_requests() as stop:
            federation = make_federation(inputs, device, cache)
            run = _run(inputs, folder, own, federation, stop, report)
            before = _begin(run)
            reached = train(run, before, started)
            # A signal from here on stops nothing: the results are written within a moment.
            _write_results(run, privacy, reached)


def _run(
    inputs: RunInputs,
    folder: Path,
    own: Mapping[str, str],
    federation: Federation,
    stop: StopRequest,
    report: Callable[[str], None],
) -> Run:
    performance = inputs.run.performance
    checkpoints = Checkpoints(
        CheckpointFolder(folder / CHECKPOINTS, own, report),
        performance.checkpoint_every,
        performance.checkpoint_minutes,
        report,
    )
    recorder = Recorder(inputs.run.run_id, inputs.plan.rounds)
    return Run(inputs, folder, own, federation, GlobalModel(federation), recorder, checkpoints, stop, report)


def _begin(run: Run) -> Snapshot:
    for name in (MANIFEST, *RESULT_FILES):
        (run.folder / name).unlink(missing_ok=True)
    for half in run.folder.glob(".*.tmp*"):
        half.unlink(missing_ok=True)
    found = run.checkpoints.resume()
    if found is None:
        (run.folder / PROGRESS).unlink(missing_ok=True)
        if (run.folder / LOG).exists():
            os.truncate(run.folder / LOG, 0)  # and not removed: the job may be writing to it
        found = Snapshot(0, run.model.state())
    else:
        run.model.restore(found.tensors)
        run.recorder.resume(found.round, found.steps, found.rounds)
        found = replace(found, resumed_after=(*found.resumed_after, found.round))
    write_json(run.folder / "config.json", run.config.model_dump(mode="json"))
    return found


def train(run: Run, before: Snapshot, started: float) -> Snapshot:
    """The rounds of the plan after ``before``, evaluated every ``training.evaluate_every`` rounds and after the last.

    Args:
        run: the run; its global model is that of ``before``.
        before: the run as it was before the first of the rounds.
        started: when this process began (``time.perf_counter``).

    Returns:
        The run after the last round.

    Raises:
        Stopped: a signal came; the checkpoint of the last whole round is written.
    """
    reached, steps = before, StepLog(after_step=run.stop.check)
    rounds = run.inputs.plan.rounds
    try:
        for round_ in range(before.round + 1, rounds + 1):
            begun = time.perf_counter()
            run_round(run.federation, run.model, round_, steps)
            environment.synchronise(run.federation.device)
            seconds = reached.train_seconds + time.perf_counter() - begun
            run.recorder.add_steps(steps.take())
            if round_ % run.config.training.evaluate_every == 0 or round_ == rounds:
                _evaluate(run, round_, seconds / round_)
            wall = before.wall_seconds + time.perf_counter() - started
            reached = _snapshot(run, round_, seconds, wall, before.resumed_after)
            run.stop.check()
            if round_ < rounds and run.checkpoints.due(round_):
                run.checkpoints.save(reached)
    except Stopped as stopped:
        raise Stopped(stopped.signum, _last_words(reached, run.checkpoints)) from None
    return reached


def _evaluate(run: Run, round_: int, seconds: float) -> None:
    def score(items: NDArray[np.int32]) -> Score:
        return evaluate_federation(run.federation, run.model.reported, items)

    test, validation = (score(items) for items in run.evaluated)
    progress = run.recorder.add_round(round_, test, validation, seconds)
    progress.write(run.folder)
    run.report(progress.line())


def _snapshot(
    run: Run, round_: int, train_seconds: float, wall_seconds: float, resumed_after: tuple[int, ...]
) -> Snapshot:
    steps, rounds = list(run.recorder.step_rows), list(run.recorder.round_rows)
    return Snapshot(round_, run.model.state(), steps, rounds, train_seconds, wall_seconds, resumed_after)


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


def _write_results(run: Run, privacy: dict[str, Any], reached: Snapshot) -> None:
    run.recorder.write(run.folder)
    parameters = run.federation.engine.flat.views(run.model.reported)
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in parameters.items()}
    write_bytes(run.folder / "model.safetensors", save(tensors))
    content = manifest(run.inputs, privacy, run.identity, run.federation.device, reached, run.folder)
    write_json(run.folder / MANIFEST, content)
    keep_finished(run.folder)
    _clear(run.folder)


def _clear(folder: Path) -> None:
    (folder / PROGRESS).unlink(missing_ok=True)
    forget_secret(folder / CHECKPOINTS)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _privacy(inputs: RunInputs) -> dict[str, Any]:
    items = ItemFacts(inputs.prepared.window, inputs.prepared.copies)
    statements = privacy_statements(inputs.plan, items=items)
    card = report_text(inputs.plan, statements).splitlines()
    if inputs.prepared.own_subjects:
        card += [
            "",
            "The data name nobody: each item is its own subject, and a person with several has no more.",
        ]
    return {**statements, "card": card}
