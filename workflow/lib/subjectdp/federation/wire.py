"""How this machine's other processes reach a silo. Light: Flower starts a process for each message."""

from multiprocessing.connection import Client
from pathlib import Path

from subjectdp.errors import WorkerError

SOCKET = "silo.sock"  # name of the socket in the silo's folder


def ask_silo(address: Path | str, request: bytes) -> bytes:
    """The answer of the silo that serves ``address``; WorkerError where none does."""
    try:
        with Client(str(address), "AF_UNIX") as connection:
            connection.send_bytes(request)
            return connection.recv_bytes()
    except (EOFError, OSError) as problem:
        raise WorkerError(f"No silo answers at {address} ({problem!r}): start `subjectdp silo`.") from None
