"""The silos of a round over several processes: on the CPU, or on one GPU each (torch.distributed).

Rank 0 is the run itself: it is the server, trains silos as well, and adds up all results in the order of the silos. The
other ranks hold the same federation and no state of their own: at the start of a round they get the global model, then
every rank takes the next free silo until none is left. Every random draw has its own key, so that results do not depend
on who trains a silo: they equal those of one process, to the bit on the CPU.

Vectors go through torch.distributed (gloo, or NCCL between GPUs); commands, rows of the log and errors go through a
socket.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, PrefixStore

from subjectdp.errors import SubjectDPError, WorkerError
from subjectdp.places import LIBRARY
from subjectdp.training.workers.messages import Begin, Done, Failed, Give, Recipe, Seat, Work

if TYPE_CHECKING:
    from subjectdp.training.federation import Federation
    from subjectdp.training.record.steplog import StepLog

_TRANSFER = timedelta(minutes=10)  # longest wait inside one transfer; nobody waits for training there
_WORKER = "subjectdp.training.workers.worker"
_FAREWELL = 10.0  # seconds that a worker has to end by itself


class Ranks:
    """This process among all ranks, once all have joined."""

    def __init__(self, seat: Seat) -> None:
        self._store = FileStore(seat.meeting, seat.ranks)

    def parts(self, number: int, order: Sequence[int]) -> Iterator[int]:
        """The parts of a work that this process takes: those that no other has asked for before."""
        while (taken := self._store.add(f"work-{number}", 1)) <= len(order):
            yield order[taken - 1]


@contextmanager
def joined(seat: Seat) -> Iterator[Ranks]:
    """Joins the other ranks until the block ends."""
    cuda = torch.device(seat.device).type == "cuda"
    if cuda:
        torch.cuda.set_device(seat.device)
    if sys.platform == "linux":  # all ranks are on one machine; its name may not resolve, in a container
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    store = PrefixStore("group", FileStore(seat.meeting, seat.ranks))
    dist.init_process_group(backend, store=store, rank=seat.rank, world_size=seat.ranks, timeout=_TRANSFER)
    try:
        yield Ranks(seat)
    finally:
        dist.destroy_process_group()


class Team:
    """Rank 0's side of the run's processes.

    Raises:
        WorkerError: a worker that ended or failed, from any method; a worker's SubjectDPError is raised unchanged.
    """

    def __init__(self, ranks: Ranks, device: torch.device, connections: dict[int, Connection]) -> None:
        self._ranks, self._device, self._connections = ranks, device, connections
        self._works = 0

    def results(self, federation: Federation, work: Work, theta: Tensor, log: StepLog) -> Iterator[Tensor]:
        """Has all parts done by all ranks at the model ``theta`` (P,), which is in the engine; results in part order.

        Rows of all ranks go to ``log``. Results of workers are fetched one at a time, when they are asked for.
        """
        self._works += 1
        for rank in self._connections:
            _send(self._connections, rank, Begin(self._works, work))
        dist.broadcast(theta, src=0)
        own: dict[int, Tensor] = {}
        others: dict[int, tuple[int, Done]] = {}
        busy = set(self._connections)
        for part in self._ranks.parts(self._works, work.order(federation)):
            own[part] = work.run(federation, theta, part, log)
            self._collect(busy, others, log, seconds=0.0)
        while busy:
            self._collect(busy, others, log, seconds=None)
        for part in range(work.parts):
            yield own.pop(part) if part in own else self._fetch(*others.pop(part))

    def _fetch(self, rank: int, done: Done) -> Tensor:
        """A result that a worker holds, on the device of this process if it is on a GPU."""
        _send(self._connections, rank, Give(done.part))
        where = self._device if torch.device(done.device).type == "cuda" else torch.device("cpu")
        result = torch.empty(done.shape, dtype=done.dtype, device=where)
        try:
            dist.recv(result, src=rank)
        except RuntimeError as error:
            raise WorkerError(f"Worker {rank} ended while it sent a result: {error}") from None
        return result

    def _collect(
        self, busy: set[int], others: dict[int, tuple[int, Done]], log: StepLog, seconds: float | None
    ) -> None:
        """Takes the messages that have come, or (None) waits for one; idle ranks are removed from ``busy``."""
        for rank, message in received({rank: self._connections[rank] for rank in busy}, seconds):
            if isinstance(message, Done):
                others[message.part] = rank, message
                log.extend(message.rows)
            else:
                busy.discard(rank)


@contextmanager
def team_of(recipe: Recipe, devices: Sequence[torch.device]) -> Iterator[Team | None]:
    """Workers for all devices but the first, which is this process'; they end with the block, or with this process.

    Yields None for one device.

    Raises:
        WorkerError, or the worker's own SubjectDPError: a worker that cannot build the federation.
    """
    if len(devices) == 1:
        yield None
        return
    with ExitStack() as stack:
        meeting = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="subjectdp-"))) / "ranks"
        seats = [Seat(rank, len(devices), str(d), str(meeting)) for rank, d in enumerate(devices)]
        connections = {}
        for seat in seats[1:]:
            connections[seat.rank] = stack.enter_context(_worker(seat))
            _send(connections, seat.rank, (recipe, seat))
        starting = set(connections)
        while starting:
            waiting = {rank: connections[rank] for rank in starting}
            starting -= {rank for rank, _ in received(waiting, None)}
        ranks = stack.enter_context(joined(seats[0]))
        yield Team(ranks, devices[0], connections)


@contextmanager
def _worker(seat: Seat) -> Iterator[Connection]:
    """A fresh interpreter (not a fork of one with threads, nor of a script that would start again)."""
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(filter(None, [str(LIBRARY), os.environ.get("PYTHONPATH")]))
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", _WORKER, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": path},
        )
        connection = Connection(ours.detach())
    try:
        yield connection
    finally:
        connection.close()  # a worker that waits for a command ends
        try:
            process.wait(_FAREWELL if sys.exc_info()[0] is None else 0.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()


def received(connections: dict[int, Connection], seconds: float | None) -> Iterator[tuple[int, object]]:
    """A message from each rank that has sent one within ``seconds`` (None: wait for the first).

    Raises:
        WorkerError or the worker's SubjectDPError: a worker that ended or failed.
    """
    found = wait(list(connections.values()), seconds)
    for rank, connection in connections.items():
        if connection in found:
            try:
                message = connection.recv()
            except (EOFError, OSError):
                raise _ended(rank) from None
            if isinstance(message, Failed):
                raise message.error
            yield rank, message


def failure(rank: int, error: Exception) -> Failed:
    """What a worker says of its error: a user's error as it is, any other with its traceback."""
    if isinstance(error, SubjectDPError):
        return Failed(error)
    where = "".join(traceback.format_exception(error))
    return Failed(WorkerError(f"Worker {rank} failed: {type(error).__name__}: {error}\n{where}"))


def _send(connections: dict[int, Connection], rank: int, message: object) -> None:
    try:
        connections[rank].send(message)
    except OSError:
        raise _ended(rank) from None


def _ended(rank: int) -> WorkerError:
    return WorkerError(
        f"Worker {rank} of the run ended before its work was done; killed for memory, or see its messages above."
    )
