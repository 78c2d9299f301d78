"""Options that several commands share."""

from __future__ import annotations

import argparse
from enum import StrEnum


def add_results(parser: argparse.ArgumentParser) -> None:
    """``--results FOLDER``."""
    parser.add_argument("--results", default="results", help="results folder (default: %(default)s)")


def add_json(parser: argparse.ArgumentParser, text: str = "print JSON") -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help=text)


def add_target(parser: argparse.ArgumentParser) -> None:
    """``--epsilon`` and ``--delta``."""
    parser.add_argument("--epsilon", type=float, default=4.0, help="target epsilon (default: %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-5, help="delta (default: %(default)s)")


def values_of(enum: type[StrEnum]) -> list[str]:
    """The values of an enum, for ``choices``."""
    return [str(member) for member in enum]
