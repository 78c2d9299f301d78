"""Runs as their folders tell of them: what has been run, how far it is, and how long it will take."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from subjectdp.algorithms.registry import label
from subjectdp.config.run import RunConfig, settings_apart
from subjectdp.errors import ConfigError, DataError, SubjectDPError, expected, in_words
from subjectdp.io.atomic import read_sealed
from subjectdp.io.locks import holder
from subjectdp.places import PROGRESS
from subjectdp.results.shown_runs import run_label

UNITS = {"item": "one item", "subject_one_silo": "one subject, at one silo", "subject": "one subject, at all its silos"}
"""What a sound ε of a manifest is for."""
_LISTED = 8  # runs in a message


class State(StrEnum):
    DONE = "done"
    TRAINING = "training"  # a process holds its folder
    STOPPED = "stopped"  # begun, and nobody is at it
    OPEN = "open"  # nothing there yet
    BROKEN = "broken"  # a manifest that cannot be read, or was changed


@dataclass(frozen=True)
class RunFolder:
    """One run; what is not known of it is None."""

    run_id: str
    state: State
    label: str | None = None
    config: dict[str, Any] | None = None
    final: dict[str, Any] | None = None  # metrics of the last evaluated round
    rounds_done: int | None = None
    rounds: int | None = None
    test_accuracy: float | None = None
    wall_seconds: float | None = None
    seconds_left: int | None = None
    epsilon_published: float | None = None
    epsilon_sound_subject: float | None = None
    conditional: bool = False  # that ε rests on a bound that was read from the data
    note: str | None = None  # who trains it, or what is wrong with it

    @property
    def progress(self) -> str | None:
        return None if self.rounds_done is None else f"{self.rounds_done}/{self.rounds}"


_KINDS: dict[Any, tuple[str, ...]] = {
    dict: ("config.algorithm", "config.data"),
    str: ("config.algorithm.name", "config.data.dataset"),
    (int, float): ("progress.test_accuracy", "progress.seconds_left"),
}
"""The kinds of what commands read of a run that has begun, where it is there; sections before what they hold."""


def _check_kinds(path: Path, content: Any) -> None:
    """DataError for files of other kinds, which no seal guards, as after one was damaged or written by hand."""
    for kind, keys in _KINDS.items():
        for key in keys:
            value: Any = content
            for part in key.split("."):
                value = value.get(part) if value else None
            if value is not None and not isinstance(value, kind):
                raise DataError(f"{path} is damaged ({key}: {in_words(value)}). Remove it and run the workflow again.")


def recorded_runs(results: Path) -> Iterator[RunFolder]:
    """All runs below ``results``, by id; DataError where there is no folder of runs."""
    folder = results / "runs"
    if not folder.is_dir():
        raise DataError(f"Expected {folder} to be a folder of runs; has anything been run (or use --results)?")
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        yield read_run_folder(run)


def find_run(results: Path, text: str) -> Path:
    """The folder of the run whose id is ``text`` or, if only one does, begins with it; ConfigError otherwise."""
    folder = results / "runs"
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    matching = [name for name in names if name.startswith(text)]
    if text in names:
        return folder / text
    if not matching:
        raise expected("RUN_ID", text, f"the id of a run in {folder} (see subjectdp runs)")
    if len(matching) > 1:
        configs = {name: config for name in matching if (config := read_run_folder(folder / name).config) is not None}
        settings = settings_apart(configs)
        lines = [f"  {name}  {settings.get(name, '')}".rstrip() for name in matching[:_LISTED]]
        lines += ["  ..."] if len(matching) > _LISTED else []
        wrong = f"Expected RUN_ID to fit one run, got {text!r}, which fits {len(matching)}:"
        raise ConfigError("\n".join([wrong, *lines]))
    return folder / matching[0]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished run; DataError where it is not finished, or its manifest damaged or changed."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise DataError(f"Expected run {folder.name} to be finished: there is no manifest.json in {folder}.")
    return read_sealed(path, "Remove it and run the workflow again.")


def read_run_folder(folder: Path) -> RunFolder:
    """What the folder of a run holds; a folder that is not there is a run to be made."""
    if not folder.is_dir():
        return RunFolder(folder.name, State.OPEN)
    try:
        return _finished(folder) if (folder / "manifest.json").is_file() else _begun(folder)
    except SubjectDPError as problem:
        return RunFolder(folder.name, State.BROKEN, note=str(problem))


def scenario_run(run: RunConfig, results: Path) -> RunFolder:
    """What there is of a scenario's run; its label and settings also where it has not begun."""
    found = read_run_folder(results / "runs" / run.run_id)
    if found.config is not None:
        return found
    label = run_label(run.algorithm.label, run.privacy.predicted_subjects)
    return replace(found, label=label, config=run.model_dump(mode="json"))


def _finished(folder: Path) -> RunFolder:
    manifest = read_manifest(folder)
    final, privacy, rounds = manifest["final"], manifest["privacy"], manifest["rounds_executed"]
    return RunFolder(
        folder.name,
        State.DONE,
        label=run_label(manifest["algorithm"], (privacy["predicted"] or {}).get("subjects")),
        config=manifest["config"],
        final=final,
        rounds_done=rounds,
        rounds=rounds,
        test_accuracy=final["test_accuracy"],
        wall_seconds=manifest["wall_seconds"],
        epsilon_published=epsilon_of(privacy, "as_published"),
        epsilon_sound_subject=epsilon_of(privacy, "subject"),
        conditional=privacy["sound"]["subject"]["guarantee"] == "conditional",
    )


def _begun(folder: Path) -> RunFolder:
    owner = holder(folder / ".lock")
    config = _json(folder / "config.json")
    progress = _json(folder / PROGRESS) or {}
    _check_kinds(folder, {"config": config, "progress": progress})
    return RunFolder(
        folder.name,
        State.STOPPED if owner is None else State.TRAINING,
        label=None if config is None else label_of(config),
        config=config,
        rounds_done=progress.get("round"),
        rounds=progress.get("rounds"),
        test_accuracy=progress.get("test_accuracy"),
        seconds_left=None if owner is None else progress.get("seconds_left"),
        note=None if owner is None else f"by {owner}",
    )


def epsilon_of(privacy: dict[str, Any], unit: str) -> float | None:
    """ε that a manifest states: ``as_published``, or the sound one of a unit; None where none is stated, and of a
    subject where nothing says whose an item is.
    """
    epsilon: float | None = statement_of(privacy, unit)["epsilon"]
    return None if unit in UNITS and unit not in stated_units([privacy]) else epsilon


def statement_of(privacy: Mapping[str, Any], unit: str) -> Mapping[str, Any]:
    """What a manifest states: ``as_published``, or of a unit, as can be proven."""
    statement: Mapping[str, Any] = privacy[unit] if unit == "as_published" else privacy["sound"][unit]
    return statement


def stated_units(privacy: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """:data:`UNITS`, or items alone where nothing says whose they are: a subject's ε is that of an item."""
    alone = any(each["own_subjects"] for each in privacy)
    return {key: words for key, words in UNITS.items() if key == "item" or not alone}


def label_of(config: dict[str, Any]) -> str | None:
    """The algorithm's name in figures; None where the configuration is not one of this version's."""
    try:
        name = label(config["algorithm"]["name"], config["algorithm"].get("variant"))
        return run_label(name, (config.get("privacy") or {}).get("predicted_subjects"))
    except (SubjectDPError, KeyError, TypeError, AttributeError):
        return None


def count_states(runs: Iterable[RunFolder]) -> str:
    """How many runs are in each state that occurs: ``2 done, 1 stopped``."""
    states = [run.state for run in runs]
    return ", ".join(f"{states.count(state)} {state}" for state in State if state in states)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
