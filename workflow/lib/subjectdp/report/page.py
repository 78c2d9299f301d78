"""Self-contained HTML pages of the report: style, sortable tables and pictures in one file, no network needed.

Style and script are texts of this module and no files, so that the code fingerprint covers them.
"""

from __future__ import annotations

import base64
import html
from pathlib import Path

import numpy as np
import pandas as pd

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_text

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 1rem; color: #202020; background: #fff; }
h1 { font-size: 1.3rem; margin: 0 0 0.5rem; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 0.5rem; }
p, ul { max-width: 60rem; }
a { color: #00568f; }
code { background: #f2f4f6; padding: 0.1rem 0.3rem; }
img { max-width: 100%; height: auto; }
.picture { width: 58rem; }
table { border-collapse: collapse; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #d9d9d9; text-align: left; vertical-align: top; }
td { white-space: nowrap; }
thead th { position: sticky; top: 0; background: #fff; box-shadow: 0 1px 0 #808080; vertical-align: bottom; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.words { white-space: normal; min-width: 6rem; max-width: 28rem; overflow-wrap: break-word; }
td.long { min-width: 22rem; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid #0072b2; }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
tbody tr:hover { background: #f2f6fa; }
input[type=search] { font: inherit; padding: 0.2rem 0.5rem; width: 18rem; max-width: 90%; }
.bar { display: flex; flex-wrap: wrap; gap: 0.5rem 1.5rem; align-items: baseline; margin: 0.5rem 0 0.8rem; }
.synthetic { color: #a00000; font-style: italic; }
"""
_SCRIPT = """
function key(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
}
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((one, two) => {
      const a = key(one, column), b = key(two, column);
      if (a === "" || b === "") return (a === "") - (b === "");
      const numbers = typeof a === "number" && typeof b === "number";
      const order = numbers ? a - b : String(a).localeCompare(b, undefined, {numeric: true});
      return order * (up ? 1 : -1);
    });
    table.tBodies[0].append(...rows);
  }));
}
function searchable(box) {
  const rows = [...document.getElementById(box.dataset.table).tBodies[0].rows];
  const count = box.nextElementSibling;
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\\s+/);
    rows.forEach(row => {
      row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    });
    count.textContent = rows.filter(row => !row.hidden).length + " of " + rows.length + " rows";
  });
}
document.querySelectorAll("a[data-of]").forEach(link => {
  link.href = document.getElementById(link.dataset.of).src;
});
document.querySelectorAll("table").forEach(sortable);
document.querySelectorAll("input[type=search]").forEach(searchable);
"""
_LONG = 60  # characters: longer texts get a wider column
_ICON = '<link rel="icon" href="data:,">'  # without one a browser asks the server for favicon.ico
_TYPES = {".csv": "text/csv", ".png": "image/png", ".svg": "image/svg+xml"}


def page(title: str, body: str) -> str:
    """A whole HTML page with the heading ``title``; ``body`` is HTML."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title>{_ICON}'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{body}\n"
        f"<script>{_SCRIPT}</script>\n</body>\n</html>\n"
    )


def table(frame: pd.DataFrame, name: str) -> str:
    """A table as HTML: a click on a column's head sorts it, a search box filters its rows.

    Numbers have four significant digits; the cell's title has the full value. Missing values are empty and sort last.
    ``name`` is the table's id in the page. Raises DataError for a frame without rows.
    """
    if frame.empty:
        raise expected(f"rows of the table {name}", 0, "at least one", DataError)
    head = "".join(f'<th scope="col"><button>{_words(column)}</button></th>' for column in frame.columns)
    rows = frame.itertuples(index=False, name=None)
    body = "\n".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return (
        f'<div class="bar"><label>Rows with <input type="search" data-table="{html.escape(name)}"> '
        f"<span>{len(frame)} rows</span></label></div>\n"
        f'<table id="{html.escape(name)}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
    )


def html_table(frame: pd.DataFrame, title: str, links: str = "") -> str:
    """A whole page with a sortable table below ``links`` (HTML); DataError for a frame without rows."""
    return page(title, f'<div class="bar">{links}</div>\n{table(frame, "values")}')


def write_html_table(source_csv: Path | str, target_html: Path | str, title: str) -> None:
    """Writes a CSV as a sortable HTML page; DataError for a CSV that is missing, empty or without rows."""
    source = Path(source_csv)
    frame = read_table(source)
    links = f"{download(source, 'Save as CSV')} <code>{html.escape(source.name)}</code>"
    write_text(target_html, html_table(frame, title, links))


def read_table(path: Path) -> pd.DataFrame:
    """A CSV as a frame; DataError if it is missing or empty."""
    if not path.is_file() or path.stat().st_size == 0:
        raise expected(str(path), "nothing", "a CSV with content", DataError)
    return pd.read_csv(path)


def data_uri(path: Path) -> str:
    """The content of a CSV, PNG or SVG file as a data URI; DataError if it is missing or empty."""
    content = path.read_bytes() if path.is_file() else b""
    if not content:
        raise expected(str(path), "nothing", "a file with content", DataError)
    return f"data:{_TYPES[path.suffix]};base64,{base64.b64encode(content).decode()}"


def download(path: Path, words: str) -> str:
    """A link that saves a copy of the file, embedded in the page; HTML."""
    return f'<a download="{html.escape(path.name)}" href="{data_uri(path)}">{html.escape(words)}</a>'


def picture(path: Path, title: str, values: Path) -> str:
    """A picture, and links that save it and the CSV of its values, each embedded once; HTML."""
    name = html.escape(path.name)
    return (
        f'<div class="bar"><span>Save as <a download="{name}" data-of="{name}" href="#">SVG</a> '
        f"{download(values, 'CSV')}</span></div>\n"
        f'<img id="{name}" class="picture" alt="{html.escape(title)}" src="{data_uri(path)}">'
    )


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
    return f'<td class="words{" long" if len(text) > _LONG else ""}">{text}</td>'
