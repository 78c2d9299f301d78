"""Writes a figure: all panels as one picture, and the plotted values as CSV; the style of every series.

A figure module describes what to draw (:class:`Sheet` of :class:`Panel`); the layout is here. A picture is as wide as a
page's text, so that no type is smaller than 7 points in print. Each algorithm has the same colour (Okabe-Ito, safe for
colour-blind readers), marker and line everywhere, so that a figure is readable in grey.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal

import matplotlib
import matplotlib.colors
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D

from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import atomic_path, write_frame, write_json
from subjectdp.results.shown_runs import algorithm_label

LineStyle = Literal["-", "--", "-.", ":", "none"] | tuple[float, tuple[int, ...]]


@dataclass(frozen=True)
class Style:
    color: str
    marker: str
    line: LineStyle


ALGORITHM_STYLES: dict[str, Style] = {
    "FedAvg": Style("#000000", "o", "-"),
    "LocalItemDP": Style("#0072B2", "s", "--"),
    "UserLDP": Style("#E69F00", "v", ":"),
    "LocalGroupDP": Style("#D55E00", "^", "-."),
    "HiGradAvgDP (v1)": Style("#009E73", "D", (0, (7, 1))),
    "HiGradAvgDP (v3)": Style("#56B4E9", "P", (0, (7, 1, 1, 1, 1, 1))),
    "CentralSubDP": Style("#CC79A7", "X", (0, (1, 1))),
    "JointNoise": Style("#6A4C93", "*", (0, (4, 2, 1, 2))),
    "SubjectRelease": Style("#0000FC", "p", (0, (12, 1))),
    "SubjectSampling": Style("#6C2400", ">", (0, (6, 2, 2, 2))),
    "ULDP-FL": Style("#7766FF", "H", (0, (5, 1, 2, 1))),
    "CappedItemDP": Style("#000090", "d", (0, (1, 2))),
}
_SPARE = (
    Style("#8C6D1F", "h", (0, (3, 1))),
    Style("#4D4D4D", "<", (0, (2, 2))),
    Style("#332288", "4", (0, (9, 2))),
    Style("#999933", "8", (0, (2, 1))),
    Style("#44AA99", "1", (0, (5, 3))),
)
RC: dict[str, Any] = {
    # DejaVu Sans is shipped with matplotlib; a viewer of an SVG without it takes Verdana, which is as wide.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 8.5,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#D9D9D9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "svg.fonttype": "none",  # text can be searched and edited
    "pdf.fonttype": 42,  # TrueType, as journals ask
    "svg.hashsalt": "subjectdp",  # element ids by content, not random
    "path.simplify": True,
}


@contextmanager
def figure_style() -> Iterator[None]:
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(RC)
        yield


def styles_for(labels: Iterable[str]) -> dict[str, Style]:
    """The style of each label, with or without predicted noise; unknown ones get spare styles in the order of names."""
    names = sorted(set(labels))
    unknown = sorted({algorithm_label(name) for name in names} - ALGORITHM_STYLES.keys())
    spare = {name: _SPARE[index % len(_SPARE)] for index, name in enumerate(unknown)}
    known = {**spare, **ALGORITHM_STYLES}
    return {name: known[algorithm_label(name)] for name in names}


def sequence_styles(count: int) -> list[Style]:
    """Styles for ``count`` ordered series of one algorithm: from dark to light, with different markers and lines."""
    known = list(ALGORITHM_STYLES.values())
    lines = [(style.marker, style.line) for style in known]
    shades = matplotlib.colormaps["viridis"]
    top = max(count - 1, 1)
    colors = [matplotlib.colors.to_hex(shades(0.05 + 0.8 * index / top)) for index in range(count)]
    return [Style(color, *lines[index % len(lines)]) for index, color in enumerate(colors)]


MAX_PIXELS = 1600  # of height, while that leaves 100 pixels an inch
VALUE_COLUMNS = ["dataset", "quantity", "series", "x", "mean", "low", "high", "seeds"]
PAGE_WIDTH, COLUMN_WIDTH = 7.0, 3.5  # inches
_ROW_HEIGHT = 2.4  # inches
_LOW_ROW = 1.8  # where settings are below one another
_TYPICAL_DPI = 200
_SAVED = {  # without dates, so that equal figures are equal files
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True)
class Panel:
    """One set of axes: ``draw`` fills them, ``values`` (:data:`VALUE_COLUMNS`) has the plotted values."""

    key: str  # e.g. femnist_accuracy
    heading: str  # follows the letter, e.g. FEMNIST
    draw: Callable[[Axes], None]
    values: pd.DataFrame
    synthetic: bool
    scale: str | None = None  # panels of one scale share their y-range
    weight: float = 1.0  # share of the row's width


@dataclass(frozen=True)
class LegendEntry:
    text: str
    style: Style
    filled: bool = True


@dataclass(frozen=True)
class Sheet:
    """A whole figure: rows of panels, one legend, notes below it, and the ids of the runs shown."""

    name: str
    rows: tuple[tuple[Panel, ...], ...]
    legend: tuple[LegendEntry, ...] = ()
    notes: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    row_height: float = _ROW_HEIGHT
    panel_width: float = COLUMN_WIDTH
    row_heights: tuple[float, ...] = ()  # inches, one per row if they differ

    @property
    def lines(self) -> list[tuple[list[Panel], float]]:
        """The panels of each line of the picture and its height in inches: rows wider than a page are broken."""
        heights = self.row_heights or (self.row_height,) * len(self.rows)
        return [(line, height) for row, height in zip(self.rows, heights, strict=True) for line in self._broken(row)]

    def _broken(self, row: Sequence[Panel]) -> list[list[Panel]]:
        broken: list[list[Panel]] = [[]]
        for panel in row:
            if broken[-1] and self.width_of([*broken[-1], panel]) > PAGE_WIDTH + 0.01:
                broken.append([])
            broken[-1].append(panel)
        return broken

    def width_of(self, line: Sequence[Panel]) -> float:
        """Inches that these panels would like to have side by side."""
        return self.panel_width * sum(panel.weight for panel in line)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels in the order of their letters."""
        return tuple(panel for row in self.rows for panel in row)


def stacked(sheets: Sequence[tuple[str, Sheet]]) -> Sheet:
    """Sheets of the same figure, one for each setting (in words), below one another as one."""
    (_, first), *more = sheets
    if not more:
        return first
    rows, entries, notes = [], dict[tuple[str, str], LegendEntry](), dict[str, None]()
    for number, (words, sheet) in enumerate(sheets):
        for row in sheet.rows:
            headings = ["\n".join(filter(None, (panel.heading, words))) for panel in row]
            named = [replace(p, key=f"{p.key}_{number + 1}", heading=h) for p, h in zip(row, headings, strict=True)]
            rows.append(tuple(named))
        notes |= dict.fromkeys(sheet.notes)
        for entry in sheet.legend:
            same = all(entry in other.legend for _, other in sheets)
            entries.setdefault(("" if same else words, entry.text), entry)
    legend = [replace(entry, text=f"{words}: {text}" if words else text) for (words, text), entry in entries.items()]
    heights = tuple(height for _, sheet in sheets for height in sheet.row_heights)
    runs = tuple(dict.fromkeys(run for _, sheet in sheets for run in sheet.runs))
    height = min(first.row_height, _LOW_ROW)
    sheet = replace(first, rows=tuple(rows), row_height=height, row_heights=heights)
    return replace(sheet, legend=tuple(legend), notes=tuple(notes), runs=runs)


def write_sheet(sheet: Sheet, folder: Path | str, source: str = "") -> list[Path]:
    """Writes ``<name>.{svg,png,pdf,csv,json}``; ``source`` is kept in the PNG. DataError for a sheet without panels."""
    if not sheet.panels:
        raise expected(f"panels of {sheet.name}", "none", "at least one (no run fits this figure)", DataError)
    folder = Path(folder)
    letters = [*ascii_lowercase, *map("".join, product(ascii_lowercase, repeat=2))][: len(sheet.panels)]
    values = pd.concat([p.values.assign(panel=letter) for p, letter in zip(sheet.panels, letters, strict=True)])
    with figure_style():
        figure = _combined(sheet, letters)
        paths = _save(figure, folder / sheet.name, source)
    table, facts = folder / f"{sheet.name}.csv", folder / f"{sheet.name}.json"
    write_frame(table, values[["panel", *VALUE_COLUMNS]])
    panels = [
        {"letter": letter, "key": p.key, "heading": p.heading, "synthetic": p.synthetic}
        for p, letter in zip(sheet.panels, letters, strict=True)
    ]
    told = {"figure": sheet.name, "panels": panels, "notes": list(sheet.notes), "runs": sorted(sheet.runs)}
    write_json(facts, told)
    return [*paths, table, facts]


def _combined(sheet: Sheet, letters: Sequence[str]) -> Figure:
    lines = sheet.lines
    heights = [height for _, height in lines]
    width = min(PAGE_WIDTH, max(sheet.width_of(line) for line, _ in lines))
    strip, body = _Strip(sheet.legend, sheet.notes, width), sum(heights)
    height = body + strip.height
    figure = Figure(figsize=(width, height), facecolor="white")
    rectangle = (0.0, strip.height / height, 1.0, body / height)
    figure.set_layout_engine("constrained", rect=rectangle, w_pad=0.06, h_pad=0.06, wspace=0.03, hspace=0.04)
    grid = GridSpec(len(lines), 1, figure=figure, height_ratios=heights)
    drawn: list[tuple[Panel, Axes]] = []
    names = iter(letters)
    for number, (line, _) in enumerate(lines):
        cells = grid[number].subgridspec(1, len(line), width_ratios=[panel.weight for panel in line])
        above = any(not _mark_fits(panel, width * panel.weight / sum(p.weight for p in line)) for panel in line)
        for place, panel in enumerate(line):
            axes = figure.add_subplot(cells[place])
            panel.draw(axes)
            drawn.append((panel, axes))
            own_line = "\n" if above and panel.synthetic else ""  # for the mark, below the heading
            axes.set_title(f"({next(names)}) {panel.heading}{own_line}", loc="left")
            if panel.synthetic:
                axes.set_title("synthetic data", loc="right", fontsize=7, color="#A00000")
    strip.add(figure, height)
    _harmonise(drawn)
    return figure


def _mark_fits(panel: Panel, width: float) -> bool:
    """Whether "synthetic data" stands beside the heading's last line; both axes' labels take up to an inch."""
    return 0.08 * (len(panel.heading.split("\n")[-1]) + 4) + 0.8 < width - 1.0


def _harmonise(drawn: Sequence[tuple[Panel, Axes]]) -> None:
    """Gives all panels of a scale one y-range, logarithmic if any of them is."""
    for scale in sorted({panel.scale for panel, _ in drawn if panel.scale is not None}):
        group = [axes for panel, axes in drawn if panel.scale == scale]
        kind = "log" if any(axes.get_yscale() == "log" for axes in group) else group[0].get_yscale()
        for axes in group:
            axes.set_yscale(kind)
        ends = [axes.get_ylim() for axes in group]
        for axes in group:
            axes.set_ylim(min(end[0] for end in ends), max(end[1] for end in ends))


class _Strip:
    """The legend and the notes below the panels; the height is known before the layout."""

    def __init__(self, legend: Sequence[LegendEntry], notes: Sequence[str], width: float) -> None:
        self.legend = list(legend)
        longest = max((len(line) for entry in legend for line in entry.text.split("\n")), default=1)
        self.columns = max(1, min(len(self.legend) or 1, int(width / (0.0525 * longest + 0.6))))
        per_column = math.ceil(len(self.legend) / self.columns)
        lines = max((entry.text.count("\n") + 1 for entry in legend), default=0)
        self.legend_height = per_column * (lines * 0.13 + 0.06) + 0.12 if legend else 0.0
        text = " ".join(note.rstrip(".") + "." for note in notes)
        self.notes = textwrap.wrap(text, max(30, int(width / 0.0575)))
        self.height = self.legend_height + 0.14 * len(self.notes) + 0.1

    def add(self, figure: Figure, height: float) -> None:
        """Places legend and notes at the bottom of ``figure``; ``height`` of the whole figure in inches."""
        if self.legend:
            handles = [_handle(entry) for entry in self.legend]
            place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, self.height / height)}
            place |= {"handlelength": 3.4, "columnspacing": 1.6, "labelspacing": 0.5, "borderaxespad": 0.2}
            figure.legend(handles=handles, ncols=self.columns, **place).set_in_layout(False)
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 7.3, "color": "#404040"}
        figure.text(0.5, 0.05 / height, "\n".join(self.notes), **look).set_in_layout(False)


def _handle(entry: LegendEntry) -> Line2D:
    style, face = entry.style, entry.style.color if entry.filled else "white"
    look: dict[str, Any] = {"linestyle": style.line, "marker": style.marker, "markerfacecolor": face}
    return Line2D([], [], color=style.color, label=entry.text, **look)


def _save(figure: Figure, stem: Path, source: str = "") -> list[Path]:
    dpi = min(_TYPICAL_DPI, max(100, int(MAX_PIXELS / figure.get_figheight())))
    targets = []
    figure.set_dpi(dpi)  # hinted text is wider at one resolution than at another
    figure.draw_without_rendering()
    figure.set_layout_engine(None)  # all formats keep this layout: it costs as much as drawing
    for axes in figure.axes:  # the last bits of a layout differ from call to call
        left, bottom, width, height = (round(value, 6) for value in axes.get_position().bounds)
        axes.set_position((left, bottom, width, height))
    for kind, metadata in _SAVED.items():
        targets.append(stem.with_name(f"{stem.name}.{kind}"))
        text: dict[str, str | None] = {**metadata, **({"Source": source} if kind == "png" else {})}
        with atomic_path(targets[-1]) as temporary:
            figure.savefig(temporary, format=kind, dpi=dpi, metadata=text)
    return targets
