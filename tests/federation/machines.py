"""SuperLink, SuperNodes and silos as processes on the loopback, with TLS and authentication of the SuperNodes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import tomli_w

from federation.world import World

ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "examples" / "federation"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Machines:
    """The processes of one federation; their output is in files of ``folder``."""

    folder: Path
    world: World
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(60)])
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.certificates, self.home = self.folder / "certificates", self.folder / "home"
        self.address = f"127.0.0.1:{self.ports[0]}"
        keys = str(len(self.world.sites) + 1)  # the last one is not registered
        certify = [str(APP / "certificates.sh"), str(self.certificates), "superlink.example", keys]
        subprocess.run(certify, check=True, capture_output=True, timeout=60)
        self.home.mkdir()
        link = {"address": self.address, "root-certificates": str(self.certificates / "ca.crt")}
        (self.home / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": "here", "here": link}}))

    @property
    def environment(self) -> dict[str, str]:
        tools = Path(sys.executable).parent
        return {
            **os.environ,
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "workflow" / "lib"),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
            "OMP_NUM_THREADS": "1",
        }

    def start(self, name: str, *command: str) -> None:
        """Starts a process in a session of its own; its output goes to ``name``.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """kill -9, with all that it has started."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def silo_log(self, silo: int) -> str:
        path = self.world.folder / f"silo-{silo}" / "silo.log"
        return path.read_text() if path.exists() else ""

    def start_superlink(self) -> None:
        at = self.certificates
        self.start(
            "superlink", "flower-superlink", "--host", "127.0.0.1", "--port", str(self.ports[0]),
            "--ssl-certfile", str(at / "server.crt"), "--ssl-keyfile", str(at / "server.key"),
            "--ssl-ca-certfile", str(at / "ca.crt"), "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
        )  # fmt: skip
        self.until(lambda: self.reachable(self.ports[0]), "superlink")

    def register(self, silo: int) -> str:
        return self.flwr("supernode", "register", str(self.certificates / f"silo-{silo}.pub"), "here")

    def start_silo(self, silo: int) -> None:
        """The silo's own process."""
        self.start(f"silo-{silo}", sys.executable, "-m", "subjectdp", "silo", str(self.world.sites[silo]))

    def start_supernode(self, silo: int, key: str | None = None) -> None:
        port = self.ports[1 + silo]
        self.start(
            f"supernode-{silo}", "flower-supernode", "--superlink", self.address,
            "--root-certificates", str(self.certificates / "ca.crt"), "--port", str(port),
            "--auth-supernode-private-key", str(self.certificates / (key or f"silo-{silo}")),
            "--node-config", f'silo="{self.world.folder}/silo-{silo}/silo.sock"',
        )  # fmt: skip

    def flwr(self, *arguments: str, timeout: float = 120) -> str:
        done = subprocess.run(
            ["flwr", *arguments], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=timeout
        )
        return done.stdout + done.stderr

    def run_app(self, timeout: float = 300, app: Path = APP) -> str:
        """``flwr run`` of the app in the repository, until it ends; what it printed."""
        config = f'federation="{self.world.server}"'
        return self.flwr("run", str(app), "here", "--run-config", config, "--stream", timeout=timeout)

    def until(self, reached: Callable[[], bool], what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < end, f"{what}: {self.log(what)[-2000:]}"
            time.sleep(0.1)

    def reachable(self, port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def start_all(self) -> None:
        self.start_superlink()
        for silo in range(len(self.world.sites)):
            self.register(silo)
            self.start_silo(silo)
            self.start_supernode(silo)
        for silo in range(len(self.world.sites)):
            self.until(lambda n=silo: "listening at" in self.silo_log(n), f"silo-{silo}")  # type: ignore[misc]


@contextmanager
def machines(folder: Path, world: World) -> Iterator[Machines]:
    """The processes, started; all of them are killed at the end."""
    made = Machines(folder, world)
    try:
        made.start_all()
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)
