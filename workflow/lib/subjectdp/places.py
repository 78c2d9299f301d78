"""Where the library, its checkout and a workflow's files lie."""

from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Places:
    """A workflow's files below a root folder, by ids or by Snakemake's wildcards."""

    results: str = RESULTS

    def data_dir(self, data_key: str) -> str:
        """Folder of one data set: its source and its prepared form."""
        return f"{self.results}/data/{data_key}"

    def source_dir(self, data_key: str) -> str:
        """Folder of the fetched or generated archives."""
        return f"{self.data_dir(data_key)}/source"

    def prepared_dir(self, data_key: str) -> str:
        """Folder of the prepared arrays (:data:`PREPARED_FILES`)."""
        return f"{self.data_dir(data_key)}/prepared"

    def prepared_file(self, data_key: str, name: str) -> str:
        return f"{self.prepared_dir(data_key)}/{name}"

    def prepared_files(self, data_key: str) -> list[str]:
        return [self.prepared_file(data_key, name) for name in PREPARED_FILES]

    def partition_dir(self, partition_id: str) -> str:
        return f"{self.results}/partitions/{partition_id}"

    def partition_file(self, partition_id: str, name: str) -> str:
        return f"{self.partition_dir(partition_id)}/{name}"

    def calibration_cache_dir(self) -> str:
        """Folder where calibrated noise multipliers are kept between runs."""
        return f"{self.results}/cache/calibration"

    def run_dir(self, run_id: str) -> str:
        """Folder of a run (:data:`RUN_FILES`)."""
        return f"{self.results}/runs/{run_id}"

    def run_file(self, run_id: str, name: str) -> str:
        return f"{self.run_dir(run_id)}/{name}"

    def scenario_dir(self, scenario: str) -> str:
        """Folder of a scenario's collected results."""
        return f"{self.results}/{scenario}"

    def table_file(self, scenario: str, table: str) -> str:
        """A table of a scenario, as CSV."""
        return f"{self.scenario_dir(scenario)}/tables/{table}.csv"

    def figure_dir(self, scenario: str, figure: str) -> str:
        return f"{self.scenario_dir(scenario)}/figures/{figure}"

    def figure_file(self, scenario: str, figure: str, panel: str, suffix: str) -> str:
        """One panel of a figure; ``suffix`` is svg, png or csv."""
        return f"{self.figure_dir(scenario, figure)}/{panel}.{suffix}"
