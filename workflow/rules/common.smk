# What all rules share: the library's path, the scenario and its runs, and how settings reach a job.
#
# Ids name everything that affects a result: data, partitions and runs are addressed by hashes of their settings, so
# that changed settings are other files and not a rerun of the same ones. What reruns a job in place is a change of the
# code that it uses, which the parameter `code` carries (docs/decisions/0008-code-fingerprints.md).
import gc
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# A graph of thousands of jobs is millions of objects that stay: with Python's own setting, a sixth of a dry run's time
# goes into looking for garbage among them.
gc.set_threshold(100_000, 20, 20)

# The library needs no installation: this process finds it by its path, jobs inherit the variable.
LIBRARY = str(Path(workflow.basedir) / "workflow" / "lib")
SEARCH_PATH = "PYTHONPATH"
sys.path.insert(0, LIBRARY)
os.environ[SEARCH_PATH] = os.pathsep.join(
    filter(None, [LIBRARY, os.environ.get(SEARCH_PATH)])
)

# Only the configuration and the names of the figures: this file is parsed again in every cluster job, and torch or
# pandas would cost seconds.
from subjectdp.figures import catalogue as registry
from subjectdp.config import fingerprint, load_scenario_from_mapping, paths
from subjectdp.forecast.cluster import cluster_settings
from subjectdp.io.yaml_files import read_yaml
from subjectdp.errors import SubjectDPError


def checked(read, *arguments):
    """What ``read`` makes of its arguments; a mistake in the configuration ends in its message alone."""
    try:
        return read(*arguments)
    except SubjectDPError as problem:
        raise WorkflowError(f"error: {problem}") from None


# Snakemake has read the files already, the last one of equal keys winning: read again as what they are, plain data.
for file in workflow.configfiles:
    checked(read_yaml, file)
SETTINGS = dict(config)  # as read; captions' own keys come to `config` later
SCENARIO = checked(load_scenario_from_mapping, SETTINGS)
CLUSTER = checked(cluster_settings)
RUNS = SCENARIO.runs_by_id
PARTITIONS = SCENARIO.partitions_by_id
DATA = SCENARIO.datasets_by_key
COLLECTED = ("runs", "rounds", "steps")


def settings(table, key):
    """A parameter with the whole configuration of a run or data set as JSON, which Snakemake does not compare.

    It takes `input` because Snakemake leaves parameters that derive from it out of its rerun rules (those that derive
    from `threads` as well, but to find the threads costs more than a tenth of a dry run). The settings that affect a result are
    in the job's paths already; the others (device, local paths) must not rerun anything.
    """
    return lambda wildcards, input: table[wildcards[key]].model_dump_json()


def log_of(rule, wildcard=None):
    """Where a rule's log goes; benchmarks lie beside the logs."""
    return f"{paths.RESULTS}/logs/{rule}/{wildcard or SCENARIO.name}.log"


def benchmark_of(rule, wildcard=None):
    """Run time and memory of a job as JSON lines."""
    return f"{paths.RESULTS}/benchmarks/{rule}/{wildcard or SCENARIO.name}.jsonl"


def grows(amount):
    """A resource that grows with the attempt: a job that ran out of time or memory is tried again with more."""
    return lambda wildcards, attempt: amount * attempt


def training_gpus():
    """The resources that ask for a training job's GPUs, as the cluster's settings name them."""

    def resource(name):
        return lambda wildcards: CLUSTER.gpus_of(RUNS[wildcards.run_id])[name]

    return {name: resource(name) for name in CLUSTER.gpu_resources(1)}


def local_source(wildcards):
    """LEAF's own output is an input like any other: a changed file is prepared again."""
    data = DATA[wildcards.data_key]
    known = data.source == "leaf_json" and data.path is not None
    return [data.path] if known and os.path.exists(data.path) else []


def training_inputs(wildcards):
    """The files that close the prepared data and the federation: written last, they carry the hashes of the others."""
    run = RUNS[wildcards.run_id]
    return [
        paths.prepared_file(run.data_key, "meta.json"),
        paths.partition_file(run.partition_id, "partition.json"),
    ]


def real_shakespeare():
    """Key of the real Shakespeare data of the scenario, if it has them: their counts replace the modelled ones."""
    return [
        key
        for key, data in DATA.items()
        if data.dataset == "shakespeare" and data.source != "embedded"
    ][:1]


def collected(name):
    """A table of the scenario, not yet a summary."""
    return f"{paths.scenario_dir(SCENARIO.name)}/{name}.parquet"


def noise_runs():
    """For the noise on the average: of each private algorithm that the figure shows, the first run."""
    if "beyond_noise" not in SCENARIO.figures:
        return []
    first = {}
    for run in SCENARIO.runs_of_figure("beyond_noise"):
        if run.algorithm.name != "fed_avg":
            key = run.data.dataset, run.algorithm.name, run.algorithm.variant
            first.setdefault(key, run)
    return list(first.values())


def page_of(table):
    """The sortable page of a table, for the report."""
    return paths.table_file(SCENARIO.name, table).removesuffix("csv") + "html"


def figure_file(figure, suffix):
    """The picture or the values of a whole figure; its panels lie beside it."""
    return f"{paths.figure_dir(SCENARIO.name, figure)}/{figure}{suffix}"


def figure_inputs(figure):
    """Exactly the tables that the figure reads, by name, with exactly the runs that it shows."""
    needs = registry.entry(figure).needs
    folder = f"selections/{figure}/" if figure in SCENARIO.selections else ""
    inputs = {name: collected(f"{folder}{name}") for name in COLLECTED if name in needs}
    if "statistics" in needs:
        inputs["statistics"] = collected("statistics")
    if "audit" in needs:
        inputs["audit"] = collected("audit")
    if "counterexample" in needs:
        inputs["counterexample"] = collected("counterexample")
    if "utility" in needs:
        inputs["utility"] = collected("utility")
    if "noise" in needs:
        inputs["noise"] = collected("noise")
    if "partitions" in needs:
        shown = {run.partition_id: None for run in SCENARIO.runs_of_figure(figure)}
        inputs["partitions"] = [
            paths.partition_file(key, "partition.json") for key in shown
        ]
    return inputs


def figure_rule(figure):
    """The name of the rule that makes a figure."""
    return figure if figure.startswith("figure") else f"figure_{figure}"


def in_report(figure, suffix, shown):
    """A figure's file as it stands in the report."""
    facts = registry.entry(figure)
    return report(
        figure_file(figure, suffix),
        caption=f"../report/{figure}.rst",
        category=facts.category,
        labels={"figure": facts.title, "shown as": shown},
    )


def configuration_option():
    """The option that names the scenario's files, for captions: `snakemake --cores all RULE` and this."""
    files = [os.path.relpath(path) for path in workflow.configfiles]
    return f"--configfile {' '.join(files)}" if files else ""


def judged_by(name):
    """A table of config/ that results are judged by: of the working directory, or the workflow's own."""
    own = f"config/{name}.csv"
    return own if os.path.exists(own) else str(Path(workflow.basedir) / own)


def image_run(wildcards):
    """The first run on images: the convex model takes its data, mini-batch size, ε and δ."""
    for run in SCENARIO.runs:
        if run.data.dataset == "femnist":
            return run
    raise WorkflowError(
        "error: Expected figures to be without excess_loss where no run is on femnist."
    )


def utility_settings(run):
    """What of the run the convex model uses; the data are in the job's input."""
    data, training, privacy = run.data, run.training, run.privacy
    split = [data.subjects, data.test_fraction, data.validation_fraction]
    return [
        *split,
        training.batch_size,
        privacy.epsilon,
        privacy.delta,
    ]


wildcard_constraints:
    data_key=r"\w[\w.+-]*",
    partition_id=r"\w[\w.+-]*",
    run_id=r"\w[\w.+-]*",
    figure=r"\w+",
