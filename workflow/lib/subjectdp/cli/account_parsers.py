"""``subjectdp account``, ``subjectdp calibrate``, ``subjectdp caps`` and ``subjectdp table1``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any

_UNITS = ("item", "subject", "silo")
_MODES = ("sound", "as_published")
_TRUST = ("local", "secure_aggregation", "central")
_HORIZONTAL = ("rounds_over_sqrt_s", "steps_times_s", "sound")
_SAMPLING = ("poisson", "fixed_batch_size")


def add_parsers(commands: Any) -> None:
    """Adds the commands to an argparse sub-parser object; nothing heavy is imported before one runs."""
    account = commands.add_parser(
        "account",
        help="print the privacy loss of a plan",
        description="Prints epsilon for a plan given by options, for the runs of a configuration, or for a run.",
    )
    _plan_options(account)
    account.add_argument("--noise-multiplier", type=float, help="noise std over clip norm, on the sum")
    account.set_defaults(run=_lazy("account"))
    calibrate = commands.add_parser(
        "calibrate",
        help="print the noise multiplier for an epsilon",
        description="Prints the noise multiplier that reaches an epsilon from the safe side.",
    )
    _plan_options(calibrate)
    calibrate.add_argument(
        "--group-sizes",
        type=int,
        metavar="Z",
        help="noise by group size: print it for every size up to Z (default: the sizes that a run may draw)",
    )
    calibrate.set_defaults(run=_lazy("calibrate"), noise_multiplier=None)
    _add_caps(commands)
    table1 = commands.add_parser(
        "table1",
        help="print Table 1 of the joint-noise paper",
        description="Recomputes Table 1 of arXiv 2407.19286, with the tight and the provable epsilon beside it.",
    )
    table1.add_argument("--json", action="store_true", help="print JSON: a list of rows")
    table1.set_defaults(run=_table1)


def _add_caps(commands: Any) -> None:
    parser = commands.add_parser(
        "caps",
        help="print the noise that each cap on a subject's items needs",
        description="Prints, for caps on a subject's items at a silo, the items kept and the noise of capped_item_dp.",
    )
    parser.add_argument("--partition", metavar="FOLDER", required=True, help="a partition without a cap")
    parser.add_argument(
        "--caps", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="caps k (default: 1 2 4 8 16)"
    )
    parser.add_argument("--rounds", type=int, required=True, help="rounds R")
    parser.add_argument("--steps-per-round", type=int, default=1, help="local steps T (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, required=True, help="expected items B of a mini-batch")
    parser.add_argument("--epsilon", type=float, default=4.0, help="target epsilon (default: %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-5, help="delta (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON: a list of rows")
    parser.set_defaults(run=_lazy("caps", "accounting.group_size_caps"))


def _lazy(name: str, module: str = "cli.account") -> Callable[[argparse.Namespace], None]:
    def run(options: argparse.Namespace) -> None:
        getattr(import_module(f"subjectdp.{module}"), name)(options)

    return run


def _plan_options(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--config", metavar="FILE", nargs="+", help="scenario files whose runs to account for"
    )
    source.add_argument("--run", dest="run_id", metavar="RUN_ID", help="a finished run")
    parser.add_argument("--results", default="results", help="results folder of --config and --run")
    parser.add_argument("--algorithm", help="algorithm, for instance higrad_avg_dp or higrad_avg_dp:v3")
    parser.add_argument("--variant", help="variant of the algorithm, for instance v3")
    parser.add_argument("--mode", choices=_MODES, default="sound", help="accounting (default: %(default)s)")
    parser.add_argument("--unit", choices=_UNITS, help="privacy unit (default: what the algorithm claims)")
    parser.add_argument("--trust", choices=_TRUST, help="trust model (default: the algorithm's)")
    parser.add_argument(
        "--horizontal", choices=_HORIZONTAL, default="rounds_over_sqrt_s", help="rule over silos"
    )
    parser.add_argument(
        "--sampling", choices=_SAMPLING, default="poisson", help="sampler (default: %(default)s)"
    )
    parser.add_argument("--accountant", default="pld", help="pld, rdp or prv (default: %(default)s)")
    _schedule_options(parser)
    parser.add_argument("--epsilon", type=float, default=4.0, help="target epsilon (default: %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-5, help="delta (default: %(default)s)")
    parser.add_argument(
        "--own-noise-only", action="store_true", help="joint noise: count each silo's own noise only"
    )
    parser.add_argument(
        "--clipping",
        choices=("item", "update"),
        default="item",
        help="joint noise: clip items' gradients, or each silo's whole update once; subject_release: a subject's mean "
        "gradient, or its model's update (default: %(default)s)",
    )
    parser.add_argument(
        "--every", type=int, default=1, help="subject_release: rounds between a subject's turns (default: 1)"
    )
    parser.add_argument(
        "--noise-band",
        type=int,
        default=1,
        help="subject_release: rounds a draw of noise reaches over (default: 1)",
    )
    parser.add_argument(
        "--colluding-silos", type=int, default=0, help="joint noise: silos that tell their noise"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _schedule_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--silos", type=int, default=1, help="number of silos (default: %(default)s)")
    parser.add_argument("--silos-per-subject", type=int, help="silos that hold one subject (default: all)")
    parser.add_argument(
        "--rounds", type=int, help="rounds R, before the horizontal rule of as_published mode"
    )
    parser.add_argument("--steps-per-round", type=int, help="local steps T of a silo in a round")
    parser.add_argument("--sampling-probability", type=float, help="q = B / items of a silo, or of a subject")
    parser.add_argument("--max-items-per-subject", type=int, help="cap k on a subject's items at a silo")
    parser.add_argument("--items", type=int, help="items of a silo (needed for fixed batches)")
    parser.add_argument("--subjects", type=int, help="subjects of a silo")


def _table1(options: argparse.Namespace) -> None:
    from subjectdp.accounting import table1

    print(json.dumps(table1.rows_as_dicts(), indent=2) if options.json else table1.text())
