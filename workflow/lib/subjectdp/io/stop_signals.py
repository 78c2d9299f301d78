"""SIGTERM and SIGINT as a request to stop, checked at points where the work can be interrupted.

Slurm sends SIGTERM ahead of a time limit and on ``scancel``, Snakemake and Ctrl-C send SIGINT. A second one of the same
kind ends the process at once, as without this module.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """The work ended early because a signal asked for it; ``exit_status`` is the shell's 128 + signal."""

    def __init__(self, signum: int, message: str = "") -> None:
        super().__init__(f"{signal.Signals(signum).name}{message}")
        self.signum, self.exit_status = signum, 128 + signum


class StopRequest:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def check(self) -> None:
        """Raises Stopped if a signal has come."""
        if self.signum is not None:
            raise Stopped(self.signum)


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Notes SIGTERM and SIGINT in the request that it yields, as long as the block lasts.

    Outside of the main thread, where Python allows no signal handlers, the request never comes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}

    def note(signum: int, frame: FrameType | None) -> None:
        request.signum = signum
        signal.signal(signum, signal.default_int_handler if signum == signal.SIGINT else signal.SIG_DFL)

    try:
        for signum, handler in before.items():
            if handler != signal.SIG_IGN:  # a job in the background of a shell ignores Ctrl-C
                signal.signal(signum, note)
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
