"""Functions that numba compiles. Importing this takes 0.6 s, so that light commands do without.

A compiled function calls only compiled functions of its own file: numba's disk cache checks no other.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """``function`` compiled on first use, cached on disk if a folder for that is writable."""
    try:
        return cast(Function, njit(cache=True)(function))
    except RuntimeError:  # no such folder
        return cast(Function, njit(function))


def inner(function: Function) -> Function:
    """``function`` compiled into its callers and cached with them."""
    return cast(Function, njit(function))
