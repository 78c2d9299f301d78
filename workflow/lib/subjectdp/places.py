"""Where the library and its checkout lie."""

from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[1]
"""The folder that holds the package."""

CHECKOUT = LIBRARY.parents[1]
"""The folder of the Snakefile, ``config`` and the lock file; meaningless for an installed wheel."""
