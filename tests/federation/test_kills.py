"""kill -9 at any moment: whatever was released for a round is released again, and nothing else ever is."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from federation.world import World, make_world
from subjectdp.errors import WorkerError
from subjectdp.federation.guard import Budget
from subjectdp.federation.proposal import unpack
from subjectdp.federation.site import load_site
from subjectdp.federation.wire import SOCKET, ask_silo

DELAYS = (0.0, 0.02, 0.05, 0.1, 0.3)  # seconds after the request, one round each


class Process:
    """`subjectdp silo` as a process."""

    def __init__(self, world: World) -> None:
        self.folder = Path(load_site(world.sites[0]).folder)
        log = self.folder / "silo.log"
        before = log.read_text().count("listening") if log.exists() else 0
        command = [sys.executable, "-m", "subjectdp", "silo", str(world.sites[0])]
        own = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "workflow" / "lib")}
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=own)
        end = time.monotonic() + 60
        while not (log.exists() and log.read_text().count("listening") > before):
            assert self.process.poll() is None and time.monotonic() < end
            time.sleep(0.05)

    def ask(self, request: bytes) -> bytes | None:
        try:
            return ask_silo(self.folder / SOCKET, request)
        except WorkerError:
            return None

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@pytest.mark.long
def test_a_killed_silo_never_gives_two_releases_of_a_round(tmp_path: Path) -> None:
    """With secure noise, so that a release made anew would differ."""
    changes = {"privacy": {"noise_source": "secure"}, "training": {"rounds": len(DELAYS)}}
    world = make_world(tmp_path, "subject_release", **changes)
    for round_, delay in enumerate(DELAYS, 1):
        request, got = world.request(round_), list[bytes | None]()
        silo = Process(world)
        asked = threading.Thread(target=lambda silo=silo, request=request, got=got: got.append(silo.ask(request)))
        asked.start()
        time.sleep(delay)
        silo.kill()
        asked.join(30)
        silo = Process(world)
        again, more = silo.ask(request), silo.ask(request)
        silo.kill()
        assert again is not None and more == again and unpack(again)[1] is not None
        assert got[0] in (None, again), "the same bits or none"
    modes = {path.suffix: stat.S_IMODE(path.stat().st_mode) for path in silo.folder.iterdir()}
    assert modes[".json"] == modes[".release"] == modes[".log"] == 0o600 and modes[".sock"] == 0o660
    assert stat.S_IMODE(silo.folder.stat().st_mode) == 0o710
    (record,) = Budget(silo.folder).records().values()
    assert sorted(record.rounds) == list(range(1, len(DELAYS) + 1))
