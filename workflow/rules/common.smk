# Shared by all rules: the library's path, the scenario and its runs, paths and resources.
#
# Data, partitions and runs are named by hashes of the settings that affect them: changed settings give new files. A job
# is rerun in place only when the code that it uses, a numerical package or the content of its source changes, which the
# parameters `code` and `content` tell (docs/decisions/0008-code-fingerprints.md).
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.jobs import Job
from snakemake.logging import logger
from snakemake.script import PythonScript

# A graph of thousands of jobs keeps millions of objects alive; with Python's defaults the garbage collector takes a sixth
# of a dry run's time.
gc.set_threshold(100_000, 20, 20)


def workflow_folder(place):
    """The folder `workflow` on disk; of a module from a repository's address, that of a copy of its commit."""
    if not hasattr(place, "ref"):
        return Path(str(place)).parent
    repository = getattr(place, "hosted_repo", None)
    repository = place.repo_path if repository is None else repository.repo_clone
    git = ["git", "-C", str(repository)]
    commit = subprocess.check_output([*git, "rev-parse", place.ref], text=True).strip()
    copy = Path(".snakemake", "subjectdp", commit).absolute()
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=copy.parent)
        archive = subprocess.check_output([*git, "archive", commit])
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        with suppress(OSError):  # another process was faster
            Path(folder).rename(copy)
    return copy / "workflow"


# The library needs no installation: this process finds it by its path, jobs inherit the variable.
WORKFLOW = workflow_folder(workflow.current_basedir)
LIBRARY = str(WORKFLOW / "lib")
SEARCH_PATH = "PYTHONPATH"
sys.path.insert(0, LIBRARY)
os.environ[SEARCH_PATH] = os.pathsep.join(
    filter(None, [LIBRARY, os.environ.get(SEARCH_PATH)])
)

# Only light modules: this file is parsed again in every cluster job, and torch or pandas would cost seconds.
from subjectdp.algorithms.registry import is_private
from subjectdp.figures import catalogue
from subjectdp.config.fingerprint import (
    fingerprint,
    input_fingerprint,
    source_addresses,
    source_content,
    training_stages,
)
from subjectdp.config.scenario import (
    given_values,
    load_scenario,
    load_scenario_from_mapping,
    overlaid,
)
from subjectdp.places import Places
from subjectdp.forecast.before_start import (
    check_before_start,
    cluster_settings,
    forecast_seconds,
    unread_variables,
)
from subjectdp.io.atomic import sha256_of
from subjectdp.io.job_log import would_fail_again
from subjectdp.io.yaml_files import read_yaml
from subjectdp.errors import SubjectDPError


def checked(read, *arguments):
    """Calls ``read``; an error in the configuration ends the workflow with its message alone."""
    try:
        return read(*arguments)
    except SubjectDPError as problem:
        raise WorkflowError(f"error: {problem}") from None


# Snakemake has one number of retries for all errors. One that no retry mends would wait in the queue three times.
Job.restart_times = property(
    lambda job: (0 if any(map(would_fail_again, job.log)) else job.rule.restart_times)
)


# Snakemake starts a script by a shell, and does not quote the path of its interpreter: a space would end it.
execute_unquoted = PythonScript._execute_cmd
PythonScript._execute_cmd = lambda script, command, **given: execute_unquoted(
    script, command.replace("{py_exec} ", "{py_exec:q} "), **given
)


# Where the rules write; with the prefix of a module, if any, where the files are.
RESULTS = workflow.pathvars.apply("<results>")
PLACE = str(workflow.modifier.modify_path(RESULTS))
paths, placed = Places(RESULTS), Places(PLACE)
MODULE = workflow.modifier.namespace  # None: the workflow itself

# What the user typed: while rules are read, Snakemake does not tell targets and options.
words = sys.argv if workflow.is_main_process else []
for option, other in (("--configfile", "--configfiles"), ("--config", "-C")):
    if sum(word.partition("=")[0] in (option, other) for word in words) > 1:
        raise WorkflowError(
            f"error: Expected {option} to be given once, with all its values: Snakemake drops those of the first."
        )


# Snakemake merges the files into `config`, key by key, and silently keeps the last of duplicate keys. A scenario's files
# are layers instead: each is applied as a whole (docs/decisions/0023-later-file-wins.md). Files of the command line lie
# over the one that the Snakefile loads, `--config` over all. A module's scenario is its `config`.
if MODULE is None:
    FILES = sorted(
        dict.fromkeys(map(Path, workflow.configfiles)),
        key=lambda file: file.absolute() in workflow.overwrite_configfiles,
    )
    on_top = workflow.config_settings
    GIVEN = checked(given_values, on_top.config_args, on_top.config)
    SCENARIO = checked(load_scenario, FILES, GIVEN)
    SETTINGS = [*map(read_yaml, FILES), GIVEN]
else:
    FILES, GIVEN = [], {}
    SETTINGS = [dict(config)]
    SCENARIO = checked(load_scenario_from_mapping, *SETTINGS)
config.update(overlaid(SETTINGS))  # what captions read
if workflow.is_main_process:
    # After an option of rules `partition` is a rule.
    typed = set(words)
    ruled = {"--until", "-U", "--omit-from", "-O", "--forcerun", "-R"} & typed
    for figure in set(catalogue.FIGURES) - set(SCENARIO.figures):
        named = {f"figure_{figure}", *(() if ruled else (figure,))}
        if MODULE is None and named & typed:
            checked(SCENARIO.require_figure, figure)
    triggers = re.search(r" --rerun-triggers[ =]([a-z -]+?)(?= -|$)", " ".join(words))
    if triggers and not {"params", "input"} <= set(triggers[1].split()):
        logger.warning(
            "Changed settings and code are not seen, and results may be of others: params or input is not among "
            "--rerun-triggers."
        )
    if "--report" in {word.partition("=")[0] for word in words}:
        logger.warning(
            "A report shows the results that are there: they are of these settings where the same command without "
            "--report has nothing to do."
        )
    if MODULE is None and "SUBJECTDP_JOBS" not in os.environ:  # subjectdp run tells it
        for told in unread_variables(FILES, given=GIVEN):
            logger.warning(told)
    if "plan" not in typed:  # it lists what will not start
        for told in checked(check_before_start, SCENARIO, PLACE, [*FILES, GIVEN]):
            logger.warning(told)
CLUSTER = checked(cluster_settings)
if not workflow.is_main_process:
    # Inside a cluster job, one after another: the plugin does not pass the profile's resources on.
    workflow.register_resource("training_slot", 1)
    workflow.register_resource("partition_slot", 1)
RUNS = SCENARIO.runs_by_id
PARTITIONS = SCENARIO.partitions_by_id
DATA = SCENARIO.datasets_by_key
for kind, known in {"runs": RUNS, "partitions": PARTITIONS, "data": DATA}.items():
    for word in words if not {"--cleanup-metadata", "--cm"} & set(words) else ():
        named = re.match(
            rf"{re.escape(RESULTS)}/{kind}/([^/]+)/", os.path.normpath(word)
        )
        if MODULE is None and named and named[1] not in known:
            raise WorkflowError(
                f"error: Expected {word} to be of the scenario {SCENARIO.name}: add the --configfile that it belongs to."
            )
COLLECTED = ("runs", "rounds", "steps")


def settings(table, key):
    """A parameter with the whole configuration of a run or data set as JSON, which must not trigger reruns.

    Snakemake ignores changes of parameters that depend on `input` (or on `threads`, which is slower to evaluate).
    Settings that affect a result are part of the job's paths; the others (device, local paths) must not rerun it.
    """
    return lambda wildcards, input: table[wildcards[key]].model_dump_json()


read_code = cache(fingerprint)
PAGE_TEMPLATE = sha256_of(Path(LIBRARY, "subjectdp/report/page.html"))


def code_of(script, *stages):
    """A rule's parameter `code`: its script, what the stages import, versions of numerical packages.

    It is a function, so that a cluster job reads the code of its own rule alone.
    """
    return lambda wildcards: read_code(f"script:{script}", *stages)


def log_of(rule, wildcard=None):
    """The log of a rule's job."""
    return f"{RESULTS}/logs/{rule}/{wildcard or SCENARIO.name}.log"


def benchmark_of(rule, wildcard=None):
    """Run time and memory of a rule's job, as JSON lines."""
    return f"{RESULTS}/benchmarks/{rule}/{wildcard or SCENARIO.name}.jsonl"


def resources_for(mem_mb, minutes):
    """Memory and time of a job; both grow with the attempt, so that a retry after running out of them has more."""
    return {
        "mem_mb": lambda wildcards, attempt: mem_mb * attempt,
        "runtime": lambda wildcards, attempt: minutes * attempt,
    }


def on_cluster():
    """The resources that request a training's partition and GPU, named as the cluster's settings say."""

    def resource(name):
        return lambda wildcards: CLUSTER.training_resources(RUNS[wildcards.run_id])[
            name
        ]

    return {
        name: resource(name)
        for name in CLUSTER.training_resources(next(iter(RUNS.values())))
    }


def fetching(wildcards):
    """The stages of code that bring the source of a data set; LEAF's own output lies where it is."""
    data = DATA[wildcards.data_key]
    if data.source == "embedded":
        return [f"generate:{data.dataset}"]
    return ["fetch"] if data.source == "upstream" else []


def preparing_code(wildcards):
    """The code that prepares a data set."""
    return read_code("script:prepare", f"prepare:{DATA[wildcards.data_key].dataset}")


def source_record(wildcards):
    """The record of a source; the same content fetched again prepares nothing again.

    Always `ancient` would hide a change: Snakemake does not compare a job's parameters once a job before it runs.
    """
    key, path = (
        wildcards.data_key,
        f"{paths.source_dir(wildcards.data_key)}/source.json",
    )
    now = {"content": CONTENT[key], "code": preparing_code(wildcards)}
    return ancient(path) if input_fingerprint(DATA[key], PLACE) == now else path


def trained_by(run):
    """The stages of code that train a run."""
    return training_stages(run.algorithm.name, run.model.name)


def training_threads(wildcards):
    """Cores of one run."""
    return RUNS[wildcards.run_id].performance.threads


def training_inputs(wildcards):
    """The files that represent the prepared data and the partition of a run."""
    run = RUNS[wildcards.run_id]
    return [
        paths.prepared_file(run.data_key, "meta.json"),
        paths.partition_file(run.partition_id, "partition.json"),
    ]


def real_shakespeare():
    """Key of the scenario's real Shakespeare data, if any: their counts replace the modelled ones."""
    return [
        key
        for key, data in DATA.items()
        if data.dataset == "shakespeare" and data.source != "embedded"
    ][:1]


def collected(name):
    """A collected table of the scenario."""
    return f"{paths.scenario_dir(SCENARIO.name)}/{name}.parquet"


def noise_runs():
    """The first sound run of each private algorithm in the figure of the noise on the averaged gradient."""
    first = {}
    for figure in SCENARIO.figures:
        shown = catalogue.entry(figure).name == "beyond_noise"
        for run in SCENARIO.runs_of_figure(figure) if shown else ():
            if is_private(run.algorithm.name) and run.privacy.mode == "sound":
                key = run.data.dataset, run.algorithm.name, run.algorithm.variant
                first.setdefault(key, run)
    return list(first.values())


def page_of(table, category, label):
    """The sortable page of a table, with its place in the report."""
    return report(
        paths.table_file(SCENARIO.name, table).removesuffix("csv") + "html",
        caption=f"../report/{table}.rst",
        category=category,
        labels={"table": label},
    )


def figure_file(figure, suffix):
    """A file of a figure."""
    return f"{paths.figure_dir(SCENARIO.name, figure)}/{figure}{suffix}"


def figure_inputs(figure):
    """The tables that a figure reads, by name; those of runs hold only the runs that it shows."""
    selected = f"selections/{figure}/" if figure in SCENARIO.selections else ""
    inputs = {}
    for name in catalogue.entry(figure).needs:
        if name == "partitions":
            shown = {run.partition_id: None for run in SCENARIO.runs_of_figure(figure)}
            inputs[name] = [
                paths.partition_file(key, "partition.json") for key in shown
            ]
        else:
            inputs[name] = collected(f"{selected if name in COLLECTED else ''}{name}")
    return inputs


def figure_rule(figure):
    """The name of the rule that makes a figure."""
    name = figure.replace("-", "__")
    return name if name.startswith("figure") else f"figure_{name}"


def in_report(figure):
    """A figure's picture, with its place in the report: each figure is in it once."""
    facts = catalogue.entry(figure)
    return report(
        figure_file(figure, ".svg"),
        caption=f"../lib/subjectdp/figures/captions/{facts.name}.rst",
        category=facts.category,
        labels={"figure": facts.title},
    )


def configuration_option():
    """The option that names the scenario's files; captions state the command with it."""
    files = [os.path.relpath(path) for path in workflow.configfiles]
    return f"--configfile {' '.join(files)}" if files else ""


def judged_by(name):
    """A table of config/ that results are judged by: the working directory's, or else the workflow's own."""
    own = f"config/{name}.csv"
    return local(own) if os.path.exists(own) else str(WORKFLOW.parent / own)


def image_run(wildcards):
    """The first run on images: the convex model uses its data, mini-batch size, ε and δ."""
    for run in SCENARIO.runs:
        if run.data.dataset == "femnist":
            return run
    raise WorkflowError("error: Figure excess_loss needs a FEMNIST run.")


def utility_settings(run):
    """The run's settings that the convex model uses, besides the prepared data."""
    data, training, privacy = run.data, run.training, run.privacy
    split = [data.subjects, data.test_fraction, data.validation_fraction]
    return [*split, training.batch_size, privacy.epsilon, privacy.delta]


def keys_of(table):
    """What the wildcard of a table matches: any key, or in a module the scenario's own, so that several scenarios may share a graph.

    A key that they have in common (a data set, a partition, a run) belongs to the module that comes first.
    """
    if MODULE is None:
        return r"\w[\w.+-]*"
    owners = vars(workflow).setdefault("subjectdp_owners", {})
    own = [key for key in table if owners.setdefault((PLACE, key), MODULE) == MODULE]
    return "|".join(map(re.escape, own)) or "(?!)"


wildcard_constraints:
    data_key=keys_of(DATA),
    partition_id=keys_of(PARTITIONS),
    run_id=keys_of(RUNS),
    figure=r"[\w-]+",


# An image is built by the site (workflow/envs/apptainer.def): nobody else's would have its drivers.
IMAGE = os.environ.get("SUBJECTDP_CONTAINER")
if (
    "apptainer" in map(str, workflow.deployment_settings.deployment_method)
    and not IMAGE
):
    raise WorkflowError(
        "error: Expected SUBJECTDP_CONTAINER to name an image for --sdm apptainer: build one from "
        "workflow/envs/apptainer.def."
    )
if IMAGE:

    container: IMAGE
