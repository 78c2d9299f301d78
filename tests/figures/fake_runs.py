"""Made-up runs in the layout that training leaves behind; curves and mini-batches as they look at scale."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from subjectdp.config.run import RunConfig
from subjectdp.io.atomic import sealed, sha256_of
from subjectdp.results.collect import FigureInputs, collect_scenario

# final accuracy, loss at the end, sound ε: item, subject at one silo, subject
_FEMNIST = {
    "fed_avg": (0.84, 0.55, None, None, None),
    "local_item_dp": (0.76, 0.95, 3.99, 57.9, 231.0),
    "user_ldp": (0.12, 3.60, 1.04, 1.04, 2.25),
    "local_group_dp": (0.61, 1.60, None, None, None),
    "higrad_avg_dp:v1": (0.73, 1.05, 2.1, 50.4, 144.6),
    "higrad_avg_dp:v3": (0.54, 1.90, 0.9, 3.69, 8.33),
    "central_sub_dp": (0.45, 2.30, 0.4, 3.1, "inf"),
    "joint_noise": (0.66, 1.40, 2.75, 20.0, 20.0),
    "uldp_fl": (0.77, 0.80, 8.4, 4.0, 4.0),
    "subject_release": (0.78, 0.80, 8.4, 4.0, 4.0),
}
_CLASSES = {"femnist": 62, "shakespeare": 80, "acs_income": 2, "cifar10": 10, "fashion_mnist": 10, "table": 2}
_LIMITED = ("user_ldp", "local_group_dp", "higrad_avg_dp:v1", "higrad_avg_dp:v3")


@dataclass(frozen=True)
class Fake:
    """One made-up run."""

    algorithm: str
    dataset: str = "femnist"
    seed: int = 0
    alpha: float = 1.0
    rounds: int = 16
    mode: str = "as_published"
    local_steps: int | None = None
    learning_rate: float = 0.1
    synthetic: bool = True
    subjects: int = 60
    predicted: int | None = None  # subjects whose noise the run has
    changes: tuple[tuple[str, Any], ...] = ()  # of the configuration, as section -> mapping

    @property
    def config(self) -> RunConfig:
        """The resolved configuration."""
        sound = self.mode == "sound"
        partition = {"distribution": "uniform" if self.alpha == 1 else "power", "alpha": self.alpha}
        training: dict[str, Any] = {"rounds": self.rounds, "local_steps": self.local_steps}
        training |= {"optimizer": {"learning_rate": self.learning_rate}}
        horizontal = "sound" if sound else "rounds_over_sqrt_s"
        sections: dict[str, Any] = {
            "data": {"dataset": self.dataset},
            "partition": {**partition, "max_items_per_subject": 8 if sound else None},
            "privacy": {"mode": self.mode, "horizontal": horizontal, "predicted_subjects": self.predicted},
            "training": {**training, "batch_size": 512 if self.dataset == "femnist" else 100},
        }
        changed = {name: {**sections.get(name, {}), **dict(content)} for name, content in self.changes}
        return RunConfig.model_validate({"seed": self.seed, "algorithm": self.algorithm, **sections, **changed})

    @property
    def executed(self) -> int:
        """Rounds after the published horizontal rule."""
        limited = self.algorithm in _LIMITED and self.mode == "as_published"
        return max(1, self.rounds // 4) if limited else self.rounds


def write_run(root: Path, fake: Fake) -> Path:
    """Writes rounds.parquet, steps.parquet and manifest.json of one made-up run; returns its folder."""
    config = fake.config
    folder = root / config.run_id
    folder.mkdir(parents=True)
    generator = np.random.default_rng([fake.seed, int(fake.alpha * 8), len(fake.algorithm), len(fake.dataset)])
    steps = _steps(fake, generator).assign(run_id=config.run_id)
    rounds = _rounds(fake, generator, len(steps)).assign(run_id=config.run_id)
    steps.to_parquet(folder / "steps.parquet", index=False)
    rounds.to_parquet(folder / "rounds.parquet", index=False)
    (folder / "manifest.json").write_text(json.dumps(_manifest(fake, config)))
    list_files(folder)
    return folder


def list_files(folder: Path) -> None:
    """Makes the manifest list the tables as they are now, and seals it."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    tables = (folder / "rounds.parquet", folder / "steps.parquet")
    manifest["files"] = {t.name: {"bytes": t.stat().st_size, "sha256": sha256_of(t)} for t in tables}
    path.write_text(json.dumps(sealed(manifest)))


def write_runs(root: Path, fakes: Iterable[Fake]) -> list[Path]:
    """Writes several runs; returns their folders."""
    return [write_run(root, fake) for fake in fakes]


def collected(root: Path, fakes: Iterable[Fake], **more: Any) -> FigureInputs:
    """The collected tables of made-up runs, and ``more`` inputs."""
    collect_scenario(write_runs(root / "runs", fakes), root)
    return FigureInputs(root / "runs.parquet", root / "rounds.parquet", root / "steps.parquet", **more)


def grid(algorithms: Iterable[str], datasets: Iterable[str], seeds: Iterable[int], **more: Any) -> list[Fake]:
    """All combinations."""
    chosen, seeds = list(algorithms), list(seeds)
    return [Fake(a, d, s, **more) for d in datasets for a in chosen for s in seeds]


def _rounds(fake: Fake, generator: np.random.Generator, steps: int) -> pd.DataFrame:
    top, end, *_ = _FEMNIST[fake.algorithm]
    top *= 1.0 if fake.dataset == "femnist" else 0.62
    if fake.local_steps is not None:
        top *= 0.6 + 0.1 * np.log2(fake.local_steps + 1)
    number = np.arange(1, fake.executed + 1)
    rise = 1 - np.exp(-number / (0.15 * fake.rounds))
    start = np.log(_CLASSES[fake.dataset])
    accuracy = np.clip(top * rise + generator.normal(0, 0.012, number.size) + generator.normal(0, 0.01), 0.01, 1)
    loss = start + (end - start) * rise + generator.normal(0, 0.04, number.size)
    columns = {"round": number, "train_seconds": 2.0, "test_accuracy": accuracy, "test_loss": loss}
    columns |= {"validation_accuracy": accuracy - 0.01, "validation_loss": loss + 0.02}
    columns["steps_done"] = np.linspace(0, steps, fake.executed + 1).astype(int)[1:]
    return pd.DataFrame(columns)


def _steps(fake: Fake, generator: np.random.Generator) -> pd.DataFrame:
    silos, local = 16, 6
    size = silos * local * fake.executed
    femnist = fake.dataset == "femnist"
    items = generator.poisson(512 if femnist else 100, size)
    likely = [0.17, 0.72, 0.09, 0.02] if femnist else [0.12, 0.6, 0.23, 0.05]
    group = generator.choice([2, 3, 4, 5], size, p=likely)
    group += generator.binomial(round(2 * np.log2(fake.alpha)), 0.4, size)
    columns = {
        "round": np.repeat(np.arange(1, fake.executed + 1), silos * local),
        "silo": np.tile(np.repeat(np.arange(silos), local), fake.executed),
        "step": np.tile(np.arange(local), silos * fake.executed),
        "items": items,
        "subjects": items - generator.poisson(35 if femnist else 14, size),
        "largest_group": group,
    }
    return pd.DataFrame(columns | {"noise_multiplier": 1.7, "clipped_fraction": 0.9})


def _over_rounds(fake: Fake, stated: dict[str, Any]) -> dict[str, Any] | None:
    """ε that grows with the root of the rounds; none where no finite one is stated at the end."""
    if fake.algorithm == "fed_avg":
        return None
    rounds = sorted({max(1, fake.executed // 4), max(1, fake.executed // 2), fake.executed})
    found: dict[str, Any] = {"rounds": rounds, "constant_noise_assumed": stated["subject"] is None}
    for name in ("item", "subject"):
        last = stated[name]
        finite = isinstance(last, int | float)
        found[name] = [float(last) * (n / fake.executed) ** 0.5 for n in rounds] if finite else None
    return found


def _manifest(fake: Fake, config: RunConfig) -> dict[str, Any]:
    item, one, subject = _FEMNIST[fake.algorithm][2:]
    if isinstance(subject, float) and fake.dataset != "femnist":
        subject *= 1.31
    stated = {"item": item, "subject_one_silo": one, "subject": subject}
    if fake.mode == "sound":
        stated = {"item": 1.1, "subject_one_silo": 2.2, "subject": 4.0}
    guarantee = True if fake.mode == "sound" else "conditional"
    sound = {name: {"epsilon": value, "guarantee": guarantee} for name, value in stated.items() if value is not None}
    predicted = {"subjects": fake.predicted, "present": fake.subjects, "epsilon": 4.0, "guarantee": False}
    as_published = fake.mode == "as_published" and fake.algorithm != "fed_avg"
    published = {"epsilon": 4.0, "delta": 1e-5, "guarantee": False}
    return {
        "run_id": config.run_id,
        "algorithm": config.algorithm.label,
        "config": config.model_dump(mode="json"),
        "synthetic": fake.synthetic,
        "plan": {"rounds": fake.executed},
        "privacy": {
            "as_published": published if as_published else None,
            "sound": sound,
            "over_rounds": _over_rounds(fake, stated),
            "predicted": None if fake.predicted is None else predicted,
            "own_subjects": config.data.own_subjects,
        },
        "partition": {"counts": {"subjects": fake.subjects, "train_items": 50 * fake.subjects}},
        "rounds_executed": fake.executed,
        "final": {"round": fake.executed},
        "most_frequent_class": 0.188 if fake.dataset == "shakespeare" else 0.06,
        "wall_seconds": 31.5,
        "peak_memory_mb": 412.0,
    }
