"""``subjectdp inspect``: what a source of data holds."""

import argparse
from typing import Any

from pydantic import ValidationError

from subjectdp.cli.parser import add_json, values_of
from subjectdp.cli.table_options import add_table, table_keys
from subjectdp.config.messages import config_error
from subjectdp.config.resolve import expand_variables
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.errors import expected
from subjectdp.io.printing import flattened, print_json, print_pairs


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "inspect",
        description="Prints users, items, classes or plays, mean and standard deviation of the items per user, "
        "and the users left after the split, of a source of a data set.",
    )
    parser.add_argument("dataset", choices=tuple(DATASETS), help="data set; table: a file of one's own")
    parser.add_argument(
        "--source", choices=values_of(Source), help="where it is (default: upstream, of a table: table)"
    )
    parser.add_argument(
        "--path",
        help="leaf_json: JSON, parquet or HDF5; table: CSV or parquet, a file or folder; upstream: folder of files",
    )
    add_table(parser)
    parser.add_argument("--test-fraction", type=float, help="test part of the split (default: 0.2, text 0.1)")
    parser.add_argument("--duplicate-first-image-bug", action="store_true", help="FEMNIST: count as LEAF's code does")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the summary of a source; ConfigError without the path of a source that has one."""
    source = options.source or ("table" if options.dataset == "table" else "upstream")
    if options.path is None and source != Source.EMBEDDED:
        raise expected("--path", None, f"where the source {source} lies")
    from subjectdp.data.prepare import inspect_source  # to keep --help light

    others = ("dataset", "test_fraction", "duplicate_first_image_bug")
    given = {"source": source, **table_keys(options), **{name: getattr(options, name) for name in others}}
    if options.path is not None:
        given["path"] = expand_variables(options.path)
    try:
        data = DataConfig.model_validate(given)
    except ValidationError as problem:
        raise config_error(problem, DataConfig, "data.") from None
    summary = inspect_source(data)
    if options.json:
        print_json(summary)
    else:
        print_pairs((key.removeprefix("notes."), _short(value)) for key, value in flattened(summary))


def _short(value: Any) -> Any:
    """A long list as its length and its ends."""
    return f"{len(value)}: {value[0]} ... {value[-1]}" if isinstance(value, list) and len(value) > 12 else value
