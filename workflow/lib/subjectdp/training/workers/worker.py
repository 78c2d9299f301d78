"""A worker process of a run, started by ``training.workers.processes``: ``python -m`` this module, ``SOCKET``."""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from subjectdp.training.workers.messages import Begin, Done, Give, Idle, Ready, Recipe, Seat
from subjectdp.training.workers.processes import Ranks, failure, joined

if TYPE_CHECKING:
    from subjectdp.training.federation import Federation


def main() -> int:
    """Serves rank 0 until it closes the socket; returns the exit status."""
    connection = Connection(int(sys.argv[1]))
    # rank 0 decides when a run stops: signals to the whole process group are its matter
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        recipe, seat = connection.recv()
    except EOFError:
        return 0
    try:
        federation = _federation(recipe, seat)
        connection.send(Ready())
        with joined(seat) as ranks:
            serve(connection, federation, ranks)
    except EOFError:
        return 0
    except Exception as error:  # rank 0 raises it
        connection.send(failure(seat.rank, error))
        return 1
    return 0


def serve(connection: Connection, federation: Federation, ranks: Ranks) -> None:
    """Does the parts of every work that it gets, and gives the results when they are asked for, until EOFError."""
    held: dict[int, Tensor] = {}
    while True:
        message = connection.recv()
        if isinstance(message, Give):
            dist.send(held.pop(message.place), dst=0)
        elif isinstance(message, Begin):
            held.clear()
            dist.broadcast(federation.theta, src=0)
            federation.engine.flat.load(federation.theta)
            for place in ranks.parts(message.number, message.work.order(federation)):
                result = held[place] = message.work.run(federation, place)
                rows = federation.log.take()
                connection.send(Done(place, tuple(result.shape), result.dtype, str(result.device), rows))
            connection.send(Idle())


def _federation(recipe: Recipe, seat: Seat) -> Federation:
    """The run's federation, as ``training.run`` builds it for rank 0."""
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import load_partition
    from subjectdp.data.store import load_prepared
    from subjectdp.training.record.environment import keep_freed_memory
    from subjectdp.training.record.records import Recorder
    from subjectdp.training.run import make_federation

    run = RunConfig.model_validate(recipe.run)
    torch.set_num_threads(run.performance.threads)
    keep_freed_memory()
    prepared, partition = load_prepared(recipe.prepared_folder), load_partition(recipe.partition_folder)
    recorder = Recorder(run.run_id, recipe.plan.rounds, lambda line: None)
    return make_federation(run, recipe.plan, prepared, partition, torch.device(seat.device), recorder)


def _end_with_parent() -> None:
    """Ends this process at once when rank 0 is gone: it holds the other end of the standard input."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # nothing is left to do: what an orderly end tears down costs seconds
