"""The page of a scenario's results, ``index.html``: what was run, its privacy, figures and scorecard in one file."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
from docutils.core import publish_parts
from jinja2 import Environment

from subjectdp.figures.catalogue import caption
from subjectdp.io.atomic import read_sealed
from subjectdp.report.tables import write_page
from subjectdp.report.targets import Verdict, verdict_counts
from subjectdp.results.collect import read_frame
from subjectdp.results.shown_runs import NO_IDS, dataset_name, in_order

_RUNS = [
    *("dataset", "label", "settings", "mode", "subjects", "silos", "alpha", "local_steps", "seeds"),
    *("test_accuracy_percent", "test_accuracy_half_width", "epsilon_as_published", "epsilon_sound_item"),
    *("epsilon_sound_subject", "subject_guarantee", "rounds_executed", "synthetic"),
]
_SCORES = [
    *("verdict", "statement", "paper", "place", "reason", "unit", "printed", "ours", "low", "high"),
    *("epsilon_as_published", "epsilon_sound", "subject_guarantee", "evidence", "scale"),
]
_ORDER = [
    *(Verdict.REFUTED, Verdict.NOT_PROVABLE, Verdict.DIFFERS, Verdict.REPRODUCED, Verdict.CANNOT_FAIL),
    *(Verdict.NOT_AT_THIS_SCALE, Verdict.NOT_RUN),
]


@dataclass(frozen=True)
class ResultSources:
    """The files that the page of a scenario's results is made from."""

    runs_summary: Path  # CSV
    scorecard: Path  # CSV
    run_folders: tuple[Path, ...]  # whose manifests state data, machine and software
    benchmarks: Path  # Snakemake's measurements of jobs, RULE/JOB.jsonl
    jobs: frozenset[str] = frozenset()  # the names of the scenario's jobs


def write_results_page(
    sources: ResultSources,
    config: Mapping[str, Any],
    figures: Mapping[str, Mapping[str, str]],
    tables: Mapping[str, str],
    target: Path | str,
) -> None:
    """Writes ``index.html``: what was run, runs with published and sound ε, figures with captions, verdicts, scorecard.

    DataError for a missing or damaged file.

    Args:
        sources: what it is made from; pictures are those in the folder ``figures`` beside ``target``.
        config: the scenario as captions read it.
        figures: ``title``, ``category`` and ``rule`` of each figure of the scenario.
        tables: the label of each of its tables.
        target: the page.
    """
    manifests = [read_sealed(run / "manifest.json") for run in sources.run_folders]
    runs = read_frame(sources.runs_summary, _RUNS)[_RUNS]
    scores = read_frame(sources.scorecard, [*_SCORES, "counted"])
    ranked = scores.sort_values("verdict", key=lambda column: column.map(_ORDER.index), kind="stable")
    undecided = scores["verdict"].isin([Verdict.NOT_RUN, Verdict.NOT_AT_THIS_SCALE])
    write_page(
        target,
        f"{config.get('name', 'Results')}: runs, and the privacy that each has",
        description=config.get("description"),
        note=config.get("synthetic_note"),
        facts=[*_facts(manifests)],
        tables=[("Runs", "Means over the seeds; ε: the largest over the seeds.", runs)],
        figures=[
            {
                **facts,
                "name": name,
                "picture": Path(target).parent / "figures" / name / f"{name}.svg",
                "caption": _caption(caption(name), config, facts["rule"]),
            }
            for name, facts in figures.items()
        ],
        last=[
            _verdicts(scores),
            ("Scorecard", "Each printed number, ours with its 95 % interval, and the verdict.", ranked[_SCORES]),
        ],
        minutes=_minutes(manifests, sources),
        folded=bool((undecided | (scores["evidence"] != "training")).all()),  # accounting decides in every scenario
        links={f"tables/{name}.html": label for name, label in tables.items()},
    )


def _minutes(manifests: Iterable[Mapping[str, Any]], sources: ResultSources) -> list[tuple[str, int, float]]:
    """Stage, jobs and minutes, the longest first: training by algorithm, other jobs by rule."""
    seconds: dict[str, list[float]] = {}
    for manifest in manifests:
        seconds.setdefault(f"train: {manifest['algorithm']}", []).append(manifest["wall_seconds"])
    for file in sorted(sources.benchmarks.glob("*/*.jsonl")):
        if file.stem in sources.jobs:
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            seconds.setdefault(file.parent.name.replace("_", " "), []).append(sum(float(row["s"]) for row in rows))
    return sorted(((stage, len(each), sum(each) / 60) for stage, each in seconds.items()), key=lambda stage: -stage[2])


def _verdicts(scores: pd.DataFrame) -> tuple[str, str, pd.DataFrame]:
    counts = verdict_counts(scores).reindex([str(verdict) for verdict in _ORDER]).reset_index()
    left_out = int((~scores["counted"].astype(bool)).sum())
    told = (
        f"{len(scores)} printed numbers and statements of the papers, by what decides them; {left_out} of them are "
        "not counted, because they are circular or repeat another."
    )
    return "Verdicts", told, counts


def _caption(path: Path, config: Mapping[str, Any], rule: str) -> str:
    environment = Environment(trim_blocks=True, lstrip_blocks=True)
    job = SimpleNamespace(config=config, rule=rule)
    return str(publish_parts(environment.from_string(path.read_text()).render(snakemake=job), writer="html")["body"])


def _facts(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    labels = pd.Series([manifest["algorithm"] for manifest in manifests]).value_counts()
    named = ", ".join(f"{label} {labels[label]}" for label in in_order(labels.index))
    minutes = sum(manifest["wall_seconds"] for manifest in manifests) / 60
    yield "Runs", f"{len(manifests)} ({named}); {minutes:,.1f} minutes of training together"
    yield "Seeds", _distinct(sorted({manifest["config"]["seed"] for manifest in manifests}), ", ")
    yield "Data", _data_words(manifests)
    machines = [manifest.get("environment") or {} for manifest in manifests]
    told = [(one.get("device_name") or one.get("device"), one.get("threads"), one.get("platform")) for one in machines]
    yield "Machine", _distinct(f"{device}, threads: {threads}, {platform}" for device, threads, platform in told)
    yield "Software", _distinct(map(_versions, machines))
    yield "Commit", _distinct(one.get("git_commit") or "not in a checkout" for one in machines)
    inputs = [each for manifest in manifests for each in (manifest.get("data") or {}).get("inputs", ())]
    locks = [one["lock_sha256"] for one in machines if one.get("lock_sha256")]
    files = sorted({f"{each['file']} {each['sha256']}" for each in inputs})
    yield "Made from (sha256)", _distinct([*files, *(f"requirements.lock {lock}" for lock in locks)], "; ")


def _data_words(manifests: Iterable[Mapping[str, Any]]) -> str:
    """Each data set with its people, and the training items of its runs, of which a federation tells none."""
    items: dict[str, list[int]] = {}
    for manifest in manifests:
        data, counts = manifest["config"]["data"], manifest["partition"]["counts"]
        kind = "generated by this project" if manifest["synthetic"] else "real"
        people = NO_IDS if manifest["privacy"].get("own_subjects") else f"{counts['subjects']:,} subjects"
        words = f"{dataset_name(data['dataset'])}, {kind} (source {data['source']}), {people}"
        found = items.setdefault(words, [])
        if "train_items" in counts:  # no federation's
            found.append(counts["train_items"])
    told = []
    for words, found in items.items():
        ends = " to ".join(f"{end:,}" for end in sorted({min(found), max(found)})) if found else ""
        told.append(f"{words}, {ends} training items" if ends else words)
    return "; ".join(told)


def _versions(environment: Mapping[str, Any]) -> str:
    packages = environment.get("packages") or {}
    versions = [f"{name} {packages[name]}" for name in ("torch", "opacus", "dp-accounting") if packages.get(name)]
    return ", ".join([f"Python {environment.get('python', 'unknown')}", *versions])


def _distinct(values: Iterable[object], between: str = " or ") -> str:
    return between.join(dict.fromkeys(map(str, values)))
