"""Downloads from a server on this machine that misbehaves in every way we know of."""

import gzip
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from source_files import write_zip
from subjectdp.data import fetch
from subjectdp.data.archives import Mirror, SourceFile
from subjectdp.data.fetch import fetch_file, read_lock
from subjectdp.errors import DownloadError

TEXT = b"To be, or not to be: that is the question.\n" * 400
HTML = b"<!DOCTYPE html><html><body>Please log in</body></html>"
DEAD = "http://127.0.0.1:9/f"  # the discard port: nothing listens
Reply = tuple[int, dict[str, str], bytes]


class Server(ThreadingHTTPServer):
    """Answers each path by the next reply of its script (the last one again and again), and counts the requests."""

    script: dict[str, list[Reply]]
    requests: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        replies = self.server.script.get(self.path, [status(404)])
        code, headers, body = replies.pop(0) if len(replies) > 1 else replies[0]
        self.send_response(code)
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(fetch, "_ATTEMPTS", fetch._ATTEMPTS.new(total=2, backoff_factor=0.01))
    running = Server(("127.0.0.1", 0), Handler)
    running.script, running.requests = {}, 0
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def status(code: int, **headers: str) -> Reply:
    return code, {"Content-Length": "0", **headers}, b""


def whole(body: bytes, sent: int | None = None) -> Reply:
    """Announces all, and sends all or the first ``sent`` bytes."""
    return 200, {"Content-Length": str(len(body))}, body[:sent]


def chunked(body: bytes, end: bytes = b"\r\n0\r\n\r\n") -> Reply:
    """One chunk, with or without the closing one."""
    return 200, {"Transfer-Encoding": "chunked"}, f"{len(body):x}\r\n".encode() + body + end


def sha(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def text(*urls: str, size: int | None = None, sha256: str | None = None) -> SourceFile:
    mirrors = [Mirror(url=url, bytes=size, sha256=sha256) for url in urls]
    return SourceFile(name="100.txt", format="text", mirrors=mirrors)


def zip_(*urls: str, size: int | None = None, sha256: str | None = None) -> SourceFile:
    return text(*urls, size=size, sha256=sha256).model_copy(update={"name": "by_class.zip", "format": "zip"})


@pytest.fixture
def zipped(tmp_path: Path) -> bytes:
    content = hashlib.sha512(b"noise").digest() * 300
    return write_zip(tmp_path / "made" / "a.zip", {f"{n}.bin": content[n:] for n in range(5)}).read_bytes()


def get(tmp_path: Path, source: SourceFile, local: Path | None = None) -> bytes:
    return fetch_file(source, tmp_path / "source", tmp_path / "lock.json", local).read_bytes()


# --- what works ---------------------------------------------------------------------------------------------


def test_a_file_is_fetched_recorded_and_kept(
    tmp_path: Path, server: Server, zipped: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server.script["/f.zip"] = [whole(zipped)]
    source = zip_(f"{server.url}/f.zip", size=len(zipped), sha256=sha(zipped))
    with caplog.at_level(logging.INFO, "subjectdp"):
        assert get(tmp_path, source) == zipped
    assert any("bytes of f.zip: " in m and "(100 %)" in m for m in caplog.messages), "progress"
    entry = {"sha256": sha(zipped), "bytes": len(zipped), "origin": f"{server.url}/f.zip"}
    assert read_lock(tmp_path / "lock.json") == {"by_class.zip": entry}
    assert [path.name for path in (tmp_path / "source").iterdir()] == ["by_class.zip"]
    assert get(tmp_path, source) == zipped and server.requests == 1
    (tmp_path / "source" / "by_class.zip").write_bytes(zipped[:-10])
    assert get(tmp_path, source) == zipped and server.requests == 2, "damaged in place, fetched again"


@pytest.mark.parametrize("packing", ["plain", "gzip", "zip", "chunked", "of known size"])
def test_a_text_is_stored_unpacked(tmp_path: Path, server: Server, packing: str) -> None:
    packed = {"gzip": gzip.compress(TEXT), "zip": write_zip(tmp_path / "t.zip", {"100.txt": TEXT}).read_bytes()}
    replies = {"chunked": chunked(TEXT), "of known size": (200, {}, TEXT)}
    server.script["/f"] = [replies.get(packing, whole(packed.get(packing, TEXT)))]
    assert get(tmp_path, text(f"{server.url}/f", size=len(TEXT) if "size" in packing else None)) == TEXT
    assert read_lock(tmp_path / "lock.json")["100.txt"]["sha256"] == sha(TEXT)


def test_passing_failures_are_tried_again(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script["/f"] = [status(503, **{"Retry-After": "0"}), status(429), whole(zipped)]
    assert get(tmp_path, zip_(f"{server.url}/f")) == zipped
    assert server.requests == 3


def test_mirrors_that_do_not_serve_are_passed_over(tmp_path: Path, server: Server, zipped: bytes) -> None:
    server.script |= {"/good": [whole(zipped)], "/cut": [whole(zipped, 9)]}
    urls = [DEAD, *(f"{server.url}/{name}" for name in ("gone", "cut", "good"))]
    assert get(tmp_path, zip_(*urls)) == zipped
    assert read_lock(tmp_path / "lock.json")["by_class.zip"]["origin"] == urls[-1]


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "reply", "problem"),
    [
        (zip_, lambda z: status(404), "status 404"),
        (zip_, lambda z: whole(HTML), "web page"),
        (zip_, lambda z: whole(b"\xef\xbb\xbf\n" + HTML), "web page"),
        (zip_, lambda z: whole(b""), "is empty"),
        (zip_, lambda z: whole(b"\x1f\x8bgzip instead" * 9), "not a zip file"),
        (zip_, lambda z: (200, {}, z[:-40]), "truncated zip"),
        (zip_, lambda z: chunked(z[:-40]), "truncated zip"),
        (zip_, lambda z: chunked(z, end=b""), "Connection broken"),
        (partial(zip_, sha256="0" * 64), chunked, "sha256 is .* expected 0000"),
        (partial(zip_, size=50), chunked, "1296 bytes came, 50 are"),
        (text, lambda _: (200, {}, TEXT), "no Content-Length"),
        (text, lambda _: whole(HTML), "web page"),
        (text, lambda _: whole(b" \n"), "holds no text"),
        (text, lambda _: whole(b"binary\0" * 99), "holds no text"),
        (text, lambda _: whole(gzip.compress(TEXT)[:-9]), "damaged gzip"),
        (text, lambda _: whole(gzip.compress(HTML)), "web page"),
        (text, lambda _: whole(b"PK\x03\x04" + bytes(99)), "not a readable zip"),
    ],
)
def test_what_is_no_such_file_is_refused(
    tmp_path: Path,
    server: Server,
    zipped: bytes,
    source: Callable[..., SourceFile],
    reply: Callable[[bytes], Reply],
    problem: str,
) -> None:
    server.script["/f"] = [reply(zipped)]
    with pytest.raises(DownloadError, match=f"(?s)/f.*{problem}.*/gone: status 404.*set data.path"):
        get(tmp_path, source(f"{server.url}/f", f"{server.url}/gone"))
    assert not (tmp_path / "lock.json").exists() and not list((tmp_path / "source").iterdir()), "nothing is left"


def test_content_that_changed_since_the_first_use_is_refused(tmp_path: Path, server: Server) -> None:
    server.script["/f"] = [whole(TEXT), whole(TEXT + b"more\n")]
    source = text(f"{server.url}/f")
    get(tmp_path, source)
    (tmp_path / "source" / "100.txt").unlink()
    with pytest.raises(DownloadError, match="its content has changed"):
        get(tmp_path, source)
    assert not list((tmp_path / "source").iterdir())


@pytest.mark.parametrize("content", ["", "[]", '{"100.txt": {}}', '{"100.txt": 3}'])
def test_a_damaged_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock.json").write_text(content)
    with pytest.raises(DownloadError, match="not a record"):
        get(tmp_path, text(DEAD))


# --- local copies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["100.txt", "100.txt.gz", "raw_data.txt"])
@pytest.mark.parametrize("as_folder", [True, False])
def test_a_local_text_is_copied(tmp_path: Path, name: str, as_folder: bool) -> None:
    file = tmp_path / "local" / name
    file.parent.mkdir()
    file.write_bytes(gzip.compress(TEXT) if name.endswith(".gz") else TEXT)
    assert get(tmp_path, text(DEAD), file.parent if as_folder else file) == TEXT
    assert read_lock(tmp_path / "lock.json")["100.txt"]["origin"] == "local" and file.exists()


def test_a_local_zip_is_copied_and_checked(tmp_path: Path, zipped: bytes) -> None:
    file = tmp_path / "local" / "by_class.zip"
    file.parent.mkdir()
    for bad, problem in ((zipped[:-40], "truncated zip"), (HTML, "web page"), (b"", "is empty")):
        file.write_bytes(bad)
        with pytest.raises(DownloadError, match=problem):
            get(tmp_path, zip_(DEAD), file.parent)
    file.write_bytes(zipped)
    assert get(tmp_path, zip_(DEAD), file.parent) == file.read_bytes() == zipped
    for path, problem in ((tmp_path / "nowhere", "or a folder that holds it"), (tmp_path, "does not hold")):
        with pytest.raises(DownloadError, match=problem):
            fetch_file(zip_(DEAD), tmp_path / "new", tmp_path / "l", path)
