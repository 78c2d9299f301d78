"""Options of ``subjectdp account`` and ``subjectdp calibrate`` that describe privacy plans."""

from __future__ import annotations

import argparse

from subjectdp.cli.options import add_json, add_target, values_of
from subjectdp.plan.plan import (
    Accountant,
    AccountingMode,
    Horizontal,
    PrivacyUnit,
    SamplingMethod,
    TrustModel,
)

_SAMPLING = [method for method in values_of(SamplingMethod) if method != SamplingMethod.POISSON_SUBJECTS]


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose plans: a scenario, a finished run, or a mechanism with its schedule."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--config", metavar="FILE", nargs="+", help="scenario files whose runs to account for"
    )
    source.add_argument("--run", dest="run_id", metavar="RUN_ID", help="a finished run")
    parser.add_argument("--results", default="results", help="results folder of --config and --run")
    _add_mechanism(parser)
    _add_schedule(parser)
    add_target(parser)
    _add_joint_noise(parser)
    add_json(parser)


def _add_mechanism(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--algorithm", help="algorithm, for instance higrad_avg_dp or higrad_avg_dp:v3")
    parser.add_argument("--variant", help="variant of the algorithm, for instance v3")
    parser.add_argument(
        "--mode", choices=values_of(AccountingMode), default="sound", help="accounting (default: %(default)s)"
    )
    parser.add_argument(
        "--unit", choices=values_of(PrivacyUnit), help="privacy unit (default: what the algorithm claims)"
    )
    parser.add_argument(
        "--trust", choices=values_of(TrustModel), help="trust model (default: the algorithm's)"
    )
    parser.add_argument(
        "--horizontal", choices=values_of(Horizontal), default="rounds_over_sqrt_s", help="rule over silos"
    )
    parser.add_argument(
        "--sampling", choices=_SAMPLING, default="poisson", help="sampler (default: %(default)s)"
    )
    parser.add_argument(
        "--accountant", choices=values_of(Accountant), default="pld", help="accountant (default: %(default)s)"
    )


def _add_schedule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--counts",
        metavar="FILE",
        help="CSV file with the columns subject, silo, items: your federation, in place of equal silos",
    )
    parser.add_argument(
        "--batch-size", type=int, help="with --counts: B; each silo samples with q = B / its items"
    )
    parser.add_argument("--silos", type=int, help="number of silos (default: 1)")
    parser.add_argument(
        "--silos-per-subject",
        type=int,
        help="most silos that hold one subject (default: all; with --counts the largest number seen: conditional)",
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds R, before the horizontal rule of as_published mode"
    )
    parser.add_argument(
        "--steps-per-round",
        type=int,
        help="local steps T of a silo in a round (with --counts: one epoch unless given)",
    )
    parser.add_argument("--sampling-probability", type=float, help="q = B / items of a silo, or of a subject")
    parser.add_argument("--max-items-per-subject", type=int, help="cap k on a subject's items at a silo")
    parser.add_argument("--items", type=int, help="items of a silo (needed for fixed batches)")
    parser.add_argument("--subjects", type=int, help="subjects of a silo")


def _add_joint_noise(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--own-noise-only", action="store_true", help="secure aggregation: count each silo's own noise only"
    )
    parser.add_argument(
        "--clipping",
        choices=("item", "update"),
        default="item",
        help="joint noise: clip items' gradients, or each silo's whole update once;(default: %(default)s)",
    )
    parser.add_argument(
        "--colluding-silos",
        type=int,
        default=0,
        help="secure aggregation: silos that reveal their noise (joint noise, subject_release, uldp_fl)",
    )
