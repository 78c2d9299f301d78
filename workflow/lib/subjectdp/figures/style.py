"""The style of all figures: each algorithm has the same colour, marker and line everywhere.

Colours are from the Okabe-Ito set, which is safe for colour-blind readers; marker and line differ between algorithms as
well, so that a figure is readable in grey.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import matplotlib.colors

from subjectdp.results.shown_runs import algorithm_label

LineStyle = Literal["-", "--", "-.", ":", "none"] | tuple[float, tuple[int, ...]]


@dataclass(frozen=True)
class Style:
    """How one series is drawn."""

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
    """The project's matplotlib settings, within a with block."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams
        settings.update(RC)
        yield


def styles_for(labels: Iterable[str]) -> dict[str, Style]:
    """The style of each label; unknown algorithms get spare styles in the order of their names.

    Predicted noise does not change an algorithm's style.
    """
    names = sorted(set(labels))
    unknown = sorted({algorithm_label(name) for name in names} - ALGORITHM_STYLES.keys())
    spare = {name: _SPARE[index % len(_SPARE)] for index, name in enumerate(unknown)}
    known = {**spare, **ALGORITHM_STYLES}
    return {name: known[algorithm_label(name)] for name in names}


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels in the order of the style map (the papers' order), unknown ones last by name."""
    order = {name: index for index, name in enumerate(ALGORITHM_STYLES)}
    return sorted(set(labels), key=lambda name: (order.get(algorithm_label(name), len(order)), name))


def sequence_styles(count: int) -> list[Style]:
    """Styles for ``count`` ordered series of one algorithm: from dark to light, with different markers and lines."""
    known = list(ALGORITHM_STYLES.values())
    lines = [(style.marker, style.line) for style in known]
    shades = matplotlib.colormaps["viridis"]
    top = max(count - 1, 1)
    return [
        Style(matplotlib.colors.to_hex(shades(0.05 + 0.8 * index / top)), *lines[index % len(lines)])
        for index in range(count)
    ]
