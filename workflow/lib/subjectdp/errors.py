"""The library's error types: every one names the key, the value and what is allowed, and is a ValueError."""

import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from numbers import Real
from operator import index
from typing import Any


class SubjectDPError(ValueError):
    """Base of all errors that a user can cause and mend; the command line prints it without a traceback."""


class ConfigError(SubjectDPError):
    """A configuration value that is unknown, out of range or does not fit the others."""


class DataError(SubjectDPError):
    """A data file that is missing, corrupt, or not what the configuration says it is."""


class DownloadError(SubjectDPError):
    """A download that failed or whose content was refused."""


class StorageError(SubjectDPError):
    """A file that cannot be written or a folder that cannot be had: full disk, no permission, used by another."""


class WorkerError(SubjectDPError):
    """A worker process of a run that ended or failed; the message says how."""


class PrivacyError(SubjectDPError):
    """A privacy plan that cannot be accounted for, or whose preconditions do not hold."""


class ModelError(SubjectDPError):
    """A model that does not fit the data or holds a layer that private training cannot use."""


_LONGEST_VALUE, _LONGEST_LIST = 300, 1200


def in_words(value: object) -> str:
    """``repr(value)`` on one line, cut where it is long; its type's name where it has no repr (a giant number)."""
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        value = value.item()  # type: ignore[attr-defined]
    try:
        text = repr(str(value) if isinstance(value, StrEnum) else value)
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


def listed(names: Iterable[str]) -> str:
    """The names in order, with commas; of a long list the first ones, and how many more there are."""
    names = sorted(names)
    shown, room = 0, _LONGEST_LIST
    while shown < len(names) and len(names[shown]) + 2 <= room:
        room -= len(names[shown]) + 2
        shown += 1
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more else "")


def expected(key: str, value: object, allowed: str, error: type[SubjectDPError] = ConfigError) -> SubjectDPError:
    """Builds the one error message form of the project: ``Expected KEY to be ALLOWED, got VALUE.``"""
    return error(f"Expected {key} to be {allowed}, got {in_words(value)}.")


def whole_number(key: str, value: Any, least: int = 1) -> int:
    """``value`` as an int. ConfigError unless it is a whole number from ``least`` on; text and booleans are none."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or index(value) < least:
        raise expected(key, value, f"a whole number from {least} on")
    return index(value)


def number(key: str, value: Any, above: float = 0.0, below: float = float("inf")) -> float:
    """``value`` as a float. ConfigError unless it is a number between the bounds; text and booleans are none."""
    if isinstance(value, bool) or not isinstance(value, Real) or not above < float(value) < below:
        raise expected(key, value, f"above {above:g}" + (f" and below {below:g}" if below != float("inf") else ""))
    return float(value)


def check_numbers(
    settings: Any, whole: Iterable[str], above_zero: Iterable[str], from_zero: Iterable[str] = ()
) -> None:
    """Makes an int or a float of attributes that are there (not None). ConfigError for one that is no such number."""
    for name, rule in (dict.fromkeys(whole, whole_number) | dict.fromkeys([*above_zero, *from_zero], number)).items():
        value = getattr(settings, name)
        if value is not None and not (name in from_zero and value == 0 and value is not False):
            object.__setattr__(settings, name, rule(name, value))  # the classes of settings are frozen


def unknown(key: str, value: str, known: Iterable[str], error: type[SubjectDPError] = ConfigError) -> SubjectDPError:
    """An unknown name, with the nearest known one when there is one."""
    names = sorted(known)
    near = get_close_matches(str(value), names, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return error(f"Unknown {key} {in_words(value)}.{hint} {f'Known: {listed(names)}' if names else 'There are none'}.")


def mistake(module: str, problem: Exception, error: type[SubjectDPError] = ConfigError) -> SubjectDPError:
    """What the code of ``module``, somebody's own, raised, and the line of it where there is one."""
    file, frames = f"{module.replace('.', '/')}.py", traceback.extract_tb(problem.__traceback__)
    own = [frame.lineno for frame in frames if frame.filename.endswith(file)]
    if isinstance(problem, SyntaxError):
        own = [problem.lineno]
    line = f", line {own[-1]}" if own else ""
    return error(f"{file}{line}: {type(problem).__name__}: {problem}")
