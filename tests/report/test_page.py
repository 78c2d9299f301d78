"""Tables as HTML pages that stand alone."""

from __future__ import annotations

import base64
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from subjectdp.errors import DataError
from subjectdp.report.page import html_table, write_html_table


class Page(HTMLParser):
    """Cells and anything that would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.fetched: list[str] = []
        self._cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(value) for name, value in attrs if name in ("src", "href")]
        self._cell = tag == "td"
        if self._cell:
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.cells[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._cell = False


def test_html_tables_stand_alone_and_escape_their_content(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"name": ["<b>x</b>", "y&z"], "epsilon": [np.inf, 4.123456], "none": [np.nan, 12345.6]}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    write_html_table(tmp_path / "t.csv", tmp_path / "t.html", "T <1>")
    page = Page()
    page.feed((tmp_path / "t.html").read_text())
    assert page.cells == ["<b>x</b>", "∞", "", "y&z", "4.123", "12,346"]
    assert all(address.startswith("data:") for address in page.fetched)
    carried = next(address for address in page.fetched if address.startswith("data:text/csv;base64,"))
    assert base64.b64decode(carried.partition(",")[2]) == (tmp_path / "t.csv").read_bytes()
    assert "<title>T &lt;1&gt;</title>" in (tmp_path / "t.html").read_text()


def test_tables_without_rows_or_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="at least one"):
        html_table(pd.DataFrame({"a": []}), "T")
    with pytest.raises(DataError, match="missing"):
        write_html_table(tmp_path / "missing.csv", tmp_path / "t.html", "T")
