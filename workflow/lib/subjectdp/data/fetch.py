"""Verified source files from mirrors or a local copy.

The sha256, size and origin of a file that comes for the first time are recorded in a lock file and enforced from then
on, so that a mirror that changes its content under the same address is noticed. (``pooch`` knows one address for a
file, and takes whatever comes where no hash is known.)
"""

import json
import logging
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from subjectdp.data import archives
from subjectdp.data.archives import Mirror, SourceFile
from subjectdp.errors import DataError, DownloadError
from subjectdp.io import atomic
from subjectdp.io.job_log import Progress

_LOGGER = logging.getLogger(__name__)
_Record = dict[str, Any]  # of a fetched file: sha256, bytes, origin

_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two parts of a body
_ATTEMPTS = Retry(
    total=3, backoff_factor=1.0, status_forcelist=(429, 500, 502, 503, 504), raise_on_status=False, retry_after_max=60
)
_MAGIC = {"zip": b"PK", "gzip": b"\x1f\x8b"}


def fetch_file(source: SourceFile, folder: Path, lock_file: Path, local: Path | None = None) -> Path:
    """Put ``source`` into ``folder`` and return its path.

    A file that is there already and is what ``lock_file`` records is kept. Otherwise it is copied from ``local`` (the
    file, or a folder that holds it), or downloaded from the mirrors in order. Snakemake lets one job at a time fetch a
    file. DownloadError if nothing acceptable was found, with the reason for each mirror and what to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target, recorded = folder / source.name, read_lock(lock_file)
    known = recorded.get(source.name)
    origin = "found in place"
    if not _is_good(target, source, known) or (local is not None and known is None):
        origin = "local" if local is not None else _from_mirrors(source, target, known)
        if local is not None:
            try:
                _install(_find_local(local, source), source, target, known, keep=True)
            except DataError as error:
                raise DownloadError(f"data.path: {error}") from None
    if known is None:
        found = {"sha256": atomic.sha256_of(target), "bytes": target.stat().st_size, "origin": origin}
        atomic.write_json(lock_file, {**recorded, source.name: found})
    return target


def read_lock(lock_file: Path) -> dict[str, _Record]:
    """The recorded files by name; empty if there is no record yet; DownloadError if it cannot be read."""
    if not lock_file.is_file():
        return {}
    try:
        content = json.loads(lock_file.read_text())
        valid = all({"sha256", "bytes", "origin"} <= entry.keys() for entry in content.values())
    except (OSError, ValueError, AttributeError):
        valid = False
    if not valid:
        raise DownloadError(f"{lock_file} is not a record of fetched files: mend or remove it.")
    return dict(content)


def _is_good(target: Path, source: SourceFile, known: _Record | None) -> bool:
    if not target.is_file():
        return False
    try:
        _check_format(target, source)
        _check_known(target, known, source)
    except DataError as error:
        _LOGGER.warning("%s is there but refused (%s); fetching it again", target, error)
        return False
    return True


def _from_mirrors(source: SourceFile, target: Path, known: _Record | None) -> str:
    """Installs the file from the first mirror that gives it; returns the mirror's URL."""
    problems: list[str] = []
    part = target.with_name(f".{target.name}.part")
    for mirror in source.mirrors:
        try:
            _download(mirror, part, needs_length=source.format == "text")
            _install(part, source, target, known, keep=False)
            return mirror.url
        except (OSError, DataError) as error:  # OSError: of requests and of the disk
            problems.append(f"{mirror.url}: {str(error).replace(str(part), 'the file')}")
            _LOGGER.warning("%s: mirror refused: %s", source.name, problems[-1])
        finally:
            part.unlink(missing_ok=True)
    reasons = "".join(f"\n  - {problem}" for problem in problems)
    raise DownloadError(f"No mirror gave an acceptable {source.name}:{reasons}\n{_advice(source)}")


def _download(mirror: Mirror, part: Path, needs_length: bool) -> None:
    """Writes what ``mirror`` serves to ``part``; DataError if it is not what the table of mirrors says.

    ``needs_length``: refuses a body whose end HTTP does not mark and whose size is not known, since nobody would
    notice a truncation.
    """
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=_ATTEMPTS))
        with session.get(mirror.url, stream=True, timeout=_TIMEOUT) as response:
            if response.status_code != 200:
                raise DataError(f"status {response.status_code} {response.reason}")
            length = response.headers.get("Content-Length", "")
            framed = length != "" or "Transfer-Encoding" in response.headers
            if needs_length and not framed and mirror.bytes is None and mirror.sha256 is None:
                raise DataError("no Content-Length, so that a truncation could not be noticed")
            total = int(length) if length.isdecimal() else None
            progress = Progress(f"bytes of {mirror.url.rpartition('/')[2]}", total)
            with part.open("wb") as file:
                for chunk in response.iter_content(1 << 16):
                    file.write(chunk)
                    progress.add(len(chunk))
            progress.finish()
    if mirror.bytes is not None and part.stat().st_size != mirror.bytes:
        raise DataError(f"{part.stat().st_size} bytes came, {mirror.bytes} are expected")
    if mirror.sha256 is not None and (digest := atomic.sha256_of(part)) != mirror.sha256:
        raise DataError(f"sha256 is {digest}, expected {mirror.sha256}")


def _advice(source: SourceFile) -> str:
    return (
        f"Get {source.name} by other means and set data.path to it or to its folder, or correct its mirrors "
        "in config/datasets.yaml."
    )


def _install(file: Path, source: SourceFile, target: Path, known: _Record | None, keep: bool) -> None:
    """Checks ``file`` and makes it ``target``, a text unpacked; ``keep``: leaves ``file`` where it is."""
    _check_format(file, source)
    with atomic.atomic_path(target) as temporary:
        if source.format == "text":
            temporary.write_bytes(archives.read_text_file(file))
        elif keep:
            shutil.copyfile(file, temporary)
        else:
            os.replace(file, temporary)
        _check_known(temporary, known, source)


def _check_format(file: Path, source: SourceFile) -> None:
    with open(file, "rb") as stream:
        start = stream.read(512)
    if start == b"":
        raise DataError(f"{file} is empty")
    archives.refuse_web_page(start, file)
    if not start.startswith(_MAGIC.get(source.format, b"")):
        raise DataError(f"{file} is not a {source.format} file (it starts with {start[:4]!r})")
    if source.format == "zip" and not zipfile.is_zipfile(file):
        raise DataError(f"{file} is a truncated zip file (its directory at the end is missing)")


def _check_known(file: Path, known: _Record | None, source: SourceFile) -> None:
    if known is not None and (digest := atomic.sha256_of(file)) != known["sha256"]:
        raise DataError(
            f"{source.name} has sha256 {digest}, but {known['sha256']} was recorded when it first came from "
            f"{known['origin']}: its content has changed. If that is right, remove its entry from the lock"
        )


def _find_local(path: Path, source: SourceFile) -> Path:
    """The file itself, or the one in the folder; a text may be packed or have another name."""
    if path.is_file() and (source.format == "text" or path.name == source.name):
        return path
    if not path.is_dir():
        raise DataError(f"{path} does not exist: expected {source.name} or a folder that holds it.")
    if source.format == "text":
        return archives.find_text(path, (source.name,))
    if not (path / source.name).is_file():
        raise DataError(f"{path} does not hold {source.name}. {_advice(source)}")
    return path / source.name
