"""``subjectdp inspect``: what a source of data holds."""

from __future__ import annotations

import argparse
from typing import Any

from subjectdp.data.catalogue import DATASETS
from subjectdp.io.printing import print_json

_SOURCES = ("embedded", "leaf_json", "upstream")


def add_parsers(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "inspect",
        help="print what a data source holds",
        description="Prints users, items, classes or plays, mean and standard deviation of the items a user, "
        "and the users left at the split, of a source of a data set.",
    )
    parser.add_argument("dataset", choices=tuple(DATASETS), help="data set")
    parser.add_argument(
        "--source", choices=_SOURCES, default="upstream", help="where it is (default: %(default)s)"
    )
    parser.add_argument(
        "--path", help="leaf_json: folder or zip of LEAF's JSON; upstream: folder of the archives"
    )
    parser.add_argument("--test-fraction", type=float, help="test part of the split (default: 0.2, text 0.1)")
    parser.add_argument(
        "--duplicate-first-image-bug", action="store_true", help="FEMNIST: count as LEAF's code does"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from subjectdp.config.resolve import expand_variables
    from subjectdp.data.inspect import format_summary, inspect_source

    summary = inspect_source(
        options.dataset,
        options.source,
        None if options.path is None else expand_variables(options.path),
        options.test_fraction,
        options.duplicate_first_image_bug,
    )
    if options.json:
        print_json(summary)
    else:
        print(format_summary(summary))
