"""``subjectdp inspect``: what a source of data holds."""

from __future__ import annotations

import argparse
from typing import Any

from subjectdp.cli.output import print_json

_DATASETS = ("femnist", "shakespeare")
_SOURCES = ("embedded", "leaf_json", "upstream")


def add_parsers(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "inspect",
        help="print what a data source holds",
        description="Prints users, items, classes or plays, mean and standard deviation of the items a user, "
        "and the users left at the split, of a source of FEMNIST or Shakespeare.",
    )
    parser.add_argument("dataset", choices=_DATASETS, help="data set")
    parser.add_argument(
        "--source", choices=_SOURCES, default="upstream", help="where it is (default: %(default)s)"
    )
    parser.add_argument(
        "--path", help="leaf_json: folder or zip of LEAF's JSON; upstream: folder of the archives"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from subjectdp.config import load_run
    from subjectdp.data.inspect import format_summary, inspect_source

    settings = {"dataset": options.dataset, "source": options.source, "path": options.path}
    data = load_run({"data": settings}).data
    summary = inspect_source(data.dataset, data.source, data.path)
    if options.json:
        print_json(summary)
    else:
        print(format_summary(summary))
