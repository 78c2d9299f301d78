"""A federation of processes over Flower: SuperLink, three SuperNodes, three silos, TLS and authentication.

`make federation-test` runs it, with Flower in a virtual environment of its own, in about six minutes.
"""

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

import pytest
import yaml

from federation.world import SILOS, World, make_world

pytest.importorskip("flwr", reason="Flower is not installed: make federation-test")
tomli_w = pytest.importorskip("tomli_w")
if "SUBJECTDP_FEDERATION_TESTS" not in os.environ:
    pytest.skip("they start a dozen processes: make federation-test", allow_module_level=True)

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


def patient(world: World, **changes: object) -> World:
    """The server waits as long as processes need."""
    content = yaml.safe_load(world.server.read_text())
    content.update({"wait_minutes": 5, "ask_again_seconds": 20, **changes})
    world.server.write_text(yaml.safe_dump(content))
    return world


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Machines that stay up; each test gives the silos other files by starting them again."""
    folder = tmp_path_factory.mktemp("f")
    with machines(folder / "m", patient(make_world(folder / "w", "fed_avg"))) as started:
        yield started


def other_world(at: Machines, folder: Path, name: str, **changes: object) -> World:
    """The silos are stopped, and started again on other files; SuperLink and SuperNodes stay."""
    world = patient(make_world(folder / "w", name, **changes))
    for silo in range(SILOS):
        at.kill(f"silo-{silo}")
        socket = at.world.folder / f"silo-{silo}" / "silo.sock"
        socket.unlink(missing_ok=True)
        site = yaml.safe_load(world.sites[silo].read_text())
        ledger = at.world.folder / f"silo-{silo}"
        for old in [*ledger.glob("*.json"), *ledger.glob("*.release"), ledger / "silo.log"]:
            old.unlink(missing_ok=True)  # other people
        world.sites[silo].write_text(yaml.safe_dump({**site, "folder": str(ledger)}))
    at.world = World(at.world.folder, world.server, world.sites)
    for silo in range(SILOS):
        at.start_silo(silo)
        at.until(lambda n=silo: "listening at" in at.silo_log(n), f"silo-{silo}")  # type: ignore[misc]
    return at.world


def same_as_simulation(world: World) -> bool:
    (model,) = (world.server.parent / "results" / "runs").glob("*/model.safetensors")
    return world.same_as_simulation(model.parent)


@pytest.mark.parametrize("name", ["fed_avg", "local_item_dp", "subject_release"])
def test_the_final_model_is_the_simulations_bit_by_bit(name: str, first: Machines, tmp_path: Path) -> None:
    world = other_world(first, tmp_path, name)
    started = time.monotonic()
    output = first.run_app()
    assert "round 3/3" in output, output[-3000:] + first.log("superlink")[-2000:]
    print(f"\n{name}: 3 rounds in {time.monotonic() - started:.1f} s, with start and end")
    assert same_as_simulation(world)
    for silo in range(SILOS):
        log = first.silo_log(silo)
        print(f"silo {silo}: " + f"\nsilo {silo}: ".join(log.splitlines()))
        assert log.count("answered") == 3 and "items a person" in log and "people are left out" in log


def started_again(at: Machines, silo: int) -> float:
    """Seconds until a killed SuperNode is taken back: it is started until the SuperLink has missed its heartbeat."""
    name, begun = f"supernode-{silo}", time.monotonic()
    before = at.log(name).count("SuperNode ID")
    while at.log(name).count("SuperNode ID") == before:
        assert time.monotonic() - begun < 170, at.log(name)[-2000:]
        if name not in at.running or at.running[name].poll() is not None:
            at.start_supernode(silo)
        time.sleep(1)
    return time.monotonic() - begun


def test_killed_in_a_round_a_silo_comes_back_and_no_budget_is_lost_or_doubled(first: Machines, tmp_path: Path) -> None:
    world = other_world(first, tmp_path, "subject_release", training={"rounds": 4})
    flwr = first.flwr("run", str(APP), "here", "--run-config", f'federation="{world.server}"')
    assert "Successfully started run" in flwr
    first.until(lambda: "round 1 answered" in first.silo_log(1), "superlink")
    for name in ("supernode-1", "silo-1"):
        first.kill(name)
    first.start_silo(1)
    back = started_again(first, 1)
    print(f"\nthe SuperLink takes the killed SuperNode back after {back:.0f} s")
    results = world.server.parent / "results" / "runs"
    first.until(lambda: bool(list(results.glob("*/manifest.json"))), "superlink", 240)
    assert same_as_simulation(world)
    log = first.silo_log(1)
    print("\n" + log)
    assert "1 of 4 rounds" in log or "2 of 4 rounds" in log
    answered = [round_ for round_ in range(1, 5) if f"round {round_} answered" in log]
    assert answered == [1, 2, 3, 4]


def test_a_server_that_wants_more_is_refused_by_every_silo(first: Machines, tmp_path: Path) -> None:
    """After its rounds: one more, the last one again, a larger q under the run's name and another."""
    world = other_world(first, tmp_path, "local_item_dp")
    assert "round 3/3" in first.run_app()
    (tmp_path / "evil").mkdir()
    for name in ("client.py", "pyproject.toml"):
        (tmp_path / "evil" / name).write_text((APP / name).read_text())
    (tmp_path / "evil" / "server.py").write_text(EVIL.replace("PROPOSAL", repr(world.proposal.model_dump_json())))
    output = first.run_app(app=tmp_path / "evil")
    assert output.count("every silo refused") == 4, output[-3000:]
    reasons = (
        "1 to 3, the rounds of the plan",
        "no round is repeated",
        "was begun with another plan",
        "more than the 8.5 that this silo's file allows",
    )
    for silo in range(SILOS):
        log = first.silo_log(silo)
        print("\n" + "\n".join(line for line in log.splitlines() if "refused" in line))
        assert all(reason in log for reason in reasons)


EVIL = '''
"""A server that asks for more than the plan has."""
import json
import torch
from flwr.serverapp import ServerApp
from subjectdp.federation.proposal import pack, unpack
from subjectdp.flower import FlowerLink

app = ServerApp()

@app.main()
def main(grid, context):
    proposal = json.loads(PROPOSAL)
    larger = json.loads(json.dumps(proposal))
    larger["run"]["training"]["sampling_fraction"] = 0.9
    model = torch.zeros(3)
    other = {**larger, "name": "other", "run": {**larger["run"], "seed": 1}}
    for name, sent, round_ in (("more", proposal, 4), ("again", proposal, 3), ("q", larger, 1), ("q", other, 1)):
        link = FlowerLink(grid)
        request = pack({"ask": "round", "proposal": sent, "round": round_}, model)
        replies = link.ask(dict.fromkeys(link.nodes(), request), 60)
        refused = [unpack(reply)[0].get("refused") for reply in replies.values()]
        print(name, "every silo refused" if refused == [True] * 3 else refused, flush=True)
'''


def test_a_supernode_with_an_unknown_key_gets_nowhere(first: Machines) -> None:
    first.kill("supernode-2")
    before = first.log("supernode-2")
    first.start_supernode(2, f"silo-{SILOS}")  # made, and not registered
    first.until(lambda: len(first.log("supernode-2")) > len(before) + 50, "supernode-2")
    time.sleep(3)
    assert "SuperNode ID" not in first.log("supernode-2")[len(before) :]
