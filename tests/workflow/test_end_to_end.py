"""The smoke scenario from nothing to its report, and what is tried again; what reruns after edits is in test_reruns."""

import json
import re
import shutil

import pandas as pd
import pytest
import yaml

from subjectdp.places import RUN_FILES

pytestmark = pytest.mark.long
SMOKE = ("--configfile", "config/scenarios/smoke.yaml")


@pytest.fixture(scope="module")
def smoke(make_project, tmp_path_factory):
    """A copy of the project in which the smoke scenario has been run."""
    project = make_project(tmp_path_factory.mktemp("smoke") / "project")
    project.snakemake(*SMOKE)
    return project


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
        assert {file.name for file in folder.iterdir()} == set(RUN_FILES)
        last = f"round {rounds['round'].max()}/{manifest['plan']['rounds']}"
        assert sum(last in line for line in (folder / "progress.log").read_text().splitlines()) == 1


def test_every_figure_is_there_as_picture_and_values(smoke):
    for figure in scenario(smoke)["figures"]:
        folder = smoke.root / "results/smoke/figures" / figure
        assert (folder / f"{figure}.svg").read_text().lstrip().startswith("<?xml")
        assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_csv(folder / f"{figure}.csv")) > 0


def test_nothing_is_left_to_do_and_nothing_half_written(smoke):
    assert "Nothing to be done" in smoke.snakemake("--dry-run", *SMOKE).stdout
    assert not list((smoke.root / "results").rglob("*.tmp*"))


def test_a_damaged_partition_costs_no_finished_run(smoke):
    kept = {path: path.read_bytes() for path in smoke.root.glob("results/runs/*/manifest.json")}
    partition = next(smoke.root.glob("results/partitions/femnist-*/partition.json"))
    partition.write_bytes(partition.read_bytes().replace(b"counts", b"countz"))
    failed = smoke.snakemake(*SMOKE, "--keep-going", check=False).stdout
    assert "partition.json was changed after it was written" in failed and not all(path.exists() for path in kept)
    shutil.rmtree(partition.parent)
    smoke.snakemake(*SMOKE)
    assert {path: path.read_bytes() for path in kept} == kept


def test_the_report_is_one_self_contained_file(smoke):
    printed = smoke.snakemake(*SMOKE, "--report", "results/smoke/report.html").stdout
    assert "ERROR" not in printed and "WARNING" not in printed, "docutils complains of a caption"
    page = (smoke.root / "results/smoke/report.html").read_text()
    assert 100_000 < len(page) < 8_000_000
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//', page), "opens offline"
    for figure in scenario(smoke)["figures"]:
        assert figure in page


@pytest.mark.parametrize(("option", "told"), [((), "limit: None"), (("--max-jobs-per-timespan", "7/1s"), "limit: 7")])
def test_jobs_that_have_ended_do_not_wake_the_scheduler(smoke, option, told):
    """Snakemake's default limit on jobs a second is off, one that a user sets stays."""
    (smoke.root / "Watched").write_text(
        'include: "workflow/Snakefile"\n\n\nonsuccess:\n    limiter = workflow.scheduler.job_rate_limiter\n'
        '    print("limit:", limiter and limiter.max_jobs)\n'
    )
    once = ("--snakefile", "Watched", "--forcerun", "results_page", *option, "--", "results_page")
    assert told in smoke.snakemake(*SMOKE, *once).stdout


def test_what_would_fail_again_is_tried_once(tmp_path, make_project):
    """Another error is tried as often as the profile says."""
    project = make_project(tmp_path / "project")
    wanted = (*SMOKE, "--retries", "2")
    project.snakemake(*wanted, "--until", "partition")
    labels = next(project.root.glob("results/data/femnist-*/prepared/labels.npy"))
    content = labels.read_bytes()
    labels.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    train = project.root / "workflow" / "scripts" / "train.py"
    text = train.read_text()
    failed = project.snakemake(*wanted, "--keep-going", "--rerun-triggers", "mtime", check=False).stdout
    assert len(re.findall("^error: .*labels.npy is truncated or was changed", failed, re.MULTILINE)) >= 3
    assert "Trying to restart" not in failed
    train.write_text(text.replace("with job_log", "raise SystemExit(1)\nwith job_log"))
    crashed = project.snakemake(*wanted, "--keep-going", "--rerun-triggers", "mtime", check=False).stdout
    assert crashed.count("Trying to restart") == 2 * 3  # of the three runs on that data
