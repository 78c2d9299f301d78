"""What every figure is: its files, its values, a picture that can be read, what it refuses; one drawing each."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from benchmarks import scale
from figures.made_up import MADE
from subjectdp.config import scenario
from subjectdp.errors import DataError
from subjectdp.figures import panels
from subjectdp.figures.catalogue import FIGURES, SUFFIXES, TABLES, _entry, build_figure, drawn_by, entry, make_figure
from subjectdp.figures.panels import VALUE_COLUMNS, Sheet
from subjectdp.results.collect import FigureInputs
from subjectdp.results.shown_runs import Shown, settings_of

EACH = pytest.mark.parametrize("name", FIGURES)
Made = Callable[[str], FigureInputs]
Drawn = Callable[[str], tuple[Sheet, Figure]]


@pytest.fixture(scope="module")
def drawn(made: Made) -> Drawn:
    """A figure's sheet, and its picture with its texts in their places."""

    @cache
    def of(name: str) -> tuple[Sheet, Figure]:
        sheet = build_figure(name, made(name))
        with panels.figure_style():
            figure = panels._combined(sheet, "abcdefghijkl"[: len(sheet.panels)])
            FigureCanvasAgg(figure)
            figure.draw_without_rendering()  # texts get their places; no test looks at pixels
        return sheet, figure

    return of


def test_the_list_is_the_configurations_and_all_are_made_up() -> None:
    assert list(FIGURES) == scenario._FIGURES
    assert set(MADE) <= set(FIGURES)


@EACH
def test_a_figure_has_a_function_and_known_inputs(name: str) -> None:
    assert find_spec(entry(name).module_path) is not None
    assert set(entry(name).needs) <= set(FigureInputs.__dataclass_fields__)


@pytest.mark.slow
@EACH
def test_its_values_and_facts_are_what_is_drawn(drawn: Drawn, made: Made, name: str) -> None:
    sheet, _ = drawn(name)
    for panel in sheet.panels:
        assert list(panel.values.columns) == VALUE_COLUMNS and not panel.values.empty
        assert (panel.values["seeds"] >= 1).all() and panel.values["mean"].notna().all()
        alone = panel.values["seeds"] == 1
        assert panel.values.loc[alone, "low"].isna().all(), "one seed has no interval"
    assert len({panel.key for panel in sheet.panels}) == len(sheet.panels)
    inputs = made(name)
    if sheet.runs and inputs.runs is not None:
        runs = inputs.read_runs()
        shown = runs[runs["run_id"].isin(sheet.runs)]
        assert len(shown) == len(sheet.runs)
        predicted = shown["predicted_subjects"].notna().any()
        assert sheet.notes[0].startswith("PREDICTED NOISE: trained with the noise") == predicted


@pytest.mark.slow
@EACH
def test_its_picture_can_be_read(drawn: Drawn, name: str) -> None:
    """Nothing overlaps or leaves the page, no type is small, labels are apart, generated data say so."""
    sheet, figure = drawn(name)
    assert figure.get_figwidth() <= panels.PAGE_WIDTH
    shown = [text for text in figure.findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in shown) >= 7
    said = [axes.get_title(loc="right") for axes in figure.axes]
    assert said.count("synthetic data") == sum(panel.synthetic for panel in sheet.panels)
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    own = [axes for axes in figure.axes if axes.get_title(loc="left")]
    assert len(own) == len(sheet.panels)
    boxes = [axes.get_tightbbox(renderer) for axes in own]
    boxes += [legend.get_window_extent(renderer) for legend in figure.legends]
    boxes.append(figure.texts[-1].get_window_extent(renderer))
    for box in boxes:
        assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y0 >= -1
    for one, two in combinations(boxes, 2):
        assert not one.shrunk(0.98, 0.98).overlaps(two.shrunk(0.98, 0.98))
    assert [colliding_labels(axes) for axes in own] == [[] for _ in own]
    for axes in own:
        left, right = (axes._left_title, axes._right_title)  # type: ignore[attr-defined]
        beside = bool(right.get_text()) and "\n" not in left.get_text()
        assert not beside or left.get_window_extent(renderer).x1 < right.get_window_extent(renderer).x0


def colliding_labels(axes: Axes) -> list[tuple[str, str]]:
    """Neighbouring labels of the x-axis without room between them; slanted ones need none."""
    renderer = axes.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    low, high = axes.get_xlim()
    labels = [
        label
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high and label.get_text() and not label.get_rotation()
    ]
    placed = ((label.get_window_extent(renderer), label.get_text()) for label in labels)
    boxes = sorted(placed, key=lambda pair: float(pair[0].x0))
    pairs = zip(boxes, boxes[1:], strict=False)
    return [(one, two) for (left, one), (right, two) in pairs if left.x1 + 2 > right.x0]


@pytest.mark.slow
@EACH
def test_its_legend_names_every_series_by_its_look(drawn: Drawn, name: str) -> None:
    """A line of a panel has the colour of an entry (grey: a note); where rows name the series, no entry does."""
    sheet, figure = drawn(name)
    if not sheet.legend or name in ("privacy", "audit", "beyond_noise", "cost"):
        return
    named = {entry.style.color.lower() for entry in sheet.legend} | {"#404040", "#202020", "white", "c0"}
    for axes in figure.axes:
        assert {str(line.get_color()).lower() for line in axes.lines} <= named


def test_a_table_that_no_figure_has_is_named(tmp_path: Path) -> None:
    assert set(TABLES) < {field.name for field in fields(FigureInputs)}
    head = "{#\nbuilder: a.b\nneeds: rns\ncategory: C\ntitle: T\n-#}\n"
    (tmp_path / "mine.rst").write_text(head)
    with pytest.raises(DataError, match=r"table in needs of .*mine.rst 'rns'. Did you mean 'runs'"):
        _entry(tmp_path / "mine.rst")


def test_a_column_that_runs_do_not_have_is_named() -> None:
    with pytest.raises(DataError, match="Unknown column that the figure varies 'epsilonn'. Did you mean 'epsilon'"):
        settings_of([{"epsilon": 1.0, "label": "A"}], Shown(vary=("epsilonn",)))


def test_a_caption_whose_head_lacks_a_fact_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.rst").write_text("{#\nbuilder: a.b\nneeds: runs\ntitel: x\n-#}\nWords.\n")
    with pytest.raises(DataError, match=r"mine.rst: missing or unknown in the figure's head: category, titel, title"):
        _entry(tmp_path / "mine.rst")


@pytest.mark.parametrize(
    ("line", "told"), [("hidden: JointNois", "Did you mean 'JointNoise'"), ("private: true", "private of .* 'true'")]
)
def test_a_value_in_a_captions_head_that_nothing_reads_is_named(tmp_path: Path, line: str, told: str) -> None:
    head = "{#\nbuilder: a.b\nneeds: runs\ncategory: C\ntitle: T\n"
    (tmp_path / "mine.rst").write_text(f"{head}{line}\n-#}}\n")
    with pytest.raises(DataError, match=told):
        _entry(tmp_path / "mine.rst")


@pytest.mark.parametrize("builder", ["privacy.acuracy", "privicy.accuracy"])
def test_a_builder_that_is_not_there_is_named(builder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "mine", replace(FIGURES["privacy"], builder=builder))
    with pytest.raises(DataError, match=f"figures/{builder.partition('.')[0]}.py: .*Error"):
        build_figure("mine", FigureInputs())


@EACH
def test_missing_inputs_are_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=entry(name).needs[0]):
        make_figure(name, FigureInputs(), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_files_are_the_same_to_the_byte_when_made_again(made: Made, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        paths = make_figure("beyond_noise", made("beyond_noise"), tmp_path / folder)
        assert [path.suffix for path in paths] == [".svg", ".png", ".pdf", ".csv", ".json"]
        assert {path.name for path in paths} == {f"beyond_noise{suffix}" for suffix in SUFFIXES}
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
    facts = json.loads((tmp_path / "one" / "beyond_noise.json").read_text())
    table = pd.read_csv(tmp_path / "one" / "beyond_noise.csv")
    assert [panel["letter"] for panel in facts["panels"]] == sorted(set(table["panel"])) == ["a", "b"]


def test_a_tall_picture_is_drawn_coarser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_TYPICAL_DPI", 200)
    monkeypatch.setattr(panels, "_SAVED", {"png": {}})
    for inches, pixels in ((4.0, 800), (16.0, panels.MAX_PIXELS)):
        (path,) = panels._save(Figure(figsize=(1.0, inches)), tmp_path / "tall")
        with Image.open(path) as picture:
            assert picture.height == pixels


IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"


@pytest.mark.parametrize("image", sorted(IMAGES.glob("*.png")), ids=lambda path: path.name)
def test_a_picture_is_not_older_than_its_figures_code(image: Path) -> None:
    source = Image.open(image).info.get("Source", "")
    figure = source.partition(" ")[0]
    assert figure in {*FIGURES, "scale"}, f"{image.name} does not say which figure it is: draw it anew"
    code = scale.drawn_by() if figure == "scale" else drawn_by(figure)
    assert source == code, f"{image.name} was drawn by other code of {figure}: draw it anew"
