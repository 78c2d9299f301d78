"""The command ``subjectdp``: looks at data, scenarios, privacy and results; the workflow is Snakemake's.

Exit codes: 0 when all went well, 1 when a check found something (``schema --check``, ``doctor``, a broken run among
``runs``, one in ``plan`` that will not start), 2 for a mistake of the user, printed as ``error: ...`` on standard error
without a traceback. Heavy modules are imported when their command runs.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from subjectdp import __version__
from subjectdp.errors import SubjectDPError

_EPILOG = """\
examples:
  subjectdp inspect femnist --source leaf_json --path data/femnist_leaf_180_writers.zip
  subjectdp scenario config/scenarios/embedded.yaml
  subjectdp runs --dataset femnist
  subjectdp show femnist-higrad_avg_dp-v1-s1
  subjectdp compare femnist-fed_avg-s1 femnist-local_item_dp-s1
  subjectdp doctor --scenario config/scenarios/femnist-180.yaml
Runs are made by snakemake: snakemake --cores 2 --configfile config/scenarios/embedded.yaml
"""

_COMMANDS = ("data", "accounting", "scenario", "plan", "results", "schema", "doctor", "bench", "pretrain")
"""Modules ``subjectdp.cli.commands_*`` in the order of the help; each adds its parsers."""


class _Parser(argparse.ArgumentParser):
    """A parser that takes no abbreviated options, in the commands as well: they would break with a new option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in which each command stands on one line with what it does, without the line ``COMMAND`` above them."""

    def _format_action(self, action: argparse.Action) -> str:
        if action.nargs != argparse.PARSER:
            return super()._format_action(action)
        self._action_max_length += 2  # argparse forgets that the commands are indented
        return super()._format_action(action).partition("\n")[2]


Command = Callable[[argparse.Namespace], int | None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code (``sys.argv`` without arguments)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε shows a question mark
    try:
        options = build_parser().parse_args(arguments)
        command: Command = options.run
        code = command(options)
        sys.stdout.flush()
    except SubjectDPError as problem:
        for line in str(problem).split("\n"):
            print(f"error: {line}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (head, less) has gone; writing to it again at exit would print a warning.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return 0 if code is None else code


def build_parser() -> argparse.ArgumentParser:
    """The parser with all commands."""
    parser = _Parser(
        prog="subjectdp",
        description="Subject-granular differential privacy in federated learning.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"subjectdp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in _COMMANDS:
        import_module(f"subjectdp.cli.commands_{name}").add_parsers(commands)
    return parser
