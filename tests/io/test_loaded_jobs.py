"""A job that a loaded process takes over behaves like its script: output, environment, status, signals, death."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from subjectdp.io import loaded_jobs as jobs_module
from subjectdp.io.loaded_jobs import loaded_jobs

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="needs SOCK_SEQPACKET")]
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
OWN = (sys.executable, os.path.realpath(jobs_module.__file__))
Jobs = tuple[dict[str, str], int]
PARENT = "import os; print('parent', os.getppid(), 'pid', os.getpid(), flush=True)\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """Environment of the jobs of a process that has loaded little, and the number of that process."""
    address = str(tmp_path / "jobs")
    serve = "import sys; from subjectdp.io.loaded_jobs import serve; serve(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", serve, address], stdin=subprocess.PIPE) as process:
        while not Path(address).exists():
            time.sleep(0.01)
        time.sleep(0.1)
        yield os.environ | ONE_THREAD | {"SUBJECTDP_JOBS": json.dumps([address, *OWN])}, process.pid


def start(folder: Path, body: str, environment: dict[str, str], *words: str) -> "subprocess.Popen[str]":
    script = folder / "script.py"
    script.write_text(f"import subjectdp.io.job_start\n{PARENT}{body}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(script), *words], env=environment, cwd=folder, **pipes)  # type: ignore[call-overload, no-any-return]


def told(process: "subprocess.Popen[str]") -> tuple[int, int]:
    words = line(process).split()
    return int(words[1]), int(words[3])


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_job_has_its_scripts_words_folder_environment_output_and_status(tmp_path: Path, jobs: Jobs) -> None:
    environment, server = jobs
    body = (
        "import sys; print(sys.argv[1], os.getcwd(), os.environ['MINE']); print('told', file=sys.stderr); sys.exit(7)"
    )
    process = start(tmp_path, body, environment | {"MINE": "x"}, "word")
    assert told(process)[0] == server
    assert line(process) == f"word {tmp_path} x\n"
    assert (process.communicate(timeout=30)[1], process.returncode) == ("told\n", 7)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("", 0, ""),
        ("raise SystemExit", 0, ""),
        ("raise SystemExit('why')", 1, "why"),
        ("1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_a_job_ends_as_its_script_would(body: str, status: int, message: str, tmp_path: Path, jobs: Jobs) -> None:
    process = start(tmp_path, body, jobs[0])
    assert message in process.communicate(timeout=30)[1]
    assert process.returncode == status


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_job(signum: signal.Signals, tmp_path: Path, jobs: Jobs) -> None:
    body = (
        "import signal, time, sys\n"
        "for signum in (signal.SIGTERM, signal.SIGINT): signal.signal(signum, lambda s, _: sys.exit(100 + s))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    process = start(tmp_path, body, jobs[0])
    told(process)
    assert line(process) == "ready\n"
    process.send_signal(signum)
    assert process.wait(timeout=30) == 100 + signum


def test_a_job_that_is_killed_fails(tmp_path: Path, jobs: Jobs) -> None:
    process = start(tmp_path, "os.kill(os.getpid(), 9)", jobs[0])
    assert process.wait(timeout=30) == 128 + signal.SIGKILL


def test_a_killed_script_takes_its_job_with_it(tmp_path: Path, jobs: Jobs) -> None:
    process = start(tmp_path, "import time; time.sleep(60)", jobs[0])
    _, pid = told(process)
    process.kill()
    process.wait(timeout=30)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, "the job outlived its script"
        time.sleep(0.05)


def test_jobs_run_side_by_side(tmp_path: Path, jobs: Jobs) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    body = (
        "from pathlib import Path; import time\nPath('here').touch()\n"
        "while not Path('../{}/here').exists(): time.sleep(0.01)"
    )
    processes = [start(a, body.format(b.name), jobs[0]) for a, b in zip(folders, reversed(folders), strict=True)]
    assert [process.wait(timeout=30) for process in processes] == [0, 0]


@pytest.mark.parametrize(
    "change",
    [
        {"OMP_NUM_THREADS": "2"},
        {"SLURM_JOB_ID": "1"},
        {OWN[0]: "/another/bin/python"},
        {OWN[1]: "/another/checkout.py"},
    ],
)
def test_other_jobs_load_for_themselves(change: dict[str, str], tmp_path: Path, jobs: Jobs) -> None:
    told_jobs = [change.get(word, word) for word in json.loads(jobs[0]["SUBJECTDP_JOBS"])]
    process = start(tmp_path, "", jobs[0] | change | {"SUBJECTDP_JOBS": json.dumps(told_jobs)})
    assert told(process) == (os.getpid(), process.pid)
    assert process.wait(timeout=30) == 0


def test_without_its_process_a_job_loads_for_itself(tmp_path: Path) -> None:
    gone = {"SUBJECTDP_JOBS": json.dumps([str(tmp_path / "nobody"), *OWN])}
    process = start(tmp_path, "", os.environ | ONE_THREAD | gone)
    assert told(process) == (os.getpid(), process.pid)


@pytest.mark.long
def test_the_loaded_process_has_one_thread_and_ends_with_its_block(tmp_path: Path) -> None:
    body = "import sys; print(len(os.listdir('/proc/self/task')), 'torch' in sys.modules)"
    deadline = time.monotonic() + 60
    with loaded_jobs() as environment:
        address = Path(json.loads(environment["SUBJECTDP_JOBS"])[0])
        while time.monotonic() < deadline:
            if not address.exists():  # a job that is started now would load for itself
                time.sleep(0.1)
                continue
            process = start(tmp_path, body, dict(environment) | ONE_THREAD)
            (parent, _), out = told(process), line(process)
            process.communicate(timeout=30)
            if parent != os.getpid():
                break
            time.sleep(0.2)
        assert (parent != os.getpid(), out) == (True, "1 True\n")
    assert not Path(f"/proc/{parent}").exists()


def test_a_block_that_ends_first_ends_the_loading(capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with loaded_jobs():
        pass
    assert time.monotonic() - started < 2.0
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_jobs_that_outlive_snakemake_do_not_hold_the_command_up(tmp_path: Path) -> None:
    deadline, running = time.monotonic() + 60, None
    with loaded_jobs() as environment:
        while running is None and time.monotonic() < deadline:
            process = start(tmp_path, "import time; time.sleep(20)", dict(environment) | ONE_THREAD)
            parent, pid = told(process)
            running = pid if parent != os.getpid() else None
            if running is None:
                process.kill()
                process.wait()
        ending = time.monotonic()
    assert running is not None and time.monotonic() - ending < 10.0
    assert Path(f"/proc/{running}").exists(), "it goes on"
    process.kill()
    process.wait()


def test_a_socket_whose_name_is_too_long_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/" + "d" * 90)
    with loaded_jobs() as environment:
        assert "SUBJECTDP_JOBS" not in environment
