"""A training killed at random moments, by SIGTERM or SIGKILL, and taken up again: it has to end bit-identical.

Each training is a fork of this process, which has loaded torch and started no thread: a real process with real signals,
without the seconds that a new interpreter takes.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch

from faults.workspace import NotRecovered, wait_until
from subjectdp.io.job_log import job_log
from subjectdp.training.run import train_run
from training import small_world
from training.outcomes import outcome, resumed_after

ROUNDS, ATTEMPTS = 12, 4
CONFIG: dict[str, Any] = small_world.config(
    training={"rounds": ROUNDS, "batch_size": 8, "local_steps": 3, "averaged_rounds": 0.5},
    performance={"device": "cpu", "checkpoint_minutes": 0.0005},
)


class Kill(NamedTuple):
    """One training that was killed: when, how, and what became of it."""

    signum: signal.Signals
    round: int  # the last one that had been evaluated
    delay: float  # seconds after that
    resumed: list[int]


def kills(folder: Path, count: int, seed: int) -> Iterator[Kill]:
    """``count`` random moments, each with SIGTERM and with SIGKILL. NotRecovered at the first that ends otherwise."""
    torch.set_num_threads(1)
    generator = random.Random(seed)
    data = small_world.build(folder, CONFIG)
    undisturbed = folder / "undisturbed"
    if _wait(_fork(data, undisturbed)) != 0:
        raise NotRecovered(_log(undisturbed))
    reference = outcome(undisturbed)
    a_round = float(pd.read_parquet(undisturbed / "rounds.parquet").train_seconds.iloc[-1])
    for number in range(count):
        round_, delay = generator.randrange(ROUNDS), generator.uniform(0, a_round)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            kill = None
            for attempt in range(ATTEMPTS):
                run = folder / f"{number}-{signum.name}-{attempt}"
                kill = _kill(data, run, Kill(signum, round_, delay / 2**attempt, []), reference)
                if kill is not None:
                    break
            if kill is None:
                raise NotRecovered(f"{ATTEMPTS} trainings ended before the {signum.name} came")
            yield kill


def _kill(data: tuple[Path, Path], run: Path, kill: Kill, reference: dict[str, Any]) -> Kill | None:
    child = _fork(data, run)
    wait_until(lambda: _reached(run, kill.round) or _over(child))
    time.sleep(kill.delay)
    # a child that has ended is a zombie until it is waited for: the signal goes to no other process
    os.kill(child, kill.signum)
    status = _wait(child)
    _check_end(run, kill, status)
    if (run / "manifest.json").exists() and outcome(run) != reference:
        raise NotRecovered(f"silently wrong after {kill}")
    if status == 0:
        return None
    if _wait(_fork(data, run)) != 0:
        raise NotRecovered(f"not resumed after {kill}: {_log(run)}")
    if outcome(run) != reference:
        raise NotRecovered(f"silently wrong after {kill}")
    if (run / "checkpoints").exists() or (run / ".lock").exists():
        raise NotRecovered(f"left behind after {kill}: {list(run.iterdir())}")
    return kill._replace(resumed=resumed_after(run))


def _check_end(run: Path, kill: Kill, status: int) -> None:
    if status not in {0, -kill.signum, 128 + signal.SIGTERM} or (status > 0 and kill.signum != signal.SIGTERM):
        raise NotRecovered(f"status {status} after {kill}: {_log(run)}")
    if status > 0 and not _log(run).splitlines()[-1].startswith("stopped: SIGTERM"):
        raise NotRecovered(f"no last words after {kill}: {_log(run)}")


def _fork(data: tuple[Path, Path], run: Path) -> int:
    child = os.fork()
    if child != 0:
        return child
    try:
        with job_log(run.with_suffix(".log")):
            train_run(CONFIG, *data, run, run.parent / "cache")
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
