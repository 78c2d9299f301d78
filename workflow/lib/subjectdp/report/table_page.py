"""Tables for the report: one sortable HTML page for each, which carries its CSV and needs no network."""

from __future__ import annotations

import html
from pathlib import Path

import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_text
from subjectdp.report.page import download, page, read_table, table


def html_table(frame: pd.DataFrame, title: str, links: str = "") -> str:
    """A whole page with a sortable table below ``links`` (HTML); DataError for a frame without rows."""
    if frame.empty:
        raise expected(f"rows of the table {title}", 0, "at least one", DataError)
    return page(title, f'<div class="bar">{links}</div>\n{table(frame, "values")}')


def write_html_table(source_csv: Path | str, target_html: Path | str, title: str) -> None:
    """Writes a CSV as a sortable HTML page; DataError for a CSV that is missing, empty or without rows."""
    source = Path(source_csv)
    frame = read_table(source)
    links = f"{download(source, 'Save as CSV')} <code>{html.escape(source.name)}</code>"
    write_text(target_html, html_table(frame, title, links))
