"""The report in a real browser: opened from one file, without a network; skipped where there is no browser."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from report.browser import find_browser, screenshot, visit
from subjectdp.report.page import write_table_page

BROWSER = find_browser()
MISSING = "no Chromium or Chrome here (apt-get install chromium, or SUBJECTDP_BROWSER=/path)"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=MISSING)]


def test_tables_sort_and_narrow_and_hand_out_their_csv(tmp_path: Path) -> None:
    frame = pd.DataFrame({"name": ["b", "a", "c", "d"], "epsilon": [10.0, 9.0, None, float("inf")]})
    frame["steps"] = ["12", "5", "one epoch", "100"]  # words and numbers in one column
    frame.to_csv(tmp_path / "t.csv", index=False)
    write_table_page(tmp_path / "t.csv", tmp_path / "t.html", "T")
    script = """
      const rows = () => [...document.querySelectorAll("tbody tr")].filter(row => !row.hidden)
        .map(row => row.cells[0].textContent).join("");
      const [name, epsilon, steps] = document.querySelectorAll("th button");
      const seen = [rows()];
      for (const button of [name, epsilon, epsilon, steps]) { button.click(); seen.push(rows()); }
      const box = document.querySelector("input");
      box.value = "C"; box.dispatchEvent(new Event("input")); seen.push(rows());
      const link = document.querySelector("a[download]");
      return {seen, csv: await (await fetch(link.href)).text(), name: link.download};
    """
    seen = visit(str(BROWSER), tmp_path / "t.html", script)
    assert (seen.problems, seen.requests) == ([], [])
    assert seen.found["seen"] == ["bacd", "abcd", "abdc", "dbac", "abdc", "c"], (
        "as written, by name, by ε up and down, by steps"
    )
    assert (seen.found["name"], seen.found["csv"]) == ("t.csv", (tmp_path / "t.csv").read_text())


def test_a_word_stays_whole_and_a_sentence_is_wrapped(tmp_path: Path) -> None:
    words = {f"column {number}": ["rounds_over_sqrt_s", "LocalGroupDP"] for number in range(30)}
    frame = pd.DataFrame({**words, "sentence": ["several words, " * 20] * 2, "run ids": ["x" * 400] * 2})
    frame.to_csv(tmp_path / "t.csv", index=False)
    write_table_page(tmp_path / "t.csv", tmp_path / "t.html", "T")
    script = """
      const lines = cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
      };
      const cells = [...document.querySelector("tbody tr").cells];
      return [Math.max(...cells.slice(0, 30).map(lines)), lines(cells[30]) > 2, cells[31].offsetWidth < 600];
    """
    seen = visit(str(BROWSER), tmp_path / "t.html", script)
    assert (seen.problems, seen.found) == ([], [1, True, True])


def test_the_browser_itself_would_tell_of_errors_and_requests(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text(
        "<html><body><img src='http://example.org/x.png'><script>nothing.here()</script></body></html>"
    )
    seen = visit(str(BROWSER), page, "return document.images[0].naturalWidth;")
    assert seen.found == 0
    assert any("nothing is not defined" in problem for problem in seen.problems)
    assert "http://example.org/x.png" in seen.requests


def test_a_screenshot_shows_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<html><body style='background: #0072b2; margin: 0'></body></html>")
    screenshot(str(BROWSER), page, tmp_path / "page.png", 300, 200)
    with Image.open(tmp_path / "page.png") as picture:
        assert picture.convert("RGB").getpixel((100, 100)) == (0, 0x72, 0xB2)
