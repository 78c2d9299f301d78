"""Federations by size: ``subjectdp account --counts`` of a file with ten silos a person, read, planned, calibrated."""

from __future__ import annotations

import hashlib
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.timing import Outcome
from subjectdp.errors import DataError
from subjectdp.figures.panels import figure_style, sequence_styles

SILOS = (10, 100, 1000)
PEOPLE = (1_000, 10_000, 100_000, 1_000_000)
_HELD = 10  # silos of a person
_SCHEDULE = ("--batch-size", "8", "--rounds", "10", "--steps-per-round", "4", "--epsilon", "4", "--delta", "1e-7")


def time_scale(people: int, silos: tuple[int, ...] = SILOS) -> dict[str, Outcome]:
    """CPU and wall seconds, and peak memory, of each number of silos; DataError if a command fails."""
    with tempfile.TemporaryDirectory() as folder:
        return {f"{number} silos": _account(_written(Path(folder), people, number)) for number in silos}


def _written(folder: Path, people: int, silos: int) -> Path:
    random = np.random.default_rng(0)
    first = np.repeat(np.arange(people) % silos, _HELD)
    subject, step = np.divmod(np.arange(people * _HELD), _HELD)
    silo = (first + step * max(1, silos // _HELD)) % silos
    table = {"subject": subject, "silo": silo, "items": random.integers(1, 3, len(silo))}
    pd.DataFrame(table).to_csv(folder / "counts.csv", index=False)
    return folder / "counts.csv"


_MEASURE = """
import json, resource, subprocess, sys, time
started = time.monotonic()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
wall, used = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, done.stdout, used.ru_utime + used.ru_stime, wall, used.ru_maxrss]))
"""  # a small process of its own: a child's peak begins with that of whoever starts it


def _account(counts: Path) -> Outcome:
    command = [sys.executable, "-m", "subjectdp", "account", "--algorithm", "local_item_dp", "--counts", str(counts)]
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURE, *command, *_SCHEDULE], stdout=subprocess.PIPE, check=True
    )
    status, told, cpu, wall, kilobytes = json.loads(measured.stdout)
    if status != 0 or "epsilon" not in told:
        raise DataError(f"subjectdp account ended with {status}: {told[-2000:]}")
    return Outcome(cpu=[cpu], wall=[wall], memory=kilobytes * 1024)


def draw_scale(rows: pd.DataFrame, path: Path) -> None:
    """Draws the rows of the workload's tables as a PNG: CPU seconds and peak memory over people, a line each number of
    silos, all axes logarithmic."""
    with figure_style():
        figure = Figure(figsize=(6.3, 2.7), layout="constrained")
        shown = {"CPU seconds": rows["cpu_ms"] / 1e3, "peak memory, GB": rows["peak_memory_mb"] / 1e3}
        limits = ((1, 100), (0.1, 10))
        for axes, bounds, (label, values) in zip(figure.subplots(1, 2), limits, shown.items(), strict=True):
            for name, style in zip(rows["method"].unique(), sequence_styles(len(SILOS)), strict=False):
                own = rows["method"] == name
                axes.loglog(rows["batch"][own], values[own], color=style.color, marker=style.marker, label=name)
            axes.set(xlabel="people, each at ten silos", ylabel=label, ylim=bounds)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.yaxis.set_major_formatter("{x:g}")
        figure.axes[0].legend()
        figure.savefig(path, dpi=200, metadata={"Software": None, "Source": drawn_by()})


def drawn_by() -> str:
    """What a picture says of its code."""
    return f"scale {hashlib.sha256(inspect.getsource(draw_scale).encode()).hexdigest()[:16]}"
