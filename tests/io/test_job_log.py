"""Job logs: printed lines, user errors and crashes all end up where one looks for them."""

import logging
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from subjectdp.errors import ConfigError, StorageError
from subjectdp.io.job_log import EXIT_USER_ERROR, job_log, would_fail_again


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
