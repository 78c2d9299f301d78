"""docs/extending.md is current, and modules import one another in no circles but the named ones."""

import re

import pytest

import architecture

CIRCLES: dict[bool, list[list[str]]] = {
    False: [],
    # splits names, for the type checker, the Content that it divides
    True: [["data.content", "data.splits"]],
}
"""Modules that import one another: at run time, and with the imports that only a type checker reads."""


def without_numbers(text: str) -> str:
    """Line counts change with every commit; they need not be exact."""
    return re.sub(r"\d[\d,]*", "N", text)


def test_the_page_is_current() -> None:
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert without_numbers(architecture.updated(page)) == without_numbers(page), "make architecture"
    (total,) = re.findall(r"all of them.* ([\d,]+) \|", page)
    written, now = int(total.replace(",", "")), sum(map(architecture.lines, sum(architecture.layers(), [])))
    assert abs(written - now) < 0.1 * now, "make architecture"


@pytest.mark.parametrize("type_checking", CIRCLES)
def test_modules_import_one_another_in_the_named_circles_only(type_checking: bool) -> None:
    assert list(architecture.circles(architecture.import_graph(type_checking))) == CIRCLES[type_checking]
