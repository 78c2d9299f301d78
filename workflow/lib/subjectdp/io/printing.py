"""What commands print: JSON for machines, aligned columns for people."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(content: Any) -> None:
    """Prints strict JSON: a number that is not finite becomes null."""
    print(json.dumps(strict(content), indent=2, sort_keys=False, default=str, allow_nan=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Prints columns as wide as their content; numbers to the right, None as a dash."""
    print("\n".join(table_lines(header, rows)))


def table_lines(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of a table as :func:`print_table` prints them."""
    columns = [[name, *(_text(cell) for cell in cells)] for name, *cells in zip(header, *rows, strict=True)]
    for column in columns:
        width, right = max(map(len, column)), len(column) > 1 and all(map(_is_number, column[1:]))
        column[:] = [cell.rjust(width) if right else cell.ljust(width) for cell in column]
    return ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]


def print_pairs(pairs: Iterable[tuple[str, Any]], indent: str = "") -> None:
    """Prints ``name  value`` lines with aligned values."""
    listed = [(name, _text(value)) for name, value in pairs]
    width = max((len(name) for name, _ in listed), default=0)
    for name, value in listed:
        print(f"{indent}{name.ljust(width)}  {value}".rstrip())


def flattened(content: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested mappings as (dotted key, value) pairs."""
    if not isinstance(content, dict):
        return [(prefix, content)]
    if not content:
        return [(prefix, "{}")] if prefix else []
    pairs = ((f"{prefix}.{key}" if prefix else str(key), value) for key, value in content.items())
    return [pair for key, value in pairs for pair in flattened(value, key)]


def clock(seconds: float) -> str:
    """75 as 1:15, 3700 as 1:01:40."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == "-"
    return True


def strict(content: Any) -> Any:
    """The content with None for NaN and infinity, which JSON does not have."""
    if isinstance(content, dict):
        return {str(key): strict(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [strict(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content
