"""Downloads from a server on this machine that misbehaves in every way we know of."""

from __future__ import annotations

import gzip
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from source_files import write_zip
from subjectdp.data import fetch
from subjectdp.data.fetch import fetch_file, read_lock
from subjectdp.data.sources import Mirror as MirrorEntry
from subjectdp.data.sources import SourceFile
from subjectdp.errors import DownloadError

TEXT = b"To be, or not to be: that is the question.\n" * 400
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"
Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Answers each path by the next reply of its script (the last one again and again)."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        """One request."""
        self.server.requests.append((self.path, dict(self.headers)))
        replies = self.server.script.get(self.path, [status(404)])
        (replies.pop(0) if len(replies) > 1 else replies[0])(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""

    def reply(self, code: int, headers: dict[str, str], body: bytes) -> None:
        """Sends a reply and closes the connection."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True


class Server(ThreadingHTTPServer):
    """A server with a script and a record of the requests."""

    script: dict[str, list[Reply]]
    requests: list[tuple[str, dict[str, str]]]

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server(("127.0.0.1", 0), Handler)
    running.script, running.requests = {}, []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def status(code: int, **headers: str) -> Reply:
    """A reply without content."""
    return lambda h: h.reply(code, {"Content-Length": "0", **headers}, b"")


def whole(body: bytes) -> Reply:
    """The file."""
    return lambda h: h.reply(200, {"Content-Length": str(len(body))}, body)


def cut(body: bytes, sent: int) -> Reply:
    """Announces all, sends the first ``sent`` bytes, and closes."""
    return lambda h: h.reply(200, {"Content-Length": str(len(body))}, body[:sent])


def unmarked(body: bytes) -> Reply:
    """Neither a length nor chunks: the end of the connection is the end of the body."""
    return lambda h: h.reply(200, {}, body)


def chunked(body: bytes, finished: bool = True) -> Reply:
    """One chunk, with or without the closing one."""
    framed = f"{len(body):x}\r\n".encode() + body + (b"\r\n0\r\n\r\n" if finished else b"")
    return lambda h: h.reply(200, {"Transfer-Encoding": "chunked"}, framed)


def _sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def mirror(url: str, size: int | None = None, sha256: str | None = None) -> MirrorEntry:
    return MirrorEntry(url=url, bytes=size, sha256=sha256)


def _text(*mirrors: MirrorEntry) -> SourceFile:
    return SourceFile(name="100.txt", format="text", mirrors=list(mirrors))


def _zip_source(*mirrors: MirrorEntry) -> SourceFile:
    return SourceFile(name="by_class.zip", format="zip", mirrors=list(mirrors))


@pytest.fixture
def zipped(tmp_path: Path) -> bytes:
    content = hashlib.sha512(b"noise").digest() * 300
    return write_zip(tmp_path / "made" / "a.zip", {f"{n}.bin": content[n:] for n in range(5)}).read_bytes()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "_ATTEMPTS", fetch._ATTEMPTS.new(total=2, backoff_factor=0.01))


def _get(tmp_path: Path, source: SourceFile, local: Path | None = None) -> bytes:
    return fetch_file(source, tmp_path / "source", tmp_path / "lock.json", local).read_bytes()


def _origin(tmp_path: Path, name: str) -> str:
    return str(read_lock(tmp_path / "lock.json")[name]["origin"])


def _left_over(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "source").iterdir() if ".part" in p.name or ".tmp" in p.name)


# --- what works ---------------------------------------------------------------------------------------------


def test_a_file_is_fetched_recorded_and_kept(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script["/f"] = [whole(zipped)]
    source = _zip_source(mirror(f"{server.url}/f", len(zipped), _sha(zipped)))
    assert _get(tmp_path, source) == zipped
    entry = {"sha256": _sha(zipped), "bytes": len(zipped), "origin": f"{server.url}/f"}
    assert read_lock(tmp_path / "lock.json") == {"by_class.zip": entry}
    assert _left_over(tmp_path) == []
    assert _get(tmp_path, source) == zipped and len(server.requests) == 1


@pytest.mark.parametrize("packing", ["plain", "gzip", "zip"])
def test_a_text_is_stored_unpacked(tmp_path: Path, server: Server, packing: str) -> None:
    packed = write_zip(tmp_path / "t.zip", {"100.txt": TEXT}).read_bytes()
    server.script["/f"] = [whole({"plain": TEXT, "gzip": gzip.compress(TEXT), "zip": packed}[packing])]
    assert _get(tmp_path, _text(mirror(f"{server.url}/f"))) == TEXT
    assert read_lock(tmp_path / "lock.json")["100.txt"]["sha256"] == _sha(TEXT)


def test_a_chunked_text_is_accepted(tmp_path: Path, server: Server) -> None:
    server.script["/f"] = [chunked(TEXT)]
    assert _get(tmp_path, _text(mirror(f"{server.url}/f"))) == TEXT


def test_passing_failures_are_tried_again(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script["/f"] = [status(503, **{"Retry-After": "0"}), status(429), whole(zipped)]
    assert _get(tmp_path, _zip_source(mirror(f"{server.url}/f"))) == zipped
    assert len(server.requests) == 3


def test_a_dead_first_mirror_is_passed_over(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script["/good"] = [whole(zipped)]
    dead = "http://127.0.0.1:9/f"  # the discard port: nothing listens
    source = _zip_source(mirror(dead), mirror(f"{server.url}/gone"), mirror(f"{server.url}/good"))
    assert _get(tmp_path, source) == zipped
    assert _origin(tmp_path, "by_class.zip") == f"{server.url}/good"


def test_a_damaged_file_in_place_is_fetched_again(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script["/f"] = [whole(zipped)]
    source = _zip_source(mirror(f"{server.url}/f"))
    _get(tmp_path, source)
    (tmp_path / "source" / "by_class.zip").write_bytes(zipped[:-10])
    assert _get(tmp_path, source) == zipped and len(server.requests) == 2


def test_progress_is_logged(tmp_path: Path, server: Server, zipped: bytes, caplog: pytest.LogCaptureFixture) -> None:
    server.script["/f.zip"] = [whole(zipped)]
    with caplog.at_level(logging.INFO, "subjectdp"):
        _get(tmp_path, _zip_source(mirror(f"{server.url}/f.zip")))
    assert any("f.zip: " in m and "(100 %) MB" in m for m in caplog.messages)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (lambda z: status(404), "status 404"),
        (lambda z: status(403), "status 403"),
        (lambda z: status(500), "status 500"),
        (lambda z: whole(HTML), "web page"),
        (lambda z: whole(b"\xef\xbb\xbf\n" + HTML), "web page"),
        (lambda z: whole(b""), "is empty"),
        (lambda z: whole(b"\x1f\x8bgzip instead" * 9), "not a zip file"),
        (lambda z: unmarked(z[:-40]), "truncated zip"),
        (lambda z: chunked(z[:-40]), "truncated zip"),
        (lambda z: chunked(z, finished=False), "Connection broken"),
        (lambda z: cut(z, 0), "Connection broken"),
    ],
)
def test_what_is_no_zip_file_is_refused(
    tmp_path: Path, server: Server, zipped: bytes, reply: Callable[[bytes], Reply], problem: str
) -> None:
    server.script["/f"] = [reply(zipped)]
    with pytest.raises(DownloadError, match=f"(?s){problem}.*set data.path"):
        _get(tmp_path, _zip_source(mirror(f"{server.url}/f")))
    assert not (tmp_path / "source" / "by_class.zip").exists() and not (tmp_path / "lock.json").exists()


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (unmarked(TEXT), "no Content-Length"),
        (whole(HTML), "web page"),
        (whole(b" \n"), "holds no text"),
        (whole(b"binary\0" * 99), "holds no text"),
        (whole(gzip.compress(TEXT)[:-9]), "damaged gzip"),
        (whole(gzip.compress(HTML)), "web page"),
        (whole(b"PK\x03\x04" + bytes(99)), "not a readable zip"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, server: Server, reply: Reply, problem: str) -> None:
    server.script["/f"] = [reply]
    with pytest.raises(DownloadError, match=f"(?s){problem}.*set data.path"):
        _get(tmp_path, _text(mirror(f"{server.url}/f")))
    assert not (tmp_path / "source" / "100.txt").exists()


def test_an_unmarked_text_of_known_size_is_judged_by_its_size(tmp_path: Path, server: Server) -> None:
    server.script["/f"] = [unmarked(TEXT)]
    source = _text(mirror(f"{server.url}/f", len(TEXT), _sha(TEXT)))
    assert _get(tmp_path, source) == TEXT
    server.script["/f"] = [unmarked(TEXT[:-5])]
    with pytest.raises(DownloadError, match=f"{len(TEXT) - 5} bytes came, {len(TEXT)} are"):
        fetch_file(source, tmp_path / "other", tmp_path / "lock2.json")


def test_a_wrong_hash_or_size_is_refused(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script["/f"] = [whole(zipped)]
    with pytest.raises(DownloadError, match="sha256 is .* expected 0000"):
        _get(tmp_path, _zip_source(mirror(f"{server.url}/f", None, "0" * 64)))
    for size in (len(zipped) - 1, len(zipped) + 1):
        with pytest.raises(DownloadError, match=f"{size} are expected"):
            _get(tmp_path, _zip_source(mirror(f"{server.url}/f", size)))
    assert _left_over(tmp_path) == []


def test_content_that_changed_since_the_first_use_is_refused(tmp_path: Path, server: Server) -> None:
    server.script["/f"] = [whole(TEXT), whole(TEXT + b"more\n")]
    source = _text(mirror(f"{server.url}/f"))
    _get(tmp_path, source)
    (tmp_path / "source" / "100.txt").unlink()
    with pytest.raises(DownloadError, match="its content has changed"):
        _get(tmp_path, source)


def test_every_mirrors_problem_is_listed(tmp_path: Path, server: Server) -> None:
    server.script["/html"] = [whole(HTML)]
    mirrors = (mirror(f"{server.url}/gone"), mirror(f"{server.url}/html"))
    with pytest.raises(DownloadError, match=r"(?s)/gone: status 404.*/html: a web page"):
        _get(tmp_path, _zip_source(*mirrors))


def test_a_damaged_record_is_refused(tmp_path: Path) -> None:
    for content in ("", "[]", '{"100.txt": {}}', '{"100.txt": 3}'):
        (tmp_path / "lock.json").write_text(content)
        with pytest.raises(DownloadError, match="not a record"):
            _get(tmp_path, _text(mirror("http://127.0.0.1:9/")))


# --- local copies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["100.txt", "100.txt.gz", "raw_data.txt"])
@pytest.mark.parametrize("as_folder", [True, False])
def test_a_local_text_is_copied(tmp_path: Path, name: str, as_folder: bool) -> None:
    file = tmp_path / "local" / name
    file.parent.mkdir()
    file.write_bytes(gzip.compress(TEXT) if name.endswith(".gz") else TEXT)
    assert _get(tmp_path, _text(mirror("http://127.0.0.1:9/")), file.parent if as_folder else file) == TEXT
    assert _origin(tmp_path, "100.txt") == "local" and file.exists()


def test_a_local_zip_is_copied_and_checked(tmp_path: Path, zipped: bytes) -> None:
    local = tmp_path / "local"
    local.mkdir()
    source = _zip_source(mirror("http://127.0.0.1:9/"))
    for bad, problem in ((zipped[:-40], "truncated zip"), (HTML, "web page"), (b"", "is empty")):
        (local / "by_class.zip").write_bytes(bad)
        with pytest.raises(DownloadError, match=problem):
            _get(tmp_path, source, local)
    (local / "by_class.zip").write_bytes(zipped)
    assert _get(tmp_path, source, local) == (local / "by_class.zip").read_bytes() == zipped
    with pytest.raises(DownloadError, match="or a folder that holds it"):
        fetch_file(source, tmp_path / "new", tmp_path / "l", tmp_path / "nowhere")
    with pytest.raises(DownloadError, match="does not hold"):
        fetch_file(source, tmp_path / "new", tmp_path / "l", tmp_path)
