"""Job logs: printed lines, user errors and crashes all end up where one looks for them."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from subjectdp.errors import ConfigError, StorageError
from subjectdp.io.job_log import EXIT_USER_ERROR, SIGNALS, Stopped, job_log, stop_requests, would_fail_again


def test_printed_lines_go_to_the_log_and_not_to_the_console(tmp_path, capsys):
    with job_log(tmp_path / "deep" / "job.log"):
        print("round 1")
        print("warning", file=sys.stderr)
        assert (tmp_path / "deep" / "job.log").read_text() == "round 1\nwarning\n", "progress is visible at once"
    assert capsys.readouterr() == ("", "")


def test_a_user_error_is_one_line_in_both_places(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended, job_log(tmp_path / "job.log"):
        raise ConfigError("Expected privacy.delta to be in (0, 1), got 2.")
    assert ended.value.code == EXIT_USER_ERROR
    line = "error: Expected privacy.delta to be in (0, 1), got 2.\n"
    assert (tmp_path / "job.log").read_text() == f"{line}Not tried again: the error would be the same.\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("error", "same"), [(ConfigError("no"), True), (StorageError("full"), False), (OSError(), False)]
)
def test_the_log_tells_whether_a_retry_would_end_the_same(tmp_path, error, same):
    log = tmp_path / "job.log"
    assert not would_fail_again(log), "no log, no verdict"
    with pytest.raises((SystemExit, OSError)), job_log(log):
        raise error
    assert would_fail_again(log) is same
    with job_log(log, mode="a"):
        print("round 1")
    assert not would_fail_again(log), "the last try counts"


def test_a_crash_leaves_its_traceback_in_the_log_and_goes_on(tmp_path):
    with pytest.raises(ZeroDivisionError), job_log(tmp_path / "job.log"):
        _ = 1 / 0
    assert "ZeroDivisionError" in (tmp_path / "job.log").read_text()


def test_ctrl_c_is_one_line_and_no_traceback(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended, job_log(tmp_path / "job.log"):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    assert ended.value.code == 130
    assert (tmp_path / "job.log").read_text() == capsys.readouterr().err == "stopped: SIGINT\n"


def test_logged_lines_carry_the_time(tmp_path):
    with job_log(tmp_path / "job.log"):
        logging.getLogger("subjectdp.training").info("round %d of %d", 3, 10)
    assert re.fullmatch(r"\d\d:\d\d:\d\d round 3 of 10\n", (tmp_path / "job.log").read_text())


def test_streams_and_logging_are_restored(tmp_path):
    root = logging.getLogger()
    before = sys.stdout, sys.stderr, list(root.handlers), root.level
    with pytest.raises(SystemExit), job_log(tmp_path / "job.log"):
        raise ConfigError("no")
    assert (sys.stdout, sys.stderr, root.handlers, root.level) == before


def test_the_garbage_collector_rests_until_the_work_begins(tmp_path):
    code = (
        "import gc, sys\nimport subjectdp.io.job_start\nfrom subjectdp.io.job_log import job_log\n"
        "states = [gc.isenabled()]\n"
        "with job_log(sys.argv[1]):\n    states += [gc.isenabled(), gc.get_freeze_count() > 1000]\n"
        "print(*states)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "job.log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


@pytest.mark.parametrize("signum", SIGNALS)
def test_a_signal_is_noted_and_obeyed_at_the_next_check(signum: int) -> None:
    before = signal.getsignal(signum)
    with stop_requests() as stop:
        stop.check()
        os.kill(os.getpid(), signum)
        with pytest.raises(Stopped) as stopped:
            stop.check()
    assert stopped.value.exit_status == 128 + signum
    assert str(stopped.value) == signal.Signals(signum).name
    assert signal.getsignal(signum) == before


def test_a_second_interrupt_ends_the_work_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), stop_requests():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        signal.sigtimedwait([], 0)  # gives the handler its turn
        pytest.fail("the second one was noted only")


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            stop.check()
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_work_without_handlers() -> None:
    seen: list[object] = []

    def work() -> None:
        with stop_requests() as stop:
            stop.check()
            seen.append(stop.signum)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]


def test_a_stopped_job_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "job.log"
    with pytest.raises(SystemExit) as ended, job_log(log):
        raise Stopped(signal.SIGTERM, ", checkpoint after round 3 written; start again to go on")
    assert ended.value.code == 143
    line = "stopped: SIGTERM, checkpoint after round 3 written; start again to go on\n"
    assert log.read_text() == line and capsys.readouterr().err == line
