"""``subjectdp silo``: a silo of a real federation, which guards its own people's budget.

The process holds data, ledger and model, and answers on a socket of this machine alone. Flower runs the code that its
server sends to the silos. That code gets the socket and nothing else: run the silo as another user than Flower's
SuperNode, so that data and ledger cannot be read around it. The socket takes messages, which are never run.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Listener
from pathlib import Path

from subjectdp.errors import StorageError, expected
from subjectdp.federation.silo import Silo
from subjectdp.federation.site import load_site
from subjectdp.federation.wire import SOCKET
from subjectdp.io.locks import owned
from subjectdp.training.records import also_to

_MOST_BYTES = 1 << 32
_LONGEST_PATH = 100  # of a socket


def silo_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("site", metavar="SITE", help="the silo's YAML file")


def silo(options: argparse.Namespace) -> None:
    """Holds this silo's data, model and ledger, and answers the server's requests through a socket, each within the
    limit that the file names. Runs until it is stopped. docs/running.md has the file.
    """
    os.umask(0o077)  # the log says how many people were cut: user and group of the socket differ
    site = load_site(options.site)
    serve(Path(site.folder), lambda report: Silo(site, report).answer, _print)


def _print(line: str) -> None:
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}", file=sys.stderr, flush=True)


def serve(
    folder: Path, make: Callable[[Callable[[str], None]], Callable[[bytes], bytes]], report: Callable[[str], None]
) -> None:
    """Answers requests until the process is stopped; ``make`` gets the report and gives what answers.

    Raises StorageError where another process serves this folder, or it cannot be written, ConfigError for a folder
    whose path is too long for a socket.
    """
    address = folder / SOCKET
    if len(str(address)) > _LONGEST_PATH:
        raise expected("folder", str(folder), f"a path of at most {_LONGEST_PATH - len(SOCKET) - 1} characters")
    report = also_to(folder / "silo.log", report)
    with owned(folder / ".lock", 0.0, report):
        folder.chmod(0o710)  # the group reaches the socket and lists nothing
        answer = make(report)
        address.unlink(missing_ok=True)
        with _listening(address) as listener:
            report(f"listening at {address}")
            while True:
                _one(listener, answer, report)


def _listening(address: Path) -> Listener:
    before = os.umask(0o117)  # nobody but user and group, from the first moment
    try:
        listener = Listener(str(address), "AF_UNIX")
    except OSError as error:
        raise StorageError(f"{address} cannot be made: {error.strerror}.") from None
    finally:
        os.umask(before)
    return listener


def _one(listener: Listener, answer: Callable[[bytes], bytes], report: Callable[[str], None]) -> None:
    """One request; whoever hangs up early or sends too much loses the answer, and the silo goes on."""
    try:
        with listener.accept() as connection:
            connection.send_bytes(answer(connection.recv_bytes(_MOST_BYTES)))
    except (EOFError, OSError) as problem:
        report(f"connection lost: {problem!r}")
