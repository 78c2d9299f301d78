"""Tables, captions, the tables' HTML pages, and what the terminal shows."""

from __future__ import annotations

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

from analysis.fake_runs import Fake, grid, write_run, write_runs
from subjectdp.analysis import summary
from subjectdp.analysis.collect import collect_runs
from subjectdp.analysis.report import html_table, write_html_table
from subjectdp.analysis.tables import statistics_comparison, write_runs_summary
from subjectdp.data.statistics import paper_settings
from subjectdp.errors import DataError

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
    assert page.fetched == []
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
    text = environment.from_string(source).render(snakemake=SimpleNamespace(config=config))
    warnings = io.StringIO()
    settings = {"warning_stream": warnings, "report_level": 2}
    page = publish_parts(text, writer="html", settings_overrides=settings)["body"]
    assert warnings.getvalue() == ""
    words = re.sub(r"<[^>]+>", " ", page)
    assert not set("{}`") & set(words)
    if path.stem == "workflow" and "sweep" in config:
        assert page.count("<li>") == 5 + 2
    assert ("Generated glyphs." in words) == ("synthetic_note" in config and "synthetic" in path.read_text())


def test_runs_are_listed_with_their_state(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", Fake("higrad_avg_dp:v1", rounds=8))
    started = tmp_path / "runs" / "femnist-fed_avg-s0-0123456789"
    started.mkdir()
    (started / "progress.log").write_text("round 1/9\nround 2/9 test accuracy 0.1\n")
    broken = write_run(tmp_path / "runs", Fake("local_item_dp", rounds=4))
    (broken / "manifest.json").write_text("{")
    found = {run["run_id"]: run for run in summary.list_runs(tmp_path)}
    assert sorted(run["state"] for run in found.values()) == ["broken", "finished", "unfinished"]
    assert found[started.name]["progress"] == "round 2/9 test accuracy 0.1"
    assert "manifest.json" in found[broken.name]["progress"]
    text = summary.format_list(list(found.values()))
    assert "HiGradAvgDP (v1)" in text and "no guarantee" in text and "145" in text
    assert summary.format_list(summary.list_runs(tmp_path / "nowhere")) == "no runs"


def test_one_run_is_shown_and_two_are_compared(tmp_path: Path) -> None:
    ids = [write_run(tmp_path / "runs", Fake(name, rounds=8)).name for name in ("fed_avg", "local_item_dp")]
    first, second = (summary.show_run(tmp_path, run_id) for run_id in ids)
    text = summary.format_run(first)
    assert "FedAvg  (synthetic data)" in text and "█" in text
    comparison = summary.compare_runs(first, second)
    assert comparison["settings"]["algorithm.name"] == ["fed_avg", "local_item_dp"]
    assert "LocalItemDP" in summary.format_comparison(comparison)
    with pytest.raises(DataError, match="Did you mean"):
        summary.show_run(tmp_path, ids[0][:-1])


def test_the_terminal_curve_reaches_the_top_only_at_its_largest_value() -> None:
    lines = summary.terminal_curve([0.0, 0.5, 1.0, float("nan")], [1, 2, 3, 4]).splitlines()
    bars = [line.split("┤")[1] for line in lines[:-1]]
    assert bars[0] == "  █ "
    assert bars[-1] == " ██ "
    assert [bar[1] for bar in bars] == [" "] * 4 + ["█"] * 4
    with pytest.raises(DataError, match="as many"):
        summary.terminal_curve([1.0], [1, 2])
