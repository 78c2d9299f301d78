"""The embedded data sets: synthetic files in the upstreams' own formats.

They go through the same reading and partitioning as the real data, need no network, and are labelled synthetic wherever
their results are shown. See docs/data.md.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from subjectdp.data.catalogue import DATASETS

GENERATORS = {name: facts.generator for name, facts in DATASETS.items() if facts.generator}
"""Modules with ``write_files(folder, subjects, items_per_subject, seed)``. They load when they are needed: drawing
letters needs matplotlib and scipy."""


def generate(dataset: str, folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Generate a data set's source files into ``folder``, which is created if needed; return their paths.

    ``subjects`` counts the writers or characters that have items. ``items_per_subject`` is the mean number of images or
    of windows of 80 characters. Where items are their own subjects, there are ``subjects`` times ``items_per_subject``
    of them. The same arguments give the same bytes. ConfigError for too few people or too long a text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write: Callable[[Path, int, int, int], list[Path]] = import_module(GENERATORS[dataset]).write_files
    return write(folder, subjects, items_per_subject, seed)
