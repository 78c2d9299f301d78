"""Facts that are kept: computed once for each content, and never taken from a file that is not to be trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subjectdp.config.kept_facts import KeptFacts
from subjectdp.errors import StorageError


def never() -> None:
    raise AssertionError("computed again")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    facts = KeptFacts(tmp_path / "folder" / "facts.json", "reader 1")
    assert facts.fact(b"some text", lambda: [1, 2]) == [1, 2]
    facts.write()
    return tmp_path / "folder" / "facts.json"


def test_another_process_finds_a_fact(file: Path) -> None:
    assert KeptFacts(file, "reader 1").fact(b"some text", never) == [1, 2]


def test_another_content_or_reader_has_other_facts(file: Path) -> None:
    assert KeptFacts(file, "reader 1").fact(b"some texT", lambda: 3) == 3
    assert KeptFacts(file, "reader 2").fact(b"some text", lambda: 4) == 4


@pytest.mark.parametrize("damage", ["", "{}", "[]", "{", '"facts"'])
def test_a_damaged_file_is_not_read_but_replaced(file: Path, damage: str) -> None:
    file.write_text(damage)
    facts = KeptFacts(file, "reader 1")
    assert facts.fact(b"some text", lambda: 5) == 5
    facts.write()
    assert KeptFacts(file, "reader 1").fact(b"some text", never) == 5


def test_an_edited_fact_is_not_read(file: Path) -> None:
    content = json.loads(file.read_text())
    content["facts"] = dict.fromkeys(content["facts"], "edited")
    file.write_text(json.dumps(content))
    assert KeptFacts(file, "reader 1").fact(b"some text", lambda: 6) == 6


def test_nothing_new_writes_nothing(file: Path) -> None:
    facts, before = KeptFacts(file, "reader 1"), file.stat().st_mtime_ns
    facts.fact(b"some text", never)
    facts.write()
    assert file.stat().st_mtime_ns == before


def test_a_library_that_cannot_be_written_to_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("no")

    monkeypatch.setattr("subjectdp.config.kept_facts.write_bytes", full)
    facts = KeptFacts(tmp_path / "facts.json", "reader")
    assert facts.fact(b"text", lambda: 7) == 7
    facts.write()
    assert list(tmp_path.iterdir()) == []


def test_facts_of_old_versions_are_dropped(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subjectdp.config.kept_facts._MOST", 1)
    facts = KeptFacts(file, "reader 1")
    facts.fact(b"new text", lambda: 8)
    facts.write()
    again = KeptFacts(file, "reader 1")
    assert again.fact(b"new text", never) == 8
    assert again.fact(b"some text", lambda: "gone") == "gone"
