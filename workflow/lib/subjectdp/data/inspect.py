"""Counts and statistics of a source, without preparing it."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subjectdp.data.catalogue import Source
from subjectdp.data.content import Content, check_content, count_content
from subjectdp.data.leaf_tables import KNOWN
from subjectdp.data.prepare import chosen_test_fraction, fetch_sources, read_source

if TYPE_CHECKING:
    from subjectdp.config.sections import DataConfig


def inspect_source(data: DataConfig) -> dict[str, Any]:
    """Counts of a source, JSON-able: those of ``count_content`` and dataset, source, synthetic, notes, time.

    ``data.path``: for ``leaf_json`` a folder, zip or JSON file; for ``table`` the CSV or parquet file; for ``upstream``
    a folder with the files of config/datasets.yaml (of Shakespeare the e-text itself will do, plain, gzip or zip); for
    ``embedded`` a folder with generated files, or None to generate them into a temporary folder. FEMNIST's images are
    hashed but not decoded.
    """
    with tempfile.TemporaryDirectory() as temporary:
        if data.path is None and data.source == Source.EMBEDDED:
            fetch_sources(data, Path(temporary))
        return _counts(data, Path(data.path or temporary))


def _counts(data: DataConfig, folder: Path) -> dict[str, Any]:
    started = time.monotonic()
    content = read_source(data, folder, decode=False)
    check_content(content)
    fraction = chosen_test_fraction(data)
    counts = count_content(content, fraction)
    return {
        "dataset": data.dataset,
        "source": data.source,
        "synthetic": data.source == Source.EMBEDDED,
        "kind": content.kind,
        "shape": list(content.features.shape[1:]),
        "own_subjects": content.own_subjects,
        **counts,
        **_beside_known(data, content, counts),
        "test_fraction": fraction,
        "notes": dict(content.notes),
        "seconds": round(time.monotonic() - started, 2),
    }


def _beside_known(data: DataConfig, content: Content, counts: dict[str, Any]) -> dict[str, str]:
    """What is known of the whole data set in this form, and in what the source differs."""
    known = KNOWN.get((str(content.notes.get("form", "LEAF")), content.kind), {})
    if data.dataset not in ("femnist", "shakespeare") or data.source == Source.EMBEDDED:
        return {}
    different = [f"{counts[key] - value:+,} {key}" for key, value in known.items() if counts[key] != value]
    words = ", ".join(f"{value:,} {key}" for key, value in known.items())
    return {"known": words, "differs by": ", ".join(different) or "nothing"}
