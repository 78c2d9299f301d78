"""What a file or folder on this machine holds: names, sizes and hashes, whatever its place and its times.

Hashing LEAF's JSON takes seconds a gigabyte, and Snakemake asks in every process. A file's hash is therefore kept with
its path, size and time of change; a file whose size and time are the same is not read again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from subjectdp.data.archives import open_archive
from subjectdp.io.atomic import sha256_of, write_json

HASHES = "local_files.json"
"""Name of the file with known hashes, beside the data folders."""

_Known = dict[str, list[Any]]  # absolute path -> size, time of change in nanoseconds, sha256


def describe(path: Path, known: Path | None = None) -> dict[str, Any]:
    """Name, sha256 and bytes of a file; of a folder: the hash of its files' names, sizes and hashes, and all bytes.

    ``known`` is the file that keeps hashes between calls; None: every file is read. DataError as ``open_archive``.
    """
    hashes = _read(known)
    before = dict(hashes)
    if path.is_file():
        described = {"file": path.name, "sha256": _sha256(path, hashes), "bytes": path.stat().st_size}
    else:
        with open_archive(path) as archive:
            members = archive.members
        listing = [(name, size, _sha256(path / name, hashes)) for name, size in members]
        digest = hashlib.sha256(json.dumps(listing).encode()).hexdigest()
        described = {"file": f"{path.name}/", "sha256": digest, "bytes": sum(size for _, size, _ in listing)}
    if known is not None and hashes != before:
        write_json(known, hashes)
    return described


def _read(known: Path | None) -> _Known:
    """The kept hashes; none where the file is missing or damaged: they save time and nothing else."""
    try:
        content = {} if known is None else json.loads(known.read_text(encoding="utf-8"))
        return {str(path): list(facts) for path, facts in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _sha256(file: Path, hashes: _Known) -> str:
    key, status = str(file.resolve()), file.stat()
    size, changed, *digest = hashes.get(key, (None, None))
    if digest == [] or (size, changed) != (status.st_size, status.st_mtime_ns):
        digest = [sha256_of(file)]
        hashes[key] = [status.st_size, status.st_mtime_ns, *digest]
    return str(digest[0])
