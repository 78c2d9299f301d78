"""The workflow as a module of another one: with and without a prefix, two scenarios in one graph, a run that trains."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dry_runs import dry_run, job_counts
from subjectdp.places import RUN_FILES

TINY = """
run:
  data: {{embedded: {{subjects: 6, items_per_subject: 20}}}}
  partition: {{silos: 2}}
  training: {{rounds: 1, batch_size: 8, local_steps: 1}}
  model: {{name: logistic}}
name: {name}
figures: [partition]
sweep: [{{algorithm: [{algorithms}]}}]
"""
HOST = """
import yaml

rule host:
    input: "{target}"

{modules}
"""
MODULE = """
module {name}:
    snakefile: "{root}/workflow/Snakefile"
    config: yaml.safe_load(open("{name}.yaml"))
    {more}

use rule * from {name} as {name}_*
"""


def host(folder: Path, root: Path, target: str, more: str = "", **scenarios: str) -> Path:
    """A workflow that imports this one once for each scenario, whose algorithms are given."""
    folder.mkdir()
    modules = "".join(MODULE.format(name=name, root=root, more=more) for name in scenarios)
    for name, algorithms in scenarios.items():
        (folder / f"{name}.yaml").write_text(TINY.format(name=name, algorithms=algorithms))
    (folder / "Snakefile").write_text(HOST.format(modules=modules, target=target))
    return folder


def plan(folder: Path, *arguments: str) -> str:
    """What a dry run prints."""
    done = dry_run(folder, ["--dry-run", *arguments], environment(folder))
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def environment(folder: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(folder / ".cache"), "PYTHONPATH": ""}


PREFIX = 'prefix: "dp"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "place"),
    [
        pytest.param("", "results", id="as it is", marks=pytest.mark.long),
        pytest.param(PREFIX, "dp/results", id="prefix"),
        pytest.param('pathvars: {"results": "elsewhere"}', "elsewhere", id="pathvars", marks=pytest.mark.long),
    ],
)
def test_a_module_plans_a_run_where_it_is_told(make_project: Callable, tmp_path: Path, more: str, place: str) -> None:
    """The host's own rule comes first, stays the default target, and stays no local rule."""
    root = make_project(tmp_path / "subjectdp").root
    folder = host(tmp_path / "host", root, f"{place}/tiny/tables/runs_summary.csv", more, tiny="fed_avg")
    jobs = job_counts(plan(folder, "--quiet", "rules"))
    steps = ("fetch", "prepare", "partition", "train", "collect", "runs_summary")
    assert jobs == {"host": 1, **{f"tiny_{step}": 1 for step in steps}}


@pytest.mark.long
def test_a_module_trains_a_run_where_it_is_told(make_project: Callable, tmp_path: Path) -> None:
    root = make_project(tmp_path / "subjectdp").root
    folder = host(tmp_path / "host", root, "dp/results/tiny/tables/runs_summary.csv", PREFIX, tiny="fed_avg")
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--nocolor", "--quiet", "all"]
    settings = {**os.environ, **environment(folder)}
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    (run,) = folder.glob("dp/results/runs/*")
    assert {file.name for file in run.iterdir()} == set(RUN_FILES)
    ours = {".cache", ".snakemake", "Snakefile", "tiny.yaml", "dp"}
    assert {path.name for path in folder.iterdir()} <= ours
    assert "Nothing to be done" in plan(folder, "--rerun-triggers", "params", "input")


def test_two_scenarios_share_data_partitions_and_runs(make_project: Callable, tmp_path: Path) -> None:
    root = make_project(tmp_path / "subjectdp").root
    target = 'results/one/runs.parquet", "results/two/runs.parquet'
    folder = host(tmp_path / "host", root, target, one="fed_avg", two="fed_avg, local_item_dp")
    assert job_counts(plan(folder, "--quiet", "rules")) == {
        "host": 1,
        **{f"one_{step}": 1 for step in ("fetch", "prepare", "partition", "train", "collect")},
        **{"two_train": 1, "two_collect": 1},
    }
    with (folder / "Snakefile").open("a") as snakefile:  # a rule of the host's that is called as a figure is
        snakefile.write("\nrule cost:\n    input: rules.host.input\n")
    assert job_counts(plan(folder, "cost", "--quiet", "rules"))["cost"] == 1


REMOTE = """
configfile: "config/config.yaml"

module subjectdp:
    snakefile: github("someone/subjectdp", path="workflow/Snakefile", tag="v9.9.9")
    config: config

use rule * from subjectdp
"""


@pytest.mark.slow
def test_a_module_from_an_address_and_a_tag_needs_no_clone(make_project: Callable, tmp_path: Path) -> None:
    """Snakemake finds the repository in its cache, as after a fetch; the library is read from that tag's commit."""
    root = make_project(tmp_path / "subjectdp").root
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], ["tag", "v9.9.9"]):
        subprocess.run([*git, *words], check=True)
    folder = tmp_path / "host"
    cache = folder / ".cache/snakemake/snakemake/source-cache/snakemake-git-cache/github.com/someone/subjectdp"
    subprocess.run(["git", "clone", "-q", "--bare", str(root), str(cache)], check=True)
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(TINY.format(name="tiny", algorithms="fed_avg"))
    (folder / "Snakefile").write_text(REMOTE)
    jobs = job_counts(plan(folder, "--quiet", "rules"))
    assert jobs["train"] == 1 and jobs["figure_partition"] == 1
    (copy,) = (folder / ".snakemake/subjectdp").iterdir()
    assert (copy / "workflow/lib/subjectdp/__init__.py").is_file()


def test_the_catalogue_finds_its_configuration_and_its_test(project) -> None:
    """As `snakedeploy` and the catalogue of workflows call it."""
    done = project.snakemake("--dry-run", "--quiet", "rules", "--directory", ".test")
    assert job_counts(done.stdout)["train"] == 6
    assert (project.root / "config/config.yaml").samefile(project.root / "config/scenarios/embedded.yaml")
