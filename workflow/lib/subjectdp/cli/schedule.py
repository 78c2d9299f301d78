"""``subjectdp schedule``: rounds, clip norm and rate of SubjectRelease by a rule that reads no data."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import yaml

from subjectdp.accounting.averaged_noise import subjects_by_noise, untuned_schedule
from subjectdp.cli.parser import add_json, add_target
from subjectdp.errors import expected
from subjectdp.io.printing import print_json

if TYPE_CHECKING:
    from subjectdp.accounting.averaged_noise import UntunedSchedule


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "schedule",
        description="Prints rounds, clip norm and rate of subject_release by a rule from public numbers, for a linear "
        "head that starts from public data (docs/own-algorithms.md), as keys of a scenario.",
    )
    parser.add_argument("--subjects", type=int, required=True, help="subjects N of the federation")
    parser.add_argument("--weights", type=int, required=True, help="trained weights p of the model")
    parser.add_argument("--silos", type=int, default=1, help="silos of the federation, under local trust")
    parser.add_argument(
        "--silos-per-subject", type=int, help="most silos that may hold one subject (default: all of --silos)"
    )
    add_target(parser)
    add_json(parser, "print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the schedule; ConfigError for numbers out of range."""
    _check(options)
    held = options.silos if options.silos_per_subject is None else options.silos_per_subject
    subjects = subjects_by_noise(options.subjects, options.silos, held)
    found = untuned_schedule(subjects, options.weights, options.epsilon, options.delta)
    if options.json:
        print_json(asdict(found))
    else:
        print(yaml.safe_dump(_keys(found, options), sort_keys=False), end="")


def _check(options: argparse.Namespace) -> None:
    for name in ("subjects", "weights", "silos"):
        if getattr(options, name) < 1:
            raise expected(f"--{name}", getattr(options, name), "at least 1")
    held = options.silos_per_subject
    if held is not None and not 1 <= held <= options.silos:
        raise expected("--silos-per-subject", held, f"1 to {options.silos}, the number of --silos")
    if not 0 < options.epsilon < math.inf:
        raise expected("--epsilon", options.epsilon, "above 0 and finite")
    if not 0 < options.delta < 1:
        raise expected("--delta", options.delta, "above 0 and below 1")


def _keys(found: UntunedSchedule, options: argparse.Namespace) -> dict[str, Any]:
    """The schedule as keys of a run."""
    return {
        "privacy": {"epsilon": options.epsilon, "delta": options.delta, "clip_norm": found.clip_norm},
        "training": {
            "rounds": found.rounds,
            "local_steps": None,
            "optimizer": {"name": "sgd", "learning_rate": float(f"{found.learning_rate:.3g}")},
            "averaged_rounds": 0.5,
        },
    }
