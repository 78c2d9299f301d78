"""``subjectdp table1``: Table 1 of the joint-noise paper."""

from __future__ import annotations

import argparse
from typing import Any

from subjectdp.cli.options import add_json
from subjectdp.io.printing import print_json


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "table1",
        help="print Table 1 of the joint-noise paper",
        description="Recomputes Table 1 of arXiv 2407.19286, with the tight and the provable epsilon beside it.",
    )
    add_json(parser, "print JSON: a list of rows")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the table."""
    from subjectdp.accounting import table1  # here, to keep --help light

    if options.json:
        print_json(table1.rows_as_dicts())
    else:
        print(table1.text())
