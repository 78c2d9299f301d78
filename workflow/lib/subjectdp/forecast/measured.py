"""The pace of this machine: the finished runs' wall time over the core-seconds of their work."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from subjectdp.config import paths
from subjectdp.config.run import RunConfig
from subjectdp.forecast.cost_model import RATE, work_of
from subjectdp.forecast.model_cost import model_cost

REFERENCE_GFLOPS = RATE / 1e9
"""Billions of operations a second behind the core-seconds of :mod:`subjectdp.forecast.cost_model`."""

_NEWEST = 400  # manifests that are read
_Key = tuple[str, ...]


@dataclass(frozen=True)
class Measurement:
    """One finished run."""

    device: str  # kind of device: cpu or cuda
    model: str
    algorithm: str
    factor: float  # wall seconds over core-seconds
    memory_mb: float  # peak


@dataclass(frozen=True)
class Pace:
    """The pace of a run that has not been run."""

    factor: float  # multiplies core-seconds
    memory_mb: float | None  # median peak; None: not measured for this model and algorithm
    basis: str  # source of the factor, for people


class Paces:
    """The measurements by device, model and algorithm; the closest match counts.

    If there are runs on GPUs, only those count: that is where the scenario will run.
    """

    def __init__(self, measurements: list[Measurement], gflops: float | None = None) -> None:
        devices = {measurement.device for measurement in measurements}
        self.device = "cuda" if "cuda" in devices else "cpu"
        self._gflops = gflops
        self._known: dict[_Key, list[Measurement]] = defaultdict(list)
        for measurement in measurements:
            if measurement.device == self.device:
                for depth in range(3):
                    self._known[(measurement.model, measurement.algorithm)[:depth]].append(measurement)

    def pace(self, run: RunConfig) -> Pace:
        """The pace of a run: configured, measured with its algorithm, its model or any model, or the reference."""
        key = (str(run.model.name), run.algorithm.label)
        same = self._known.get(key, [])
        memory = median(found.memory_mb for found in same) if same else None
        if self._gflops is not None:
            return Pace(
                REFERENCE_GFLOPS / self._gflops, memory, f"for a device of {self._gflops:g} GFLOP/s, as told"
            )
        for depth, of in ((2, "the same algorithm and model"), (1, "the same model"), (0, "other models")):
            found = self._known.get(key[:depth], [])
            if found:
                factor = median(measurement.factor for measurement in found)
                return Pace(factor, memory, f"by finished runs of {of} on {self.device}")
        return Pace(
            1.0, memory, f"without any finished run: for one CPU core at {REFERENCE_GFLOPS:g} GFLOP/s"
        )


def measurements(results: str = paths.RESULTS) -> list[Measurement]:
    """The newest finished runs under ``results``; manifests that cannot be read are skipped."""
    files = Path(paths.run_dir("", results)).glob("*/manifest.json")
    newest = sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:_NEWEST]
    return list(_read(newest, paths.calibration_cache_dir(results)))


def _read(files: list[Path], cache: str) -> Iterator[Measurement]:
    for path in files:
        try:
            yield _measurement(json.loads(path.read_text(encoding="utf-8")), cache)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # an older format, or a damaged file


def _measurement(manifest: dict[str, Any], cache: str) -> Measurement:
    run, partition = RunConfig.model_validate(manifest["config"]), manifest["partition"]
    pooled = int(partition["counts"]["validation_items"]) + int(partition["counts"]["test_items"])
    cost = model_cost(run.model, run.data.dataset, cache)
    work = work_of(run, cost, partition["silo_items"], pooled, int(manifest["plan"]["rounds"]))
    return Measurement(
        device=str(manifest["environment"]["device"]).partition(":")[0],
        model=str(run.model.name),
        algorithm=run.algorithm.label,
        factor=float(manifest["wall_seconds"]) / work.core_seconds,
        memory_mb=float(manifest["peak_memory_mb"]),
    )
