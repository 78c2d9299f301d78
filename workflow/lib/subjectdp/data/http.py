"""One HTTP download into a ``.part`` file: resumed, retried with back-off, its end verified."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import requests

from subjectdp.data.progress import Progress
from subjectdp.data.sources import Mirror
from subjectdp.errors import DownloadError
from subjectdp.io import atomic

_LOGGER = logging.getLogger(__name__)
_HTML_STARTS = (b"<!doctype", b"<html", b"<?xml", b"<head", b"<script")
_LONGEST_RETRY_AFTER = 60.0


@dataclass(frozen=True)
class FetchOptions:
    """How hard to try: attempts at each mirror, seconds before the second (doubled after each), time-outs."""

    attempts: int = 4
    backoff: float = 1.0
    connect_timeout: float = 10.0
    read_timeout: float = 60.0
    chunk: int = 1 << 16  # a cut connection loses its last chunk
    spare_bytes: int = 64 << 20  # left free on the disk


class _TryAgainError(Exception):
    """A failure that may pass; ``wait``: what the server asked for, in seconds."""

    def __init__(self, problem: str, wait: float = 0.0):
        super().__init__(problem)
        self.wait = wait


@dataclass
class _Body:
    """A response whose status is settled: where its bytes go, and how many there are in all."""

    response: requests.Response
    offset: int
    total: int | None

    @property
    def framed(self) -> bool:
        """Whether HTTP itself tells a truncated body from a whole one."""
        headers = self.response.headers
        return "Content-Length" in headers or headers.get("Transfer-Encoding") == "chunked"

    @property
    def encoded(self) -> bool:
        """Whether the bytes are not the file's own (compressed although identity was asked for)."""
        return self.response.headers.get("Content-Encoding", "identity") != "identity"


def download(mirror: Mirror, part: Path, options: FetchOptions, needs_length: bool) -> None:
    """Downloads ``mirror`` into ``part``, going on from what is there.

    ``needs_length``: refuse a body whose end HTTP does not mark and whose size is not known, because its
    content cannot show a truncation. DownloadError, with the reason, if the mirror does not give the file.
    """
    problem = ""
    for attempt in range(options.attempts):
        try:
            with requests.Session() as session:
                _attempt(session, mirror, part, options, needs_length)
            return
        except _TryAgainError as error:
            problem, wait = str(error), error.wait
        except (
            requests.ConnectionError,
            requests.Timeout,
            requests.exceptions.ChunkedEncodingError,
        ) as error:
            problem, wait = f"{type(error).__name__}: {error}", 0.0
        except (requests.RequestException, OSError) as error:  # OSError: the disk
            raise DownloadError(f"{mirror.url}: {error}") from None
        if attempt + 1 < options.attempts:
            wait = max(wait, options.backoff * 2**attempt)
            _LOGGER.warning("%s: %s; trying again in %.0f s", mirror.url, problem, wait)
            time.sleep(wait)
    raise DownloadError(f"{mirror.url}: {problem} (after {options.attempts} attempts)")


def _attempt(
    session: requests.Session, mirror: Mirror, part: Path, options: FetchOptions, needs_length: bool
) -> None:
    headers = {"Accept-Encoding": "identity"}  # a compressed body could not be measured or resumed
    have, validator = _partial(part)
    if have > 0:
        headers["Range"] = f"bytes={have}-"
        if validator is not None:
            headers["If-Range"] = validator
    timeout = (options.connect_timeout, options.read_timeout)
    with session.get(mirror.url, headers=headers, stream=True, timeout=timeout) as response:
        body = _settle(response, part, have)
        if body is None:  # the part is the whole file
            return
        if mirror.bytes is not None and body.total not in (None, mirror.bytes):
            raise DownloadError(f"{mirror.url}: {body.total} bytes are offered, {mirror.bytes} are expected")
        if needs_length and not body.framed and mirror.bytes is None and mirror.sha256 is None:
            raise DownloadError(f"{mirror.url}: no Content-Length, so that a truncation could not be noticed")
        _require_space(part, (body.total or mirror.bytes or 0) - body.offset, options)
        _write(body, mirror, part, options)


def _partial(part: Path) -> tuple[int, str | None]:
    """Bytes that are there already, and the validator they were served with."""
    if not part.is_file():
        return 0, None
    try:
        validator = json.loads(_state(part).read_text())["validator"]
    except (OSError, ValueError, KeyError, TypeError):
        part.unlink()  # of unknown origin
        return 0, None
    return part.stat().st_size, validator


def _settle(response: requests.Response, part: Path, have: int) -> _Body | None:
    """Reads status and headers; None: ``part`` was complete already."""
    status, url = response.status_code, response.url
    if status in (429, 500, 502, 503, 504):
        raise _TryAgainError(f"status {status}", _retry_after(response))
    if status == 416:
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
        if total == str(have):
            return None
        remove_part(part)
        raise _TryAgainError("the part does not fit the file any more; starting afresh")
    if status not in (200, 206):
        raise DownloadError(f"{url}: status {status} {response.reason}")
    if status == 206:
        span, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        if span.partition("-")[0] != str(have):
            remove_part(part)
            raise _TryAgainError(f"another range was served than asked for ({span!r})")
        return _Body(response, have, int(total) if total.isdigit() else None)
    length = response.headers.get("Content-Length", "")
    body = _Body(response, 0, int(length) if length.isdigit() else None)
    return replace(body, total=None) if body.encoded else body


def _retry_after(response: requests.Response) -> float:
    asked = response.headers.get("Retry-After", "")
    return min(float(asked), _LONGEST_RETRY_AFTER) if asked.isdigit() else 0.0


def _require_space(part: Path, missing: int, options: FetchOptions) -> None:
    free = shutil.disk_usage(part.parent).free
    if missing + options.spare_bytes > free:
        needed = missing + options.spare_bytes
        raise DownloadError(
            f"{part.parent} has {free / 1e6:.0f} MB free, {needed / 1e6:.0f} MB are needed: free some space, "
            "or set data.path to a local copy"
        )


def _write(body: _Body, mirror: Mirror, part: Path, options: FetchOptions) -> None:
    validator = body.response.headers.get("ETag") or body.response.headers.get("Last-Modified")
    if validator is not None and validator.startswith("W/"):
        validator = None  # a weak validator does not promise the same bytes
    if body.offset == 0:
        remove_part(part)
        if not body.encoded:  # a part without a state is not resumed
            atomic.write_json(_state(part), {"validator": validator})
    total = body.total if body.total is not None else mirror.bytes
    progress = Progress(_LOGGER, mirror.url.rpartition("/")[2], total, "MB", scale=1e6)
    progress.start_at(body.offset)
    with open(part, "ab") as stream:
        try:
            _copy(body, mirror, stream, progress, total, options)
        finally:
            stream.flush()
            os.fsync(stream.fileno())
    progress.finish()
    if total is not None and progress.count < total:
        raise _TryAgainError(f"the body ended after {progress.count} of {total} bytes")


def _copy(
    body: _Body,
    mirror: Mirror,
    stream: IO[bytes],
    progress: Progress,
    total: int | None,
    options: FetchOptions,
) -> None:
    for chunk in body.response.iter_content(options.chunk):
        if progress.count == 0:
            refuse_web_page(chunk, mirror.url)
        stream.write(chunk)
        progress.add(len(chunk))
        if total is not None and progress.count > total:
            raise DownloadError(f"{mirror.url}: more than the {total} bytes expected were sent")


def refuse_web_page(start: bytes, name: str) -> None:
    """DownloadError if a file that starts like this is a web page (an error page, a login form)."""
    if start[:512].lstrip(b"\xef\xbb\xbf \r\n\t").lower().startswith(_HTML_STARTS):
        raise DownloadError(
            f"{name}: a web page came instead of the file (an error page, or a login is needed)"
        )


def _state(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def remove_part(part: Path) -> None:
    """Removes a part and what is noted about it."""
    part.unlink(missing_ok=True)
    _state(part).unlink(missing_ok=True)
