"""An RO-Crate of a scenario: one zip file with its results and what says where they come from.

RO-Crate 1.1 (https://w3id.org/ro/crate/1.1), written by hand: the crate is a list of files with their hashes, and a
library for it would be a new dependency for sixty lines of JSON.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from subjectdp import __version__
from subjectdp.io.atomic import atomic_path

METADATA = "ro-crate-metadata.json"
_SPECIFICATION = "https://w3id.org/ro/crate/1.1"
_SHA256 = {"sha256": "http://schema.org/sha256"}  # a word of version 1.3
_LICENSE = {
    "@id": "https://spdx.org/licenses/Apache-2.0",
    "@type": "CreativeWork",
    "name": "Apache License 2.0",
}
_TYPES = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".json": "application/json",
    ".lock": "text/plain",
    ".parquet": "application/vnd.apache.parquet",
    ".png": "image/png",
    ".rst": "text/x-rst",
    ".safetensors": "application/octet-stream",
    ".svg": "image/svg+xml",
}


def write_crate(target: Path, about: Mapping[str, str], files: Iterable[tuple[str, Path]]) -> None:
    """Writes the zip file ``target``.

    Args:
        target: its path.
        about: ``name`` and ``description`` of the scenario, and the ``scenario`` itself as JSON.
        files: name in the crate and path of each file. Manifests of runs hold configuration, plan, privacy report,
            hashes of data, versions of the software as it ran, and machine.
    """
    paths = dict(files)
    contents = {name: path.read_bytes() for name, path in paths.items()}
    newest = max(path.stat().st_mtime for path in paths.values())
    dated = {**about, "date": datetime.fromtimestamp(newest, UTC).date().isoformat()}
    contents["scenario.json"] = about["scenario"].encode()
    parts = [_file(name, content) for name, content in sorted(contents.items())]
    contents[METADATA] = json.dumps(_metadata(dated, parts, _software(contents)), indent=1).encode()
    with atomic_path(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(contents.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # the same bytes each time


def _metadata(about: Mapping[str, str], parts: list[dict[str, Any]], software: list[str]) -> dict[str, Any]:
    """The crate's graph: itself, its root, the program, its files."""
    program = {
        "@id": "#subjectdp",
        "@type": "SoftwareApplication",
        "name": "subjectdp",
        "version": __version__,
        "softwareRequirements": software,
    }
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": about["name"],
        "description": about["description"],
        "datePublished": about["date"],  # of the newest file
        "license": {"@id": _LICENSE["@id"]},
        "mentions": {"@id": program["@id"]},
        "hasPart": [{"@id": part["@id"]} for part in parts],
    }
    itself = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "conformsTo": {"@id": _SPECIFICATION},
        "about": {"@id": root["@id"]},
    }
    context = [f"{_SPECIFICATION}/context", _SHA256]
    return {"@context": context, "@graph": [itself, root, program, _LICENSE, *parts]}


def _file(name: str, content: bytes) -> dict[str, Any]:
    return {
        "@id": name,
        "@type": "File",
        "contentSize": str(len(content)),
        "sha256": hashlib.sha256(content).hexdigest(),
        "encodingFormat": _TYPES.get(Path(name).suffix, "application/octet-stream"),
    }


def _software(contents: Mapping[str, bytes]) -> list[str]:
    """Packages and versions as the runs had them; several versions of one where they differ."""
    found: set[str] = set()
    for name, content in contents.items():
        if name.startswith("runs/") and name.endswith("manifest.json"):
            packages = json.loads(content)["environment"]["packages"]
            found |= {f"{package}=={version}" for package, version in packages.items() if version}
    return sorted(found)
