"""The privacy plans of runs: those of a scenario whose partitions are made, and that of a finished run."""

from collections.abc import Iterator
from pathlib import Path

from subjectdp.accounting.plan_run import plan_from_dict, plan_run
from subjectdp.cli.run_folders import find_run, read_manifest
from subjectdp.config import load_scenario, partition_id, run_id
from subjectdp.data.partition import load_partition
from subjectdp.errors import DataError
from subjectdp.plan.plan import PrivacyPlan


def recorded_plan(results: Path, wanted: str) -> PrivacyPlan:
    """The plan in a finished run's manifest. Raises DataError where there is none."""
    folder = find_run(results, wanted)
    manifest = read_manifest(folder)
    try:
        return plan_from_dict(manifest["plan"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"Expected {folder / 'manifest.json'} to hold a plan: {error}.") from error


def configured_plans(files: list[str], results: Path) -> Iterator[tuple[str, PrivacyPlan]]:
    """Run id and plan of a scenario's runs. Raises DataError where a partition has not been made."""
    for run in load_scenario(files).runs:
        folder = results / "partitions" / partition_id(run)
        if not folder.is_dir():
            raise DataError(f"Run {run_id(run)} needs its partition, {folder}: subjectdp run makes it.")
        yield run_id(run), plan_run(run, load_partition(folder), results / "cache" / "calibration")
