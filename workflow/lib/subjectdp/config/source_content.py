"""What a data set's source holds, known before it is fetched: the content decides what is made again.

Neither the place of a local folder, nor its times, nor a mirror's address changes what comes of the data.
"""

from __future__ import annotations

import json
from pathlib import Path

from subjectdp.config.fingerprint import fingerprint
from subjectdp.config.paths import RESULTS, data_dir, prepared_file
from subjectdp.config.run_ids import data_key
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import Source
from subjectdp.data.local_files import HASHES, describe
from subjectdp.data.sources import load_sources
from subjectdp.errors import SubjectDPError


def source_content(data: DataConfig, results: str = RESULTS) -> str:
    """What the prepared data depend on, besides their configuration and the code that prepares them.

    embedded: the fingerprint of the code that generates the archives. upstream: names, formats and hashes in
    config/datasets.yaml; the hash of a file without one is recorded when it comes and enforced from then on.
    leaf_json: names, sizes and hashes of the files; those recorded where they are no longer there.
    """
    if data.source == Source.EMBEDDED:
        return fingerprint(f"generate:{data.dataset}")
    if data.source == Source.UPSTREAM:
        return _upstream_content(data.dataset)
    try:
        found = describe(Path(data.path or ""), Path(data_dir("", results)) / HASHES)
        return f"{found['bytes']} bytes, sha256 {found['sha256']}"
    except (OSError, SubjectDPError):  # fetching tells what is wrong
        return made_from(data, results).get("content", "")


def source_addresses(data: DataConfig) -> str:
    """The mirrors of a data set in config/datasets.yaml; empty for data that need none."""
    if data.source != Source.UPSTREAM:
        return ""
    files = load_sources(data.dataset)[1]
    return json.dumps([(file.name, [mirror.url for mirror in file.mirrors]) for file in files])


def made_from(data: DataConfig, results: str = RESULTS) -> dict[str, str]:
    """The ``content`` and ``code`` that the prepared data were made from; empty if there are none."""
    try:
        meta = json.loads(Path(prepared_file(data_key(data), "meta.json", results)).read_text())
        return dict(meta["made_from"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _upstream_content(dataset: str) -> str:
    files = load_sources(dataset)[1]
    served = [(file, sorted({(m.bytes or 0, m.sha256 or "") for m in file.mirrors})) for file in files]
    return json.dumps([(file.name, file.format, bodies) for file, bodies in served])
