"""Tables, captions, and the tables' HTML pages."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from docutils.core import publish_parts
from jinja2 import Environment

from figures.fake_runs import grid, write_runs
from subjectdp.data.statistics import paper_settings
from subjectdp.errors import DataError
from subjectdp.report.report import html_table, write_html_table
from subjectdp.report.tables import statistics_comparison, write_runs_summary
from subjectdp.results.collect import collect_runs

REPORT = Path(__file__).resolve().parents[2] / "workflow" / "report"


def test_the_runs_table_has_a_row_a_setting(tmp_path: Path) -> None:
    fakes = grid(["fed_avg", "local_group_dp", "higrad_avg_dp:v1"], ["femnist"], [0, 1, 2], rounds=8)
    runs = collect_runs(write_runs(tmp_path / "runs", fakes), tmp_path / "runs.parquet")
    write_runs_summary(tmp_path / "runs.parquet", tmp_path / "runs.csv")
    table = pd.read_csv(tmp_path / "runs.csv").set_index("label")
    assert table.index.tolist() == ["FedAvg", "LocalGroupDP", "HiGradAvgDP (v1)"]
    own = runs[runs["label"] == "FedAvg"]["final_test_accuracy"]
    assert table.loc["FedAvg", "test_accuracy_percent"] == pytest.approx(100 * own.sum() / 3, abs=1e-3)
    assert table["seeds"].tolist() == [3, 3, 3]
    assert table["published_guarantee"].fillna("").tolist() == ["", "no", "no"]
    assert np.isnan(table.loc["LocalGroupDP", "epsilon_sound_subject"])
    assert table.loc["HiGradAvgDP (v1)", "epsilon_sound_subject"] == pytest.approx(144.6)
    assert len(table.loc["FedAvg", "run_ids"].split()) == 3


def test_sampling_is_compared_with_the_papers() -> None:
    rows = [(s.name, 0, step, 512, 470 + step, 3) for s in paper_settings()[:3] for step in range(3)]
    frame = pd.DataFrame(rows, columns=["setting", "silo", "step", "items", "subjects", "largest_group"])
    table = statistics_comparison(frame).set_index("setting")
    assert table.loc["femnist", "subjects_difference_percent"] == pytest.approx(100 * (471 / 475 - 1))
    assert np.isnan(table.loc["small_femnist", "subjects_difference_percent"])
    with pytest.raises(DataError, match="settings"):
        statistics_comparison(frame.assign(setting="mine"))


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


SCENARIOS = [
    {
        "name": "embedded",
        "description": "d",
        "synthetic_note": "Generated glyphs.",
        "sweep": [{"seed": [0, 1], "algorithm": "fed_avg"}, {"name": "more: of it", "seed": [7]}],
    },
    {"name": "real"},
    {},
]


@pytest.mark.parametrize("config", SCENARIOS)
@pytest.mark.parametrize("path", sorted(REPORT.glob("*.rst")), ids=lambda path: path.stem)
def test_captions_render_without_complaint(path: Path, config: dict[str, object]) -> None:
    environment = Environment(trim_blocks=True, lstrip_blocks=True)  # as `snakemake --report` renders
    source = path.read_text() + "\n\n.. _Workflow: https://example.org\n"
    text = environment.from_string(source).render(snakemake=SimpleNamespace(config=config, rule=path.stem))
    warnings = io.StringIO()
    settings = {"warning_stream": warnings, "report_level": 2}
    page = publish_parts(text, writer="html", settings_overrides=settings)["body"]
    assert warnings.getvalue() == ""
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert not set("{}`") & set(words)
    if path.stem == "workflow" and "sweep" in config:
        assert page.count("<li>") == 5 + 2
    assert ("Generated glyphs." in words) == ("synthetic_note" in config and "synthetic" in path.read_text())
