"""``subjectdp runs``: the runs of a results folder or a scenario, with their results or progress."""

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.cli.parser import add_json, add_results, values_of
from subjectdp.cli.run_folders import RunFolder, State, clock, count_states, read_run_folder, recorded_runs
from subjectdp.config import RunConfig, load_scenario
from subjectdp.config.run import settings_apart
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import unknown
from subjectdp.io.printing import print_json, print_table
from subjectdp.results.labels import run_label

_COLUMNS = (
    *("run", "label", "state", "rounds", "test accuracy (%)", "ε published*", "ε sound, subject"),
    *("seconds", "left", "settings"),
)

_SORTS: dict[str, Callable[[RunFolder], float | None]] = {
    "accuracy": lambda run: run.test_accuracy,
    "epsilon": lambda run: run.epsilon_sound_subject,
    "seconds": lambda run: run.wall_seconds,
    "left": lambda run: run.seconds_left,
}
_WATCH_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "runs",
        description="Lists the runs in the results folder, or those of a scenario: the progress and time left of each, "
        "its test accuracy and ε, and the settings in which it differs from other runs of its data set and algorithm. "
        "Exit code 1 if a run is broken.",
    )
    parser.add_argument("--scenario", nargs="+", metavar="FILE", help="runs of these files, done or not")
    parser.add_argument("--dataset", choices=tuple(DATASETS), help="only runs on this data set")
    parser.add_argument("--algorithm", metavar="NAME", help="only runs of this algorithm, e.g. higrad_avg_dp:v1")
    parser.add_argument("--seed", type=int, help="only runs of this seed")
    parser.add_argument("--sort", choices=tuple(_SORTS), help="largest first (default: as in the scenario, or by id)")
    parser.add_argument(
        "--watch", action="store_true", help="show the runs again every few seconds, until all are done"
    )
    parser.add_argument("--state", choices=values_of(State), help="only runs in this state")
    add_results(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Lists the runs; 1 if one is broken."""
    results = Path(options.results)
    if options.algorithm is not None:
        _require_algorithm(options.algorithm)
    while options.watch:
        listed = _listed(options, results)
        print(_CLEAR if sys.stdout.isatty() else "", end="")
        _print(listed)
        print(f"{_summary(listed)}  (Ctrl-C ends)", flush=True)
        if not {State.OPEN, State.TRAINING} & {run.state for run in listed}:
            break
        time.sleep(_WATCH_SECONDS)
    listed = _listed(options, results)
    broken = [run for run in listed if run.state is State.BROKEN]
    if options.watch:
        return 1 if broken else 0
    if options.json:
        print_json([run.as_dict() for run in listed])
        return 1 if broken else 0
    _print(listed)
    return 1 if broken else 0


def _listed(options: argparse.Namespace, results: Path) -> list[RunFolder]:
    found = _scenario_runs(options.scenario, results) if options.scenario else recorded_runs(results)
    listed = [run for run in found if _fits(run, options)]
    if options.sort is None:
        return listed
    value = _SORTS[options.sort]
    return sorted(listed, key=lambda run: -math.inf if value(run) is None else value(run) or 0.0, reverse=True)


def _summary(runs: list[RunFolder]) -> str:
    """How far all of them are, and a guess of the time left on this machine."""
    done = sum(run.state is State.DONE for run in runs)
    left = seconds_left(runs, os.cpu_count() or 1)
    guess = f", about {span(left)} left" if left and done < len(runs) else ""
    return f"{done} of {len(runs)} runs done{guess}"


def _print(runs: list[RunFolder]) -> None:
    settings = settings_apart({run.run_id: run.config for run in runs if run.config is not None})
    print_table(_COLUMNS, [(*_row(run), settings.get(run.run_id) or None) for run in runs])
    counts = ", ".join(f"{count} {state}" for state, count in count_states(runs).items())
    print(f"\n{len(runs)} run{'' if len(runs) == 1 else 's'}{': ' if counts else ''}{counts}")
    print("* what the paper claims: no guarantee")
    for run in runs:
        if run.note is not None:
            print(f"{run.run_id}: {run.note}")


def _row(run: RunFolder) -> tuple[Any, ...]:
    accuracy = None if run.test_accuracy is None else f"{100 * run.test_accuracy:.2f}"
    left = None if run.seconds_left is None else clock(run.seconds_left)
    epsilons = (run.epsilon_published, run.epsilon_sound_subject)
    rounded = (None if epsilon is None else f"{epsilon:.4g}" for epsilon in epsilons)
    seconds = None if run.wall_seconds is None else f"{run.wall_seconds:.1f}"
    return run.run_id, run.label, run.state, run.progress, accuracy, *rounded, seconds, left


def _require_algorithm(name: str) -> None:
    """ConfigError for a name that no run can have: a mistake, not an empty list."""
    variants = {known: algorithm(known).variants for known in ALGORITHMS}
    names = {*variants, *(f"{known}:{each}" for known, found in variants.items() for each in found if each)}
    if name not in names:
        raise unknown("algorithm", name, names)


def _fits(run: RunFolder, options: argparse.Namespace) -> bool:
    if options.state is not None and run.state != options.state:
        return False
    if options.dataset is None and options.algorithm is None and options.seed is None:
        return True
    if run.config is None:
        return False
    algorithm = run.config["algorithm"]
    names = (algorithm["name"], f"{algorithm['name']}:{algorithm['variant']}")
    return (
        (options.dataset is None or run.config["data"]["dataset"] == options.dataset)
        and (options.algorithm is None or options.algorithm in names)
        and (options.seed is None or run.config["seed"] == options.seed)
    )


def _scenario_runs(files: list[str], results: Path) -> Iterator[RunFolder]:
    for run in load_scenario(files).runs:
        found = read_run_folder(results / "runs" / run.run_id)
        if found.config is None:
            found = replace(
                found,
                label=run_label(run.algorithm.label, run.privacy.predicted_subjects),
                config=run.model_dump(mode="json"),
            )
        yield found


_NEWEST = 3


@dataclass(frozen=True)
class Progress:
    """The state of all runs of a scenario at one time."""

    done: int
    training: int
    total: int
    seconds_left: float | None  # None until a run has told its pace
    newest: tuple[str, ...]  # label and accuracy of the runs that finished last, newest first

    def line(self) -> str:
        """``12 of 63 runs, 2 training, about 7 min left · newest: FedAvg 78.1 %``."""
        parts = [f"{self.done} of {self.total} runs"]
        if self.training:
            parts.append(f"{self.training} training")
        if self.seconds_left is not None and self.done < self.total:
            parts.append(f"about {span(self.seconds_left)} left")
        newest = f" · newest: {', '.join(self.newest)}" if self.newest else ""
        return ", ".join(parts) + newest


class Watcher:
    """Reads the folders of a scenario's runs again and again; what has finished is read once."""

    def __init__(self, runs: Sequence[RunConfig], results: Path) -> None:
        self._runs, self._folder = runs, results / "runs"
        self._finished: dict[str, RunFolder] = {}

    def folders(self) -> list[RunFolder]:
        """Every run of the scenario, in its order."""
        return [self._finished.get(run.run_id) or self._read(run) for run in self._runs]

    def _read(self, run: RunConfig) -> RunFolder:
        found = read_run_folder(self._folder / run.run_id)
        if found.config is None:
            label = run_label(run.algorithm.label, run.privacy.predicted_subjects)
            found = replace(found, label=label, config=run.model_dump(mode="json"))
        if found.state is State.DONE:
            self._finished[run.run_id] = found
        return found

    def progress(self, at_once: int) -> Progress:
        """The state now, where so many runs are trained at the same time."""
        folders = self.folders()
        newest = sorted(self._finished.values(), key=self._finished_at, reverse=True)[:_NEWEST]
        return Progress(
            done=len(self._finished),
            training=sum(run.state is State.TRAINING for run in folders),
            total=len(folders),
            seconds_left=seconds_left(folders, at_once),
            newest=tuple(
                f"{run.label} {100 * run.test_accuracy:.1f} %" for run in newest if run.test_accuracy is not None
            ),
        )

    def _finished_at(self, run: RunFolder) -> float:
        try:
            return (self._folder / run.run_id / "manifest.json").stat().st_mtime
        except OSError:
            return 0.0


def seconds_left(runs: Iterable[RunFolder], at_once: int) -> float | None:
    """Seconds until all runs are done, as the finished and training ones suggest; None if none has told its pace.

    A run that has not begun is taken to last as those of its data set and algorithm, else as the mean of all.
    """
    known: dict[tuple[object, ...], list[float]] = {}
    open_runs, left = [], 0.0
    for run in runs:
        if run.state is State.DONE and run.wall_seconds is not None:
            known.setdefault(_kind(run), []).append(run.wall_seconds)
        elif run.seconds_left is not None and run.rounds and run.rounds_done:
            left += run.seconds_left
            whole = run.seconds_left * run.rounds / max(run.rounds - run.rounds_done, 1)
            known.setdefault(_kind(run), []).append(whole)
        elif run.state is not State.DONE:
            open_runs.append(run)
    if not known:
        return None
    usual = mean(seconds for found in known.values() for seconds in found)
    left += sum(mean(known.get(_kind(run), [usual])) for run in open_runs)
    return left / max(at_once, 1)


def _accuracy(run: RunFolder) -> str:
    return f"{run.label} {100 * (run.test_accuracy or 0.0):.1f} %"


def _kind(run: RunFolder) -> tuple[object, ...]:
    data = (run.config or {}).get("data") or {}
    return data.get("dataset"), run.label


def span(seconds: float) -> str:
    """A time in words: 40 s, 7 min, 3.2 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
