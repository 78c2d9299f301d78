"""Archives that are broken or hostile are refused; good ones are read to the byte."""

from __future__ import annotations

import gzip
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from source_files import write_zip
from subjectdp.data.archives import (
    Limits,
    MemberReader,
    find_text,
    open_archive,
    read_member,
    read_text_file,
    stream_member,
)
from subjectdp.errors import DataError

FILES = {"b/two.bin": bytes(range(256)) * 50, "a/one.txt": b"hello", "empty": b""}


def _entry(name: str, mode: int = 0o100644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def _zip_with(path: Path, info: zipfile.ZipInfo, content: bytes = b"x") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(info, content)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_sorted_and_read_exactly(tmp_path: Path, method: int) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.mkdir("folder")
        for name, content in FILES.items():
            archive.writestr(name, content)
    listed = open_archive(path)
    assert [member.name for member in listed.members] == sorted(FILES)
    with MemberReader(path) as reader:
        for member in listed.members:
            assert read_member(path, member) == reader.read(member) == FILES[member.name]
            with stream_member(path, member) as stream:
                assert stream.read() == FILES[member.name]


def test_a_folder_reads_like_a_zip(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).write_bytes(content)
    listed = open_archive(tmp_path / "top")
    assert [member.name for member in listed.members] == sorted(FILES)
    with MemberReader(listed.path) as reader:
        assert {member.name: reader.read(member) for member in listed.members} == FILES


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("../evil.txt", "path traversal"),
        ("a/../../evil.txt", "path traversal"),
        ("a\\..\\evil.txt", "path traversal"),
        ("/etc/passwd", "absolute"),
        ("C:/evil.txt", "absolute"),
    ],
)
def test_unsafe_names_are_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        open_archive(_zip_with(tmp_path / "a.zip", _entry(name)))


def test_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="symbolic link"):
        open_archive(_zip_with(tmp_path / "a.zip", _entry("link", stat.S_IFLNK | 0o777), b"/etc/passwd"))


def test_an_encrypted_entry_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"secret": b"x" * 100})
    raw = bytearray(path.read_bytes())
    directory = raw.index(b"PK\x01\x02")
    raw[directory + 8] |= 1
    path.write_bytes(raw)
    with pytest.raises(DataError, match="encrypted"):
        open_archive(path)


def test_an_unread_method_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x", b"y" * 100)
    with pytest.raises(DataError, match="method 14"):
        open_archive(path)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"zeros": bytes(8 << 20)})
    with pytest.raises(DataError, match="bomb"):
        open_archive(path)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(entries=2), "3 entries"),
        (Limits(member_bytes=1000), "12800 bytes unpacked"),
        (Limits(total_bytes=12_000), "more than 12000 bytes"),
    ],
)
def test_limits_are_enforced(tmp_path: Path, limits: Limits, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        open_archive(write_zip(tmp_path / "a.zip", FILES), limits)


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    """Many directory entries that point at one local entry: more packed bytes in all than the file has."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x0", bytes(range(256)) * 40)
    raw = path.read_bytes()
    start, end = raw.index(b"PK\x01\x02"), raw.index(b"PK\x05\x06")
    entries = b"".join(raw[start:end].replace(b"x0", f"x{i}".encode()) for i in range(5))
    tail = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 5, 5, len(entries), start, 0)
    path.write_bytes(raw[:start] + entries + tail)
    with pytest.raises(DataError, match="overlap"):
        open_archive(path)


def test_the_same_name_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning):
        archive.writestr("x", b"1")
        archive.writestr("x", b"2")
    with pytest.raises(DataError, match="twice"):
        open_archive(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"<html>not a zip</html>", b"PK\x03\x04" + bytes(100)])
def test_what_is_no_zip_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(DataError, match="not a readable zip file"):
        open_archive(path)


def test_a_truncated_zip_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", FILES)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match="truncated or corrupt"):
        open_archive(path)


def test_missing_and_empty_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_archive(tmp_path / "missing.zip")
    with pytest.raises(DataError, match="holds no file"):
        open_archive(tmp_path)


def test_a_damaged_member_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"x": bytes(range(256)) * 50})
    archive = open_archive(path)
    raw = bytearray(path.read_bytes())
    raw[60] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(DataError, match="damaged"):
        read_member(path, archive.members[0])
    with pytest.raises(DataError, match="damaged"), stream_member(path, archive.members[0]) as stream:
        stream.read()


def test_a_changed_byte_of_a_stored_member_is_noticed(tmp_path: Path) -> None:
    path = _zip_with(tmp_path / "a.zip", _entry("x"), b"some stored bytes")
    (member,) = open_archive(path).members
    path.write_bytes(path.read_bytes().replace(b"some stored", b"some STORED"))
    with pytest.raises(DataError, match="checksum"):
        read_member(path, member)


def test_a_member_beyond_the_end_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.zip", {"x": b"y" * 10})
    member = open_archive(path).members[0]._replace(offset=10_000)
    with pytest.raises(DataError, match="no local header"):
        read_member(path, member)


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
    with pytest.raises(DataError, match="bomb"):
        read_text_file(path)
    write_zip(path, {"a.txt": b"1", "b.txt": b"2"})
    with pytest.raises(DataError, match=r"one \.txt file"):
        read_text_file(path)
    with pytest.raises(DataError, match="does not exist"):
        read_text_file(tmp_path / "missing")
