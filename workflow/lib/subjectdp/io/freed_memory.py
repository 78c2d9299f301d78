"""What glibc's malloc does with the memory of freed tensors. Another C library is left alone."""

import ctypes
import os
import sys

# From glibc's malloc.h: M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD.
_MALLOPT = {-4: 0, -1: 2**31 - 1, -2: 64 << 20}


def keep_freed_memory() -> bool:
    """Makes malloc keep freed memory for the next step; returns whether it did.

    Each step frees and allocates tensors of many megabytes, which malloc by default returns to the system and gets back
    page by page. The user's own settings (environment variables ``MALLOC_...``) are left alone.
    """
    own_settings = any(name.startswith("MALLOC_") for name in os.environ)
    mallopt = None if own_settings else _of_glibc("mallopt")
    return mallopt is not None and all(mallopt(parameter, value) == 1 for parameter, value in _MALLOPT.items())


def return_freed_memory() -> None:
    """Gives memory that is kept back to the system: what needs other sizes than the steps do would come on top."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_glibc(name: str) -> "ctypes._NamedFuncPointer | None":
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
