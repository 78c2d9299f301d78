"""The figures by name. A new figure is a function and its caption, ``captions/NAME.rst``, whose head states its facts.

The Snakefile reads this module, so that it imports nothing heavy: modules are imported when a figure is made.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from subjectdp.algorithms import registry
from subjectdp.errors import DataError, mistake, unknown
from subjectdp.results.shown_runs import Shown

if TYPE_CHECKING:
    from subjectdp.figures.panels import Sheet
    from subjectdp.results.collect import FigureInputs


@dataclass(frozen=True)
class FigureEntry:
    """The function that builds a figure, the inputs that it reads, and its place in the report."""

    name: str
    builder: str  # MODULE.FUNCTION below subjectdp.figures
    needs: tuple[str, ...]  # fields of FigureInputs
    category: str  # of the report
    title: str
    shown: Shown | None = None  # the runs that it shows; None: the function chooses

    @property
    def module_path(self) -> str:
        """The importable name of the figure's module: the entry module of its code fingerprint."""
        return f"subjectdp.figures.{self.builder.partition('.')[0]}"


TABLES = (  # the fields of FigureInputs that a caption may name
    *("runs", "rounds", "steps", "statistics", "partitions"),
    *("counterexample", "audit", "accounting", "utility", "noise"),
)


def _entry(caption: Path) -> FigureEntry:
    head, _, _ = caption.read_text(encoding="utf-8").partition("-#}")
    facts = dict(line.split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
    if unlike := {"builder", "needs", "category", "title"} ^ (facts.keys() - {"vary", "hidden", "private", "swept"}):
        raise DataError(f"{caption}: missing or unknown in the figure's head: {', '.join(sorted(unlike))}.")
    needs, vary = (tuple(facts.pop(key, "").split()) for key in ("needs", "vary"))
    for name in needs:
        if name not in TABLES:
            raise unknown(f"table in needs of {caption}", name, TABLES, DataError)
    hidden, private = tuple(filter(None, facts.pop("hidden", "").split("; "))), facts.pop("private", "no")
    labels = {registry.label(each, v) for each in registry.ALGORITHMS for v in registry.algorithm(each).variants}
    for key, values, known in (("hidden", hidden, labels), ("private", (private,), ("yes", "no"))):
        if wrong := [value for value in values if value not in known]:
            raise unknown(f"{key} of {caption}", wrong[0], known, DataError)
    shown = Shown(vary, hidden, private == "yes", facts.pop("swept", ""))
    return FigureEntry(caption.stem, needs=needs, shown=None if shown == Shown() else shown, **facts)


CAPTIONS = Path(__file__).with_name("captions")
FIGURES = {caption.stem: _entry(caption) for caption in sorted(CAPTIONS.glob("*.rst"))}
_QUOTES = r"[\"'\\]"
SUFFIXES = (".svg", ".png", ".pdf", ".csv", ".json")


def entry(name: str) -> FigureEntry:
    """The entry of a figure, ``NAME`` or ``NAME-LABEL``; DataError with the nearest known name for an unknown one."""
    figure, _, label = name.partition("-")
    if figure not in FIGURES:
        raise unknown("figure", figure, FIGURES, DataError)
    found = FIGURES[figure]
    return replace(found, title=f"{found.title} ({label.replace('_', ' ')})") if label else found


def caption(name: str) -> Path:
    """The file of a figure's caption; errors as :func:`entry`."""
    return CAPTIONS / f"{entry(name).name}.rst"


def make_figure(name: str, inputs: FigureInputs, folder: Path | str) -> list[Path]:
    """Writes a figure's files into ``folder``; returns their paths. DataError if unknown, damaged or empty."""
    from subjectdp.figures.panels import write_sheet  # matplotlib: too heavy for the Snakefile

    return write_sheet(build_figure(name, inputs), folder, drawn_by(name))


def drawn_by(name: str) -> str:
    """The figure and a hash of its module's code, without comments, docstrings and imports: in every PNG, to tell one
    too old. Each Python writes quotes of its own, so that they do not count."""
    module = Path(__file__).with_name(f"{entry(name).module_path.rpartition('.')[2]}.py")
    tree = ast.parse(module.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    code = "\n".join(ast.unparse(each) for each in tree.body if not isinstance(each, ast.Import | ast.ImportFrom))
    return f"{name} {hashlib.sha256(re.sub(_QUOTES, '', code).encode()).hexdigest()[:16]}"


def build_figure(name: str, inputs: FigureInputs) -> Sheet:
    """A figure's panels, legend and notes, of the runs that it shows; errors as in :func:`make_figure`."""
    figure = entry(name)
    try:
        build = getattr(importlib.import_module(figure.module_path), figure.builder.partition(".")[2])
    except Exception as problem:  # whatever a module of anyone's raises
        raise mistake(figure.module_path, problem, DataError) from problem
    if figure.shown is None:
        return _with_predictions(build(inputs, name), inputs)
    from subjectdp.figures.panels import stacked  # matplotlib: too heavy for the Snakefile

    own = replace(inputs, shown=figure.shown)
    sheets, left_out = [], []
    for words, runs in own.settings():
        try:
            sheets.append((words, build(replace(own, only=runs), name)))
        except DataError as problem:  # of another data set, or too few runs of this setting
            left_out.append(f"{words}: not drawn ({str(problem).rstrip('.')})")
    if not sheets:
        sheets, left_out = [("", build(own, name))], []
    sheet = stacked(sheets)
    return _with_predictions(replace(sheet, notes=(*sheet.notes, *left_out)), inputs)


def _with_predictions(sheet: Sheet, inputs: FigureInputs) -> Sheet:
    """The sheet, with a note in front if it shows runs with predicted noise."""
    if inputs.runs is None or not sheet.runs:
        return sheet
    runs = inputs.read_runs()
    shown = runs.loc[runs["run_id"].isin(sheet.runs), "predicted_subjects"].dropna()
    if shown.empty:
        return sheet
    numbers = ", ".join(f"{int(number):,}" for number in sorted(shown.unique()))
    note = (
        f"PREDICTED NOISE: trained with the noise on the average that {numbers} subjects would have; an experiment, "
        "the target ε is no guarantee for these runs"
    )
    return replace(sheet, notes=(note, *sheet.notes))
