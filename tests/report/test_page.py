"""Pages of tables and results: one file each, which says what the tables say; captions render without a complaint."""

import base64
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from docutils.core import publish_parts
from jinja2 import Environment

from figures.fake_runs import grid, write_runs
from subjectdp.errors import DataError
from subjectdp.figures.catalogue import CAPTIONS
from subjectdp.io.atomic import sealed
from subjectdp.report.make_table import make_table
from subjectdp.report.results_page import ResultSources, write_results_page
from subjectdp.report.tables import data_uri, write_table_page
from subjectdp.report.targets import Verdict
from subjectdp.results.collect import FigureInputs, collect_scenario

pytestmark = pytest.mark.slow

TARGETS = Path(__file__).resolve().parents[2] / "config" / "targets.csv"


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
    frame = pd.DataFrame({"name": ["<b>x</b>", "y&z"], "epsilon": [np.inf, 4.123456], "none": [np.nan, 12345.6]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    write_table_page(tmp_path / "t.csv", tmp_path / "t.html", "T <1>")
    page = Page()
    page.feed((tmp_path / "t.html").read_text())
    assert page.cells == ["<b>x</b>", "∞", "", "y&z", "4.123", "12,346"]
    assert all(address.startswith("data:") for address in page.fetched)
    carried = next(address for address in page.fetched if address.startswith("data:text/csv;base64,"))
    assert base64.b64decode(carried.partition(",")[2]) == (tmp_path / "t.csv").read_bytes()
    assert "<title>T &lt;1&gt;</title>" in (tmp_path / "t.html").read_text()


def test_tables_without_rows_or_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(DataError, match="at least one"):
        write_table_page(tmp_path / "t.csv", tmp_path / "t.html", "T")
    with pytest.raises(DataError, match="missing"):
        write_table_page(tmp_path / "missing.csv", tmp_path / "t.html", "T")


CONFIG = {"name": "mine", "description": "Some <b>words</b>.", "synthetic_note": "Generated glyphs.", "phrases": {}}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The page of a made-up scenario with one figure, whose caption lies beside it."""
    folders = write_runs(tmp_path / "runs", grid(["fed_avg", "user_ldp"], ["femnist"], [0, 1], rounds=4))
    collect_scenario(folders, tmp_path)
    another = json.loads((folders[0] / "manifest.json").read_text())
    another["partition"]["counts"]["train_items"] = 900  # of another seed, or of fewer silos
    (folders[0] / "manifest.json").write_text(json.dumps(sealed(another)))
    inputs = FigureInputs(tmp_path / "runs.parquet", tmp_path / "rounds.parquet", targets=TARGETS)
    for name in ("runs_summary", "scorecard"):
        make_table(name, inputs, name, tmp_path / f"{name}.csv", tmp_path / f"{name}.html")
    picture = tmp_path / "figures/privacy/privacy.svg"
    picture.parent.mkdir(parents=True)
    picture.write_text('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"/>')
    tables = (tmp_path / "runs_summary.csv", tmp_path / "scorecard.csv")
    figures = {"privacy": {"title": "Published & sound", "category": "Privacy", "rule": "figure_privacy"}}
    for job, lines in {"figure/mine-privacy": '{"s": 60}\n{"s": 30}\n', "figure/mine-2-privacy": '{"s": 9}\n'}.items():
        (tmp_path / "benchmarks" / job).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "benchmarks" / f"{job}.jsonl").write_text(lines)
    sources = ResultSources(*tables, tuple(folders), tmp_path / "benchmarks", frozenset({"mine", "mine-privacy"}))
    write_results_page(sources, CONFIG, figures, {"scorecard": "All <numbers>"}, tmp_path / "index.html")
    return tmp_path / "index.html"


def test_the_page_of_results_says_what_was_run_and_what_holds(results: Path) -> None:
    page = Page()
    page.feed(results.read_text())
    own = [address for address in page.fetched if not address.startswith("data:")]
    assert own == ["tables/scorecard.html"], "all else is carried"
    texts = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]+>", " ", results.read_text(), flags=re.S)
    words = " ".join(texts.split())
    for told in (
        "mine: runs, and the privacy that each has Some &lt;b&gt;words&lt;/b&gt;. Generated glyphs.",
        "Runs: 4 (FedAvg 2, UserLDP 2);",
        "Data: FEMNIST, generated by this project (source embedded), 60 subjects, 900 to 3,000 training items",
        "Privacy: Published &amp; sound Published and sound ε. One line",
        "All &lt;numbers&gt;",
        "Where the minutes went figure 1 job 1.50 min train: FedAvg 2 jobs",
    ):
        assert told in words, told
    cells = page.cells
    run = cells.index("UserLDP")
    assert cells[run + 2] == "as_published" and "2.25" in cells[run : run + 15], "sound ε beside the published one"
    assert "<details><summary>" in results.read_text() and "No run of this scenario decides one of them." in words
    order = [cell for cell in cells if cell in set(Verdict)]
    assert order[7:] == sorted(order[7:], key=order[:7].index), "the scorecard in the order of the counts"


def test_a_missing_picture_or_column_is_refused(results: Path) -> None:
    folder = results.parent
    sources = ResultSources(folder / "runs_summary.csv", folder / "runs_summary.csv", (), folder, folder)
    with pytest.raises(DataError, match="verdict"):
        write_results_page(sources, CONFIG, {}, {}, results)
    with pytest.raises(DataError, match="other.svg"):
        data_uri(folder / "other.svg")


REPORT = Path(__file__).resolve().parents[2] / "workflow" / "report"
FILES = sorted([*REPORT.glob("*.rst"), *CAPTIONS.glob("*.rst")])

SWEEP = [{"seed": [0, 1], "algorithm": "fed_avg"}, {"name": "more: of it", "seed": [7]}]
GENERATED = {"name": "embedded", "description": "d", "synthetic_note": "Generated glyphs.", "sweep": SWEEP}


@pytest.mark.parametrize("config", [GENERATED, {"name": "real"}, {}])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_captions_render_without_complaint(path: Path, config: dict[str, object]) -> None:
    environment = Environment(trim_blocks=True, lstrip_blocks=True)  # as `snakemake --report` renders
    source = path.read_text() + "\n\n.. _Workflow: https://example.org\n"
    phrases = yaml.safe_load((REPORT / "phrases.yaml").read_text())
    snakemake = SimpleNamespace(config=config | {"phrases": phrases}, rule=path.stem)
    text = environment.from_string(source).render(snakemake=snakemake)
    warnings = io.StringIO()
    settings = {"warning_stream": warnings, "report_level": 2}
    page = publish_parts(text, writer="html", settings_overrides=settings)["body"]
    assert warnings.getvalue() == ""
    words = re.sub(r"<style>.*?</style>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert not set("{}`") & set(words)
    if path.stem == "workflow" and "sweep" in config:
        assert page.count("<li>") == 5 + 2
    assert ("Generated glyphs." in words) == ("synthetic_note" in config and "synthetic_note" in path.read_text())


def test_every_shared_phrase_is_used_and_known() -> None:
    used = {name for path in FILES for name in re.findall(r"phrases\.(\w+)", path.read_text())}
    assert used == set(yaml.safe_load((REPORT / "phrases.yaml").read_text()))
