"""Where the library, its checkout and a workflow's files lie.

The last are pure functions of ids, usable with Snakemake wildcards too: paths that are relative to the working
directory and start with ``results`` unless another root is given.
"""

from functools import partial
from inspect import isfunction, signature
from pathlib import Path
from types import SimpleNamespace

LIBRARY = Path(__file__).resolve().parents[1]
"""The folder that holds the package."""

CHECKOUT = LIBRARY.parents[1]
"""The folder of the Snakefile, ``config`` and the lock file; meaningless for an installed wheel."""

RESULTS = "results"  # root folder of everything the workflow writes
PREPARED_FILES = ("features.npy", "labels.npy", "subjects.parquet", "meta.json")  # files of a prepared data set
FINISHED = "finished.json"
"""A second copy of a run's manifest. Snakemake deletes the manifests of finished runs where a job of several runs fails
or it is killed, and before a job that then finds data or partition damaged."""

RUN_FILES = (
    *("config.json", "progress.log", "rounds.parquet", "steps.parquet"),
    *("model.safetensors", "manifest.json", FINISHED),
)
"""Files of a finished run."""

PROGRESS = "progress.json"  # how far an unfinished run is: round, rounds, scores and expected seconds left

STATEMENT_SUFFIXES = (".md", ".html", ".pdf")  # a statement is written as one of them


def under(results: str) -> SimpleNamespace:
    """The functions of this module for another root folder."""
    functions = {name: value for name, value in globals().items() if isfunction(value)}
    rooted = {name: f for name, f in functions.items() if "results" in signature(f).parameters}
    return SimpleNamespace(**{name: partial(f, results=results) for name, f in rooted.items()})


def data_dir(data_key: str, results: str = RESULTS) -> str:
    """Folder of one data set: its source and its prepared form."""
    return f"{results}/data/{data_key}"


def source_dir(data_key: str, results: str = RESULTS) -> str:
    """Folder of the fetched or generated archives."""
    return f"{data_dir(data_key, results)}/source"


def prepared_dir(data_key: str, results: str = RESULTS) -> str:
    """Folder of the prepared arrays (:data:`PREPARED_FILES`)."""
    return f"{data_dir(data_key, results)}/prepared"


def prepared_file(data_key: str, name: str, results: str = RESULTS) -> str:
    return f"{prepared_dir(data_key, results)}/{name}"


def prepared_files(data_key: str, results: str = RESULTS) -> list[str]:
    return [prepared_file(data_key, name, results) for name in PREPARED_FILES]


def partition_dir(partition_id: str, results: str = RESULTS) -> str:
    return f"{results}/partitions/{partition_id}"


def partition_file(partition_id: str, name: str, results: str = RESULTS) -> str:
    return f"{partition_dir(partition_id, results)}/{name}"


def calibration_cache_dir(results: str = RESULTS) -> str:
    """Folder where calibrated noise multipliers are kept between runs."""
    return f"{results}/cache/calibration"


def run_dir(run_id: str, results: str = RESULTS) -> str:
    """Folder of a run (:data:`RUN_FILES`)."""
    return f"{results}/runs/{run_id}"


def run_file(run_id: str, name: str, results: str = RESULTS) -> str:
    return f"{run_dir(run_id, results)}/{name}"


def scenario_dir(scenario: str, results: str = RESULTS) -> str:
    """Folder of a scenario's collected results."""
    return f"{results}/{scenario}"


def table_file(scenario: str, table: str, results: str = RESULTS) -> str:
    """A table of a scenario, as CSV."""
    return f"{scenario_dir(scenario, results)}/tables/{table}.csv"


def figure_dir(scenario: str, figure: str, results: str = RESULTS) -> str:
    return f"{scenario_dir(scenario, results)}/figures/{figure}"


def figure_file(scenario: str, figure: str, panel: str, suffix: str, results: str = RESULTS) -> str:
    """One panel of a figure; ``suffix`` is svg, png or csv."""
    return f"{figure_dir(scenario, figure, results)}/{panel}.{suffix}"
