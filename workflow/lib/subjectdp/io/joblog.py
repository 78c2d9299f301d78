"""What a workflow job prints and logs: into its log file, user errors in one line instead of a traceback."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from subjectdp.errors import SubjectDPError

EXIT_USER_ERROR = 2


@contextmanager
def job_log(path: Path | str) -> Iterator[None]:
    """Sends what the block prints or logs to ``path``, line by line: progress can be followed while it runs.

    A ``SubjectDPError`` ends the process with status 2 and one line, ``error: <message>``, in the log and on
    the console; any other exception leaves its traceback in the log and goes on.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    console = sys.stderr
    with open(path, "w", buffering=1, encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
        handler = logging.StreamHandler(log)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
        root, level = logging.getLogger(), logging.getLogger().level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        try:
            yield
        except SubjectDPError as problem:
            for stream in (log, console):
                print(f"error: {problem}", file=stream, flush=True)
            raise SystemExit(EXIT_USER_ERROR) from problem
        except BaseException:
            traceback.print_exc(file=log)
            raise
        finally:
            root.removeHandler(handler)
            root.setLevel(level)
