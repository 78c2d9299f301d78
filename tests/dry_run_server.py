"""Dry runs in forks of one process that has imported Snakemake and its packages: a second each instead of three.

Each line of stdin is a JSON mapping with the folder, Snakemake's arguments and the environment; the answer is a line of
JSON with the exit status and what was printed. Nothing of the project's own library is imported before the fork: the
tests edit it.
"""

import json
import os
import sys
import tempfile

import grimp  # noqa: F401
import nbformat  # noqa: F401
import pydantic  # noqa: F401
import smart_open  # noqa: F401
import snakemake.cli
import snakemake.report
import yte  # noqa: F401


def dry_run(folder: str, arguments: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The exit status of a dry run in ``folder`` and what it prints, both streams together."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            run(folder, arguments, environment)
        _, ended = os.waitpid(child, 0)
        printed.seek(0)
        return os.waitstatus_to_exitcode(ended), printed.read().decode(errors="replace")


def run(folder: str, arguments: list[str], environment: dict[str, str]) -> None:
    """Does what the command ``snakemake`` does, and ends the process."""
    status = 1
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["snakemake", *arguments]
        sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        snakemake.cli.main(["--cores", "2", "--nocolor", *arguments])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


for line in sys.stdin:
    print(json.dumps(dry_run(**json.loads(line))), flush=True)
