"""Archives, names and texts that are broken or hostile are refused; good archives are read to the byte."""

import gzip
import os
import re
import struct
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hostile.limits import check_message
from source_files import etext, leaf_femnist, leaf_shakespeare, write_document, write_zip
from subjectdp.data import archives, leaf_json, shakespeare
from subjectdp.data.archives import LARGEST_FILE, describe, find_table, find_text, load_sources, open_archive
from subjectdp.data.content import check_content
from subjectdp.errors import ConfigError, DataError

FILES = {"b/two.bin": bytes(range(256)) * 50, "a/one.txt": b"hello", "empty": b""}


def _names(path: Path, largest: int = LARGEST_FILE) -> list[str]:
    with open_archive(path, largest) as archive:
        return [member.name for member in archive.members]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, None])
def test_members_are_sorted_and_read_exactly(tmp_path: Path, method: int | None) -> None:
    """In a zip, and in a folder."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method or 0) as archive:
        archive.mkdir("folder")
        for name, content in FILES.items():
            archive.writestr(name, content)
        archive.extractall(tmp_path / "top")
    with open_archive(tmp_path / "top" if method is None else path) as archive:
        assert [member.name for member in archive.members] == sorted(FILES)
        for member in archive.members:
            assert archive.read(member) == FILES[member.name]
            with archive.open(member) as stream:
                assert stream.read() == FILES[member.name]


def _encrypted(path: Path) -> None:
    raw = bytearray(write_zip(path, {"secret": b"x" * 100}).read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)


def _zip(*names: str, method: int = zipfile.ZIP_STORED) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w", method) as archive, warnings.catch_warnings(action="ignore"):
            for name in names:
                archive.writestr(name, b"y" * 100)

    return write


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_encrypted, "encrypted"),
        (_zip("x", method=zipfile.ZIP_LZMA), "method 14"),
        (lambda path: write_zip(path, {"zeros": bytes(8 << 20)}), "bomb"),
        (_zip("x", "x"), "twice"),
        *((_zip(name), "too long or cannot be printed") for name in ("a\nb", "a\u202eb", "a" * 2000)),
        *(
            (_bytes(raw), "not a readable zip")
            for raw in (b"", b"PK", b"<html>not a zip</html>", b"PK\x03\x04" + bytes(100))
        ),
        (lambda path: path.write_bytes(write_zip(path, FILES).read_bytes()[:-30]), "not a readable zip file"),
        (lambda path: None, "does not exist"),
        (Path.mkdir, "holds no file"),
    ],
)
def test_what_is_no_good_archive_is_refused(tmp_path: Path, make: Callable[[Path], object], problem: str) -> None:
    make(tmp_path / "a.zip")
    with pytest.raises(DataError, match=problem):
        _names(tmp_path / "a.zip")


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", FILES)
    with pytest.raises(DataError, match="two.bin has 12800 bytes, more than 12799"):
        _names(path, largest=12_799)
    _names(path, largest=12_800)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_refused(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("x", bytes(range(256)) * 50)
    raw = bytearray(path.read_bytes())
    raw[60] ^= 0xFF
    path.write_bytes(raw)
    with open_archive(path) as archive:
        with pytest.raises(DataError, match="damaged"):
            archive.read(archive.members[0])
        with pytest.raises(DataError, match="damaged"), archive.open(archive.members[0]) as stream:
            while stream.read(1000):
                pass


def test_a_damaged_header_is_not_quoted_at_length(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("x", bytes(100_000))
    raw = bytearray(path.read_bytes())
    struct.pack_into("<H", raw, 26, 60_000)  # length of the name in the local header
    path.write_bytes(raw)
    with open_archive(path) as archive, pytest.raises(DataError, match="damaged") as caught:
        archive.read(archive.members[0])
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("declared", "problem"), [(10, "damaged"), (30, "its size differs")])
def test_a_wrong_size_is_refused(tmp_path: Path, declared: int, problem: str) -> None:
    path = write_zip(tmp_path / "a.zip", {"x": b"twenty bytes of text"})
    raw = bytearray(path.read_bytes())
    struct.pack_into("<L", raw, raw.index(b"PK\x01\x02") + 24, declared)
    path.write_bytes(raw)
    with open_archive(path) as archive, pytest.raises(DataError, match=problem):
        archive.read(archive.members[0])


@pytest.mark.parametrize(
    ("present", "found"),
    [
        (["100.txt", "other.txt"], "100.txt"),
        (["raw.txt.gz", "100.txt.zip", "other.txt"], "100.txt.zip"),
        (["images.zip", "text.txt.gz", "readme.md"], "text.txt.gz"),
        (["1994-01-100.zip", "readme.md"], "1994-01-100.zip"),
        *((present, None) for present in (["a.txt", "b.txt.gz"], ["a.zip", "b.zip"], ["readme.md"])),
    ],
)
def test_which_file_of_a_folder_is_the_text(tmp_path: Path, present: list[str], found: str | None) -> None:
    for name in present:
        (tmp_path / name).write_bytes(b"x")
    if found is not None:
        assert find_text(tmp_path, ["100.txt"]) == tmp_path / found
        return
    with pytest.raises(DataError, match="candidates"):
        find_text(tmp_path, ["100.txt"])


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_bytes(gzip.compress(b"words " * 1000)[:-20]), "damaged gzip"),
        (_bytes(gzip.compress(bytes(8 << 20))), "more than 1000 bytes"),
        (lambda path: write_zip(path, {"a.txt": b"x" * 1001}), "more than 1000 bytes"),
        (lambda path: write_zip(path, {"a.txt": b"1", "b.txt": b"2"}), r"one \.txt file"),
        (lambda path: None, "does not exist"),
    ],
)
def test_bad_texts_are_refused(tmp_path: Path, make: Callable[[Path], object], problem: str) -> None:
    make(tmp_path / "text")
    with pytest.raises(DataError, match=problem):
        archives.read_text_file(tmp_path / "text", largest=1000)


GOOD = """femnist:
  license: free
  files: {a.zip: {format: zip, mirrors: [{url: "https://x/a.zip", bytes: null, sha256: null}]}}
"""


@pytest.mark.parametrize(
    ("dataset", "files"), [("femnist", ["by_class.zip", "by_write.zip"]), ("shakespeare", ["100.txt"])]
)
def test_the_projects_table(dataset: str, files: list[str]) -> None:
    licence, sources = load_sources(dataset)
    assert [file.name for file in sources] == files and licence != ""
    assert all(len({mirror.url for mirror in file.mirrors}) >= 2 for file in sources)


def test_the_table_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = find_table().read_bytes()
    monkeypatch.chdir(tmp_path)
    assert find_table().read_bytes() == here


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (".*", "", "a mapping"),
        (".*", "a: [", "plain YAML"),
        ("femnist", "femnits", "Did you mean 'femnits'"),
        ("  license", "  licence: x\n  license", "femnist.licence: Extra inputs"),
        ("  license: free\n", "", "femnist.license: Field required"),
        ("files: .*", "files: {}", "femnist.files: .* at least 1 item"),
        ("files: .*", "files: {../a: {}}", "femnist.files.../a"),
        ("format: zip", "format: tar", "format: Input should be 'zip', 'gzip', 'binary' or 'text', got 'tar'"),
        (r"mirrors: .*\]", "mirrors: none", "mirrors: .* valid list, got 'none'"),
        ("https", "ftp", "url: .* got 'ftp://x/a.zip'"),
        ("bytes: null", "bytes: true", "bytes: .* valid integer, got True"),
        ("sha256: null", "sha256: abc", "sha256: .* got 'abc'"),
        ("bytes: null, ", "", "bytes: Field required"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "datasets.yaml"
    path.write_text(GOOD)
    assert load_sources("femnist", path)[1][0].mirrors[0].url == "https://x/a.zip"
    path.write_text(re.sub(old, new, GOOD, count=1, flags=re.DOTALL))
    with pytest.raises(ConfigError, match=problem):
        load_sources("femnist", path)


@pytest.mark.parametrize("target", [None, "/dev/zero", "nothing", ".."])
def test_what_is_no_file_is_refused(tmp_path: Path, target: str | None) -> None:
    """A pipe, and links."""
    path = tmp_path / "all_data_0.json"
    os.mkfifo(path) if target is None else path.symlink_to(target)
    with pytest.raises(DataError, match="is not a plain file"):
        leaf_json.load("femnist", tmp_path)


# --- LEAF's JSON --------------------------------------------------------------------------------------------

LENGTHS = ["", "   ", "a" * 201, "a" * 1_000_000]
SYMBOLS = ["a\nb", "a\0b", "a\u202eb", "a\u200bb", "\ud800", "\x1b[2J"]  # a turn, an invisible one, half a symbol, ...


@pytest.mark.parametrize("name", LENGTHS + SYMBOLS, ids=lambda name: ascii(name)[:20])
@pytest.mark.parametrize("where", ["user", "play"])
def test_an_odd_name_is_refused(tmp_path: Path, name: str, where: str) -> None:
    text = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough"
    document = leaf_shakespeare({name if where == "user" else "u": text}, play=name if where == "play" else "P")
    path = write_document(tmp_path / "all_data.json", document)
    with pytest.raises(DataError, match=f"all_data.json.* a {where}'s name of 1 to 200 printable char") as caught:
        leaf_json.load("shakespeare", path)
    check_message(str(caught.value))


ALIKE = [("\u00e9", "e\u0301"), ("\uff46", "f"), ("f ", "f"), ("\u2163", "IV"), ("007", "7.0")]


@pytest.mark.parametrize(
    ("one", "other", "problem"),
    [
        *((*pair, "cannot be told apart") for pair in ALIKE),
        *(("Ann", other, "differ in capitals alone") for other in ("ann", " ann", "\uff41\uff4e\uff4e")),
    ],
)
def test_names_that_look_alike_are_refused(tmp_path: Path, one: str, other: str, problem: str) -> None:
    path = write_document(tmp_path / "all_data.json", leaf_femnist({one: 3, other: 3}))
    with pytest.raises(DataError, match=problem):
        check_content(leaf_json.load("femnist", path))


# --- the e-text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_a_symbol_that_may_end_a_line_does_not(tmp_path: Path, separator: str) -> None:
    """Python's splitlines ends lines there, and the rest of the speech would be lost without a word."""
    path = tmp_path / "100.txt"
    path.write_text(etext().replace("glorious summer", f"glorious{separator}summer"), encoding="utf-8")
    with pytest.raises(DataError, match="outside of LEAF's 80"):
        shakespeare.load_upstream(path)


@pytest.mark.parametrize("title", ["A PLAY\tOF TESTS", "A " * 150 + "PLAY"])
def test_an_odd_title_is_refused(tmp_path: Path, title: str) -> None:
    (tmp_path / "100.txt").write_text(etext().replace("A PLAY OF TESTS", title))
    with pytest.raises(DataError, match="name of 1 to 200 printable characters"):
        check_content(shakespeare.load_upstream(tmp_path))


def test_an_edit_that_sets_the_time_back_is_seen(tmp_path: Path) -> None:
    data, known = tmp_path / "data.csv", tmp_path / "known.json"
    data.write_text("0.1")
    first, time_of_content = describe(data, known), data.stat().st_mtime_ns
    time.sleep(0.05)  # of a coarse clock
    data.write_text("9.1")
    os.utime(data, ns=(time_of_content, time_of_content))
    assert describe(data, known) == describe(data) != first
