"""What a table's columns are, on the command line: the keys of the section ``data``."""

import argparse
import math
from typing import Any

from subjectdp.errors import expected

_LISTS = ("subject", "columns", "drop")


def add_table(parser: argparse.ArgumentParser) -> None:
    """``--label`` to ``--task``."""
    parser.add_argument("--label", metavar="COLUMN", help="table: the column of the label")
    parser.add_argument("--subject", metavar="COLUMN", help="table: whose an item is; several columns with commas")
    parser.add_argument("--silo", metavar="COLUMN", help="table: where an item lies; file: the file's name says it")
    parser.add_argument("--columns", metavar="COLUMNS", help="table: the features, with commas (default: all others)")
    parser.add_argument("--drop", metavar="COLUMNS", help="table: columns that are no features, with commas")
    parser.add_argument("--missing", choices=("refuse", "drop", "indicator"), help="table: cells without a value")
    parser.add_argument("--task", choices=("classification", "regression"), help="table: what the label is")
    parser.add_argument(
        "--range", action="append", default=[], metavar="COLUMN=LEAST:LARGEST", help="table: public range of numbers"
    )


def table_keys(options: argparse.Namespace) -> dict[str, Any]:
    """The keys of ``data`` that were given. Raises ConfigError for a range that is none."""
    names = ("label", "subject", "silo", "columns", "drop", "missing", "task")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    for name in _LISTS:
        if name in given and (name != "subject" or "," in given[name]):
            given[name] = [each.strip() for each in given[name].split(",")]
    ranges = {}
    for text in options.range:
        name, _, bounds = text.rpartition("=")
        try:
            least, largest = map(float, bounds.split(":"))
        except ValueError:
            raise expected("--range", text, "COLUMN=LEAST:LARGEST, as age=0:100") from None
        if name in ranges or not -math.inf < least < largest < math.inf:
            raise expected("--range", text, "one of each column, the least value before the largest")
        ranges[name] = (least, largest)
    return given | ({"ranges": ranges} if ranges else {})
