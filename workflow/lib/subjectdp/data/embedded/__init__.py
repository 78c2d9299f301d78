"""The embedded data sets: synthetic archives in the upstreams' own formats.

They go through the same hashing, parsing, windows and partitioning as the real data, need no network, and are
labelled synthetic wherever their results are shown. See docs/embedded-data.md.
"""

from __future__ import annotations

from pathlib import Path

from subjectdp.data.embedded.plays import write_etext
from subjectdp.errors import ConfigError, expected, unknown

DATASETS = ("femnist", "shakespeare")


def generate(dataset: str, folder: Path, subjects: int, items_per_subject: int, seed: int) -> list[Path]:
    """Generate a data set's source files into ``folder``, which is created if needed; return their paths.

    ``dataset`` is femnist (by_class.zip and by_write.zip in NIST SD19's layout) or shakespeare (100.txt in the 1994
    e-text's layout). ``subjects`` counts the writers or characters that have items, at least 1 (shakespeare: 2).
    ``items_per_subject`` is the mean number of images or of windows of 80 characters, at least 2. The same arguments
    give the same bytes.

    Raises:
        ConfigError: an argument is unknown or out of range.
    """
    if dataset not in DATASETS:
        raise unknown("data.dataset", dataset, DATASETS, ConfigError)
    fewest = 2 if dataset == "shakespeare" else 1
    if subjects < fewest:
        raise expected("data.embedded.subjects", subjects, f"at least {fewest} for {dataset}")
    if items_per_subject < 2:
        raise expected("data.embedded.items_per_subject", items_per_subject, "at least 2")
    folder.mkdir(parents=True, exist_ok=True)
    if dataset == "femnist":  # imported here: matplotlib and scipy load only where images are drawn
        from subjectdp.data.embedded.nist_layout import write_archives

        return write_archives(folder, subjects, items_per_subject, seed)
    return [write_etext(folder, subjects, items_per_subject, seed)]
