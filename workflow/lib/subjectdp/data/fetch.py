"""Verified source files from mirrors or a local copy.

The sha256, size and origin of a file that comes for the first time are recorded in a lock file and enforced from then
on, so that a mirror that changes its content under the same address is noticed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from subjectdp.data import archives
from subjectdp.data.progress import Progress
from subjectdp.data.sources import Mirror, SourceFile
from subjectdp.errors import DataError, DownloadError
from subjectdp.io import atomic

_LOGGER = logging.getLogger(__name__)
_Record = dict[str, Any]  # of a fetched file: sha256, bytes, origin


_TIMEOUT = (10.0, 60.0)  # seconds to connect, and between two parts of a body
_HTML_STARTS = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<script")


@dataclass(frozen=True)
class FetchOptions:
    """Attempts per mirror, seconds before the second (doubled after each), bytes left free on the disk."""

    attempts: int = 4
    backoff: float = 1.0
    spare_bytes: int = 64 << 20


@dataclass(frozen=True)
class FetchedFile:
    """A file in place; ``origin`` is a URL, ``local`` or ``found in place``."""

    path: Path
    sha256: str
    bytes: int
    origin: str


def fetch_file(
    source: SourceFile,
    folder: Path,
    lock_file: Path,
    local_path: Path | None = None,
    options: FetchOptions | None = None,
) -> FetchedFile:
    """Put ``source`` into ``folder`` and return what it is.

    A file that is there already and is what ``lock_file`` records is kept. Otherwise it is copied from ``local_path``
    (the file, or a folder that holds it), or downloaded from the mirrors in order; a download that breaks off starts
    anew. Snakemake lets one job at a time fetch a file. DownloadError if nothing acceptable was found, with the reason
    for each mirror and what to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / source.name
    known = read_lock(lock_file).get(source.name)
    present = _present(target, source, known)
    if present is not None and (local_path is None or known is not None):
        return _record(present, lock_file, source.name)
    if local_path is not None:
        origin = "local"
        _install(_find_local(local_path, source), source, target, known, keep=True)
    else:
        origin = _from_mirrors(source, target, known, options or FetchOptions())
    return _record(_describe(target, origin), lock_file, source.name)


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


def _record(fetched: FetchedFile, lock_file: Path, name: str) -> FetchedFile:
    recorded = read_lock(lock_file)
    if name not in recorded:
        entry = asdict(fetched)
        del entry["path"]
        atomic.write_json(lock_file, {**recorded, name: entry})
    return fetched


# --- mirrors ------------------------------------------------------------------------------------------------


def _from_mirrors(source: SourceFile, target: Path, known: _Record | None, options: FetchOptions) -> str:
    """Install the file from the first mirror that gives it; returns the mirror's URL."""
    problems: list[str] = []
    for mirror in source.mirrors:
        part = target.with_name(f".{target.name}.part")
        try:
            _download(mirror, part, options, needs_length=source.format == "text")
            _check_body(part, mirror)
            _install(part, source, target, known, keep=False)
            return mirror.url
        except DownloadError as error:
            problems.append(str(error).replace(str(part), mirror.url))
            _LOGGER.warning("%s: mirror refused: %s", source.name, problems[-1])
        finally:
            part.unlink(missing_ok=True)
    reasons = "".join(f"\n  - {problem}" for problem in problems)
    raise DownloadError(f"No mirror gave an acceptable {source.name}:{reasons}\n{_advice(source)}")


def _download(mirror: Mirror, part: Path, options: FetchOptions, needs_length: bool) -> None:
    """Writes what ``mirror`` serves to ``part``, once more from the start where it breaks off.

    ``needs_length``: refuses a body whose end HTTP does not mark and whose size is not known, since nobody would
    notice a truncation. DownloadError, with the reason, if the mirror does not give the file.
    """
    for attempt in range(1, options.attempts + 1):
        try:
            with (
                _session(options) as session,
                session.get(mirror.url, stream=True, timeout=_TIMEOUT) as response,
            ):
                _receive(response, mirror, part, options, needs_length)
            return
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError) as error:
            if attempt == options.attempts:
                raise DownloadError(f"{mirror.url}: {error} (after {attempt} attempts)") from None
            _LOGGER.warning("%s: %s", mirror.url, error)
            time.sleep(options.backoff * 2 ** (attempt - 1))
        except OSError as error:  # of requests and of the disk
            raise DownloadError(f"{mirror.url}: {error}") from None


def _session(options: FetchOptions) -> requests.Session:
    retry = Retry(
        total=options.attempts - 1,
        backoff_factor=options.backoff,
        status_forcelist=(429, 500, 502, 503, 504),
        raise_on_status=False,
        retry_after_max=60,
    )
    session = requests.Session()
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _receive(
    response: requests.Response, mirror: Mirror, part: Path, options: FetchOptions, needs_length: bool
) -> None:
    if response.status_code != 200:
        raise DownloadError(f"{mirror.url}: status {response.status_code} {response.reason}")
    length = response.headers.get("Content-Length", "")
    framed = length != "" or "Transfer-Encoding" in response.headers
    if needs_length and not framed and mirror.bytes is None and mirror.sha256 is None:
        raise DownloadError(f"{mirror.url}: no Content-Length, so that a truncation could not be noticed")
    missing = int(length) if length.isdecimal() else None
    free = shutil.disk_usage(part.parent).free
    if free < (missing or 0) + options.spare_bytes:
        raise DownloadError(f"{part.parent}: {free} bytes are free, {missing or 0} and some to spare are needed")
    progress = Progress(_LOGGER, mirror.url.rpartition("/")[2], missing, "MB", 1e6)
    with part.open("wb") as file:
        for chunk in response.iter_content(1 << 16):
            file.write(chunk)
            progress.add(len(chunk))
    progress.finish()


def _check_body(part: Path, mirror: Mirror) -> None:
    size = part.stat().st_size
    if mirror.bytes is not None and size != mirror.bytes:
        raise DownloadError(f"{mirror.url}: {size} bytes came, {mirror.bytes} are expected")
    if mirror.sha256 is not None and (digest := atomic.sha256_of(part)) != mirror.sha256:
        raise DownloadError(f"{mirror.url}: sha256 is {digest}, expected {mirror.sha256}")


def refuse_web_page(start: bytes, name: str) -> None:
    """DownloadError if a file that starts like this is a web page (an error page, a login form)."""
    if start[:512].lstrip(b"\xef\xbb\xbf \r\n\t").lower().startswith(_HTML_STARTS):
        raise DownloadError(f"{name}: a web page came instead of the file (an error page, or a login is needed)")


def _advice(source: SourceFile) -> str:
    return (
        f"Get {source.name} by other means and set data.path to it or to its folder, or correct its mirrors "
        "in config/datasets.yaml."
    )


# --- checking and putting in place --------------------------------------------------------------------------


def _install(file: Path, source: SourceFile, target: Path, known: _Record | None, keep: bool) -> None:
    """Check ``file`` and make it ``target``, a text unpacked; ``keep``: leave ``file`` where it is."""
    _check_format(file, source)
    if source.format == "text":
        content = _text_of(file)
        _check_known(hashlib.sha256(content).hexdigest(), known, source)
        atomic.write_bytes(target, content)
        return
    _check_known(atomic.sha256_of(file), known, source)
    if keep:
        with atomic.atomic_path(target) as temporary:
            shutil.copyfile(file, temporary)
    else:
        os.replace(file, target)


def _check_format(file: Path, source: SourceFile) -> None:
    with open(file, "rb") as stream:
        start = stream.read(512)
    if start == b"":
        raise DownloadError(f"{file} is empty")
    refuse_web_page(start, str(file))
    magic = {"zip": b"PK", "gzip": b"\x1f\x8b"}.get(source.format, b"")
    if not start.startswith(magic):
        raise DownloadError(f"{file} is not a {source.format} file (it starts with {start[:4]!r})")
    if source.format == "zip" and not zipfile.is_zipfile(file):
        raise DownloadError(f"{file} is a truncated zip file (its directory at the end is missing)")


def _text_of(file: Path) -> bytes:
    try:
        content = archives.read_text_file(file)
    except DataError as error:
        raise DownloadError(str(error)) from None
    refuse_web_page(content[:512], str(file))
    if content.strip() == b"" or b"\0" in content:
        raise DownloadError(f"{file} holds no text")
    return content


def _check_known(digest: str, known: _Record | None, source: SourceFile) -> None:
    if known is not None and digest != known["sha256"]:
        raise DownloadError(
            f"{source.name} has sha256 {digest}, but {known['sha256']} was recorded when it first came from "
            f"{known['origin']}: its content has changed. If that is right, remove its entry from the lock"
        )


def _find_local(path: Path, source: SourceFile) -> Path:
    """The file itself, or the one in the folder; a text may be packed or have another name."""
    if path.is_file() and (source.format == "text" or path.name == source.name):
        return path
    if not path.is_dir():
        raise DownloadError(f"data.path {path} does not exist: expected {source.name} or a folder that holds it.")
    if source.format == "text":
        try:
            return archives.find_text(path, (source.name,))
        except DataError as error:
            raise DownloadError(f"data.path: {error}") from None
    if (path / source.name).is_file():
        return path / source.name
    raise DownloadError(f"data.path {path} does not hold {source.name}. {_advice(source)}")


def _present(target: Path, source: SourceFile, known: _Record | None) -> FetchedFile | None:
    """The target if it is there and good."""
    if not target.is_file():
        return None
    try:
        _check_format(target, source)
        found = _describe(target, "found in place" if known is None else str(known["origin"]))
        _check_known(found.sha256, known, source)
    except DownloadError as error:
        _LOGGER.warning("%s is there but refused (%s); fetching it again", target, error)
        return None
    return found


def _describe(target: Path, origin: str) -> FetchedFile:
    return FetchedFile(target, atomic.sha256_of(target), target.stat().st_size, origin)
