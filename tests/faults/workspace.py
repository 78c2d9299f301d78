"""A copy of the project in which something is broken, Snakemake run in it, and what its results have to be."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from subjectdp.config.scenario import load_scenario_from_mapping
from subjectdp.places import Places
from training.small_world import outcome

SCENARIO = Path(__file__).with_name("scenario.yaml")
PATIENCE = 600.0  # seconds until a wait counts as a hang


class NotRecovered(AssertionError):
    """A result that is wrong without having been refused, a hang, or a recovery that does not work."""


class Ended(NamedTuple):
    """A command that has come to its end."""

    status: int
    output: str


class Running:
    """A command on its way, in a process group of its own; its output goes to a file."""

    def __init__(self, command: list[str], folder: Path, output: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder / ".cache")}
        self._output = output
        with output.open("wb") as stream:
            outputs: dict[str, Any] = {"stdout": stream, "stderr": subprocess.STDOUT}
            self._process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **outputs)

    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL for this process alone: what it has started goes on."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> Ended:
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise NotRecovered(f"a hang: {self._output.read_text(errors='replace')[-2000:]}") from None
        return Ended(status, self._output.read_text(errors="replace"))


class Workspace:
    """One copy of the project: the folder of its only run, of its prepared data, and the manifest that is asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._commands = 0
        shutil.copy(SCENARIO, root / "faults.yaml")
        scenario = load_scenario_from_mapping(yaml.safe_load(SCENARIO.read_text()))
        run = scenario.runs[0]
        self.run = root / Places().run_dir(run.run_id)
        self.prepared = root / Places().prepared_dir(run.data_key)
        self.manifest = Places().run_file(run.run_id, "manifest.json")

    def start(self, *arguments: str) -> Running:
        """Starts Snakemake with the scenario."""
        self._commands += 1
        command = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor", *arguments]
        command += ["--rerun-incomplete", "--configfile", "faults.yaml"]
        return Running(command, self.root, self.root / f"command-{self._commands}.txt")

    def train(self) -> Running:
        return self.start(self.manifest)

    def train_again(self, reference: dict[str, Any] | None = None) -> None:
        """The command that recovers: the same once more. NotRecovered if it fails, or does not end as ``reference``."""
        self.must_succeed(self.train().wait())
        if reference is not None:
            self.must_equal(reference)

    def must_succeed(self, ended: Ended) -> None:
        if ended.status != 0:
            logs = "".join(path.read_text()[-1500:] for path in (self.root / "results/logs").rglob("*.log"))
            raise NotRecovered(f"status {ended.status}: {ended.output[-2500:]}\n{logs}")

    def must_fail(self, ended: Ended, *words: str) -> None:
        """The command failed, and a log or the console says why in these words."""
        if ended.status == 0:
            raise NotRecovered(f"nothing was noticed:\n{ended.output[-1500:]}")
        logs = [path.read_text(errors="replace") for path in (self.root / "results/logs").rglob("*.log")]
        for word in words:
            if not any(word in text for text in (ended.output, *logs)):
                raise NotRecovered(f"{word!r} is not said:\n{ended.output[-2500:]}\n{logs}")

    def progress(self) -> list[str]:
        """The lines of the run's progress so far."""
        try:
            return (self.run / "progress.log").read_text().splitlines()
        except FileNotFoundError:
            return []

    def wait_for_round(self, round_: int, running: Running) -> None:
        wait_until(lambda: any(f" round {round_}/" in line for line in self.progress()), running)

    def job(self) -> int:
        """The process that trains, from the lock that it holds."""
        return int((self.run / ".lock").read_text().split()[1])

    def must_equal(self, reference: dict[str, Any]) -> None:
        """The run ended as the one that nothing happened to."""
        found = outcome(self.run)
        wrong = [part for part in reference if found[part] != reference[part]]
        if wrong:
            raise NotRecovered(f"silently wrong: {', '.join(wrong)} of the run")
        left = [path.name for path in self.run.iterdir() if path.name.startswith(".") or path.is_dir()]
        if left:
            raise NotRecovered(f"left behind: {left}")

    def nothing_wrong(self, reference: dict[str, Any]) -> None:
        """After a fault a manifest is not there, or is the right one."""
        if (self.run / "manifest.json").exists():
            self.must_equal(reference)

    def end_all(self) -> None:
        """Ends every process that works in this folder: what a trial that was broken off has left."""
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if Path(os.readlink(entry / "cwd")) == self.root:
                    os.kill(int(entry.name), signal.SIGKILL)

    def copy(self, target: Path) -> Workspace:
        """A copy with all that lies there, times included."""
        shutil.copytree(self.root, target, symlinks=True)
        return Workspace(target)


def wait_until(true: Callable[[], bool], running: Running | None = None) -> None:
    """Looks every few milliseconds; NotRecovered if it never comes true."""
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end or (running is not None and not running.alive() and not true()):
            said = "" if running is None or running.alive() else running.wait().output[-2500:]
            raise NotRecovered(f"waited in vain {said}")
        time.sleep(0.003)


def ended(pid: int) -> bool:
    """Whether a process that is not our child is gone."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"
