# What all rules share: the library's path, the scenario and its runs, and how settings reach a job.
#
# Ids name everything that affects a result: data, partitions and runs are addressed by hashes of their settings, so
# that changed settings are other files and not a rerun of the same ones. What reruns a job in place is a change of the
# code that it uses, which the parameter `code` carries (docs/decisions/0008-code-fingerprints.md).
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

LIBRARY = str(Path(workflow.basedir) / "workflow" / "lib")
sys.path.insert(0, LIBRARY)
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [LIBRARY, os.environ.get("PYTHONPATH")])
)

# Only subjectdp.config here: this file is parsed again in every cluster job, and torch or pandas would cost seconds.
from subjectdp.config import fingerprint, load_scenario_from_mapping, paths
from subjectdp.errors import SubjectDPError


def load(mapping):
    """The checked scenario; a mistake in the configuration ends in its message alone."""
    try:
        return load_scenario_from_mapping(mapping)
    except SubjectDPError as problem:
        raise WorkflowError(f"error: {problem}") from None


SCENARIO = load(config)
RUNS = SCENARIO.runs_by_id
PARTITIONS = SCENARIO.partitions_by_id
DATA = SCENARIO.datasets_by_key


def settings(table, key):
    """A parameter with the whole configuration of a run or data set as JSON, which Snakemake does not compare.

    It takes `threads` because Snakemake leaves parameters that derive from them out of its rerun rules. The settings
    that affect a result are in the job's paths already; the others (device, local paths) must not rerun anything.
    """
    return lambda wildcards, threads: table[wildcards[key]].model_dump_json()


def log_of(rule, wildcard=None):
    """Where a rule's log goes; benchmarks lie beside the logs."""
    return f"{paths.RESULTS}/logs/{rule}/{wildcard or SCENARIO.name}.log"


def benchmark_of(rule, wildcard=None):
    """Run time and memory of a job as JSON lines."""
    return f"{paths.RESULTS}/benchmarks/{rule}/{wildcard or SCENARIO.name}.jsonl"


wildcard_constraints:
    data_key=r"[\w.-]+",
    partition_id=r"[\w.-]+",
    run_id=r"[\w.-]+",
    figure=r"\w+",
