"""Archives that are broken or hostile are refused; good ones are read to the byte."""

import gzip
import struct
import zipfile
from pathlib import Path

import pytest

from source_files import write_zip
from subjectdp.data.archives import LARGEST_FILE, find_text, open_archive, read_text_file
from subjectdp.errors import DataError

FILES = {"b/two.bin": bytes(range(256)) * 50, "a/one.txt": b"hello", "empty": b""}


def _names(path: Path, largest: int = LARGEST_FILE) -> list[str]:
    with open_archive(path, largest) as archive:
        return [member.name for member in archive.members]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_sorted_and_read_exactly(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.mkdir("folder")
        for name, content in FILES.items():
            archive.writestr(name, content)
    with open_archive(path) as archive:
        assert [member.name for member in archive.members] == sorted(FILES)
        for member in archive.members:
            assert archive.read(member) == FILES[member.name]
            with archive.open(member) as stream:
                assert stream.read() == FILES[member.name]


def test_a_folder_reads_like_a_zip(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).write_bytes(content)
    with open_archive(tmp_path / "top") as archive:
        assert [member.name for member in archive.members] == sorted(FILES)
        assert {member.name: archive.read(member) for member in archive.members} == FILES


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"secret": b"x" * 100})
    raw = bytearray(path.read_bytes())
    directory = raw.index(b"PK\x01\x02")
    raw[directory + 8] |= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="encrypted"):
        _names(path)


def test_an_unread_method_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x", b"y" * 100)
    with pytest.raises(DataError, match="method 14"):
        _names(path)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"zeros": bytes(8 << 20)})
    with pytest.raises(DataError, match="bomb"):
        _names(path)


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", FILES)
    with pytest.raises(DataError, match="two.bin has 12800 bytes, more than 12799"):
        _names(path, largest=12_799)
    _names(path, largest=12_800)
    with pytest.raises(DataError, match="more than 100 bytes"):
        read_text_file(write_zip(tmp_path / "b.zip", {"a.txt": b"x" * 101}), largest=100)


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning):
        archive.writestr("x", b"1")
        archive.writestr("x", b"2")
    with pytest.raises(DataError, match="twice"):
        _names(path)


@pytest.mark.parametrize("name", ["a\nb", "a\u202eb", "a" * 2000])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(DataError, match="too long or cannot be printed"):
        _names(tmp_path / "a.zip")


@pytest.mark.parametrize("content", [b"", b"PK", b"<html>not a zip</html>", b"PK\x03\x04" + bytes(100), None])
def test_what_is_no_zip_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = write_zip(tmp_path / "a.zip", FILES)
    path.write_bytes(path.read_bytes()[:-30] if content is None else content)
    with pytest.raises(DataError, match="not a readable zip file"):
        _names(path)


def test_missing_and_empty_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        _names(tmp_path / "missing.zip")
    with pytest.raises(DataError, match="holds no file"):
        _names(tmp_path)


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


@pytest.mark.parametrize("packing", ["plain", "gzip", "zip"])
def test_a_text_is_read_from_each_packing(tmp_path: Path, packing: str) -> None:
    text = b"Enter KING.\n" * 1000
    path = tmp_path / "text"
    if packing == "zip":
        write_zip(path, {"100.txt": text, "readme.md": b"no"})
    else:
        path.write_bytes(gzip.compress(text) if packing == "gzip" else text)
    assert read_text_file(path) == text


@pytest.mark.parametrize(
    ("present", "found"),
    [
        (["100.txt", "other.txt"], "100.txt"),
        (["raw.txt.gz", "100.txt.zip", "other.txt"], "100.txt.zip"),
        (["images.zip", "text.txt.gz", "readme.md"], "text.txt.gz"),
        (["1994-01-100.zip", "readme.md"], "1994-01-100.zip"),
        (["a.txt", "b.txt.gz"], None),
        (["a.zip", "b.zip"], None),
        (["readme.md"], None),
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


def test_bad_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(gzip.compress(b"words " * 1000)[:-20])
    with pytest.raises(DataError, match="damaged gzip"):
        read_text_file(path)
    path.write_bytes(gzip.compress(bytes(8 << 20)))
    with pytest.raises(DataError, match="more than 1000 bytes"):
        read_text_file(path, largest=1000)
    write_zip(path, {"a.txt": b"1", "b.txt": b"2"})
    with pytest.raises(DataError, match=r"one \.txt file"):
        read_text_file(path)
    with pytest.raises(DataError, match="does not exist"):
        read_text_file(tmp_path / "missing")
