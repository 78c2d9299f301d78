"""Asks the server of dry runs, which starts with the first question and ends with the tests."""

import atexit
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path


def is_dry(arguments: Sequence[str]) -> bool:
    """Whether these arguments of Snakemake run no job."""
    return bool({"-n", "--dry-run"} & set(arguments))


def dry_run(folder: Path, arguments: Sequence[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """A dry run, or any other command that starts no job, in ``folder``; both streams together are in ``stdout``."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    asked = {"folder": str(folder), "arguments": arguments, "environment": {**os.environ, **environment}}
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    status, printed = json.loads(server.stdout.readline())
    return subprocess.CompletedProcess(list(arguments), status, printed)


def job_counts(printed: str) -> dict[str, int]:
    """Rule -> number of jobs, from the table that a dry run prints."""
    table = printed.split("Job stats:")[1].split("total")[0]
    return {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}


@cache
def _server() -> subprocess.Popen[str]:
    command = [sys.executable, str(Path(__file__).with_name("dry_run_server.py"))]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)  # closes its input, which ends it
    return server
