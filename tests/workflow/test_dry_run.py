"""Every scenario plans the jobs that its sweep asks for, quickly; a wrong one ends in one clear message."""

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from dry_runs import job_counts
from subjectdp.config.scenario import load_scenario

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "config" / "scenarios").glob("*.yaml"))
SMOKE = "--configfile config/scenarios/smoke.yaml"
SOME = {"smoke", "embedded"}  # the others are long


def figures_of(jobs: dict[str, int]) -> set[str]:
    """The figures' rules among the jobs."""
    return {name for name in jobs if name.startswith("figure")}


def jobs_of(printed: str) -> list[tuple[str, str]]:
    """(rule, what is said of the job) of each job that a dry run prints."""
    return re.findall(r"^ *(?:local)?rule (\w+):\n((?: +\S.*\n)+)", printed, re.MULTILINE)


def write_scenario(folder: Path, content: dict) -> str:
    """A scenario file of its own for one test."""
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem in SOME else pytest.mark.long, id=path.stem) for path in SCENARIOS],
)
def test_every_scenario_plans_its_runs(project, path, monkeypatch):
    # any file and folder: a dry run reads none, and wants them there
    monkeypatch.setenv("SUBJECTDP_FEMNIST_180", str(path))
    monkeypatch.setenv("SUBJECTDP_FASHION_MNIST", str(path.parent))
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    printed = project.snakemake("--dry-run", "--quiet", "rules", "--configfile", f"config/scenarios/{path.name}").stdout
    jobs = job_counts(printed)
    assert jobs["train"] == len(scenario.runs)
    assert jobs["partition"] == len({run.partition_id for run in scenario.runs})
    assert jobs["fetch"] == jobs["prepare"] == len({run.data_key for run in scenario.runs})
    assert jobs["collect"] == 1
    assert len(figures_of(jobs)) == len(scenario.figures)


def test_the_default_scenario_does_not_shine_through_another(project, tmp_path):
    file = write_scenario(tmp_path, {"name": "bare", "run": {"training": {"rounds": 3, "batch_size": 64}}})
    jobs = job_counts(project.snakemake("-n", "-q", "rules", "--configfile", file).stdout)
    assert jobs["train"] == 1 and not figures_of(jobs)


@pytest.mark.parametrize(
    ("algorithm", "alpha", "made"),
    [("subject_release", 1, True), ("subject_release", 16, False), ("local_item_dp", 1, False)],
)
def test_a_lead_is_a_table_where_there_may_be_one(project, tmp_path, algorithm, alpha, made):
    """It refuses runs without SubjectRelease, at the end of all training."""
    run = {
        "privacy": {"mode": "sound"},
        "partition": {"distribution": "power", "alpha": alpha},
        "training": {"batch_size": 16, "local_steps": 1},
        "algorithm": algorithm,
    }
    file = write_scenario(tmp_path, {"name": "leading", "run": run, "figures": ["beyond_epsilon"]})
    jobs = job_counts(project.snakemake("-n", "-q", "rules", "--configfile", file).stdout)
    assert jobs["figure_beyond_epsilon"] == 1 and ("leads" in jobs) == made


def test_the_noise_of_sound_runs_alone_is_measured(project, tmp_path):
    """The figure says that it is sound; a run as published before it would stand in its place."""
    claims = {"algorithm": ["local_item_dp", "user_ldp"]}
    sound = {"algorithm": "local_item_dp", "privacy.mode": "sound", "partition.silos": 3}
    content = {"run": {"training": {"batch_size": 16, "local_steps": 1}}, "figures": ["beyond_noise"]}
    for name, sweep, partitions in (("claims", [claims], None), ("both", [claims, sound], 1)):
        file = write_scenario(tmp_path, {**content, "name": name, "sweep": sweep})
        printed = project.snakemake(f"results/{name}/noise.parquet", "-n", "-q", "rules", "--configfile", file).stdout
        assert job_counts(printed).get("partition") == partitions


def test_a_figure_is_a_target_of_its_own(project):
    jobs = job_counts(project.snakemake("figure1", "-n", "-q", "rules").stdout)
    assert figures_of(jobs) == {"figure1"}
    assert "all" not in jobs
    scenario = load_scenario(ROOT / "config/scenarios/embedded.yaml")
    assert jobs["train"] == len(scenario.runs_of_figure("figure1")) < len(scenario.runs), "no run but its own"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\nrun: {algorithm: {name: local_itm_dp}}\n", "'local_item_dp'"),
        ("name: x\nrun: {seed: 1, seed: 2}\n", "the key 'seed' is given twice"),
        ("name: x\n__use_yte__: true\n", "__use_yte__ to be absent: Snakemake runs code in such files"),
        ("name: x\nrun: {data: {source: leaf_json, path: /nowhere/leaf}}\n",
         "error: Expected data.path to be a file or folder that exists, got '/nowhere/leaf'."),
    ],
    ids=["algorithm", "a key twice", "templates", "what would stop the first job"],
)  # fmt: skip
def test_a_wrong_scenario_ends_in_its_message_alone(project, tmp_path, text, told):
    before = set((project.root / "results").rglob("*"))
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    done = project.snakemake("--dry-run", "--configfile", str(file), check=False)
    assert done.returncode != 0 and told in done.stdout and "Traceback" not in done.stdout
    assert set((project.root / "results").rglob("*")) == before


@pytest.mark.parametrize(
    ("arguments", "slurm", "told"),
    [
        (f"figure2 {SMOKE}", "", "the figure to be one of the scenario smoke (figure1, partition)"),
        ("--config name=foo", "", "a scenario beside --config name=foo"),
        (f"{SMOKE} --configfiles=config/config.yaml", "", "--configfile to be given once, with all its values"),
        (f"{SMOKE} --config name=a -C name=b", "", "--config to be given once, with all its values"),
        (f"{SMOKE} --config name=A", "", "name to be text matching ^[a-z0-9][a-z0-9_-]{0,63}$, got 'A'. (--config)"),
        (f"./results/runs/other/manifest.json {SMOKE}", "", "./results/runs/other/manifest.json to be of the scenario"),
        ("--sdm apptainer", "", "SUBJECTDP_CONTAINER to name an image"),
        ("", "MINUTES=30", "SUBJECTDP_SLURM_MINUTES"),
        ("--profile slurm", "RUNS_PER_JOB=0", "SUBJECTDP_SLURM_RUNS_PER_JOB to be a whole number from 1 on"),
        ("--profile slurm", "JOBS=abc", "SUBJECTDP_SLURM_JOBS to be a whole number from 1 on"),
        ("--profile slurm", "POLL_SECONDS=0", "SUBJECTDP_SLURM_POLL_SECONDS to be a whole number from 1 on"),
    ],
)
def test_a_wrong_command_line_or_setting_ends_in_its_message_alone(project, arguments, slurm, told):
    settings = {f"SUBJECTDP_SLURM_{name}": value for name, _, value in [slurm.partition("=")] if name}
    done = project.snakemake("-n", *arguments.split(), check=False, **settings)
    assert done.returncode != 0 and f"Expected {told}" in done.stdout and "Traceback" not in done.stdout


def test_records_of_other_runs_can_be_cleaned_up(project):
    done = project.snakemake("--cleanup-metadata", "results/runs/other/manifest.json", *SMOKE.split(), check=False)
    assert "to be of the scenario" not in done.stdout


def test_what_would_be_left_unseen_is_told(project):
    wanted = ("-n", "-q", "rules", *SMOKE.split(), "--config", "description=sizes {1, 2} of ${SUBJECTDP_MINE}")
    for triggers in (["--rerun-triggers", "mtime"], ["--rerun-triggers", "mtime", "params", "input"]):
        done = project.snakemake(*wanted, *triggers, SUBJECTDP_MINE="1", SUBJECTDP_ANYDEVICE="1")
        assert "Nothing reads the variable SUBJECTDP_ANYDEVICE. Did you mean 'SUBJECTDP_ANY_DEVICE'?" in done.stdout
        assert "Nothing reads the variable SUBJECTDP_MINE" not in done.stdout
        assert ("Changed settings and code are not seen" in done.stdout) == (triggers[1:] == ["mtime"])
    done = project.snakemake("--report", "a.html", *SMOKE.split(), check=False)
    assert "A report shows the results that are there" in done.stdout


def slurm_dry_run(project, **settings: str) -> list[tuple[str, str]]:
    """The jobs that the smoke scenario would submit with the Slurm profile."""
    environment = {f"SUBJECTDP_SLURM_{name}": value for name, value in settings.items()}
    wanted = ("--profile", "slurm", "-n", *SMOKE.split())
    return jobs_of(project.snakemake(*wanted, **environment).stdout)


@pytest.mark.parametrize(
    ("styles", "partitions", "asked"),
    [
        ("gpu", "big", ("gpu=1", "slurm_partition=big")),
        ("gpu:t4;gpu:a100;gpu:h100", "a;b;c", ("gpu_model=t4", "slurm_partition=a")),  # of short runs
    ],
)
def test_the_slurm_profile_asks_for_a_gpu_for_training_alone(project, styles, partitions, asked):
    jobs = slurm_dry_run(project, GPU=styles, GPU_PARTITION=partitions, RUNS_PER_JOB="1")
    assert len(jobs) > 6
    assert {name for name, text in jobs if asked[1] in text} == {"train"}
    assert {name for name, text in jobs if re.search(r"\b(gpu=1|gpu_model=|gres=)", text)} == {"train"}
    assert all(asked[0] in text and asked[1] in text for name, text in jobs if name == "train")


def test_a_site_without_gpus_trains_on_its_cpu_partition(project):
    jobs = slurm_dry_run(project, GPU="none", CPU_PARTITION="normal", ACCOUNT="dp", QOS="low", EXTRA="--nice=9")
    assert all("slurm_partition=normal" in text for _, text in jobs)
    assert not any(re.search(r"\b(gpu=|gres=)", text) for _, text in jobs)
    for asked in ("slurm_account=dp", "qos=low", "slurm_extra=--nice=9"):
        assert all(asked in text for _, text in jobs)


def test_short_runs_share_a_job(project, tmp_path):
    run = {
        "data": {"embedded": {"subjects": 8, "items_per_subject": 50}},
        "training": {"rounds": 300, "batch_size": 16},
        "model": {"name": "small_cnn"},
    }
    file = write_scenario(tmp_path, {"name": "shared", "run": run, "sweep": [{"seed": list(range(5))}]})
    wanted = ("--profile", "slurm", "-n", "--configfile", file)
    printed = project.snakemake(*wanted, SUBJECTDP_SLURM_RUNS_PER_JOB="2").stdout
    assert Counter(re.findall(r"Group job (\w+)", printed)) == {"short_runs": 3, "partitions": 1}


def test_each_run_asks_for_its_own_cores(project, tmp_path):
    threads = {"femnist": {"performance": {"threads": 1}}, "shakespeare": {"performance": {"threads": 3}}}
    sweep = [{"data.dataset": list(threads), "algorithm": ["fed_avg"]}]
    run = {"training": {"batch_size": 16}}
    file = write_scenario(tmp_path, {"name": "cores", "run": run, "datasets": threads, "sweep": sweep})
    jobs = jobs_of(project.snakemake("--dry-run", "--cores", "8", "--configfile", file).stdout)
    trainings = [text for name, text in jobs if name == "train"]
    assert ["threads: 3" in text for text in trainings] == ["run_id=shakespeare" in text for text in trainings]
    assert len(trainings) == 2


def test_preparation_comes_before_the_longest_run_and_that_before_the_others(project, tmp_path):
    sweep = [{"data.dataset": "femnist", "algorithm": "fed_avg", "training.rounds": [3, 300, 30]}]
    run = {"training": {"batch_size": 16}}
    file = write_scenario(tmp_path, {"name": "order", "run": run, "sweep": sweep})
    jobs = jobs_of(project.snakemake("--dry-run", "--cores", "1", "--configfile", file).stdout)
    assert "partition" in {name for name, text in jobs if "priority: " not in text}  # it is 0
    assert {"fetch", "prepare"} <= {name for name, text in jobs if "priority: 1\n" in f"{text}\n"}
    first = {
        re.search(r"run_id=(\S+)", text)[1]: float(re.search(r"priority: (\S+)", text)[1])
        for name, text in jobs
        if name == "train"
    }
    rounds = {run.run_id: run.training.rounds for run in load_scenario(file).runs}
    assert [rounds[run_id] for run_id in sorted(first, key=first.get)] == [3, 30, 300]
    assert max(first.values()) < 0


@pytest.mark.long
def test_the_plan_is_a_rule_and_prints_what_the_command_prints(project):
    """Rules add keys to Snakemake's configuration for their captions: the plan must not take them for settings."""
    printed = project.snakemake("plan", "--quiet", *SMOKE.split()).stdout
    written = (project.root / "results" / "smoke" / "plan.txt").read_text()
    assert written.startswith("Plan of the scenario smoke:")
    assert written.splitlines()[0] in printed
    assert (project.root / "results" / "smoke" / "plan.csv").exists()
