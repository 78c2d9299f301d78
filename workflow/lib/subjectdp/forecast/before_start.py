"""What would stop a job of a scenario, found before anything runs: paths, mini-batches larger than a silo, figures that
cannot be drawn.

Imports nothing heavy: the Snakefile reads it.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from subjectdp.algorithms.registry import algorithm
from subjectdp.config import paths
from subjectdp.config.messages import error_located_in, raise_all
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import Scenario
from subjectdp.errors import DataError, expected, unknown
from subjectdp.figures.catalogue import entry
from subjectdp.forecast.cluster import KNOWN, PREFIX, expected_items, sizes_at_hand
from subjectdp.results.shown_runs import MOST_SETTINGS, run_label, setting_columns, settings_of, shown_rows

_VARIABLES = ("SUBJECTDP_CONTAINER", "SUBJECTDP_ANY_DEVICE")
_SLACK = 1.1  # by which a silo may be larger than the expected number of items says


def check_before_start(scenario: Scenario, results: str = paths.RESULTS, files: Sequence[Path | str] = ()) -> None:
    """Raises ConfigError with a line for each problem of data or partitions not yet in ``results``, or of a figure.

    ``files`` are the scenario's; the error names the place in them.
    """
    problems = [*_missing_paths(scenario, results), *_large_batches(scenario, results), *undrawable_figures(scenario)]
    with error_located_in(files):
        raise_all(problems)


def _missing_paths(scenario: Scenario, results: str) -> Iterator[str]:
    for key, data in scenario.datasets_by_key.items():
        prepared = Path(paths.prepared_file(key, "meta.json", results)).is_file()
        if data.path is not None and not prepared and not Path(data.path).exists():
            yield str(expected("data.path", data.path, "a file or folder that exists"))


def _large_batches(scenario: Scenario, results: str) -> Iterator[str]:
    # larger than the mean silo, and so than the smallest one; once for each data set, partition and batch size
    seen: set[tuple[object, ...]] = set()
    for run in scenario.runs:
        train, silos, batch = expected_items(run).train, run.partition.silos, run.training.batch_size
        place = (run.data_key, run.partition.model_dump_json(), batch)
        by_size = run.training.sampling_fraction is None and not algorithm(run.algorithm.name).samples_subjects
        planned = Path(paths.partition_file(run.partition_id, "partition.json", results)).is_file()
        if place in seen or not by_size or planned:  # the plan counts its silos exactly
            continue
        seen.add(place)
        data = run.data  # of files that were not counted nothing is known
        guessed = data.source.in_place and not data.expected and sizes_at_hand(data) is None
        if batch > _SLACK * train / silos and not guessed:
            about = f"about {train:,} train items over {silos} silos, {train // silos:,} each"
            allowed = f"at most the items of the smallest silo ({run.data.dataset}: {about})"
            yield str(expected("training.batch_size", batch, allowed))


def unread_variables(files: Sequence[Path | str], environment: Mapping[str, str] = os.environ) -> Iterator[str]:
    """A line for each variable SUBJECTDP_* that is set and that neither the workflow nor a scenario reads.

    ``files``: scenarios beside those in config/scenarios.
    """
    given = [Path(file) for file in (*files, *Path("config/scenarios").glob("*.yaml"))]
    texts = "".join(file.read_text(encoding="utf-8", errors="replace") for file in given if file.is_file())
    known = {*_VARIABLES, *(PREFIX + name for name in KNOWN), *re.findall(r"\$\{(SUBJECTDP_\w+)", texts)}
    for name in sorted(environment):
        if name.startswith("SUBJECTDP_") and not name.startswith(PREFIX) and name not in known:
            yield f"Nothing reads the variable {name}. {str(unknown('variable', name, known)).partition('. ')[2]}"


def undrawable_figures(scenario: Scenario) -> Iterator[str]:
    """A line for each figure that would find no run to draw, or runs that differ in a key that it cannot show."""
    for name, problem, _ in _figures(scenario):
        if problem:
            yield f"The figure {name} cannot be drawn. {problem}"


def partly_drawn_figures(scenario: Scenario) -> Iterator[str]:
    """A line for each figure that leaves out runs, since they have more settings than it shows side by side."""
    for name, _, notes in _figures(scenario):
        if notes:
            label = name.partition("-")[0] + "-LABEL"
            yield (
                f"The figure {name} leaves runs out: {'; '.join(notes)} (at most {MOST_SETTINGS} settings side by "
                f"side). Draw the others too: figures: [{name}, {label}], selections: {{{label}: {{KEY: VALUES}}}}."
            )


def _figures(scenario: Scenario) -> Iterator[tuple[str, str, list[str]]]:
    # name, why it cannot be drawn (or nothing), what is left out; of other figures the module chooses
    known = {name: shown for name in scenario.figures if (shown := entry(name).shown) is not None}
    rows = {run_id: _row(run) for run_id, run in scenario.runs_by_id.items()} if known else {}
    for name, shown in known.items():
        problem, notes = "", list[str]()
        try:
            own = [rows[run.run_id] for run in scenario.runs_of_figure(name)]
            settings = settings_of(own, shown)
            for _, places in settings if len(settings) <= MOST_SETTINGS else [("", range(len(own)))]:
                notes += shown_rows([own[place] for place in places], shown)[1]
        except DataError as found:
            problem = str(found)
        yield name, problem, notes


def _row(run: RunConfig) -> dict[str, Any]:
    columns = setting_columns(run.model_dump(mode="json"))
    if run.training.sampling_fraction is not None:
        columns["batch_size"] = round(run.training.sampling_fraction * expected_items(run).train / run.partition.silos)
    return {**columns, "label": run_label(run.algorithm.label, run.privacy.predicted_subjects)}
