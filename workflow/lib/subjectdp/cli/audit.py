"""``subjectdp audit`` attacks an algorithm at the papers' scale; ``check-algorithm`` compares code and plans."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.auditing import cases, conformance
from subjectdp.auditing.cases import Case
from subjectdp.auditing.lower_bounds import CONFIDENCE
from subjectdp.auditing.suite import Finding, audit_case
from subjectdp.cli.parser import add_json
from subjectdp.config.messages import dotted_keys
from subjectdp.config.sections import RunSections
from subjectdp.errors import SubjectDPError, mistake, number, unknown, whole_number
from subjectdp.io.printing import print_json, print_table

_PILOT, _FEWEST = 500, 1000  # runs that give the pace; runs of the shortest attack


def audit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("algorithm", help="algorithm, for instance higrad_avg_dp:v1")
    parser.add_argument("--seconds", type=float, default=45.0, help="time for all attacks (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the attacks (default: %(default)s)")
    add_json(parser)


def audit(options: argparse.Namespace) -> None:
    """Attacks an algorithm at the papers' FEMNIST scale: a subject is there or not, many times, and the best test on
    what the attacker sees guesses which. Prints lower bounds on ε, each right with 95 % confidence. The scenario audit
    has them all, with more runs.
    """
    number("--seconds", options.seconds)
    whole_number("--seed", options.seed, 0)
    every = cases.MONTE_CARLO["full"]
    chosen = [case for case in every if options.algorithm in (case.algorithm, _name(case))]
    if not chosen:
        raise unknown("attack on", options.algorithm, dict.fromkeys(map(_name, every)))
    if not options.json:
        print(f"{len(chosen)} attack{'s' * (len(chosen) > 1)} on {options.algorithm}, about {options.seconds:g} s")
    found = [_attacked(case, options.seconds / len(chosen), options.seed) for case in chosen]
    if options.json:
        print_json([finding.details | {"line": finding.line, "lower_bound": finding.lower_bound} for finding in found])
        return
    heads = ("plan", "attacked", "ε claimed or stated", "provable ε", "ε at least", "runs", "verdict")
    print_table(heads, map(_row, found))
    print("At least: with 95 % confidence, each alone. A bound cannot exceed about the logarithm of the runs.")


def _name(case: Case) -> str:
    return case.algorithm if case.variant is None else f"{case.algorithm}:{case.variant}"


def _attacked(case: Case, seconds: float, seed: int) -> Finding:
    """The attack with as many runs as the time allows."""
    alone = replace(case, confidence=CONFIDENCE)
    audit_case(replace(alone, runs=_PILOT), seed)  # the noise is calibrated, the code is loaded
    start = time.monotonic()
    audit_case(replace(alone, runs=_PILOT), seed)
    pace = (time.monotonic() - start) / _PILOT
    return audit_case(replace(alone, runs=min(case.runs, max(_FEWEST, int(seconds / pace)))), seed)


def _row(finding: Finding) -> tuple[Any, ...]:
    epsilons = (f"{each:.3g}" for each in (finding.claimed_epsilon, finding.true_epsilon, finding.lower_bound))
    plan = f"{finding.mechanism.title}, {str(finding.mechanism.mode).replace('_', ' ')}"
    return plan, finding.setting, *epsilons, f"{finding.runs:,}", finding.verdict


def check_algorithm_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a registered algorithm (default: all of them)")


def check_algorithm(options: argparse.Namespace) -> int:
    """Runs the training loop on known gradients, with and without an item, a subject or a silo, and compares
    sensitivity, noise, divisor and sampling with each plan of the algorithm.
    """
    made = failed = 0
    for name in sorted(ALGORITHMS) if options.name is None else [options.name]:
        title = None
        for plan, check in _checks(name):
            if plan != title:
                print(plan)
                title = plan
            print(f"  {'ok    ' if check.passed else 'FAILED'}  {check.text}")
            made, failed = made + 1, failed + (not check.passed)
    print(f"{made} checks, {failed} failed")
    return int(failed > 0)


def _checks(name: str) -> Iterator[tuple[str, conformance.Check]]:
    """The checks of an algorithm; what its own code raises is told in one line."""
    found, keys = algorithm(name), dotted_keys(RunSections)
    for key in found.reads:
        if not any(each == key or each.startswith(f"{key}.") for each in keys):
            raise unknown(f"key that {name} reads:", key, keys)
    try:
        yield from conformance.checks(found)
    except SubjectDPError:
        raise
    except Exception as problem:
        raise mistake(ALGORITHMS[name], problem) from problem
