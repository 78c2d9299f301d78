"""A training killed at random moments, by SIGTERM or SIGKILL, and taken up again: it has to end bit-identical.

Each training is a fork of this process, which has loaded torch and started no thread: a real process with real signals,
without the seconds that a new interpreter takes.
"""

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from faults.workspace import NotRecovered, wait_until
from subjectdp.accounting.calibration import kept_in
from subjectdp.io.job_log import job_log
from subjectdp.training.run import train_run
from training import small_world
from training.small_world import outcome

ROUNDS, SECONDS, ATTEMPTS = 12, 0.2, 4  # SECONDS: within which the signal comes after a round's start
CONFIG: dict[str, Any] = small_world.config(
    training={"rounds": ROUNDS, "batch_size": 8, "local_steps": 3, "averaged_rounds": 0.5},
    performance={"device": "cpu", "checkpoint_minutes": 0.0005},
    model=small_world.CNN,
)


def kills(folder: Path, count: int, seed: int) -> Iterator[str]:
    """``count`` random moments, each with SIGTERM and with SIGKILL. NotRecovered at the first that ends otherwise."""
    torch.set_num_threads(1)
    generator = random.Random(seed)
    data = small_world.build(folder, CONFIG)
    undisturbed = folder / "undisturbed"
    if _wait(_fork(data, undisturbed)) != 0:
        raise NotRecovered(_log(undisturbed))
    reference = outcome(undisturbed)
    for number in range(count):
        round_, delay = generator.randrange(ROUNDS), generator.uniform(0, SECONDS)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            for attempt in range(ATTEMPTS):  # until the signal comes before the end
                run = folder / f"{number}-{signum.name}-{attempt}"
                child = _fork(data, run)
                if _killed(child, run, round_, delay / 2**attempt, signum):
                    break
            _check(data, run, reference, f"{signum.name} in round {round_} after {delay} s")
            yield signum.name


def _killed(child: int, run: Path, round_: int, delay: float, signum: signal.Signals) -> bool:
    """Whether the signal, sent so many seconds after the round, came before the child's end."""
    wait_until(lambda: _reached(run, round_) or _over(child))
    time.sleep(delay)
    os.kill(child, signum)  # a child that has ended is a zombie until it is waited for: it goes to no other process
    return _wait(child) != 0


def _check(data: tuple[Path, Path], run: Path, reference: dict[str, Any], kill: str) -> None:
    """What there is is right; started again, the run ends as if nothing had happened."""
    if (run / "manifest.json").exists() and outcome(run) != reference:
        raise NotRecovered(f"silently wrong after {kill}")
    if _wait(_fork(data, run)) != 0:
        raise NotRecovered(f"not resumed after {kill}: {_log(run)}")
    if outcome(run) != reference:
        raise NotRecovered(f"silently wrong after {kill}")
    if (run / "checkpoints").exists() or (run / ".lock").exists():
        raise NotRecovered(f"left behind after {kill}: {list(run.iterdir())}")


def _fork(data: tuple[Path, Path], run: Path) -> int:
    child = os.fork()
    if child != 0:
        return child
    try:
        with job_log(run.with_suffix(".log")), kept_in(run.parent / "cache"):
            train_run(CONFIG, *data, run)
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
        status = 1
    os._exit(status)


def _wait(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _over(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _reached(run: Path, round_: int) -> bool:
    if round_ == 0:
        return (run / "config.json").exists()
    try:
        return f" round {round_}/" in (run / "progress.log").read_text()
    except FileNotFoundError:
        return False


def _log(run: Path) -> str:
    return run.with_suffix(".log").read_text(errors="replace")
