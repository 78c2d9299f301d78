"""The resources that a job requests: GPUs as the site names them, time and memory by the run's size and the attempt.

The Slurm profile (``workflow/profiles/slurm``) sets the environment variables that the site has not set. The rules read
them in the submitting process and again in each job. Without the profile no GPU is requested.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from subjectdp.errors import expected, unknown
from subjectdp.forecast.cost_model import SIZES, SizeClass, forecast_seconds, size_class

if TYPE_CHECKING:
    from subjectdp.config.run import RunConfig

PREFIX = "SUBJECTDP_SLURM_"
MINUTES: dict[SizeClass, int] = {"short": 30, "medium": 240, "long": 1440}
MEMORY_MB: dict[SizeClass, int] = {"short": 4000, "medium": 8000, "long": 16000}
_MOST = 10**7

MARGIN = 3
"""A training asks for this many times its forecast."""

LEAST_MINUTES = 5
"""What a job of trainings asks for at least."""

KNOWN = (
    *("GPU", "GPU_PARTITION", "CPU_PARTITION", "ACCOUNT", "QOS", "CONSTRAINT", "EXTRA", "MINUTES", "MEMORY_MB"),
    *("RUNS_PER_JOB", "LIGHT_JOBS", "JOBS", "POLL_SECONDS", "TESTS"),
)
"""What follows the prefix; the profile reads some of them itself."""

_MODEL = re.compile(r"^gpu:(\w[\w.-]*)$")
_GRES = re.compile(r"^gres=([A-Za-z][\w.-]*(?::(?!\d+$|\d+:)\w[\w.-]*)?)(?::1)?$")  # gpu, gpu:a100, gpu:1g.10gb
_STYLES = "gpu (--gpus=N), gpu:MODEL (--gpus=MODEL:N), gres=NAME or gres=NAME:TYPE (--gres=NAME:TYPE:N) or none"


@dataclass(frozen=True)
class ClusterSettings:
    """The site's settings; the defaults, without a cluster, request nothing special."""

    gpu: str  # how a GPU is requested; "none": not at all
    minutes: Mapping[SizeClass, int]  # most minutes that a training asks for by class, first attempt
    memory_mb: Mapping[SizeClass, int]  # memory of a training by class, first attempt
    runs_per_job: int  # short runs trained in one job, one after another
    light_jobs_local: bool  # the submitting process makes tables and figures

    def minutes_of(self, run: RunConfig, attempt: int) -> int:
        """Time limit of a training in minutes: its forecast, with a margin; grows with the attempt.

        Runs that share a job one after another ask for the job's time together.
        """
        least = LEAST_MINUTES if self.group_of(run) is None else math.ceil(LEAST_MINUTES / self.runs_per_job)
        wanted = round(MARGIN * forecast_seconds(run) / 60)
        return min(max(least, wanted), self.minutes[size_class(run)]) * attempt

    def memory_mb_of(self, run: RunConfig, attempt: int) -> int:
        """Memory of a training job in MB; grows with the attempt."""
        return self.memory_mb[size_class(run)] * attempt

    def gpu_resources(self, gpus: int) -> dict[str, int | str]:
        """The request for ``gpus`` GPUs of one node, by the executor's names of resources."""
        if self.gpu == "none":
            return {}
        gres, model = _GRES.match(self.gpu), _MODEL.match(self.gpu)
        if gres is not None:
            return {"gres": f"{gres[1]}:{gpus}"}
        return {"gpu": gpus} | ({} if model is None else {"gpu_model": model[1]})

    def gpus_of(self, run: RunConfig) -> dict[str, int | str]:
        """The request for the GPUs that a run trains on."""
        return self.gpu_resources(gpus(run))

    def group_of(self, run: RunConfig) -> str | None:
        """The group of runs that share jobs; None for a run with a job of its own."""
        return "short_runs" if self.runs_per_job > 1 and size_class(run) == "short" else None


def gpus(run: RunConfig) -> int:
    """GPUs that a run uses on a machine that has them."""
    return 0 if run.performance.device == "cpu" else 1


def cluster_settings(environment: Mapping[str, str] = os.environ) -> ClusterSettings:
    """The settings in the environment variables ``SUBJECTDP_SLURM_*``; an empty variable counts as unset.

    Raises:
        ConfigError: a variable that cannot be read, with the allowed values; one that nothing reads.
    """
    values = {key.removeprefix(PREFIX): value for key, value in environment.items() if value}
    for key in environment:
        if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in KNOWN:
            raise unknown("variable", key, [PREFIX + name for name in KNOWN])
    gpu = values.get("GPU", "none")
    if gpu not in ("gpu", "none") and not _MODEL.match(gpu) and not _GRES.match(gpu):
        raise expected(f"{PREFIX}GPU", gpu, _STYLES)
    light = values.get("LIGHT_JOBS", "partition")
    if light not in ("partition", "local"):
        raise expected(f"{PREFIX}LIGHT_JOBS", light, "partition or local")
    return ClusterSettings(
        gpu=gpu,
        minutes=_classes("MINUTES", values, MINUTES),
        memory_mb=_classes("MEMORY_MB", values, MEMORY_MB),
        runs_per_job=_number("RUNS_PER_JOB", values.get("RUNS_PER_JOB", "1")),
        light_jobs_local=light == "local",
    )


def _classes(name: str, values: Mapping[str, str], usual: Mapping[SizeClass, int]) -> dict[SizeClass, int]:
    text = values.get(name)
    if text is None:
        return dict(usual)
    parts = text.split(",")
    if len(parts) != len(SIZES):
        allowed = f"{len(SIZES)} whole numbers with commas, for {', '.join(SIZES)} runs"
        raise expected(f"{PREFIX}{name}", text, allowed)
    return {size: _number(name, part.strip()) for size, part in zip(SIZES, parts, strict=True)}


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,8}", text) or not 1 <= int(text) <= _MOST:
        raise expected(f"{PREFIX}{name}", text, f"a whole number from 1 to {_MOST}")
    return int(text)
