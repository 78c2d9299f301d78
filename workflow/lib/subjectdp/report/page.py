"""Pages of the results, by one template, page.html: files that open without a server and ask for nothing."""

import base64
import math
from pathlib import Path
from typing import Any

from jinja2 import Environment

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_text
from subjectdp.results.collect import read_frame

TEMPLATE = Path(__file__).with_name("page.html")
_TYPES = {".csv": "text/csv", ".svg": "image/svg+xml"}


def write_table_page(source_csv: Path | str, target_html: Path | str, title: str) -> None:
    """Writes a CSV as a sortable page that carries it; DataError for a CSV that is missing, empty or without rows."""
    write_page(target_html, title, csv=Path(source_csv), tables=[("", "", read_frame(source_csv, ()))])


def write_page(target: Path | str, title: str, **parts: Any) -> None:
    """Writes page.html with its ``parts``; all text is escaped but captions."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"short": _short, "exact": _exact, "data_uri": data_uri}
    write_text(target, environment.from_string(TEMPLATE.read_text()).render(title=title, **parts))


def data_uri(path: Path) -> str:
    """The content of a CSV or SVG file as a data URI; DataError if it is missing or empty."""
    content = path.read_bytes() if path.is_file() else b""
    if not content:
        raise expected(str(path), "nothing", "a file with content", DataError)
    return f"data:{_TYPES[path.suffix]};base64,{base64.b64encode(content).decode()}"


def _short(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def _exact(value: float) -> str:
    return "Infinity" if math.isinf(value) else repr(float(value))
