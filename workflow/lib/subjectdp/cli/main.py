"""The command ``subjectdp``: inspects data, scenarios, privacy and results; Snakemake runs the workflow.

Exit codes: 0 on success, 1 if a check found something (``schema --check``, ``doctor``, a broken run among ``runs``, a
run of ``plan`` that will not start), 2 for a user's mistake, printed as ``error: ...`` on standard error without a
traceback. A command's module is loaded where it is asked for, so that ``--help`` is quick.
"""

import argparse
import io
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path

from subjectdp import __version__
from subjectdp.cli.parser import Parser
from subjectdp.errors import SubjectDPError
from subjectdp.places import CHECKOUT, LIBRARY

_ELSEWHERE = f"warning: the library of {LIBRARY} runs, not this folder's: export PYTHONPATH=$PWD/workflow/lib"
_EPILOG = """\
examples:
  subjectdp inspect femnist --source leaf_json --path data/femnist_leaf_180_writers.zip
  subjectdp plan config/scenarios/embedded.yaml
  subjectdp runs --dataset femnist
  subjectdp show femnist-higrad_avg_dp-v1-s1
  subjectdp show femnist-fed_avg-s1 femnist-local_item_dp-s1
  subjectdp ledger femnist-local_item_dp-s0 femnist-local_item_dp-s1
  subjectdp doctor --scenario config/scenarios/femnist-180.yaml
  subjectdp run config/scenarios/embedded.yaml
"""

COMMANDS = {
    "inspect": "print what a data source holds",
    "init": "write a scenario for a table of one's own",
    "account": "print a plan's privacy loss, or the noise for an ε",
    "audit": "attack an algorithm for a minute",
    "check-algorithm": "check an algorithm's code against its plans",
    "plan": "check a scenario; predict its runs, ε, hours and reruns",
    "run": "run a scenario: progress, then figures and report",
    "runs": "list runs: results, progress, time left",
    "show": "show a run, or compare two: settings, privacy, accuracy",
    "ledger": "compose the ε of runs on the same people",
    "statement": "one page on a run's privacy for an ethics board",
    "silo": "guard a silo of a real federation",
    "schema": "print, write or check the generated configuration files",
    "doctor": "check environment, devices, data, disk and Slurm",
}
"""The commands in the order of the help. In its module, a command is the function of its name (with _ for -), whose
docstring describes it, and ``NAME_options`` adds its options."""

_MODULES = {  # the modules of this package that hold commands of another name
    "check-algorithm": "audit",
    "inspect": "init",
    "plan": "run",
    "schema": "doctor",
    "show": "runs",
    "statement": "ledger",
}


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with one line for each command, and without argparse's line ``COMMAND`` above them."""

    def _format_action(self, action: argparse.Action) -> str:
        if action.nargs != argparse.PARSER:
            return super()._format_action(action)
        self._action_max_length += 2  # argparse ignores the indentation of the commands
        return super()._format_action(action).partition("\n")[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit code (``sys.argv`` without arguments)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε shows a question mark
    here = Path("workflow", "lib")
    if (CHECKOUT / "Snakefile").is_file() and here.is_dir() and not here.samefile(LIBRARY):  # one environment
        print(_ELSEWHERE, file=sys.stderr)
    try:
        options = _parsed(sys.argv[1:] if arguments is None else list(arguments))
        code: int | None = options.run(options)
        sys.stdout.flush()
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]  # that the core does not bring; one of ours missing is a bug
        if package in ("", "subjectdp"):
            raise
        print(f"error: Expected the package {package} for this: pip install 'subjectdp[pipeline]'.", file=sys.stderr)
        return 2
    except SubjectDPError as problem:
        for line in str(problem).split("\n"):
            print(f"error: {line}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader (head, less) has ended; a write at exit would print a warning.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as problem:  # a file that may not be read, a folder that may not be written
        print(f"error: {problem.filename or 'a file'}: {problem.strerror or problem}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0 if code is None else code


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """The options; of a command that passes on what follows ``--``, that too."""
    place = arguments.index("--") if "--" in arguments and arguments[0] == "run" else len(arguments)
    options = build_parser([word for word in arguments if word in COMMANDS][:1]).parse_args(arguments[:place])
    options.passed_on = arguments[place + 1 :]
    return options


def build_parser(wanted: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser with all commands, and the options of those that are ``wanted``."""
    parser = Parser(
        prog="subjectdp",
        description="Subject-granular differential privacy in federated learning.",
        epilog=_EPILOG,
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"subjectdp {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        if name not in wanted:
            commands.add_parser(name, help=text)
            continue
        module, word = import_module(f"{__package__}.{_MODULES.get(name, name)}"), name.replace("-", "_")
        command = getattr(module, word)
        own = commands.add_parser(name, description=command.__doc__)
        getattr(module, f"{word}_options")(own)
        own.set_defaults(run=command)
    return parser
