"""The tutorials' own reader: it must notice a page that no longer fits the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tutorials.follow import blocks, check_output, edit


def test_blocks_are_read_with_their_kind_and_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n```python a/b.py\nx = 1\n```\n\n```console\n$ true\n```\n")
    assert [(b.kind, b.path, b.text) for b in blocks(page)] == [
        ("python", "a/b.py", "x = 1\n"),
        ("console", "", "$ true\n"),
    ]


def test_an_edit_needs_its_place_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_text("a = 1\nb = 2\n")
    edit(path, " a = 1\n-b = 2\n+b = 3\n")
    assert path.read_text() == "a = 1\nb = 3\n"
    with pytest.raises(AssertionError, match="0 places"):
        edit(path, " b = 2\n+c = 4\n")
    path.write_text("a = 1\na = 1\n")
    with pytest.raises(AssertionError, match="2 places"):
        edit(path, " a = 1\n+c = 4\n")


def test_output_is_compared_line_by_line_in_order() -> None:
    check_output("x", "a  b\n...\nd\n", "before\na b\nc\nd\n")
    for wanted in ("a c\n", "d\na b\n"):
        with pytest.raises(AssertionError, match="does not print"):
            check_output("x", wanted, "a b\nc\nd\n")
