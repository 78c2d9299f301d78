"""Inputs of every figure, made up: one function for each kind of table."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from figures.fake_runs import Fake, collected, grid
from subjectdp.auditing.suite import COLUMNS as AUDIT_COLUMNS
from subjectdp.config.sections import PartitionConfig
from subjectdp.data import partition as partition_files
from subjectdp.data.content import Splits
from subjectdp.data.partition import partition_subjects
from subjectdp.data.statistics import Setting, paper_settings, simulate_setting
from subjectdp.figures.measured import CASE_COLUMNS
from subjectdp.results.collect import FigureInputs
from subjectdp.utility import EXCESS_COLUMNS as UTILITY_COLUMNS
from subjectdp.utility import NOISE_COLUMNS, PAPERS, SCENARIO

ALGORITHMS = [*("fed_avg", "local_item_dp", "user_ldp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3")]
SOUND = ["fed_avg", "local_item_dp", "user_ldp", "higrad_avg_dp:v1", "subject_release"]
SEEDS = (0, 1, 2)


def papers(root: Path) -> FigureInputs:
    """Both data sets, three seeds at α = 1; one seed of most algorithms at α = 16."""
    fakes = grid(ALGORITHMS, ["femnist", "shakespeare"], SEEDS, rounds=8)
    fakes += grid(ALGORITHMS[:5], ["femnist"], [0], rounds=8, alpha=16.0)
    return collected(root, fakes)


def papers_and_sound(root: Path) -> FigureInputs:
    """The same at α = 1, and one run in sound mode."""
    fakes = grid(ALGORITHMS, ["femnist", "shakespeare"], SEEDS, rounds=8)
    return collected(root, [*fakes, Fake("user_ldp", mode="sound", rounds=8)])


def sound(name: str, seed: int, **more: Any) -> Fake:
    """A run in sound mode."""
    return Fake(name, seed=seed, mode="sound", rounds=8, **more)


def at_epsilon(epsilon: float) -> dict[str, Any]:
    """Further settings of a run with another target."""
    return {"changes": (("privacy", {"epsilon": epsilon}),)}


def by_epsilon(root: Path) -> FigureInputs:
    """Two ε, with predicted noise."""
    fakes = [sound("fed_avg", seed) for seed in SEEDS]
    for name, epsilon, seed in product(SOUND[1:], (1.0, 4.0), SEEDS):
        fakes.append(sound(name, seed, predicted=3500, **at_epsilon(epsilon)))
    return collected(root, fakes)


def by_subjects(root: Path) -> FigureInputs:
    """30 and 60 subjects of their own, 500 and 3,500 predicted."""
    fakes = []
    for name, seed, own in product(SOUND, SEEDS, (30, 60)):
        fakes.append(sound(name, seed, subjects=own, changes=(("data", {"subjects": own}),)))
    for name, seed, predicted in product(SOUND[1:], SEEDS, (500, 3500)):
        fakes.append(sound(name, seed, predicted=predicted, changes=(("data", {"subjects": 60}),)))
    return collected(root, fakes)


def by_spread(root: Path) -> FigureInputs:
    """Two α, and subjects at one and four silos; three algorithms."""
    fakes = []
    for name, seed in product(SOUND[::2], SEEDS):
        more: dict[str, Any] = {"predicted": None if name == "fed_avg" else 3500}
        fakes += [sound(name, seed, alpha=alpha, **more) for alpha in (1.0, 16.0)]
        for held in (1, 4):
            fakes.append(sound(name, seed, changes=(("partition", {"silos_per_subject": held}),), **more))
    return collected(root, fakes)


def joint(**changes: Any) -> tuple[tuple[str, Any], ...]:
    """Changes of a made-up run of joint noise whose ε is a Rényi bound, as integer noise wants it."""
    return (("joint", changes), ("privacy", {"accountant": "rdp"}))


def joint_noise(root: Path) -> FigureInputs:
    """Local steps beside LocalItemDP, integer noise by bits beside real noise, updates noised once."""
    one: dict[str, Any] = {"rounds": 4, "mode": "sound", "local_steps": 1}
    fakes = [Fake("joint_noise", rounds=4, local_steps=k) for k in (1, 10, None)]
    fakes += [Fake("local_item_dp", rounds=4, local_steps=k) for k in (1, 10)]
    for seed in (0, 1):
        fakes.append(Fake("joint_noise", changes=joint(), seed=seed, **one))
        for bits in (4, 8, 16):
            fakes.append(Fake("joint_noise", changes=joint(noise="skellam", bits=bits), seed=seed, **one))
    for silos in (10, 300):
        changes = (*joint(clipping="update"), ("partition", {"silos": silos}))
        fakes.append(Fake("joint_noise", rounds=4, mode="sound", local_steps=5, changes=changes))
    return collected(root, fakes)


def joint_lines(root: Path) -> FigureInputs:
    """One step and one epoch, as published and with each silo's own noise."""
    own = (("joint", {"own_noise_only": True}),)
    fakes = [Fake("joint_noise", rounds=5, local_steps=k, seed=s) for k in (1, None) for s in SEEDS]
    fakes += [Fake("joint_noise", rounds=5, mode="sound", changes=own, seed=s) for s in SEEDS]
    return collected(root, fakes)


def joint_by_rounds(dataset: str) -> Callable[[Path], FigureInputs]:
    """Runs of four and of eight rounds."""
    data = (("data", {"embedded": {"subjects": 100, "items_per_subject": 100}}),)

    def make(root: Path) -> FigureInputs:
        places = product((4, 8), (1, None), SEEDS)
        fakes = [Fake("joint_noise", dataset, s, rounds=r, local_steps=k, changes=data) for r, k, s in places]
        return collected(root, fakes)

    return make


def utility(root: Path, seeds: int = 2) -> FigureInputs:
    """Excess loss of three algorithms at three steps; a printed bound for those with noise."""
    rows = []
    labels = enumerate(["FedAvg", "LocalItemDP", "UserLDP"])
    for (number, label), seed, kind, steps in product(labels, range(seeds), ("empirical", "population"), (10, 20, 40)):
        row: dict[str, Any] = dict.fromkeys(UTILITY_COLUMNS, 1.0)
        printed = steps == 40 and number and kind == "population"
        row |= {"dataset": "femnist", "synthetic": True, "algorithm": "a", "label": label, "theorem": "t"}
        row |= {"seed": seed, "quantity": kind, "steps": steps, "last": steps == 40, "epsilon": 4.0}
        row |= {"bound_printed": 50.0 if printed else math.nan, "bound": 5.0 + number}
        rows.append(row | {"excess": 0.2 + number + 0.01 * seed})
    return table(root, "utility", rows)


def noise(root: Path, predicted: float = 3500.0) -> FigureInputs:
    """Planned and measured noise; SubjectRelease has five times LocalItemDP's."""
    rows = []
    for schedule, (place, label) in product((SCENARIO, PAPERS), enumerate(["LocalItemDP", "SubjectRelease"])):
        row: dict[str, Any] = dict.fromkeys(NOISE_COLUMNS, 1.0)
        row |= {"dataset": "femnist", "synthetic": False, "label": label, "schedule": schedule}
        row |= {"unit": ("item", "subject")[place], "predicted_subjects": predicted}
        rows.append(row | {"planned": 0.001 * 5**place, "measured": 0.00101 * 5**place})
    return table(root, "noise", rows)


def counterexample(root: Path) -> FigureInputs:
    """Ten silos at q = 0.1 are the commonest setting."""
    rows = []
    for silos, steps, probability in ((5, 50, 0.1), (10, 50, 0.1), (10, 1, 0.1), (10, 10, 0.1), (10, 50, 1)):
        row: dict[str, Any] = dict.fromkeys(CASE_COLUMNS, float(steps))
        row |= {"silos": silos, "local_steps": steps, "sampling_probability": probability, "runs": 1000}
        rows.append(row | {"lower_bound": 2.0 * steps, "epsilon_claimed": 1.5 * steps})
    return table(root, "counterexample", rows)


def audit(root: Path) -> FigureInputs:
    """Nine attacks of one kind, one of another."""
    kinds = [("monte_carlo", f"setting {number}") for number in range(9)] + [("noise_level_leak", "1 step")]
    facts = {"algorithm": "user_ldp", "variant": None, "mode": "as_published", "synthetic": False}
    facts |= {"claimed_epsilon": 4.0, "true_epsilon": 9.0, "lower_bound": 5.0, "verdict": "refuted"}
    rows = [dict.fromkeys(AUDIT_COLUMNS) | {"audit": kind, "setting": text} | facts for kind, text in kinds]
    return table(root, "audit", rows)


def statistics(root: Path) -> FigureInputs:
    """The papers' settings with fewer subjects."""
    frames = []
    for known in paper_settings():
        subjects = 350 if known.dataset == "femnist" else 100
        small = Setting(known.name, known.dataset, subjects, known.alpha, 64, 1, known.published)
        frames.append(simulate_setting(0, small, np.full(subjects, 60)))
    return table(root, "statistics", pd.concat([frame.astype({"setting": str}) for frame in frames]))


def write_partition(folder: Path, alpha: float, seed: int, subjects: int = 60) -> Path:
    """Writes a partition of ``subjects`` subjects with uneven numbers of items over 16 silos."""
    generator = np.random.default_rng([seed, subjects])
    items = generator.poisson(90, subjects)
    owners = np.repeat(np.arange(subjects, dtype=np.int32), items)
    none = np.zeros(0, dtype=np.int32)
    splits = Splits(np.arange(len(owners), dtype=np.int32), owners, none, none)
    ids = [f"subject-{index}" for index in range(subjects)]
    settings = PartitionConfig(distribution="uniform" if alpha == 1 else "power", alpha=alpha)
    partition = partition_subjects(splits, ids, settings, seed)
    partition.facts["data"] = {"dataset": "femnist", "synthetic": True}
    partition_files.write_partition(folder, partition, ids)
    return folder


def partitions(root: Path) -> FigureInputs:
    """Two α, two seeds."""
    places = product((3, 1), (1.0, 16.0))
    folders = [write_partition(root / f"p{seed}{alpha:g}", alpha, seed) for seed, alpha in places]
    return FigureInputs(partitions=tuple(folders))


def table(root: Path, name: str, rows: Any) -> FigureInputs:
    """Inputs with one table."""
    pd.DataFrame(rows).to_parquet(root / f"{name}.parquet")
    return FigureInputs(**{name: root / f"{name}.parquet"})


_PAPERS = ["figure1", "figure2", "figure3", "figure1_v3", "figure2_v3", "figure3_v3", "epsilon_over_rounds", "cost"]
MADE: dict[str, Callable[[Path], FigureInputs]] = {
    **dict.fromkeys(_PAPERS, papers),
    **dict.fromkeys(["privacy", "accuracy_privacy"], papers_and_sound),
    **dict.fromkeys(["beyond_epsilon", "beyond_rounds"], by_epsilon),
    "beyond_subjects": by_subjects,
    "beyond_spread": by_spread,
    "beyond_noise": noise,
    "joint_noise": joint_noise,
    "joint_figure1": joint_lines,
    "joint_figure2": joint_by_rounds("cifar10"),
    "joint_figure3": joint_by_rounds("acs_income"),
    "joint_counterexample": counterexample,
    "audit": audit,
    "excess_loss": utility,
    **dict.fromkeys(["group_sizes_paper_scale", "subjects_per_batch_paper_scale"], statistics),
    "partition": partitions,
}
"""What makes the inputs of each figure."""
