"""One HTTP download into a ``.part`` file, resumed where it broke off.

``requests`` and urllib3's ``Retry`` connect, wait and try again. Written here is what they lack: resuming a body, and
only if the server still has the same file.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from subjectdp.data.progress import Progress
from subjectdp.data.sources import Mirror
from subjectdp.errors import DownloadError
from subjectdp.io import atomic

_LOGGER = logging.getLogger(__name__)
_HTML_STARTS = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<script")
_PASSING = (429, 500, 502, 503, 504)
_LONGEST_RETRY_AFTER = 60


@dataclass(frozen=True)
class FetchOptions:
    """Attempts per mirror, seconds before the second (doubled after each), time-outs in seconds, sizes in bytes."""

    attempts: int = 4
    backoff: float = 1.0
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    chunk: int = 1 << 16  # a cut connection loses its last chunk
    spare_bytes: int = 64 << 20  # left free on the disk


class _BrokenOffError(Exception):
    """The body ended early, or has to be asked for again."""


def download(mirror: Mirror, part: Path, options: FetchOptions, needs_length: bool) -> None:
    """Download ``mirror`` into ``part``, resuming what is there.

    ``needs_length``: refuse a body whose end HTTP does not mark and whose size is not known, because a truncation would
    go unnoticed. DownloadError, with the reason, if the mirror does not give the file.
    """
    problem = ""
    with _session(options) as session:
        for attempt in range(options.attempts):
            try:
                with _request(session, mirror.url, part, options) as response:
                    _receive(response, mirror, part, options, needs_length)
                return
            except _BrokenOffError as error:
                problem = str(error)
            except OSError as error:  # of requests and of the disk
                raise DownloadError(f"{mirror.url}: {error}") from None
            _LOGGER.warning("%s: %s", mirror.url, problem)
            time.sleep(options.backoff * 2**attempt if attempt + 1 < options.attempts else 0)
    raise DownloadError(f"{mirror.url}: {problem} (after {options.attempts} attempts)")


def refuse_web_page(start: bytes, name: str) -> None:
    """DownloadError if a file that starts like this is a web page (an error page, a login form)."""
    if start[:512].lstrip(b"\xef\xbb\xbf \r\n\t").lower().startswith(_HTML_STARTS):
        raise DownloadError(
            f"{name}: a web page came instead of the file (an error page, or a login is needed)"
        )


def remove_part(part: Path) -> None:
    """Remove a part and its validator."""
    part.unlink(missing_ok=True)
    _state(part).unlink(missing_ok=True)


def _session(options: FetchOptions) -> requests.Session:
    retry = Retry(
        total=options.attempts - 1,
        backoff_factor=options.backoff,
        status_forcelist=_PASSING,
        raise_on_status=False,
        retry_after_max=_LONGEST_RETRY_AFTER,
    )
    session = requests.Session()
    session.headers["Accept-Encoding"] = "identity"  # a compressed body could not be measured or resumed
    for scheme in ("http://", "https://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    return session


def _request(session: requests.Session, url: str, part: Path, options: FetchOptions) -> requests.Response:
    """Ask for what ``part`` lacks, provided that the file is still the one that the part is of."""
    headers = {}
    if part.is_file():
        try:
            headers = {"If-Range": json.loads(_state(part).read_text())["validator"]}
            headers["Range"] = f"bytes={part.stat().st_size}-"
        except (OSError, ValueError, KeyError, TypeError):
            remove_part(part)  # of unknown origin
    timeout = (options.connect_timeout, options.read_timeout)
    return session.get(url, headers=headers, stream=True, timeout=timeout)


def _receive(
    response: requests.Response, mirror: Mirror, part: Path, options: FetchOptions, needs_length: bool
) -> None:
    """Check status and headers, and append the body to ``part``, or start it anew."""
    have = part.stat().st_size if part.is_file() else 0
    span, _, whole = response.headers.get("Content-Range", "").removeprefix("bytes ").rpartition("/")
    if response.status_code == 416 and whole == str(have):
        return  # the part is the whole file
    if response.status_code == 416 or (response.status_code == 206 and span.partition("-")[0] != str(have)):
        remove_part(part)
        raise _BrokenOffError("the part does not fit the file; starting anew")
    if response.status_code not in (200, 206):
        raise DownloadError(f"{mirror.url}: status {response.status_code} {response.reason}")
    if response.status_code == 200:
        remove_part(part)
        have = 0
    missing = _body_bytes(response)
    if mirror.bytes is not None and missing not in (None, mirror.bytes - have):
        raise DownloadError(f"{mirror.url}: {missing} bytes are offered, {mirror.bytes - have} are expected")
    known = mirror.bytes is not None or mirror.sha256 is not None
    framed = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
    if needs_length and not known and not framed:
        raise DownloadError(f"{mirror.url}: no Content-Length, so that a truncation could not be noticed")
    _require_space(part, missing or 0, options)
    _keep_validator(response, part)
    _append(response, part, have, missing, options.chunk)


def _body_bytes(response: requests.Response) -> int | None:
    """Length of the body; None if it is unknown, or compressed although that was not asked for."""
    length = response.headers.get("Content-Length", "")
    encoded = response.headers.get("Content-Encoding", "identity") != "identity"
    return int(length) if length.isdigit() and not encoded else None


def _require_space(part: Path, missing: int, options: FetchOptions) -> None:
    free, needed = shutil.disk_usage(part.parent).free, missing + options.spare_bytes
    if needed > free:
        raise DownloadError(
            f"{part.parent} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed: free some space, "
            "or set data.path to a local copy"
        )


def _keep_validator(response: requests.Response, part: Path) -> None:
    """Note what identifies the file; a part without that is not resumed."""
    validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
    weak = validator is None or validator.startswith("W/")  # does not promise the same bytes
    if not weak and response.headers.get("Content-Encoding", "identity") == "identity":
        atomic.write_json(_state(part), {"validator": validator})


def _append(response: requests.Response, part: Path, have: int, missing: int | None, chunk_size: int) -> None:
    total = None if missing is None else have + missing
    progress = Progress(_LOGGER, response.url.rpartition("/")[2], total, "MB", scale=1e6)
    progress.start_at(have)
    with open(part, "ab") as stream:
        try:
            for chunk in response.iter_content(chunk_size):
                if progress.count == 0:
                    refuse_web_page(chunk, response.url)
                stream.write(chunk)
                progress.add(len(chunk))
        except requests.RequestException as error:
            raise _BrokenOffError(f"{type(error).__name__}: {error}") from None
        finally:
            stream.flush()
            os.fsync(stream.fileno())
    progress.finish()


def _state(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")
