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

from subjectdp.training.record.steplog import StepLog
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
    """Does the parts that it takes of every work, and sends results when they are asked for, until EOFError."""
    theta, held, log = federation.engine.flat.vector.clone(), dict[int, Tensor](), StepLog()
    while True:
        message = connection.recv()
        if isinstance(message, Give):
            dist.send(held.pop(message.part), dst=0)
        elif isinstance(message, Begin):
            held.clear()
            dist.broadcast(theta, src=0)
            federation.engine.flat.load(theta)
            for part in ranks.parts(message.number, message.work.order(federation)):
                result = held[part] = message.work.run(federation, theta, part, log)
                shape, where = tuple(result.shape), str(result.device)
                connection.send(Done(part, shape, result.dtype, where, log.take()))
            connection.send(Idle())


def _federation(recipe: Recipe, seat: Seat) -> Federation:
    """The run's federation, as rank 0 builds it. Imports that take long wait until signals are ignored."""
    from subjectdp.config.run import RunConfig
    from subjectdp.data.partition import load_partition
    from subjectdp.data.store import load_prepared
    from subjectdp.training.build import RunInputs, make_federation
    from subjectdp.training.record.environment import keep_freed_memory

    run = RunConfig.model_validate(recipe.run)
    torch.set_num_threads(run.performance.threads)
    keep_freed_memory()
    prepared, partition = load_prepared(recipe.prepared_folder), load_partition(recipe.partition_folder)
    inputs = RunInputs(run, recipe.plan, prepared, partition, recipe.secret)
    return make_federation(inputs, torch.device(seat.device), recipe.cache_folder)


def _end_with_parent() -> None:
    """Ends this process at once when rank 0 is gone: it holds the other end of the standard input."""
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # nothing is left to do: what an orderly end tears down costs seconds
