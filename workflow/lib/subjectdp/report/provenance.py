"""The report's page of what the results come from: scenario, data, software as it ran, lock file, privacy cards."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from subjectdp.io.atomic import sha256_of, write_text
from subjectdp.report import page
from subjectdp.results.frames import read_frame, read_json

_COLUMNS = ("run_id", "label", "dataset", "seed", "epsilon_sound_subject", "epsilon_sound_item", "config")


def write_provenance(
    runs: Path | str, run_folders: Path | str, scenario: str, lock: Path | str, target: Path | str
) -> None:
    """Writes the page.

    Args:
        runs: runs.parquet of the scenario.
        run_folders: folder of all run folders, whose manifests state the rest.
        scenario: the scenario's settings as text.
        lock: requirements.lock of the checkout.
        target: the page.

    Raises:
        DataError: a file that is missing or damaged.
    """
    table, lock = read_frame(Path(runs), list(_COLUMNS)), Path(lock)
    manifests = {
        run_id: read_json(Path(run_folders) / run_id / "manifest.json") for run_id in table["run_id"]
    }
    parts = [
        "<h2>Scenario</h2>",
        _pre(scenario),
        *_data(manifests.values()),
        *_software([manifest.get("environment") or {} for manifest in manifests.values()]),
        f"<h2>Lock file</h2><p>The checkout's, sha256 <code>{sha256_of(lock)}</code>.</p>",
        _folded(lock.name, lock.read_text()),
        *_cards(table, manifests),
    ]
    write_text(target, page.page("Provenance: what the results come from", "\n".join(parts)))


def _data(manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Hashes of the source files and of the prepared arrays."""
    rows: dict[tuple[str, str], str] = {}
    for manifest in manifests:
        data, name = manifest.get("data") or {}, manifest["config"]["data"]["dataset"]
        for source in data.get("inputs", ()):
            rows[name, f"source {source['file']}"] = source["sha256"]
        for file, sha256 in dict(data.get("sha256") or {}).items():
            rows[name, f"prepared {file}"] = sha256
    yield "<h2>Data</h2>"
    frame = [(name, file, sha256) for (name, file), sha256 in sorted(rows.items())]
    yield page.table(pd.DataFrame(frame, columns=["data set", "file", "sha256"]), "data")


def _software(environments: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Versions, commit and lock as the runs had them, with the number of runs of each."""
    found: Counter[tuple[str, str]] = Counter()
    for environment in environments:
        versions = {"Python": environment.get("python"), **(environment.get("packages") or {})}
        rest = {"commit": "git_commit", "requirements.lock": "lock_sha256", "machine": "platform"}
        versions |= {name: environment.get(key) for name, key in rest.items()}
        found.update((name, str(version)) for name, version in versions.items() if version)
    rows = [(name, version, count) for (name, version), count in sorted(found.items())]
    yield "<h2>Software as it ran</h2>"
    if rows:
        yield page.table(pd.DataFrame(rows, columns=["what", "version", "runs"]), "software")


def _cards(runs: pd.DataFrame, manifests: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A card for each setting: that of its run whose subjects have the largest ε."""
    yield "<h2>Privacy cards</h2><p>Of the runs that differ in the seed alone, the one with the largest ε of a "
    yield "subject; the others' are in their <code>manifest.json</code>.</p>"
    setting = [json.dumps({k: v for k, v in json.loads(t).items() if k != "seed"}) for t in runs["config"]]
    rising = runs.assign(setting=setting).sort_values(
        ["epsilon_sound_subject", "epsilon_sound_item"], kind="stable"
    )
    largest = rising.groupby("setting", sort=False).tail(1)  # where no ε can be stated it is last
    for run in largest.sort_values(["dataset", "label", "run_id"]).to_dict("records"):
        name = str(run["run_id"])
        card = (manifests[name].get("privacy") or {}).get("card") or [
            "None: the run is older than the cards."
        ]
        yield _folded(f"{run['dataset']}: {run['label']} ({name})", "\n".join(card))


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{html.escape(title)}</summary>{_pre(text)}</details>"


def _pre(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"
