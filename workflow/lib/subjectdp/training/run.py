"""One run from its configuration to its results: read, plan, lock, build, train round by round, write."""

import hashlib
import json
import logging
import os
import platform
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from subjectdp.accounting.privacy_report import report_text
from subjectdp.accounting.statements import ItemFacts, privacy_statements
from subjectdp.algorithms.registry import label
from subjectdp.config.fingerprint import fingerprint, training_stages
from subjectdp.config.run import RunConfig
from subjectdp.errors import DataError, StorageError, expected
from subjectdp.io.atomic import read_sealed, sealed, sha256_of, write_bytes, write_json
from subjectdp.io.freed_memory import keep_freed_memory
from subjectdp.io.job_log import Stopped, StopRequest, stop_requests
from subjectdp.io.locks import owned
from subjectdp.io.printing import strict
from subjectdp.noise.keys import Purpose, numpy_generator
from subjectdp.places import CHECKOUT, FINISHED, PROGRESS
from subjectdp.plan.plan import NoiseSource
from subjectdp.training.federation import Federation, RunInputs, make_federation, noise_name, read_inputs
from subjectdp.training.records import Checkpoints, Recorder, Snapshot, StepLog, also_to, forget_secret, run_secret
from subjectdp.training.rounds import Ask, GlobalModel, check_noise, evaluate, run_round

log = logging.getLogger(__name__)

# In a run's folder: which process trains it; what it needs to go on, until it is done; a line for each evaluated round.
LOCK, CHECKPOINTS, LOG = ".lock", "checkpoints", "progress.log"

LOCK_WAIT = 1800.0
"""Seconds to wait for another process that trains the same run, before giving up."""


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
    ask: Ask | None = None  # silos that train elsewhere

    @cached_property
    def evaluated(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Test and validation items that the model is scored on."""
        run, partition = self.inputs.run, self.inputs.partition
        test = evaluated_items(partition.test_items, run, "test")
        return test, evaluated_items(partition.validation_items, run, "validation")


def train_run(
    config: Mapping[str, Any],
    prepared_folder: Path | str,
    partition_folder: Path | str,
    output_folder: Path | str,
    report: Callable[[str], None] = log.info,
) -> None:
    """Trains one run and writes rounds.parquet, steps.parquet, model.safetensors and, last, manifest.json.

    config.json is written first; after each evaluated round progress.log gets a line and progress.json is replaced. A
    run that was stopped or killed continues after its last checkpoint, with the same result (the same bits on the CPU).
    The folder is locked meanwhile: a second process waits, and trains nothing if the first has finished this very run.
    Nor is a run trained again whose manifest was deleted with the outputs of a failed job
    (:func:`take_back_finished`).

    Args:
        config: the run's configuration, as ``RunConfig`` dumps it.
        prepared_folder, partition_folder: the prepared data set, and the partition of the run's seed.
        output_folder: where the results go.
        report: takes one line of progress for each evaluated round.

    Raises:
        SubjectDPError: what does not fit, before any training; results that cannot be written, or a folder that another
            process holds for too long.
        Stopped: SIGTERM or SIGINT came; the last round's checkpoint is written.
    """
    started = time.perf_counter()
    inputs = read_inputs(config, prepared_folder, partition_folder)
    train_inputs(inputs, Path(output_folder), report, started)


def train_inputs(
    inputs: RunInputs, folder: Path, report: Callable[[str], None], started: float, ask: Ask | None = None
) -> None:
    """The same from inputs, in a process begun at ``started`` (``perf_counter``); ``ask``: silos and data are
    elsewhere."""
    privacy, performance = _privacy(inputs), inputs.run.performance
    device = choose_device(performance.device)
    own = identity(inputs, device)
    torch.set_num_threads(performance.threads)
    keep_freed_memory()
    report = also_to(folder / LOG, report)
    with owned(folder / LOCK, LOCK_WAIT, report) as waited:
        if (waited and is_complete(folder, own)) or take_back_finished(folder, own):
            _clear(folder)  # it may have been killed before it did so itself
            report(f"{inputs.run.run_id} was finished by an earlier or another attempt of this job")
            return
        if ask is not None and (folder / FINISHED).exists():
            told = "its silos release no round twice. Keep it; for another run change run.seed"
            raise StorageError(f"{folder} holds the finished run, with other settings or code: {told}.")
        if ask is None and inputs.plan.settings.noise_source is NoiseSource.SECURE:
            inputs = replace(inputs, secret=run_secret(folder / CHECKPOINTS))
        with stop_requests() as stop:
            federation = make_federation(inputs, device)
            checkpoints = Checkpoints(folder / CHECKPOINTS, own, performance.checkpoint_minutes, report)
            recorder, model = Recorder(inputs.run.run_id, inputs.plan.rounds), GlobalModel(federation)
            run = Run(inputs, folder, own, federation, model, recorder, checkpoints, stop, report, ask)
            reached = train(run, _begin(run), started)
            # A signal from here on stops nothing: the results are written within a moment.
            _write_results(run, privacy, reached)


def _begin(run: Run) -> Snapshot:
    # the state to continue from; outputs of earlier attempts go
    for path in (*(run.folder / name for name in (MANIFEST, *RESULT_FILES)), *run.folder.glob(".*.tmp*")):
        path.unlink(missing_ok=True)
    if (before := run.checkpoints.latest()) is None:
        (run.folder / PROGRESS).unlink(missing_ok=True)
        if (run.folder / LOG).exists():
            os.truncate(run.folder / LOG, 0)  # and not removed: the job may be writing to it
        before = Snapshot(0, run.model.state())
    else:
        run.report(f"resumed after round {before.round}")
        run.model.restore(before.tensors)
        run.recorder.resume(before.round, before.steps, before.rounds)
        before = replace(before, resumed_after=(*before.resumed_after, before.round))
    write_json(run.folder / "config.json", run.inputs.run.model_dump(mode="json"))
    return before


def train(run: Run, before: Snapshot, started: float) -> Snapshot:
    """The rounds after ``before``, evaluated every ``training.evaluate_every`` rounds and after the last; the run after
    it.

    ``started`` is when this process began. Raises Stopped where a signal came, with the checkpoint of the last whole
    round.
    """
    reached, steps = before, StepLog(after_step=run.stop.check)
    rounds = run.inputs.plan.rounds
    try:
        for round_ in range(before.round + 1, rounds + 1):
            begun = time.perf_counter()
            run_round(run.federation, run.model, round_, steps, run.ask)
            synchronise(run.federation.device)
            seconds = reached.train_seconds + time.perf_counter() - begun
            noised = steps.take()
            check_noise(run.inputs.plan, noised)
            run.recorder.step_rows += noised
            if round_ % run.inputs.run.training.evaluate_every == 0 or round_ == rounds:
                _evaluate(run, round_, seconds / round_)
            wall = before.wall_seconds + time.perf_counter() - started
            rows = list(run.recorder.step_rows), list(run.recorder.round_rows)
            reached = Snapshot(round_, run.model.state(), *rows, seconds, wall, before.resumed_after)
            run.stop.check()
            if round_ < rounds and run.checkpoints.due():
                run.checkpoints.save(reached)
    except Stopped as stopped:
        raise Stopped(stopped.signum, _stop_message(reached, run.checkpoints)) from None
    return reached


def _evaluate(run: Run, round_: int, seconds: float) -> None:
    flat, data = run.federation.engine.flat, run.federation.data
    flat.load(run.model.reported)
    test, validation = (evaluate(flat.model, data, items) for items in run.evaluated)
    run.recorder.add_round(round_, test, validation, seconds)
    run.report(run.recorder.report(run.folder))


def _stop_message(reached: Snapshot, checkpoints: Checkpoints) -> str:
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
    write_bytes(run.folder / FINISHED, (run.folder / MANIFEST).read_bytes())  # which Snakemake does not delete
    _clear(run.folder)


def _clear(folder: Path) -> None:
    # checkpoints of a finished run
    (folder / PROGRESS).unlink(missing_ok=True)
    forget_secret(folder / CHECKPOINTS)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def _privacy(inputs: RunInputs) -> dict[str, Any]:
    # made before training: a run without a stated ε does not start
    items = ItemFacts(inputs.prepared.window, inputs.prepared.copies, inputs.prepared.own_subjects)
    statements = privacy_statements(inputs.plan, items=items)
    return {**statements, "card": report_text(inputs.plan, statements).splitlines()}


PACKAGES = ["torch", "opacus", "dp-accounting", "numpy", "pandas", "pyarrow", "snakemake", "pillow", "scipy", "numba"]
_NO_DEVICES = ("", "-1", "NoDevFiles")  # of CUDA_VISIBLE_DEVICES

ANY_DEVICE = "SUBJECTDP_ANY_DEVICE"
"""Environment variable that lets a job with a GPU that CUDA does not find train on the CPU."""


def choose_device(name: str) -> torch.device:
    """The device of a run: ``auto`` is the first CUDA device, or else the CPU.

    Raises ConfigError for a device that this machine lacks, and for ``auto`` where Slurm gave a GPU and CUDA finds
    none.
    """
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto" and there == 0:
        _check_none_given()
    if name == "cpu" or (name == "auto" and there == 0):
        return torch.device("cpu")
    wanted = torch.device("cuda" if name == "auto" else name)
    index = 0 if wanted.index is None else wanted.index
    if wanted.type != "cuda" or index >= there:
        raise expected("performance.device", name, f"auto, cpu or a device of this machine ({_cuda_there(there)})")
    return torch.device("cuda", index)


def _check_none_given() -> None:
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if "SLURM_JOB_ID" in os.environ and given not in _NO_DEVICES and ANY_DEVICE not in os.environ:
        raise expected(
            "performance.device",
            "auto",
            f"cpu, since Slurm gave this job GPU {given} and {_cuda_there(0)}: mend the driver or the build of torch, "
            f"ask for no GPU (SUBJECTDP_SLURM_GPU=none), or set {ANY_DEVICE}=1",
        )


def _cuda_there(count: int) -> str:
    if count:
        return ", ".join(f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(count))
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    return f"torch is built for CUDA {torch.version.cuda} and finds no device"


def synchronise(device: torch.device) -> None:
    """Waits until a GPU has finished its queued work, so that timings include it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory_mb(device: torch.device) -> float:
    """Peak resident memory of this process, or peak allocated memory of the GPU, in MB."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def environment_of(device: torch.device, threads: int) -> dict[str, Any]:
    """What the manifest says about the machine and the software."""
    lock = CHECKOUT / "requirements.lock"
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu"
    return {
        "device": str(device),
        "device_name": name,
        "threads": threads,
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "slurm_job": os.environ.get("SLURM_JOB_ID"),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git_commit": _git_commit(),
        "lock_sha256": hashlib.sha256(lock.read_bytes()).hexdigest() if lock.is_file() else None,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        # In its own session: a Ctrl-C in the terminal must not end git before it has told the commit.
        options: dict[str, Any] = {"timeout": 20, "env": environment, "start_new_session": True}
        told: str = subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True, **options)
        return told.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


MANIFEST = "manifest.json"
RESULT_FILES = ("rounds.parquet", "steps.parquet", "model.safetensors")


def identity(inputs: RunInputs, device: torch.device) -> dict[str, str]:
    """What must be the same for one process to continue where another one stopped.

    The name of the noise holds what of ``performance`` changes how sums are rounded. Noise is drawn on the kind of
    device. The code's fingerprint is of the files before training.
    """
    run = inputs.run
    return {
        "run_id": run.run_id,
        "config": _digest(run.model_dump(mode="json", exclude={"performance"})),
        "plan": _digest(inputs.plan.to_dict()),
        "data": _digest(inputs.prepared.meta["sha256"]),
        "partition": _digest(inputs.partition.facts),
        "code": fingerprint(*training_stages(run.algorithm.name, run.model.name)),
        "noise": noise_name(inputs.plan, run.run_id, inputs.partition, run.model.name, run.performance),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device.type,
    }


def manifest(
    inputs: RunInputs,
    privacy: dict[str, Any],
    identity: Mapping[str, str],
    device: torch.device,
    reached: Snapshot,
    folder: Path,
) -> dict[str, Any]:
    """All that is known of a finished run (its statements, its last state), hashes of its files, and its own seal."""
    run, plan, prepared = inputs.run, inputs.plan, inputs.prepared
    content = {
        "run_id": run.run_id,
        "algorithm": label(run.algorithm.name, run.algorithm.variant),
        "config": run.model_dump(mode="json"),
        "synthetic": prepared.synthetic,
        "plan": plan.to_dict(),
        "privacy": privacy,
        "partition": inputs.partition.facts,
        "data": {"sha256": prepared.meta["sha256"], "inputs": prepared.meta.get("inputs", [])},
        "identity": dict(identity),
        "code_fingerprint": identity["code"],
        "files": {name: _file(folder / name) for name in RESULT_FILES},
        "environment": environment_of(device, run.performance.threads),
        "rounds_executed": plan.rounds,
        "resumed_after_rounds": list(reached.resumed_after),
        "final": strict({key: value for key, value in reached.rounds[-1].items() if key != "run_id"}),
        "most_frequent_class": prepared.most_frequent_share(inputs.partition.test_items),
        "wall_seconds": round(reached.wall_seconds, 3),
        "peak_memory_mb": round(peak_memory_mb(device), 1),
    }
    return sealed(content)


def is_complete(folder: Path, identity: Mapping[str, str], name: str = MANIFEST) -> bool:
    """Whether a folder holds all results of that run, unchanged by the hashes in ``name``: manifest, or its copy."""
    try:
        record = read_sealed(folder / name)
        files = {file: _file(folder / file) for file in RESULT_FILES}
    except (OSError, DataError):
        return False
    return bool(record["identity"] == dict(identity) and record["files"] == files)


def take_back_finished(folder: Path, identity: Mapping[str, str]) -> bool:
    """Restores the manifest if an earlier attempt of the job finished this very run, unchanged; returns whether."""
    if not is_complete(folder, identity, FINISHED):
        return False
    write_bytes(folder / MANIFEST, (folder / FINISHED).read_bytes())
    return True


def _file(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
