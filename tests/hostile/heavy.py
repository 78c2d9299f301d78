"""Inputs made to exhaust memory or time, each read in this process under a limit of both.

    PYTHONPATH=tests:workflow/lib python -m hostile.heavy FOLDER

Prints one line of JSON an input: its name, what came of it, seconds of CPU. The test runs this as a process of its own,
because a limit of memory cannot be taken back.
"""

from __future__ import annotations

import gzip
import json
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from hostile.limits import chunk, limit_memory, limited_time, png_with
from source_files import png, write_zip
from subjectdp.config import load_scenario
from subjectdp.data import femnist, leaf_json, shakespeare
from subjectdp.data.femnist import leaf_pixels
from subjectdp.errors import SubjectDPError

MEMORY_BYTES = 700 << 20
CPU_SECONDS = 20.0
MIB = 1 << 20


def many_entries(path: Path, entries: int, name: str) -> Path:
    """A zip file whose directory lists ``entries`` empty files, without the files."""
    record = struct.Struct("<4s6H3L5H2L")
    names = [f"{name}{number:07d}".encode() for number in range(entries)]
    rows = [record.pack(b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(n), 0, 0, 0, 0, 0, 0) + n for n in names]
    directory = b"".join(rows)
    big = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), 0)
    place = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    path.write_bytes(directory + big + place + end)
    return path


def nested_bomb(folder: Path, depth: int) -> bytes:
    """A zip of zips of zips of zeros."""
    content = bytes(64 * MIB)
    for level in range(depth):
        packed = write_zip(folder / f"level{level}.zip", {f"{level}.bin": content})
        content = packed.read_bytes()
        packed.unlink()
    return content


def _nist(folder: Path, by_write: dict[str, bytes]) -> object:
    image = png(0, side=28)
    write_zip(folder / "by_class.zip", {"by_class/30/hsf_0/a.png": image})
    write_zip(folder / "by_write.zip", by_write)
    return femnist.load_upstream(folder)


def _leaf(folder: Path, *parts: bytes) -> object:
    with open(folder / "all_data.json", "wb") as stream:
        stream.writelines(parts)
    return leaf_json.load("femnist", folder / "all_data.json")


def _text(folder: Path, raw: bytes) -> object:
    (folder / "100.txt").write_bytes(raw)
    return shakespeare.load_upstream(folder)


def _scenario(folder: Path, text: str) -> object:
    (folder / "scenario.yaml").write_text(text)
    return load_scenario(folder / "scenario.yaml")


def _entries_of_leaf(folder: Path) -> object:
    return leaf_json.load("femnist", many_entries(folder / "leaf.zip", 300_000, "x"))


def _overlapping(folder: Path) -> object:
    many_entries(folder / "by_class.zip", 30_000, "by_class/30/hsf_0/")
    many_entries(folder / "by_write.zip", 30_000, "by_write/hsf_0/f0000_14/d/")
    return femnist.load_upstream(folder)


def _declared_huge(folder: Path) -> object:
    path = write_zip(folder / "leaf.zip", {"all_data.json": b"{}" * 50})
    raw = bytearray(path.read_bytes())
    struct.pack_into("<L", raw, raw.index(b"PK\x01\x02") + 24, 0xFFFF_FFF0)
    path.write_bytes(raw)
    return leaf_json.load("femnist", path)


def _deflated_bomb(folder: Path) -> object:
    packed = zipfile.ZipFile(folder / "leaf.zip", "w", zipfile.ZIP_DEFLATED)
    with packed as archive, archive.open("all_data.json", "w") as member:
        for _ in range(300):
            member.write(b" " * MIB)
    return leaf_json.load("femnist", folder / "leaf.zip")


_SPEECH = "  KING. {}\n  FOOL. a\n  KING. b\n  KING. c\n"
_HEAD = "x\nby William Shakespeare\n" + "\n" * 9 + "A PLAY\n\n\nby William Shakespeare\n"
_USER = b'{"users": ["u"], "num_samples": [1], "user_data": {"u": '

CASES: dict[str, Callable[[Path], object]] = {
    "300,000 entries in LEAF's zip": _entries_of_leaf,
    "30,000 entries at one place": _overlapping,
    "a declared size of 4 GB": _declared_huge,
    "300 MB of blanks in a zip": _deflated_bomb,
    "a zip of zips of zeros": lambda folder: _nist(folder, {"by_write/hsf_0/f/d/x.png": nested_bomb(folder, 3)}),
    "a gzip file of 256 MB": lambda folder: _text(folder, gzip.compress(bytes(256 * MIB), 1)),
    "a text of 65 MB": lambda folder: _text(folder, b"word " * (13 * MIB + 100)),
    "a line of 8 MB": lambda folder: _text(folder, (_HEAD + _SPEECH.format("Ay me. " * (MIB + 9))).encode()),
    "a name of 8 MB": lambda folder: _text(folder, f"{_HEAD}  K{'i' * 8 * MIB}. x\n".encode()),
    "8 MB of blanks": lambda folder: _text(folder, (_HEAD + _SPEECH.format(" " * 8 * MIB)).encode()),
    "a million lists in lists": lambda folder: _leaf(folder, _USER, b"[" * 1_000_000),
    "five million lists": lambda folder: _leaf(folder, _USER, b"[", b"[]," * 5_000_000, b"[]]}}"),
    "a string without an end": lambda folder: _leaf(folder, _USER, b'"', b"\\n" * (33 * MIB)),
    "80 MB of blanks": lambda folder: _leaf(folder, b" " * (80 * MIB), b"{}"),
    "a number of 20 MB": lambda folder: _leaf(folder, _USER, b"9" * (20 * MIB), b"}}"),
    "100,000 users of nothing": lambda folder: _leaf(
        folder, b'{"user_data": {', b",".join(b'"%d":{"x":[],"y":[]}' % n for n in range(100_000)), b"}}"
    ),
    "a PNG of 2^31 pixels": lambda folder: leaf_pixels(png_with(2**31 - 1, 1, body=zlib.compress(b""))),
    "a PNG of 60,000 x 60,000": lambda folder: leaf_pixels(png_with(60_000, 60_000, body=zlib.compress(b""))),
    "a PNG that unpacks to 256 MB": lambda folder: leaf_pixels(
        png_with(28, 28, body=zlib.compress(bytes(256 * MIB), 1))
    ),
    "a PNG with a text of 256 MB": lambda folder: leaf_pixels(
        png_with(28, 28, more=chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(256 * MIB), 1)))
    ),
    "aliases of aliases": lambda folder: _scenario(
        folder,
        "name: x\na0: &a0 [x]\n"
        + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)),
    ),
    "unknown keys": lambda folder: _scenario(
        folder, "name: x\nrun:\n" + "".join(f"  key{n}: 1\n" for n in range(12_000))
    ),
    "unknown keys at the top": lambda folder: _scenario(
        folder, "name: x\n" + "".join(f"key{n}: 1\n" for n in range(12_000))
    ),
    "a number of 200,000 digits": lambda folder: _scenario(folder, f"name: x\nrun: {{seed: 0x{'f' * 200_000}}}\n"),
    "a long sexagesimal number": lambda folder: _scenario(folder, f"name: x\nrun: {{seed: 1{':1' * 60_000}}}\n"),
    "a sweep of 10^40 runs": lambda folder: _scenario(
        folder,
        "name: x\nsweep:\n- "
        + "\n  ".join(f"model.parameters.k{n}: {list(range(10))}" for n in range(40)),
    ),
}  # fmt: skip


def main(root: Path) -> None:
    """Reads every case."""
    limit_memory(MEMORY_BYTES)
    for number, (name, read) in enumerate(CASES.items()):
        folder = root / str(number)
        folder.mkdir()
        started = time.process_time()
        try:
            with limited_time(CPU_SECONDS):
                read(folder)
            told, kind = "", "read"
        except SubjectDPError as problem:
            told, kind = str(problem), "refused"
        except BaseException as problem:
            told, kind = f"{type(problem).__name__}: {problem}"[:500], "failed"
        seconds = round(time.process_time() - started, 2)
        print(json.dumps({"name": name, "kind": kind, "told": told, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
