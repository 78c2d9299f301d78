"""Dry runs in forks of one process that has imported Snakemake already: a second each instead of three.

Started in a project's folder. Each line of stdin is a JSON list of Snakemake's arguments; the answer is a line of JSON
with what was printed. Nothing of the project's own library is imported before the fork: the tests edit it.
"""

import json
import os
import sys
import tempfile

import grimp  # noqa: F401
import pydantic  # noqa: F401
import snakemake.cli


def dry_run(folder: str, arguments: list[str], environment: dict[str, str]) -> str:
    """What a dry run in ``folder`` prints, both streams together."""
    with tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            os.dup2(printed.fileno(), 1)
            os.dup2(printed.fileno(), 2)
            os.chdir(folder)
            os.environ.update(environment)
            sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
            try:
                snakemake.cli.main(["--cores", "1", "--nocolor", *arguments])
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(child, 0)
        printed.seek(0)
        return printed.read().decode(errors="replace")


for line in sys.stdin:
    print(json.dumps(dry_run(**json.loads(line))), flush=True)
