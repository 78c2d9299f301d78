"""Jobs that are forks of a process which has loaded everything: half of a short training is the loading of libraries.

``subjectdp run`` keeps that process. Each job is a fork of it with the arguments, environment and output of the job's
script, whose own process waits, passes signals on and ends with the fork's status; if it is killed, so is the fork.
Plain Snakemake, jobs of Slurm, of another interpreter, library or system, or with several threads load for themselves.
"""

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

_JOBS = "SUBJECTDP_JOBS"  # in the environment of jobs: socket, interpreter and library of the loaded process, as JSON
_OWN = [sys.executable, os.path.realpath(__file__)]  # checkouts that share an environment have libraries of their own
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # read while loading


def hand_over() -> None:
    """Has this script run by a fork of the loaded process and ends with its status; returns where there is none."""
    told = os.environ.get(_JOBS)
    if told is None or "SLURM_JOB_ID" in os.environ or any(os.environ.get(name) != "1" for name in _THREADS):
        return
    address, *own = json.loads(told)
    environment = {name: value for name, value in os.environ.items() if name != _JOBS}
    job = {"argv": sys.argv, "folder": str(Path.cwd()), "environment": environment}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if own != _OWN:
            return
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(job).encode()], [0, 1, 2])
    except OSError:
        return

    def pass_on(signum: int, frame: FrameType | None) -> None:
        connection.send(bytes([signum]))

    for signum in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(signum) != signal.SIG_IGN:
            signal.signal(signum, pass_on)
    status = connection.recv(1)
    sys.exit(status[0] if status else "error: The process that jobs are forks of has ended; the same command goes on.")


@contextmanager
def loaded_jobs() -> Iterator[dict[str, str]]:
    """The environment in which Snakemake's jobs are forks of a loaded process, which lives as long as the block."""
    if sys.platform != "linux" or len(os.fsencode(tempfile.gettempdir())) > 80:  # a socket's name has 107 bytes
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory(prefix="subjectdp-") as folder:
        address = str(Path(folder) / "jobs")
        # Its input is a pipe of ours, which closes with us however we end. Ctrl-C is for the jobs to answer.
        command, environment = [sys.executable, "-m", "subjectdp.cli.loaded", address], os.environ | _THREADS
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, start_new_session=True)
        try:
            yield os.environ | {_JOBS: json.dumps([address, *_OWN])}
        finally:
            if not Path(address).exists():  # it loads still: nothing was handed over
                process.kill()
            with suppress(subprocess.TimeoutExpired):  # jobs that outlived Snakemake go on, and end it
                process.communicate(timeout=1.0)


def serve(address: str) -> None:
    """Starts jobs at the socket ``address`` until standard input closes, and ends with the last of them."""
    gc.freeze()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, selectors.DefaultSelector() as events:
        listener.bind(address)
        listener.listen(128)
        events.register(listener, selectors.EVENT_READ, lambda: _start(listener, events))
        events.register(0, selectors.EVENT_READ, lambda: (events.unregister(0), events.unregister(listener)))
        while len(events.get_map()) > 0:
            events.select()[0][0].data()


def _start(listener: socket.socket, events: selectors.BaseSelector) -> None:
    """Forks the job that the next connection asks for."""
    connection, _ = listener.accept()
    message, files, _, _ = socket.recv_fds(connection, 2**20, 3)
    if not message:  # the script's process is gone already
        connection.close()
        return
    pid = os.fork()
    if pid == 0:
        os._exit(_run(json.loads(message), files))
    for file in files:
        os.close(file)
    ended = os.pidfd_open(pid)

    def obey() -> None:
        signum = connection.recv(1)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(ended, signum[0] if signum else signal.SIGKILL)
        if not signum:  # the script's process is gone
            events.unregister(connection)

    def finish() -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        events.unregister(ended)
        os.close(ended)
        with suppress(KeyError):
            events.unregister(connection)
        with connection, suppress(OSError):
            connection.send(bytes([code if code >= 0 else 128 - code]))

    events.register(connection, selectors.EVENT_READ, obey)
    events.register(ended, selectors.EVENT_READ, finish)


def _run(job: dict[str, Any], files: list[int]) -> int:
    """Runs a script as a process of its own would; its exit status."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(3, 1024)  # nothing of other jobs
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = job["argv"]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
