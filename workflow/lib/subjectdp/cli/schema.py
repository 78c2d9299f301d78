"""``subjectdp schema``: the generated files of ``config/``."""

import argparse
from typing import Any

from subjectdp.config import schema


def add_parser(commands: Any) -> None:
    """Adds the command."""
    parser = commands.add_parser(
        "schema",
        description="Prints the JSON schema of scenario files. With --write, brings config.schema.json "
        "and README.md in the configuration folder up to date; with --check, exits 1 if they "
        "are not.",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="write the files that differ")
    action.add_argument("--check", action="store_true", help="exit 1 if a file differs")
    parser.add_argument("--folder", default="config", help="configuration folder (default: %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints, writes or checks; 1 if a checked file differs."""
    if options.write:
        for path in schema.write_generated(options.folder):
            print(f"wrote {path}")
        return 0
    if options.check:
        stale = schema.stale_files(options.folder)
        for path in stale:
            print(f"{path} is not up to date: run subjectdp schema --write")
        return 1 if stale else 0
    print(schema.scenario_schema_text(), end="")
    return 0
