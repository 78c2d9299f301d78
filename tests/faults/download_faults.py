"""Faults of downloads: mirrors that lie, break off or are not there. The files come from a server on this machine."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from faults.workspace import Ended, NotRecovered, Workspace, sha256_of
from subjectdp.config import load_scenario_from_mapping, paths

FILES = ("by_class.zip", "by_write.zip")
PAGE = b"<!DOCTYPE html><html><body>Please log in</body></html>"
NOBODY = "http://127.0.0.1:9"  # the discard port: refused at once


class Archives:
    """Upstream's two archives, those of the generated data, and how they are served."""

    def __init__(self, space: Workspace) -> None:
        source = space.prepared.parent / "source"
        self.space = space
        self.content = {name: (source / name).read_bytes() for name in FILES}
        self.cut_at: int | None = None
        self.replaced: dict[str, bytes] = {}
        self.requests = 0
        space.write_scenario({"data": {"source": "upstream"}})
        content = yaml.safe_load((space.root / "faults.yaml").read_text())
        self.folder = space.root / paths.source_dir(load_scenario_from_mapping(content).runs[0].data_key)
        self.record = paths.source_dir(load_scenario_from_mapping(content).runs[0].data_key) + "/source.json"

    def mirrors(self, *servers: str, hashes: dict[str, str] | None = None) -> None:
        """Writes the table of mirrors; sizes are not stated, hashes where given."""
        files = {
            name: {
                "format": "zip",
                "mirrors": [
                    {"url": f"{server}/{name}", "bytes": None, "sha256": (hashes or {}).get(name)}
                    for server in servers
                ],
            }
            for name in FILES
        }
        table = {"femnist": {"license": "none", "files": files}}
        (self.space.root / "config/datasets.yaml").write_text(yaml.safe_dump(table))

    def fetch(self) -> Ended:
        return self.space.snakemake(self.record)

    def fetch_again(self) -> None:
        """Recovery: the same command. The files have to be those of upstream, bit by bit."""
        self.space.must_succeed(self.fetch())
        for name, content in self.content.items():
            if sha256_of(self.folder / name) != hashlib.sha256(content).hexdigest():
                raise NotRecovered(f"silently wrong: {name}")
        hidden = [path.name for path in self.folder.iterdir() if path.name.endswith(".part")]
        if hidden:
            raise NotRecovered(f"left behind: {hidden}")

    def must_be_refused(self, *words: str) -> None:
        self.space.must_fail(self.fetch(), *words)
        if (self.space.root / self.record).exists():
            raise NotRecovered("the record of fetched files is there")
        if any((self.folder / name).exists() for name in FILES[:1]):
            raise NotRecovered("a refused file is in place")

    @contextmanager
    def served(self) -> Iterator[str]:
        """A server; yields its address."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


def truncated_download(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """The connection breaks off at a tenth (0), half (1) or the last byte (2), each time. Recovery: start again."""
    archives = Archives(space)
    size = len(archives.content[FILES[0]])
    with archives.served() as address:
        archives.mirrors(address)
        archives.cut_at = (size // 10, size // 2, size - 1)[trial]
        archives.must_be_refused("No mirror gave an acceptable by_class.zip", "after 4 attempts")
        archives.cut_at = None
        archives.fetch_again()
    return f"cut at {(size // 10, size // 2, size - 1)[trial]} of {size} bytes"


def wrong_hash(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """A mirror serves a whole archive that is not the one its hash promises. Recovery: the right one is served."""
    archives = Archives(space)
    good = {name: hashlib.sha256(content).hexdigest() for name, content in archives.content.items()}
    other = bytearray(archives.content[FILES[0]])
    other[len(other) // (trial + 2)] ^= 1
    with archives.served() as address:
        archives.mirrors(address, hashes=good)
        archives.replaced = {FILES[0]: bytes(other)}
        archives.must_be_refused("sha256 is", good[FILES[0]])
        archives.replaced = {}
        archives.fetch_again()
    return "refused by its sha256"


def page_as_data(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """A login page comes with status 200: plain (0), after white space (1), as one long page (2)."""
    archives = Archives(space)
    page = (PAGE, b"\r\n  " + PAGE.lower(), PAGE + b"<p>" * 200_000)[trial]
    with archives.served() as address:
        archives.mirrors(address)
        archives.replaced = {FILES[0]: page}
        archives.must_be_refused("a web page came instead of the file")
        archives.replaced = {}
        archives.fetch_again()
    return f"a page of {len(page)} bytes refused"


def offline(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """No mirror answers. Recovery: data.path names a folder with the files (0, 1), or the network is back (2)."""
    archives = Archives(space)
    archives.mirrors(NOBODY, f"{NOBODY}/second")
    archives.must_be_refused("No mirror gave an acceptable by_class.zip", "set data.path")
    if trial == 2:
        with archives.served() as address:
            archives.mirrors(NOBODY, address)
            archives.fetch_again()
        return "the network came back"
    local = _local_copy(space, archives)
    space.write_scenario({"data": {"source": "upstream", "path": str(local) if trial == 0 else "copies"}})
    archives.fetch_again()
    return f"taken from a local folder ({'absolute' if trial == 0 else 'relative'} path)"


def dead_first_mirror(space: Workspace, trial: int, reference: dict[str, Any]) -> str:
    """The first mirror refuses connections (0), answers 404 (1), breaks off (2): the second serves, in one go."""
    archives = Archives(space)
    with archives.served() as address:
        first = (NOBODY, f"{address}/nothing", f"{address}/broken")[trial]
        archives.mirrors(first, address)
        archives.fetch_again()
    if archives.requests < len(FILES):
        raise NotRecovered("the second mirror was not asked")
    return f"{first.rpartition('/')[2]}: the second mirror served"


def _local_copy(space: Workspace, archives: Archives) -> Path:
    folder = space.root / "copies"
    folder.mkdir()
    for name, content in archives.content.items():
        (folder / name).write_bytes(content)
    return folder


def _handler(archives: Archives) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            folder, _, name = self.path.rpartition("/")
            content = archives.replaced.get(name, archives.content.get(name))
            if content is None or folder == "/nothing":
                self.send_error(404)
                return
            archives.requests += folder == ""
            start = self._start(len(content))
            cut = len(content) // 3 if folder == "/broken" else archives.cut_at
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("ETag", '"1"')
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content[start:] if cut is None else content[start:cut])
            self.close_connection = True

        def _start(self, size: int) -> int:
            asked = self.headers.get("Range", "")
            start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
            return start if start < size else 0

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Quiet."""

    return Handler
