"""The figures by name. A new figure is one module with ``build(inputs, name)``, one line here, and a caption.

The Snakefile reads this catalogue, so that it imports nothing heavy: modules are imported when a figure is made.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from subjectdp.errors import DataError, expected, unknown
from subjectdp.results.shown_runs import Shown

if TYPE_CHECKING:
    from subjectdp.figures.panels import Sheet
    from subjectdp.results.inputs import FigureInputs

_TRAINING = ("runs", "rounds", "steps")
SUFFIXES = (".svg", ".png", ".pdf", ".csv", ".json")


@dataclass(frozen=True)
class FigureEntry:
    """A figure's module, the inputs that it reads, and its place in the report."""

    module: str  # below subjectdp.figures.each
    needs: tuple[str, ...]  # fields of FigureInputs
    category: str  # of the report
    title: str
    shown: Shown | None = None  # the runs that it shows; None: the module chooses

    @property
    def module_path(self) -> str:
        """The importable name of the figure's module: the entry module of its code fingerprint."""
        return f"subjectdp.figures.each.{self.module}"


_V1, _V3, _SCALE = "Paper v1", "Paper v3", "The papers' scale, from sampling alone"
_BEYOND = "Beyond the papers"
# Algorithms that a paper's figures leave out; v1's show v3's HiGradAvgDP as well, beside its own.
_HIDDEN_V1, _HIDDEN_V3 = ("JointNoise",), ("HiGradAvgDP (v1)", "JointNoise")
_SHOWN_V1, _SHOWN_V3 = Shown(hidden=_HIDDEN_V1), Shown(hidden=_HIDDEN_V3)
_OVER_ALPHA = Shown(vary=("alpha",), swept="alpha")
_MODES = ("mode", "horizontal", "local_steps")
FIGURES: dict[str, FigureEntry] = {
    "figure1": FigureEntry("figure1", _TRAINING, _V1, "Figure 1: training and mini-batches", _SHOWN_V1),
    "figure2": FigureEntry(
        "figure2",
        _TRAINING,
        _V1,
        "Figure 2: uneven subject distributions",
        replace(_OVER_ALPHA, hidden=_HIDDEN_V1),
    ),
    "figure3": FigureEntry("figure3", _TRAINING, _V1, "Figure 3: Small-FEMNIST", _SHOWN_V1),
    "figure1_v3": FigureEntry("figure1_v3", ("runs", "rounds"), _V3, "Figure 1: training", _SHOWN_V3),
    "figure2_v3": FigureEntry("figure2_v3", ("runs", "steps"), _V3, "Figure 2: group sizes", _SHOWN_V3),
    "figure3_v3": FigureEntry(
        "figure2",
        _TRAINING,
        _V3,
        "Figure 3: uneven subject distributions",
        replace(_OVER_ALPHA, hidden=_HIDDEN_V3),
    ),
    "privacy": FigureEntry(
        "privacy", ("runs",), "Privacy", "Published and sound ε", Shown(vary=_MODES, private=True)
    ),
    "accuracy_privacy": FigureEntry(
        "accuracy_privacy", ("runs",), "Privacy", "Accuracy against sound ε", Shown(vary=(*_MODES, "epsilon"))
    ),
    "epsilon_over_rounds": FigureEntry(
        "epsilon_over_rounds",
        ("runs",),
        "Privacy",
        "Sound ε over rounds",
        Shown(vary=("horizontal",), private=True),
    ),
    "audit": FigureEntry("audit", ("audit",), "Privacy", "Audits: lower bounds on ε"),
    "beyond_epsilon": FigureEntry("beyond_epsilon", ("runs",), _BEYOND, "Accuracy against subject-level ε"),
    "beyond_subjects": FigureEntry("beyond_subjects", ("runs",), _BEYOND, "Accuracy against subjects"),
    "beyond_noise": FigureEntry("beyond_noise", ("noise",), _BEYOND, "Noise on the averaged gradient"),
    "beyond_rounds": FigureEntry("beyond_rounds", ("runs", "rounds"), _BEYOND, "Accuracy over rounds"),
    "beyond_spread": FigureEntry("beyond_spread", ("runs",), _BEYOND, "Subjects over the silos"),
    "excess_loss": FigureEntry("excess_loss", ("utility",), _V3, "Section 4: bounds on the excess loss"),
    "joint_noise": FigureEntry("joint_noise", ("runs", "rounds"), "Joint noise", "Joint noise over rounds"),
    "joint_figure1": FigureEntry(
        "joint_figure1", ("runs", "rounds"), "Joint noise", "Figure 1: one local step or one epoch"
    ),
    "joint_figure2": FigureEntry(
        "joint_over_rounds", ("runs", "rounds"), "Joint noise", "Figure 2: CIFAR-10 features, by rounds"
    ),
    "joint_figure3": FigureEntry(
        "joint_over_rounds", ("runs", "rounds"), "Joint noise", "Figure 3: ACS Income, by rounds"
    ),
    "joint_counterexample": FigureEntry(
        "joint_counterexample", ("counterexample",), "Joint noise", "A counterexample to joint noise"
    ),
    "group_sizes_paper_scale": FigureEntry("paper_scale", ("statistics",), _SCALE, "Group sizes"),
    "subjects_per_batch_paper_scale": FigureEntry(
        "paper_scale", ("statistics",), _SCALE, "Subjects in mini-batches"
    ),
    "cost": FigureEntry("cost", ("runs",), "Cost", "Time and memory of a run"),
    "partition": FigureEntry("partition", ("partitions",), "Data", "Items by subject and silo"),
}


def entry(name: str) -> FigureEntry:
    """The entry of a figure; DataError with the nearest known name for an unknown one."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES, DataError)
    return FIGURES[name]


def outputs(name: str) -> list[str]:
    """The file names that every figure has in its folder, besides those of its panels."""
    entry(name)
    return [name + suffix for suffix in SUFFIXES]


def make_figure(name: str, inputs: FigureInputs, folder: Path | str) -> list[Path]:
    """Builds a figure and writes its files into ``folder``; returns all paths written.

    Raises DataError for an unknown figure, for missing or damaged inputs, and if there is nothing to draw.
    """
    from subjectdp.figures.panels import write_sheet  # matplotlib: too heavy for the Snakefile

    return write_sheet(build_figure(name, inputs), folder, drawn_by(name))


def drawn_by(name: str) -> str:
    """The figure and a hash of its module's code, without comments: kept in every PNG, to tell one that is too old."""
    module = find_spec(entry(name).module_path)
    if module is None or module.origin is None:
        raise expected("module of a figure", entry(name).module_path, "a file", DataError)
    code = ast.dump(ast.parse(Path(module.origin).read_text(encoding="utf-8")))
    return f"{name} {hashlib.sha256(code.encode()).hexdigest()[:16]}"


def build_figure(name: str, inputs: FigureInputs) -> Sheet:
    """A figure's panels, legend and notes, of the runs that it shows; errors as in :func:`make_figure`."""
    figure = entry(name)
    own = inputs if figure.shown is None else replace(inputs, shown=figure.shown)
    return _with_predictions(importlib.import_module(figure.module_path).build(own, name), inputs)


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
