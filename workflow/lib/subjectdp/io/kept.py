"""Where this process keeps what is costly to compute, calibrated noise and fixed features: nowhere, unless it says."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextmanager
def kept_in(folder: Path | str) -> Iterator[None]:
    """What is computed meanwhile is kept in ``folder``, and taken from there if it is there already."""
    before = _FOLDER.set(Path(folder))
    try:
        yield
    finally:
        _FOLDER.reset(before)


def kept_folder() -> Path | None:
    """The folder of :func:`kept_in`; None outside of it."""
    return _FOLDER.get()
