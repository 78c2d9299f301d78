"""The smoke scenario from nothing to its report, and what reruns when code or settings change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import yaml

SMOKE = ("--configfile", "config/scenarios/smoke.yaml")


@pytest.fixture(scope="module")
def smoke(make_project, tmp_path_factory):
    """A copy of the project in which the smoke scenario has been run."""
    project = make_project(tmp_path_factory.mktemp("smoke") / "project")
    project.snakemake(*SMOKE)
    return project


@contextmanager
def appended(path: Path, text: str) -> Iterator[None]:
    """``path`` with ``text`` at its end, for as long as the block lasts."""
    before = path.read_bytes()
    path.write_bytes(before + text.encode())
    try:
        yield
    finally:
        path.write_bytes(before)


def scenario(project) -> dict:
    return yaml.safe_load((project.root / "config/scenarios/smoke.yaml").read_text())


def runs(project) -> pd.DataFrame:
    return pd.read_parquet(project.root / "results/smoke/runs.parquet")


def test_every_run_is_indexed_and_has_trained(smoke):
    table = runs(smoke)
    folders = sorted(path.name for path in (smoke.root / "results/runs").iterdir())
    assert sorted(table["run_id"]) == folders
    assert table["final_test_accuracy"].between(0, 1).all()
    assert table["synthetic"].all()
    for run_id in folders:
        folder = smoke.root / "results/runs" / run_id
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["run_id"] == run_id
        rounds = pd.read_parquet(folder / "rounds.parquet")
        assert rounds["round"].max() == manifest["plan"]["rounds"]
        assert (folder / "model.safetensors").stat().st_size > 0


def test_every_figure_is_there_as_picture_and_values(smoke):
    for figure in scenario(smoke)["figures"]:
        folder = smoke.root / "results/smoke/figures" / figure
        assert (folder / f"{figure}.svg").read_text().lstrip().startswith("<?xml")
        assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_csv(folder / f"{figure}.csv")) > 0


def test_nothing_is_left_to_do_and_nothing_half_written(smoke):
    assert smoke.planned_jobs(*SMOKE) == []
    assert not list((smoke.root / "results").rglob("*.tmp*"))


def test_logs_and_benchmarks_of_the_jobs_are_kept(smoke):
    for run_id in runs(smoke)["run_id"]:
        log = (smoke.root / f"results/logs/train/{run_id}.log").read_text()
        assert "round" in log.lower()
        line = json.loads(
            (smoke.root / f"results/benchmarks/train/{run_id}.jsonl").read_text().splitlines()[-1]
        )
        assert line["s"] > 0


def test_the_report_is_one_self_contained_file(smoke):
    smoke.snakemake(*SMOKE, "--report", "results/smoke/report.html")
    page = (smoke.root / "results/smoke/report.html").read_text()
    assert len(page) > 100_000
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', page), "opens offline"
    for figure in scenario(smoke)["figures"]:
        assert figure in page


def test_the_plan_counts_what_is_done_and_is_made_anew_each_time(smoke):
    for _ in range(2):
        printed = smoke.snakemake("plan", *SMOKE).stdout
        assert (
            f"Plan of the scenario smoke: {len(runs(smoke))} runs, {len(runs(smoke))} of them done" in printed
        )
    assert (smoke.root / "results/smoke/plan.txt").read_text() in printed
    assert len(pd.read_csv(smoke.root / "results/smoke/plan.csv")) == len(runs(smoke))
    assert smoke.planned_jobs(*SMOKE) == []


LIBRARY = Path("workflow/lib/subjectdp")
EDITS = {
    "plotting": (LIBRARY / "analysis/figures/four_panels.py", {"figure"}),
    "collection": (LIBRARY / "analysis/collect.py", {"collect", "runs_summary", "scorecard", "figure"}),
    "training": (
        LIBRARY / "training/federation.py",
        {"train", "collect", "runs_summary", "scorecard", "figure"},
    ),
    "clipping": (
        LIBRARY / "mechanisms/clipping.py",
        {"train", "collect", "runs_summary", "scorecard", "figure"},
    ),
    "partition": (
        LIBRARY / "data/spread.py",
        {"partition", "train", "collect", "runs_summary", "scorecard", "figure"},
    ),
}


@pytest.mark.parametrize(("module", "stages"), EDITS.values(), ids=EDITS)
def test_an_edited_module_reruns_exactly_the_stages_that_use_it(smoke, module, stages):
    with appended(smoke.root / module, "\n_EDITED = 1\n"):
        assert set(smoke.planned_jobs(*SMOKE)) == stages


def test_the_reason_is_the_code(smoke):
    with appended(smoke.root / LIBRARY / "analysis/figures/four_panels.py", "\n_EDITED = 1\n"):
        assert "Params have changed since last execution" in smoke.snakemake("--dry-run", *SMOKE).stdout


def test_an_edited_algorithm_trains_its_own_runs_alone(smoke):
    table = runs(smoke)
    with appended(smoke.root / LIBRARY / "algorithms/higrad_avg_dp.py", "\n_EDITED = 1\n"):
        assert smoke.planned_jobs(*SMOKE).count("train") == (table["algorithm"] == "higrad_avg_dp").sum() > 0
    with appended(smoke.root / LIBRARY / "algorithms/user_ldp.py", "\n_EDITED = 1\n"):
        assert smoke.planned_jobs(*SMOKE) == [], "no run of the scenario uses it"


def test_a_comment_or_a_docstring_reruns_nothing(smoke):
    with appended(smoke.root / LIBRARY / "mechanisms/clipping.py", "\n# a comment\n"):
        assert smoke.planned_jobs(*SMOKE) == []


def test_a_new_seed_runs_only_its_own_jobs(smoke, tmp_path):
    content = scenario(smoke)
    assert all("seed" not in block for block in content["sweep"])
    for block in content["sweep"]:
        block["seed"] = [0, 77]
    file = tmp_path / "more.yaml"
    file.write_text(yaml.safe_dump(content))
    jobs = smoke.planned_jobs("--configfile", str(file))
    assert jobs.count("train") == len(runs(smoke))
    assert {"fetch", "prepare"}.isdisjoint(jobs)
    assert {"partition", "collect", "figure"} <= set(jobs)


def test_settings_of_speed_rerun_nothing(smoke, tmp_path):
    file = tmp_path / "speed.yaml"
    file.write_text("run: {performance: {physical_batch_size: 64, evaluation_batch_size: 77}}\n")
    assert smoke.planned_jobs(*SMOKE, str(file)) == []
