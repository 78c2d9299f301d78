"""Signals are noted and obeyed later; a second one is not waited with; a job ends with one line and 128 + signal."""

import os
import signal
import threading
from pathlib import Path

import pytest

from subjectdp.io.job_log import SIGNALS, Stopped, job_log, stop_requests


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
