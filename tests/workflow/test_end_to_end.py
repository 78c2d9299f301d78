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

from report.browser import find_browser
from report.smoke_report import check_report, check_screenshot, look_at
from subjectdp.config import paths

pytestmark = pytest.mark.long
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


def test_a_run_leaves_six_files_and_its_log_is_one_of_them(smoke):
    for run_id in runs(smoke)["run_id"]:
        folder = smoke.root / "results/runs" / run_id
        assert {file.name for file in folder.iterdir()} == set(paths.RUN_FILES) and len(paths.RUN_FILES) == 6
        lines = (folder / "progress.log").read_text().splitlines()
        rounds = json.loads((folder / "manifest.json").read_text())["plan"]["rounds"]
        assert len([line for line in lines if f"round {rounds}/{rounds}" in line]) == 1, lines
        assert not list((smoke.root / "results").glob(f"*/train/{run_id}*"))


@pytest.fixture(scope="module")
def report(smoke) -> Path:
    """The report of the smoke scenario."""
    printed = smoke.snakemake(*SMOKE, "--report", "results/smoke/report.html").stdout
    assert "ERROR" not in printed and "WARNING" not in printed, "docutils complains of a caption"
    return smoke.root / "results/smoke/report.html"


def test_the_report_is_one_self_contained_file(smoke, report):
    page = report.read_text()
    assert 100_000 < len(page) < 8_000_000
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', page), "opens offline"
    for figure in scenario(smoke)["figures"]:
        assert figure in page


def test_the_report_opens_in_a_browser(smoke, report, tmp_path):
    browser = find_browser()
    if browser is None:
        pytest.skip("no Chromium or Chrome here (apt-get install chromium, or SUBJECTDP_BROWSER=/path)")
    found = check_report(look_at(browser, report), " ".join(SMOKE))
    shown = {Path(path).name for path in found["results"]}
    assert shown >= {
        "scorecard.html",
        "runs_summary.html",
        "figure1.svg",
        "partition.svg",
    }
    assert "How to read this report" in found["opening"]
    assert {"Paper v1", "Scorecard", "Tables", "Data"} <= set(found["lists"])
    check_screenshot(browser, report, tmp_path / "opening.png")


LIBRARY = Path("workflow/lib/subjectdp")
EDITS = {
    "plotting": (LIBRARY / "figures/papers.py", {"figure", "results_page"}),
    "collection": (
        LIBRARY / "results/collect.py",
        {"collect", "runs_summary", "scorecard", "results_page", "figure"},
    ),
    "training": (
        LIBRARY / "training/federation.py",
        {"train", "collect", "runs_summary", "scorecard", "results_page", "figure"},
    ),
    "clipping": (
        LIBRARY / "engine/clipping.py",
        {"train", "collect", "runs_summary", "scorecard", "results_page", "figure"},
    ),
    "partition": (
        LIBRARY / "data/spread.py",
        {"partition", "train", "collect", "runs_summary", "scorecard", "results_page", "figure"},
    ),
}


@pytest.mark.parametrize(("module", "stages"), EDITS.values(), ids=EDITS)
def test_an_edited_module_reruns_exactly_the_stages_that_use_it(smoke, module, stages):
    with appended(smoke.root / module, "\n_EDITED = 1\n"):
        assert set(smoke.planned_jobs(*SMOKE)) == stages


def test_the_reason_is_the_code(smoke):
    with appended(smoke.root / LIBRARY / "figures/papers.py", "\n_EDITED = 1\n"):
        assert "Params have changed since last execution" in smoke.snakemake("--dry-run", *SMOKE).stdout


def test_an_edited_algorithm_trains_its_own_runs_alone(smoke):
    table = runs(smoke)
    with appended(smoke.root / LIBRARY / "algorithms/higrad_avg_dp.py", "\n_EDITED = 1\n"):
        assert smoke.planned_jobs(*SMOKE).count("train") == (table["algorithm"] == "higrad_avg_dp").sum() > 0
    with appended(smoke.root / LIBRARY / "algorithms/user_ldp.py", "\n_EDITED = 1\n"):
        assert smoke.planned_jobs(*SMOKE) == [], "no run of the scenario uses it"


def test_a_comment_or_a_docstring_reruns_nothing(smoke):
    with appended(smoke.root / LIBRARY / "engine/clipping.py", "\n# a comment\n"):
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


def test_a_run_that_was_removed_is_made_again(smoke, tmp_path):
    """Also when only its manifest is: what the docs say to do with a damaged run, or to train one anew."""
    run_id = str(runs(smoke)["run_id"].iloc[0])
    manifest = smoke.root / "results/runs" / run_id / "manifest.json"
    manifest.rename(tmp_path / "manifest.json")
    try:
        jobs = smoke.planned_jobs(*SMOKE)
    finally:
        (tmp_path / "manifest.json").rename(manifest)
    assert jobs.count("train") == jobs.count("collect") == 1
    assert {"fetch", "prepare", "partition"}.isdisjoint(jobs)


def test_settings_of_speed_rerun_nothing(smoke, tmp_path):
    file = tmp_path / "speed.yaml"
    file.write_text("run: {performance: {physical_batch_size: 64, checkpoint_minutes: 77}}\n")
    assert smoke.planned_jobs(*SMOKE, str(file)) == []


@pytest.mark.parametrize(
    ("option", "told"), [((), "limit: None"), (("--max-jobs-per-timespan", "7/1s"), "limit: 7")]
)
def test_jobs_that_have_ended_do_not_wake_the_scheduler(smoke, option, told):
    """Snakemake's default limit on jobs a second is off, one that a user sets stays."""
    (smoke.root / "Watched").write_text(
        'include: "workflow/Snakefile"\n\n\nonsuccess:\n    limiter = workflow.scheduler.job_rate_limiter\n'
        '    print("limit:", limiter and limiter.max_jobs)\n'
    )
    once = ("--snakefile", "Watched", "--forcerun", "results_page", *option, "--", "results_page")
    assert told in smoke.snakemake(*SMOKE, *once).stdout
