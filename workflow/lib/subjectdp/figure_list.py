"""The figures by name. A new figure is one function, one line here, and a caption (workflow/report/NAME.rst).

The configuration and the Snakefile read this list, so that it imports nothing: modules are imported when a figure is
drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shown:
    """Which runs a figure shows.

    Attributes:
        vary: swept columns that the figure shows; ``local_steps`` is one too.
        hidden: labels of algorithms that it leaves out.
        private: whether it leaves out algorithms that claim no privacy.
        swept: a column of which an algorithm has several values, else it is left out; empty: none.
    """

    vary: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    private: bool = False
    swept: str = ""


@dataclass(frozen=True)
class FigureEntry:
    """The function that builds a figure, the inputs that it reads, and its place in the report."""

    builder: str  # MODULE.FUNCTION below subjectdp.figures
    needs: tuple[str, ...]  # fields of FigureInputs
    category: str  # of the report
    title: str
    shown: Shown | None = None  # the runs that it shows; None: the function chooses

    @property
    def module_path(self) -> str:
        """The importable name of the figure's module: the entry module of its code fingerprint."""
        return f"subjectdp.figures.{self.builder.partition('.')[0]}"


_TRAINING = ("runs", "rounds", "steps")
_V1, _V3, _SCALE = "Paper v1", "Paper v3", "The papers' scale, from sampling alone"
_BEYOND = "Beyond the papers"
# Algorithms that a paper's figures leave out; v1's show v3's HiGradAvgDP as well, beside its own.
_HIDDEN_V1, _HIDDEN_V3 = ("JointNoise",), ("HiGradAvgDP (v1)", "JointNoise")
_SHOWN_V1, _SHOWN_V3 = Shown(hidden=_HIDDEN_V1), Shown(hidden=_HIDDEN_V3)
_OVER_ALPHA = Shown(vary=("alpha",), swept="alpha")
_MODES = ("mode", "horizontal", "local_steps")
FIGURES: dict[str, FigureEntry] = {
    "figure1": FigureEntry(
        "papers.training_and_batches", _TRAINING, _V1, "Figure 1: training and mini-batches", _SHOWN_V1
    ),
    "figure2": FigureEntry(
        "papers.uneven",
        _TRAINING,
        _V1,
        "Figure 2: uneven subject distributions",
        replace(_OVER_ALPHA, hidden=_HIDDEN_V1),
    ),
    "figure3": FigureEntry("papers.small_femnist", _TRAINING, _V1, "Figure 3: Small-FEMNIST", _SHOWN_V1),
    "figure1_v3": FigureEntry("papers.training", ("runs", "rounds"), _V3, "Figure 1: training", _SHOWN_V3),
    "figure2_v3": FigureEntry(
        "papers.group_sizes", ("runs", "steps"), _V3, "Figure 2: group sizes", _SHOWN_V3
    ),
    "figure3_v3": FigureEntry(
        "papers.uneven",
        _TRAINING,
        _V3,
        "Figure 3: uneven subject distributions",
        replace(_OVER_ALPHA, hidden=_HIDDEN_V3),
    ),
    "privacy": FigureEntry(
        "privacy.statements", ("runs",), "Privacy", "Published and sound ε", Shown(vary=_MODES, private=True)
    ),
    "accuracy_privacy": FigureEntry(
        "privacy.accuracy", ("runs",), "Privacy", "Accuracy against sound ε", Shown(vary=(*_MODES, "epsilon"))
    ),
    "epsilon_over_rounds": FigureEntry(
        "privacy.over_rounds",
        ("runs",),
        "Privacy",
        "Sound ε over rounds",
        Shown(vary=("horizontal",), private=True),
    ),
    "audit": FigureEntry("attacks.audits", ("audit",), "Privacy", "Audits: lower bounds on ε"),
    "beyond_epsilon": FigureEntry(
        "beyond.by_epsilon", ("runs",), _BEYOND, "Accuracy against subject-level ε"
    ),
    "beyond_subjects": FigureEntry("beyond.by_subjects", ("runs",), _BEYOND, "Accuracy against subjects"),
    "beyond_noise": FigureEntry("beyond.noise", ("noise",), _BEYOND, "Noise on the averaged gradient"),
    "beyond_rounds": FigureEntry("beyond.over_rounds", ("runs", "rounds"), _BEYOND, "Accuracy over rounds"),
    "beyond_spread": FigureEntry("beyond.by_spread", ("runs",), _BEYOND, "Subjects over the silos"),
    "excess_loss": FigureEntry(
        "bounds.excess_loss", ("utility",), _V3, "Section 4: bounds on the excess loss"
    ),
    "joint_noise": FigureEntry(
        "joint.over_rounds", ("runs", "rounds"), "Joint noise", "Joint noise over rounds"
    ),
    "joint_figure1": FigureEntry(
        "joint.one_step_or_epoch", ("runs", "rounds"), "Joint noise", "Figure 1: one local step or one epoch"
    ),
    "joint_figure2": FigureEntry(
        "joint.by_rounds", ("runs", "rounds"), "Joint noise", "Figure 2: CIFAR-10 features, by rounds"
    ),
    "joint_figure3": FigureEntry(
        "joint.by_rounds", ("runs", "rounds"), "Joint noise", "Figure 3: ACS Income, by rounds"
    ),
    "joint_counterexample": FigureEntry(
        "attacks.counterexample", ("counterexample",), "Joint noise", "A counterexample to joint noise"
    ),
    "group_sizes_paper_scale": FigureEntry("papers.at_paper_scale", ("statistics",), _SCALE, "Group sizes"),
    "subjects_per_batch_paper_scale": FigureEntry(
        "papers.at_paper_scale", ("statistics",), _SCALE, "Subjects in mini-batches"
    ),
    "cost": FigureEntry("runs_and_data.cost", ("runs",), "Cost", "Time and memory of a run"),
    "partition": FigureEntry("runs_and_data.partition", ("partitions",), "Data", "Items by subject and silo"),
}
