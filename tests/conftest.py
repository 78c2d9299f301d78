"""What all tests share."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and their children inherit that: the tests of
# signals need the ordinary behaviour.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that run Snakemake start first: alone at the end, one of them would keep the other processes waiting."""
    first = {item.path for item in items if item.get_closest_marker("workflow") is not None}
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """No test sees whether a file is on the disk; a descriptor that is none stays an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


_TALLIES: dict[tuple[str, ...], Counter[str]] = {}


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """``tally(mutants=1, killed=1)``: the sums over all tests are the last lines of the run."""
    return lambda **counts: record_property("tally", counts)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up what a test has counted, also where it ran in another process."""
    if report.when == "teardown":
        for name, counts in report.user_properties:
            if name == "tally" and isinstance(counts, dict):
                _TALLIES.setdefault(tuple(counts), Counter()).update(counts)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Prints the sums, after pytest's own summary."""
    if not hasattr(config, "workerinput"):  # not in the processes of pytest-xdist
        for names, counts in _TALLIES.items():
            print(", ".join(f"{counts[name]} {name}" for name in names))
