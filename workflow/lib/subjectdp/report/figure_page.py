"""A figure's page in the report: the figure, its panels by name, and the plotted values as table and CSV."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.io.atomic import write_text
from subjectdp.report import page
from subjectdp.results.inputs import read_json

PAGE = ".html"
"""Suffix of the page, beside the figure's other files."""

MOST_ROWS = 300
"""Most rows of values on a page, since longer tables are slow in a browser; the CSV has all of them."""


def write_figure_page(name: str, title: str, folder: Path | str) -> Path:
    """Writes ``<name>.html`` from the files that :func:`subjectdp.figures.panels.write_sheet` left in ``folder``.

    Returns its path. Raises DataError if one of those files is missing or damaged.
    """
    folder = Path(folder)
    facts = read_json(folder / f"{name}.json")
    values = page.read_table(folder / f"{name}.csv")
    parts = [
        page.picture(folder / f"{name}.svg", title, folder / f"{name}.csv"),
        _panels(facts["panels"]),
        _values(values),
        f"<p>Made from {len(facts['runs'])} runs.</p>" if facts["runs"] else "",
    ]
    target = folder / f"{name}{PAGE}"
    write_text(target, page.page(title, "\n".join(parts)))
    return target


def _panels(panels: Sequence[Mapping[str, Any]]) -> str:
    items = []
    for panel in panels:
        heading = html.escape(f"({panel['letter']}) {panel['heading']}")
        note = ' <span class="synthetic">synthetic data</span>' if panel["synthetic"] else ""
        items.append(f"<li>{heading}{note}</li>")
    return f"<h2>Panels</h2><ul>{''.join(items)}</ul>"


def _values(values: pd.DataFrame) -> str:
    shown = values.head(MOST_ROWS)
    cut = f"<p>The first {len(shown):,} of {len(values):,} rows.</p>" if len(shown) < len(values) else ""
    return f"<h2>Plotted values</h2>\n{cut}{page.table(shown, 'values')}"
