"""``subjectdp inspect``: what a source of data holds."""

import argparse
import math
from typing import Any

from subjectdp.cli.parser import add_json, values_of
from subjectdp.config.messages import validated
from subjectdp.config.resolve import expand_variables
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.errors import expected
from subjectdp.io.printing import flattened, print_json, print_pairs


def inspect_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("dataset", choices=tuple(DATASETS), help="data set; table: a file of one's own")
    help_ = "where it is (default: upstream, of a table: table)"
    parser.add_argument("--source", choices=values_of(Source), help=help_)
    help_ = "leaf_json: JSON, parquet or HDF5; table: CSV or parquet, a file or folder; upstream: folder of files"
    parser.add_argument("--path", help=help_)
    add_table(parser)
    parser.add_argument("--test-fraction", type=float, help="test part of the split (default: 0.2, text 0.1)")
    parser.add_argument("--duplicate-first-image-bug", action="store_true", help="FEMNIST: count as LEAF's code does")
    add_json(parser)


def inspect(options: argparse.Namespace) -> None:
    """Prints users, items, classes or plays, mean and standard deviation of the items per user, and the users left
    after the split, of a source of a data set.
    """
    source = options.source or ("table" if options.dataset == "table" else "upstream")
    if options.path is None and source != Source.EMBEDDED:
        raise expected("--path", None, f"where the source {source} lies")
    from subjectdp.data.prepare import inspect_source  # to keep --help light

    others = ("dataset", "test_fraction", "duplicate_first_image_bug")
    given = {"source": source, **table_keys(options), **{name: getattr(options, name) for name in others}}
    if options.path is not None:
        given["path"] = expand_variables(options.path)
    data = validated(DataConfig, given, "data")
    summary = inspect_source(data)
    if options.json:
        print_json(summary)
    else:
        print_pairs((key.removeprefix("notes."), _short(value)) for key, value in flattened(summary))


def _short(value: Any) -> Any:
    """A long list as its length and its ends."""
    return f"{len(value)}: {value[0]} ... {value[-1]}" if isinstance(value, list) and len(value) > 12 else value


def add_table(parser: argparse.ArgumentParser) -> None:
    """``--label`` to ``--task``."""
    parser.add_argument("--label", metavar="COLUMN", help="table: the column of the label")
    parser.add_argument("--subject", metavar="COLUMN", help="table: whose an item is; several columns with commas")
    parser.add_argument("--silo", metavar="COLUMN", help="table: where an item lies; file: the file's name says it")
    parser.add_argument("--columns", metavar="COLUMNS", help="table: the features, with commas (default: all others)")
    parser.add_argument("--drop", metavar="COLUMNS", help="table: columns that are no features, with commas")
    parser.add_argument("--missing", choices=("refuse", "drop", "indicator"), help="table: cells without a value")
    parser.add_argument("--task", choices=("classification", "regression"), help="table: what the label is")
    help_ = "table: public range of numbers"
    parser.add_argument("--range", action="append", default=[], metavar="COLUMN=LEAST:LARGEST", help=help_)


def table_keys(options: argparse.Namespace) -> dict[str, Any]:
    """The keys of the section ``data`` that were given. Raises ConfigError for a range that is none."""
    names = ("label", "subject", "silo", "columns", "drop", "missing", "task")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    for name in ("subject", "columns", "drop"):
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
