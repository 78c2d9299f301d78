"""``subjectdp runs`` and ``subjectdp show``: what has been run, and how one run came out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from subjectdp.cli.output import print_json, print_table
from subjectdp.errors import ConfigError, DataError

_COLUMNS = ("run", "label", "epsilon", "rounds", "test accuracy", "seconds", "state")


def add_parsers(commands: Any) -> None:
    """Adds both commands."""
    runs = commands.add_parser(
        "runs",
        help="list runs and their results",
        description="Lists the runs in the results folder, or those of a scenario, with final accuracies.",
    )
    runs.add_argument("--scenario", nargs="+", metavar="FILE", help="runs of these files, done or not")
    runs.add_argument("--dataset", choices=("femnist", "shakespeare"), help="only runs on this data set")
    runs.add_argument(
        "--algorithm", metavar="NAME", help="only runs of this algorithm, e.g. higrad_avg_dp:v1"
    )
    runs.add_argument("--seed", type=int, help="only runs of this seed")
    _common(runs)
    runs.set_defaults(run=_runs)
    show = commands.add_parser(
        "show",
        help="show one run: settings, privacy, accuracy",
        description="Shows a finished run: what was run, what it guarantees, and how accurate the model is.",
    )
    show.add_argument("run_id", metavar="RUN_ID", help="id of the run, or the beginning of it")
    _common(show)
    show.set_defaults(run=_show)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", default="results", help="results folder (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _runs(options: argparse.Namespace) -> None:
    found = list(_scenario_runs(options) if options.scenario else _recorded_runs(Path(options.results)))
    listed = [run for run in found if _fits(run, options)]
    if options.json:
        print_json(listed)
        return
    print_table(_COLUMNS, [_row(run) for run in listed])
    done = sum(run["state"] == "done" for run in listed)
    print(f"\n{done} of {len(listed)} runs done")


def _row(run: dict[str, Any]) -> tuple[Any, ...]:
    final = run["final"] or {}
    config = run["config"] or {}
    private = config.get("algorithm", {}).get("name") != "fed_avg"
    epsilon = config.get("privacy", {}).get("epsilon") if private else None
    accuracy = final.get("test_accuracy")
    shown = None if accuracy is None else f"{100 * accuracy:.2f}"
    return run["run_id"], run["label"], epsilon, final.get("round"), shown, run["wall_seconds"], run["state"]


def _fits(run: dict[str, Any], options: argparse.Namespace) -> bool:
    config = run["config"]
    if options.dataset is None and options.algorithm is None and options.seed is None:
        return True
    if config is None:
        return False
    algorithm = config["algorithm"]
    names = (algorithm["name"], f"{algorithm['name']}:{algorithm['variant']}")
    return (
        (options.dataset is None or config["data"]["dataset"] == options.dataset)
        and (options.algorithm is None or options.algorithm in names)
        and (options.seed is None or config["seed"] == options.seed)
    )


def _scenario_runs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from subjectdp.config import load_scenario

    for run in load_scenario(options.scenario).runs:
        recorded = _summary(Path(options.results) / "runs" / run.run_id)
        if recorded["state"] != "done":
            recorded |= {"label": run.algorithm.label, "config": run.model_dump(mode="json")}
        yield recorded


def _recorded_runs(results: Path) -> Iterator[dict[str, Any]]:
    folder = results / "runs"
    if not folder.is_dir():
        raise DataError(
            f"Expected {folder} to be a folder of runs; has anything been run (or use --results)?"
        )
    for run in sorted(path for path in folder.iterdir() if path.is_dir()):
        yield _summary(run)


def _summary(folder: Path) -> dict[str, Any]:
    """One run: done (a manifest is there), started (a folder is there), or open."""
    manifest = _manifest(folder)
    if manifest is None:
        state = "started" if folder.is_dir() else "open"
        nothing = dict.fromkeys(("label", "config", "final", "wall_seconds"))
        return {"run_id": folder.name, "state": state, **nothing}
    return {
        "run_id": folder.name,
        "state": "done",
        "label": manifest.get("algorithm"),
        "config": manifest.get("config"),
        "final": manifest.get("final"),
        "wall_seconds": manifest.get("wall_seconds"),
    }


def _manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / "manifest.json"
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as problem:
        raise DataError(f"Expected {path} to be a manifest in JSON, got {problem}.") from None
    if not isinstance(content, dict):
        raise DataError(f"Expected {path} to hold a mapping, got {type(content).__name__}.")
    return content


def _show(options: argparse.Namespace) -> None:
    folder = _find(Path(options.results) / "runs", options.run_id)
    manifest = _manifest(folder)
    if manifest is None:
        raise DataError(f"Expected run {folder.name} to be finished: there is no manifest.json in {folder}.")
    if options.json:
        print_json(manifest)
        return
    from subjectdp.cli.run_report import print_run

    print_run(folder, manifest)


def _find(folder: Path, text: str) -> Path:
    """The folder of the run whose id is ``text`` or, if only one does, begins with it."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    matching = [name for name in names if name.startswith(text)]
    if text in names:
        return folder / text
    if not matching:
        from subjectdp.errors import expected

        raise expected("RUN_ID", text, f"the id of a run in {folder} (see subjectdp runs)")
    if len(matching) > 1:
        listed = ", ".join(matching[:5]) + (", ..." if len(matching) > 5 else "")
        raise ConfigError(
            f"Expected RUN_ID to fit one run, got {text!r}, which fits {len(matching)}: {listed}."
        )
    return folder / matching[0]
