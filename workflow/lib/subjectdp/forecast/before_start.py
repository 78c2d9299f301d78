"""What is known of a scenario's jobs before anything runs: their work, their resources, and what would stop them.

The work of a run chooses the time limit of its job, with a margin. Counts of data that have not been prepared are those
of the files at hand, LEAF's, or those of ``data.expected`` and ``data.embedded``. The Slurm profile
(``workflow/profiles/slurm``) sets the environment variables that the site has not set; the rules read them in the
submitting process and again in each job. Nothing heavy is imported: the Snakefile reads this file.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from subjectdp.algorithms.registry import algorithm
from subjectdp.config.fingerprint import input_fingerprint, source_content
from subjectdp.config.messages import error_located_in, raise_all
from subjectdp.config.resolve import mechanism_of, plan_settings
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import Scenario
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.sizes import leaf_sizes, table_silos, table_sizes
from subjectdp.errors import DataError, SubjectDPError, expected, unknown
from subjectdp.figures.catalogue import entry
from subjectdp.models.catalogue import MODELS
from subjectdp.places import RESULTS, Places
from subjectdp.plan.rules import executed_rounds, expected_batch, round_steps
from subjectdp.results.shown_runs import MOST_SETTINGS, run_label, setting_columns, settings_of, shown_rows

RATE = 50e9  # floating point operations a second that one CPU core is assumed to train with
STEP_SECONDS = 0.002  # cost of a local step on one CPU core, whatever its size
START_SECONDS = 4.0  # imports, accounting and loading, before the first step
SizeClass = Literal["short", "medium", "long"]
SIZES: dict[SizeClass, float] = {"short": 600.0, "medium": 2e5, "long": math.inf}
"""Most core-seconds of a run of each class: ten minutes, and 56 hours (FEMNIST at the papers' scale: 35)."""


@dataclass(frozen=True)
class Items:
    """Items of a federation: of all silos together, and pooled for the evaluation."""

    subjects: int
    train: int
    validation: int
    test: int


@dataclass(frozen=True)
class Work:
    """The work of a run over all its rounds."""

    steps: int  # local steps, all silos
    train_items: float  # items that pass through a local step, in expectation
    evaluated_items: int  # validation and test items, over all evaluations
    operations: float  # floating point operations of both

    @property
    def core_seconds(self) -> float:
        """Seconds of one CPU core by :data:`RATE`, :data:`STEP_SECONDS` and :data:`START_SECONDS`."""
        return START_SECONDS + STEP_SECONDS * self.steps + self.operations / RATE


def expected_items(run: RunConfig) -> Items:
    """Items of the run's federation, by its configuration."""
    subjects, mean = expected_sizes(run.data)
    test = float(run.data.test_fraction or 0.0)
    rest, validation = subjects * mean * (1 - test), run.data.validation_fraction
    train = rest * (1 - validation)
    cap, held = run.partition.max_items_per_subject, run.partition.silos_per_subject or run.partition.silos
    if cap is not None:
        train = min(train, float(cap) * subjects * held)
    train_items = max(run.partition.silos, round(train))
    return Items(subjects, train_items, round(rest * validation), round(subjects * mean * test))


def expected_sizes(data: DataConfig) -> tuple[int, float]:
    """Subjects of a run on these data and the mean number of their items, by the configuration."""
    facts, counted = DATASETS[data.dataset], data.expected
    if data.source == "embedded":
        subjects, mean = data.embedded.subjects, float(data.embedded.items_per_subject)
        if data.own_subjects:
            subjects, mean = subjects * data.embedded.items_per_subject, 1.0
    elif sizes := sizes_at_hand(data):
        subjects, mean = counted.get("users_after_split", len(sizes)), sum(sizes) / len(sizes)
    else:
        users, items = counted.get("users"), counted.get("items")
        subjects, mean = counted.get("users_after_split") or users or facts.subjects, facts.items_per_subject
        if data.own_subjects:
            mean = 1.0
        elif facts.kind != "text" and users is not None and items is not None:
            mean = items / users
    return (subjects if data.subjects is None else min(subjects, data.subjects)), mean


def sizes_at_hand(data: DataConfig) -> tuple[int, ...] | None:
    """Items of each subject of LEAF's JSON or of a table at ``data.path``; None for others, or without the files."""
    if data.source == "table" and data.path is not None:
        return table_sizes(data.path, data.subject)
    if data.source != "leaf_json" or data.path is None or data.own_subjects:
        return None
    return leaf_sizes(data.path)


def work_of(
    run: RunConfig, silo_items: Sequence[int] | None = None, evaluated: int | None = None, rounds: int | None = None
) -> Work:
    """The work of a run, with the operations of its model's default parameters.

    ``silo_items``: train items of each silo (None: equal parts of the expected ones). ``evaluated``: validation and
    test items (None: the expected ones). ``rounds``: executed ones (None: those of the configuration).
    """
    items, training, silos, subject = expected_items(run), run.training, run.partition.silos, run.subject
    held = [items.train // silos] * silos if silo_items is None else list(silo_items)
    executed = training.rounds if rounds is None else rounds
    taking_part = silos if training.silos_per_round is None else training.silos_per_round
    silo_rounds = executed * taking_part / len(held)  # how often each silo takes part
    known, local = algorithm(run.algorithm.name), training.local_steps or 1
    if known.samples_subjects:
        most = math.inf if subject.items is None else float(subject.items) * items.subjects
        steps = len(held) * silo_rounds * (1 if known.one_step_per_round else local)
        trained = sum(min(count, most) for count in held) * silo_rounds * subject.sampling_probability * local
    else:
        by_silo = [round_steps(training, count) * silo_rounds for count in held]
        steps = sum(by_silo)
        trained = sum(expected_batch(training, n) * number for n, number in zip(held, by_silo, strict=True))
    pooled = items.validation + items.test if evaluated is None else evaluated
    if training.evaluation_items is not None:
        pooled = min(pooled, 2 * training.evaluation_items)
    tested = pooled * math.ceil(executed / training.evaluate_every)
    # a backward pass costs as much as two forward passes
    operations = float(MODELS[str(run.model.name)].forward_flops) * (3 * trained + tested)
    return Work(round(steps), trained, tested, operations)


def size_class(run: RunConfig) -> SizeClass:
    """The class of time and memory of a run."""
    seconds = forecast_seconds(run)
    return next(name for name, most in SIZES.items() if seconds <= most)


def forecast_seconds(run: RunConfig) -> float:
    """Core-seconds of a run, by its configuration."""
    rounds = executed_rounds(mechanism_of(run), plan_settings(run), run.partition.silos)
    return work_of(run, rounds=rounds).core_seconds


PREFIX = "SUBJECTDP_SLURM_"
_MOST = 10**7
MARGIN = 3  # a training asks for this many times its forecast
LEAST_MINUTES = 5  # what a job of trainings asks for at least
KNOWN = (  # what follows the prefix; the profile reads some of them itself
    *("GPU", "GPU_PARTITION", "GPU_PACE", "CPU_PARTITION", "ACCOUNT", "QOS", "CONSTRAINT", "EXTRA", "MINUTES"),
    *("MEMORY_MB", "RUNS_PER_JOB", "LIGHT_JOBS", "JOBS", "POLL_SECONDS", "TESTS"),
)

_MODEL = re.compile(r"^gpu:(\w[\w.-]*)$")
_GRES = re.compile(r"^gres=([A-Za-z][\w.-]*(?::(?!\d+$|\d+:)\w[\w.-]*)?)(?::1)?$")  # gpu, gpu:a100, gpu:1g.10gb
_STYLES = "gpu (--gpus=N), gpu:MODEL (--gpus=MODEL:N), gres=NAME or gres=NAME:TYPE (--gres=NAME:TYPE:N) or none"


@dataclass(frozen=True)
class ClusterSettings:
    """The site's settings; the defaults, without a cluster, request nothing special."""

    gpu: Mapping[SizeClass, str]  # how the GPU of a training is requested; "none": not at all
    gpu_partition: Mapping[SizeClass, str]  # partition of a training; empty: that of all jobs
    gpu_pace: Mapping[SizeClass, float]  # what a training gets done on that GPU while a CPU core gets 1 done
    minutes: Mapping[SizeClass, int]  # most minutes that a training asks for by class, first attempt
    memory_mb: Mapping[SizeClass, int]  # memory of a training by class, first attempt
    runs_per_job: int  # short runs trained in one job, one after another
    light_jobs_local: bool  # the submitting process makes tables and figures

    def minutes_of(self, run: RunConfig, attempt: int) -> int:
        """Minutes that a training asks for: its forecast with a margin, by attempt; shared jobs ask together."""
        least = LEAST_MINUTES if self.group_of(run) is None else math.ceil(LEAST_MINUTES / self.runs_per_job)
        size = size_class(run)
        pace = self.gpu_pace[size] if gpus(run) and self.gpu[size] != "none" else 1
        wanted = round(MARGIN * forecast_seconds(run) / pace / 60)
        return min(max(least, wanted), self.minutes[size]) * attempt

    def memory_mb_of(self, run: RunConfig, attempt: int) -> int:
        """Memory of a training job in MB; grows with the attempt."""
        return self.memory_mb[size_class(run)] * attempt

    def training_resources(self, run: RunConfig) -> dict[str, int | str]:
        """The partition and the GPU that a run trains on, by the executor's names; the same names for all runs."""
        size = size_class(run)
        partition = {"slurm_partition": self.gpu_partition[size]} if self.gpu_partition[size] else {}
        return _gpu_request(self.gpu[size], gpus(run)) | partition

    def group_of(self, run: RunConfig) -> str | None:
        """The group of runs that share jobs; None for a run with a job of its own."""
        return "short_runs" if self.runs_per_job > 1 and size_class(run) == "short" else None


def _gpu_request(style: str, gpus: int) -> dict[str, int | str]:
    if style == "none":
        return {}
    gres, model = _GRES.match(style), _MODEL.match(style)
    if gres is not None:
        return {"gres": f"{gres[1]}:{gpus}"}
    return {"gpu": gpus} | ({} if model is None else {"gpu_model": model[1]})


def gpus(run: RunConfig) -> int:
    """GPUs that a run uses on a machine that has them."""
    return 0 if run.performance.device == "cpu" else 1


def cluster_settings(environment: Mapping[str, str] = os.environ) -> ClusterSettings:
    """The settings in ``SUBJECTDP_SLURM_*`` (empty: unset); ConfigError for one that nothing reads or can read."""
    values = {key.removeprefix(PREFIX): value for key, value in environment.items() if value}
    for key in environment:
        if key.startswith(PREFIX) and key.removeprefix(PREFIX) not in KNOWN:
            raise unknown("variable", key, [PREFIX + name for name in KNOWN])
    gpu = _one_or_each("GPU", values, "none")
    for style in gpu.values():
        if style not in ("gpu", "none") and not _MODEL.match(style) and not _GRES.match(style):
            raise expected(f"{PREFIX}GPU", style, _STYLES)
    if len({tuple(_gpu_request(style, 1)) for style in gpu.values()}) > 1:
        raise expected(f"{PREFIX}GPU", values["GPU"], "one style for all: gpu:MODEL, or gres=NAME, or gpu, or none")
    partition = _one_or_each("GPU_PARTITION", values, "")
    if len({bool(name) for name in partition.values()}) > 1:
        raise expected(f"{PREFIX}GPU_PARTITION", values["GPU_PARTITION"], "a partition for each size of run")
    light = values.get("LIGHT_JOBS", "partition")
    if light not in ("partition", "local"):
        raise expected(f"{PREFIX}LIGHT_JOBS", light, "partition or local")
    return ClusterSettings(
        gpu=gpu,
        gpu_partition=partition,
        gpu_pace={size: _pace(text) for size, text in _one_or_each("GPU_PACE", values, "1").items()},
        minutes=_whole_numbers("MINUTES", values.get("MINUTES", "30,240,1440")),
        memory_mb=_whole_numbers("MEMORY_MB", values.get("MEMORY_MB", "4000,8000,16000")),
        runs_per_job=_number("RUNS_PER_JOB", values.get("RUNS_PER_JOB", "1")),
        light_jobs_local=light == "local",
    )


def _whole_numbers(name: str, text: str) -> dict[SizeClass, int]:
    parts = text.split(",")
    if len(parts) != len(SIZES):
        allowed = f"{len(SIZES)} whole numbers with commas, for {', '.join(SIZES)} runs"
        raise expected(f"{PREFIX}{name}", text, allowed)
    return {size: _number(name, part.strip()) for size, part in zip(SIZES, parts, strict=True)}


def _one_or_each(name: str, values: Mapping[str, str], usual: str) -> dict[SizeClass, str]:
    # semicolons: Slurm's own lists of partitions have commas
    parts = [part.strip() for part in values.get(name, usual).split(";")]
    if len(parts) not in (1, len(SIZES)):
        allowed = f"one value, or {len(SIZES)} with semicolons, for {', '.join(SIZES)} runs"
        raise expected(f"{PREFIX}{name}", values[name], allowed)
    return dict(zip(SIZES, parts * (len(SIZES) // len(parts)), strict=True))


def _pace(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text) or float(text) == 0:
        raise expected(f"{PREFIX}GPU_PACE", text, "a number of CPU cores above 0, e.g. 20")
    return float(text)


def _number(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,8}", text) or not 1 <= int(text) <= _MOST:
        raise expected(f"{PREFIX}{name}", text, f"a whole number from 1 to {_MOST}")
    return int(text)


_VARIABLES = ("SUBJECTDP_CONTAINER", "SUBJECTDP_ANY_DEVICE")
_SLACK = 1.1  # by which a silo may be larger than the expected number of items says


def check_before_start(
    scenario: Scenario, results: str = RESULTS, files: Sequence[Path | str | Mapping[str, Any]] = ()
) -> list[str]:
    """A line for each figure that leaves out runs, and for data that were changed. ConfigError, with places in
    ``files``, for problems of data or partitions not yet made, or of a figure."""
    undrawable, partly_drawn = figures_to_mend(scenario)
    found = map(silos_problem, scenario.partitions_by_id.values())
    of_silos = [str(problem) for problem in found if problem is not None] or [*_large_batches(scenario, results)]
    problems = [*_missing_paths(scenario, results), *of_silos, *undrawable]
    with error_located_in(files):
        raise_all(problems)
    return [*partly_drawn, *replaced_runs(scenario, results)]


def _missing_paths(scenario: Scenario, results: str) -> Iterator[str]:
    for key, data in scenario.datasets_by_key.items():
        prepared = Path(Places(results).prepared_file(key, "meta.json")).is_file()
        if data.path is not None and not prepared and not Path(data.path).exists():
            yield str(expected("data.path", data.path, "a file or folder that exists"))


def silos_problem(run: RunConfig) -> SubjectDPError | None:
    """The error of a run with another number of silos than its data name; None where they are not counted."""
    data, silos = run.data, run.partition.silos
    named = DATASETS[data.dataset].silos or None
    if data.silo is not None and data.path is not None:
        named = table_silos(data.path, data.silo)
    if run.partition.distribution != "inherent" or named in (None, silos):
        return None
    if data.missing == "drop" and silos < named:  # a silo's rows may all be left out
        return None
    return expected("partition.silos", silos, f"{named}, the silos that the data name")


def replaced_runs(scenario: Scenario, results: str = RESULTS) -> Iterator[str]:
    """A line for each file or folder of data that is not what the prepared data of its name were made from."""
    for key, data in scenario.datasets_by_key.items():
        known = input_fingerprint(data, results).get("content") if data.source.in_place else None
        if known is not None and known != source_content(data, results):
            yield (
                f"{data.path} is not what {Places(results).data_dir(key)} was made from: the runs that are there were "
                "trained on other data of this name, and are trained again in their place. To keep both, rename one."
            )


def _large_batches(scenario: Scenario, results: str) -> Iterator[str]:
    # larger than the mean silo, and so than the smallest one; once for each data set, partition and batch size
    seen: set[tuple[object, ...]] = set()
    for run in scenario.runs:
        train, silos, batch = expected_items(run).train, run.partition.silos, run.training.batch_size
        place = (run.data_key, run.partition.model_dump_json(), batch)
        by_size = run.training.sampling_fraction is None and not algorithm(run.algorithm.name).samples_subjects
        planned = Path(Places(results).partition_file(run.partition_id, "partition.json")).is_file()
        if place in seen or not by_size or planned:  # the plan counts its silos exactly
            continue
        seen.add(place)
        data = run.data  # of files that were not counted nothing is known
        guessed = data.source.in_place and not data.expected and sizes_at_hand(data) is None
        if batch > _SLACK * train / silos and not guessed:
            about = f"about {train:,} train items over {silos} silos, {train // silos:,} each"
            allowed = f"at most the items of the smallest silo ({run.data.dataset}: {about})"
            yield str(expected("training.batch_size", batch, allowed))


def unread_variables(
    files: Sequence[Path | str], environment: Mapping[str, str] = os.environ, given: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """A line for each variable SUBJECTDP_* that is set and that neither workflow nor scenarios (``files``, and what
    was ``given`` on the command line) read."""
    read = [Path(file) for file in (*files, *Path("config/scenarios").glob("*.yaml"))]
    texts = "".join(file.read_text(encoding="utf-8", errors="replace") for file in read if file.is_file()) + str(given)
    known = {*_VARIABLES, *(PREFIX + name for name in KNOWN), *re.findall(r"\$\{(SUBJECTDP_\w+)", texts)}
    for name in sorted(environment):
        if name.startswith("SUBJECTDP_") and not name.startswith(PREFIX) and name not in known:
            yield f"Nothing reads the variable {name}. {str(unknown('variable', name, known)).partition('. ')[2]}"


def figures_to_mend(scenario: Scenario) -> tuple[list[str], list[str]]:
    """A line for each figure that would find no run to draw, or runs that differ in a key that it cannot show; and one
    for each that leaves out runs, since they have more settings than it shows side by side, or audits unread."""
    known = {name: shown for name in scenario.figures if (shown := entry(name).shown) is not None}
    rows = {run_id: _row(run) for run_id, run in scenario.runs_by_id.items()} if known else {}
    undrawable, partly_drawn = list[str](), list[str]()
    for name, shown in known.items():  # of the other figures the module chooses
        notes = list[str]()
        try:
            own = [rows[run.run_id] for run in scenario.runs_of_figure(name)]
            settings = settings_of(own, shown)
            for _, places in settings if len(settings) <= MOST_SETTINGS else [("", range(len(own)))]:
                notes += shown_rows([own[place] for place in places], shown)[1]
        except DataError as problem:
            undrawable.append(f"The figure {name} cannot be drawn. {problem}")
        if notes:
            label = name.partition("-")[0] + "-LABEL"
            partly_drawn.append(
                f"The figure {name} leaves runs out: {'; '.join(notes)} (at most {MOST_SETTINGS} settings side by "
                f"side). Draw the others too: figures: [{name}, {label}], selections: {{{label}: {{KEY: VALUES}}}}."
            )
    audits = [name for name in scenario.figures if "audit" in entry(name).needs]
    if audits and scenario.runs[0].partition.max_items_per_subject is None:  # some audited algorithms are sound
        missing = expected(
            "partition.max_items_per_subject", None, "a number in the first run, whose data are attacked"
        )
        undrawable += [f"The figure {name} cannot be drawn. {missing}" for name in audits]
    if "audit" in scenario.model_fields_set and not audits:
        partly_drawn.append("The section audit is not read: no figure shows audits. Add audit to the figures.")
    return undrawable, partly_drawn


def _row(run: RunConfig) -> dict[str, Any]:
    columns = setting_columns(run.model_dump(mode="json"))
    if run.training.sampling_fraction is not None:
        columns["batch_size"] = round(run.training.sampling_fraction * expected_items(run).train / run.partition.silos)
    return {**columns, "label": run_label(run.algorithm.label, run.privacy.predicted_subjects)}
