"""The result of a search of hyperparameters: every trial, and a scenario file with the best setting of each point."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from subjectdp.config import paths
from subjectdp.config.run import RunConfig
from subjectdp.config.scenario import Scenario
from subjectdp.config.tuning import Objective, TuningPoint
from subjectdp.errors import DataError, expected
from subjectdp.training.record.manifest import MANIFEST, is_complete

_HEAD = """\
# Made by the target `tune` of the scenario {name}: the best of {trials} trials for each point, by {objective} on
# {percent:g} % of the training items. Give it after the scenario's own files:
#   --configfile SCENARIO.yaml THIS_FILE
# The ε of the runs does not include this search, which read the same people's data.
"""


def tune(scenario: Scenario, results: str) -> tuple[pd.DataFrame, str]:
    """A row for each trial, and the text of a scenario file that lies over the searched one.

    Raises:
        ConfigError: a scenario without a search.
        DataError: a trial that is not finished or was changed, or a point at which every trial diverged.
    """
    tuning = scenario.tuning
    if not tuning.wanted:
        raise expected("tuning.trials", tuning.trials, "at least 1 in the scenario, and tuning.search")
    rows, blocks = [], []
    for number, point in enumerate(scenario.tuning_points):
        finals = [_final(run, results) for run in point.trials]
        best = _best(point, finals, tuning.objective)
        blocks.append(_block(point, best))
        rows += [
            {
                "point": number,
                **point.settings,
                "trial": trial,
                **point.drawn[trial],
                "validation_loss": final["validation_loss"],
                "validation_accuracy": final["validation_accuracy"],
                "chosen": "yes" if trial == best else "no",
                "run_id": point.trials[trial].run_id,
            }
            for trial, final in enumerate(finals)
        ]
    return pd.DataFrame(rows), _text(scenario, blocks)


def _final(run: RunConfig, results: str) -> Mapping[str, Any]:
    """What a run measured in its last round."""
    folder = Path(paths.run_dir(run.run_id, results))
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as problem:
        raise DataError(f"Expected trial {run.run_id} to be finished: {problem}.") from None
    if not is_complete(folder, manifest["identity"]):
        raise DataError(f"The results in {folder} were changed. Remove {MANIFEST} and run tune again.")
    final: Mapping[str, Any] = manifest["final"]
    return final


def _best(point: TuningPoint, finals: list[Mapping[str, Any]], objective: Objective) -> int:
    """The number of the best trial, the first of equal ones; what is not finite lost."""
    sign = 1 if objective == "validation_loss" else -1
    values = [final[objective] for final in finals]
    scores = [math.inf if value is None or not math.isfinite(value) else sign * value for value in values]
    best = min(range(len(scores)), key=scores.__getitem__)
    if scores[best] == math.inf:
        settings = ", ".join(f"{key}={value}" for key, value in point.settings.items()) or "the run"
        raise DataError(f"No trial of {settings} has a finite {objective}: search smaller rates.")
    return best


def _block(point: TuningPoint, best: int) -> dict[str, Any]:
    """A block of a sweep: the point with its best setting."""
    values = {**point.settings, **point.drawn[best]}
    axes = {key: [value] if isinstance(value, list) else value for key, value in values.items()}
    return {**axes, "seed": list(point.seeds)} if point.seeds else axes


def _text(scenario: Scenario, blocks: list[dict[str, Any]]) -> str:
    tuning = scenario.tuning
    searched = set(tuning.search)
    content = {
        "name": f"{scenario.name[:58]}-tuned",
        "tuning": {"trials": 0},
        "sweep": blocks,
        "selections": {
            str(figure): {key: value for key, value in chosen.items() if key not in searched}
            for figure, chosen in scenario.selections.items()
        },
    }
    head = _HEAD.format(
        name=scenario.name,
        trials=tuning.trials,
        objective=tuning.objective.replace("_", " "),
        percent=100 * tuning.validation_fraction,
    )
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
