"""Tables for the report: one sortable HTML page for each, which needs no other file and no network."""

from __future__ import annotations

import html
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_text

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1rem; color: #202020; background: #fff; }
table { border-collapse: collapse; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #d9d9d9; text-align: left; white-space: nowrap; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.words { max-width: 24rem; overflow: hidden; text-overflow: ellipsis; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #0072b2; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tbody tr:hover { background: #f2f6fa; }
"""
_SCRIPT = """
const table = document.querySelector("table");
const heads = [...table.tHead.rows[0].cells];
function key(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}
heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
  const up = head.getAttribute("aria-sort") !== "ascending";
  heads.forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, two) => {
    const a = key(one, column), b = key(two, column);
    if (a === "" || b === "") return (a === "") - (b === "");
    const numbers = typeof a === "number" && typeof b === "number";
    return (numbers ? a - b : String(a).localeCompare(b)) * (up ? 1 : -1);
  });
  table.tBodies[0].append(...rows);
}));
"""


def html_table(frame: pd.DataFrame, title: str) -> str:
    """A whole HTML page with a sortable table; numbers to four figures, the full value in the cell's title.

    Cells without value are empty and sort last. Raises DataError for a frame without rows.
    """
    if frame.empty:
        raise expected(f"rows of the table {title}", 0, "at least one", DataError)
    head = "".join(f'<th scope="col"><button>{_words(name)}</button></th>' for name in frame.columns)
    body = "\n".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in _rows(frame))
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n"
        f"</table>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def write_html_table(source_csv: Path | str, target_html: Path | str, title: str) -> None:
    """Writes a CSV as a sortable HTML page; DataError for a CSV that is missing, empty or without rows."""
    source = Path(source_csv)
    if not source.is_file() or source.stat().st_size == 0:
        raise expected(str(source), "nothing", "a CSV with content", DataError)
    write_text(target_html, html_table(pd.read_csv(source), title))


def _rows(frame: pd.DataFrame) -> Iterable[tuple[object, ...]]:
    return frame.itertuples(index=False, name=None)


def _words(name: object) -> str:
    return html.escape(str(name).replace("_", " "))


def _cell(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return f"<td>{value}</td>"
    if isinstance(value, int | float | np.integer | np.floating):
        number = float(value)
        if np.isnan(number):
            return "<td></td>"
        full = "Infinity" if np.isinf(number) else repr(number)
        shown = "∞" if np.isinf(number) else f"{number:,.4g}" if abs(number) < 10_000 else f"{number:,.0f}"
        return f'<td class="number" data-value="{full}" title="{full}">{shown}</td>'
    text = "" if value is None else html.escape(str(value))
    return f'<td class="words" title="{text}">{text}</td>'
