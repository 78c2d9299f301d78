"""Figures that cannot be drawn are found before anything is trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from snakemake_executor_plugin_slurm import common_settings
from yte import process_yaml

from forecast.runs import PAPER, SHAKESPEARE, SHORT, run_of
from subjectdp.config.fingerprint import source_content
from subjectdp.config.scenario import Scenario, load_scenario, load_scenario_from_mapping
from subjectdp.errors import ConfigError
from subjectdp.figures.catalogue import FIGURES, entry
from subjectdp.forecast.before_start import (
    LEAST_MINUTES,
    check_before_start,
    cluster_settings,
    expected_items,
    figures_to_mend,
    forecast_seconds,
    size_class,
    unread_variables,
    work_of,
)
from subjectdp.forecast.plan_report import federation_of
from subjectdp.io.atomic import write_json
from subjectdp.models.catalogue import MODELS
from subjectdp.places import Places

CLIP_NORMS = {"algorithm": ["fed_avg", "local_item_dp"], "privacy.clip_norm": [0.1, 0.2, 1, 2, 3, 4, 5], "seed": [0, 1]}


def scenario_of(sweep: dict[str, Any], *figures: str, **more: Any) -> Scenario:
    run = {"data": {"dataset": "femnist"}, "training": {"batch_size": 16}}
    return load_scenario_from_mapping({"name": "some", "run": run, "sweep": [sweep], "figures": [*figures], **more})


def test_more_values_of_a_key_than_a_figure_shows_are_named() -> None:
    with pytest.raises(ConfigError) as caught:
        check_before_start(scenario_of(CLIP_NORMS, "figure1", "partition", "cost"))
    assert str(caught.value) == (
        "The figure figure1 cannot be drawn. Expected runs of LocalItemDP with seed 0 to be one: choose it "
        "(`selections`), or leave the figure out, got '7 that differ in privacy.clip_norm'."
    )


def test_a_selection_makes_the_figure_drawable() -> None:
    selections = {"figure1": {"privacy.clip_norm": 0.2}}
    assert not figures_to_mend(scenario_of(CLIP_NORMS, "figure1", selections=selections))[0]
    assert len(figures_to_mend(scenario_of(CLIP_NORMS, "figure1", "privacy", selections=selections))[0]) == 1


@pytest.mark.parametrize(
    ("key", "values", "undrawable"),
    [
        ("seed", [0, 1], {"figure2"}),
        ("partition.alpha", [1, 4], set()),
        ("privacy.epsilon", [1, 4], {"figure2"}),
        ("training.local_steps", [1, 2], {"figure2"}),
        ("privacy.clip_norm", [0.1, 0.2], {"figure2"}),
        ("privacy.clip_norm", [0.1, 0.2, 1, 2, 3, 4, 5], {"figure1", "figure2", "privacy", "accuracy_privacy"}),
    ],
)
def test_a_figure_is_refused_only_for_what_it_neither_shows_nor_chooses(
    key: str, values: list[Any], undrawable: set[str]
) -> None:
    sweep = {"algorithm": ["local_item_dp", "higrad_avg_dp:v3"], "partition.distribution": "power", key: values}
    problems = figures_to_mend(scenario_of(sweep, "figure1", "figure2", "privacy", "accuracy_privacy", "cost"))[0]
    assert {line.split()[2] for line in problems} == undrawable


def test_a_figure_that_leaves_settings_out_says_so_before_training() -> None:
    epsilons: dict[str, Any] = {"algorithm": ["fed_avg", "local_item_dp"], "privacy.epsilon": [*range(1, 9)]}
    assert not figures_to_mend(scenario_of({**epsilons, "privacy.epsilon": [1, 2]}, "figure1"))[1]
    assert not figures_to_mend(scenario_of({**epsilons, "privacy.epsilon": [5, 8]}, "figure1"))[1], "FedAvg has 4"
    (told,) = figures_to_mend(scenario_of(epsilons, "figure1", "cost"))[1]
    assert told.startswith(
        "The figure figure1 leaves runs out: FEMNIST: only ε = 1 shown (at most 6 settings side by side)."
    )
    assert "selections: {figure1-LABEL: {KEY: VALUES}}" in told


def test_data_that_other_runs_of_their_name_were_not_trained_on_are_told(tmp_path: Path) -> None:
    """Two tables of one name in two folders, as of two hospitals, have the same runs."""
    table, results = tmp_path / "t.csv", str(tmp_path / "results")
    table.write_text("who,x,y\na,1,0\na,2,1\n")
    data = {"source": "table", "path": str(table), "label": "y", "subject": "who"}
    run = {"data": data, "partition": {"silos": 1}, "training": {"batch_size": 1}}
    scenario = load_scenario_from_mapping({"name": "own", "run": run, "figures": ["cost"]})
    ((key, config),) = scenario.datasets_by_key.items()
    made = {"input_fingerprint": {"content": source_content(config, results), "code": ""}}
    write_json(Places(results).prepared_file(key, "meta.json"), made)
    assert check_before_start(scenario, results) == []
    table.write_text("who,x,y\na,1,0\na,2,0\n")
    (told,) = check_before_start(scenario, results)
    assert told.startswith(f"{table} is not what {results}/data/{key} was made from: the runs that are there")


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (("A", "B"), "2, the silos that the data name, got 16"),
        (("1", "1.0", "02", "?"), None),  # reading the table says the row
        (("1", "1.0", "02"), "2, the silos"),
        ([f"site {number}" for number in range(16)], None),
    ],
)
def test_another_number_of_silos_than_the_table_names_is_told_before_the_start(
    tmp_path: Path, cells: Sequence[str], told: str | None, missing: str
) -> None:
    """Where partition.silos is left at its default; in a column, and as names of files."""
    rows = [f"{n % 30},{cells[n % len(cells)]},{n},{n % 2}\n" for n in range(480)]
    (tmp_path / "t.csv").write_text("who,site,x,y\n" + "".join(rows))
    (tmp_path / "t").mkdir()
    for place, cell in enumerate(dict.fromkeys(cells)):
        (tmp_path / "t" / f"{cell}.csv").write_text("who,x,y\n" + f"{place},1,0\n1,2,1\n" * 20)
    data = {"source": "table", "label": "y", "subject": "who"}
    for path, silo in ((tmp_path / "t.csv", "site"), (tmp_path / "t", "file")):
        run = {"data": {**data, "path": str(path), "silo": silo, "missing": missing}, "training": {"batch_size": 1}}
        scenario = load_scenario_from_mapping({"name": "own", "run": run, "figures": ["cost"]})
        if told is None:
            assert check_before_start(scenario, str(tmp_path)) == []
            continue
        with pytest.raises(ConfigError, match=f"^Expected partition.silos to be {told}"):
            check_before_start(scenario, str(tmp_path))
        with pytest.raises(ConfigError, match=f"^Expected partition.silos to be {told}"):
            federation_of(scenario.runs[0])


def test_a_section_of_audits_that_no_figure_shows_is_told() -> None:
    chosen: dict[str, Any] = {"audit": {"size": "small"}}
    assert not figures_to_mend(scenario_of({}, "figure1"))[1] + figures_to_mend(scenario_of({}, "audit", **chosen))[1]
    (told,) = figures_to_mend(scenario_of({}, "figure1", **chosen))[1]
    assert told.startswith("The section audit is not read")


def test_audits_of_a_partition_without_a_cap_are_refused_before_they_start() -> None:
    (told,) = figures_to_mend(scenario_of({}, "audit"))[0]
    assert told.startswith("The figure audit cannot be drawn. Expected partition.max_items_per_subject to be a number")
    assert not figures_to_mend(scenario_of({"partition.max_items_per_subject": 8}, "audit"))[0]


def test_a_figure_may_be_drawn_again_with_a_selection_of_its_own() -> None:
    selections = {"figure1": {"privacy.clip_norm": 0.1}, "figure1-large": {"privacy.clip_norm": [4, 5]}}
    scenario = scenario_of(CLIP_NORMS, "figure1", "figure1-large", selections=selections)
    assert not figures_to_mend(scenario)[0]
    norms = {run.privacy.clip_norm for run in scenario.runs_of_figure("figure1-large")}
    assert norms == {1.0, 4.0, 5.0}, "FedAvg has 1"
    assert entry("figure1-large").title.endswith("(large)") and entry("figure1-large").name == "figure1"


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        (["figure1-Large"], "Expected the label of figure1 in figures to be lower case letters, digits and _"),
        (["figur1-large"], "Unknown figure in figures 'figur1'. Did you mean 'figure1'?"),
    ],
)
def test_a_label_or_figure_that_is_none_is_refused(figures: list[str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario_of(CLIP_NORMS, *figures)
    assert str(caught.value).startswith(told)


def test_a_variable_that_nothing_reads_is_named(tmp_path: Path) -> None:
    scenario = tmp_path / "mine.yaml"
    scenario.write_text("run: {data: {path: '${SUBJECTDP_MY_DATA:-data}'}}\n")
    known = ("SUBJECTDP_MY_DATA", "SUBJECTDP_CONTAINER")
    (told,) = unread_variables([scenario], dict.fromkeys([*known, "SUBJECTDP_MY_DATE"], "x"))
    assert told.startswith("Nothing reads the variable SUBJECTDP_MY_DATE. Did you mean 'SUBJECTDP_MY_DATA'?")


def test_a_paper_s_figure_needs_an_algorithm_that_it_shows() -> None:
    (problem,) = figures_to_mend(scenario_of({"algorithm": "fed_avg"}, "privacy"))[0]
    assert "at least one with noise" in problem


def test_every_figure_of_the_papers_runs_says_which_it_shows() -> None:
    papers = [e for e in FIGURES.values() if e.builder.startswith(("papers.", "privacy.")) and "runs" in e.needs]
    assert len(papers) > 5 and all(each.shown is not None for each in papers)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("style", "asked"),
    [
        ("gpu", {"gpu": 1}),
        ("gpu:a100", {"gpu": 1, "gpu_model": "a100"}),
        ("gres=gpu", {"gres": "gpu:1"}),
        ("gres=gpu:a100", {"gres": "gpu:a100:1"}),
        ("gres=gpu:a100:1", {"gres": "gpu:a100:1"}),
        ("gres=gpu:1g.10gb", {"gres": "gpu:1g.10gb:1"}),
        ("", {}),
    ],
)
def test_a_gpu_is_asked_for_in_the_sites_own_way(style, asked):
    settings = cluster_settings({"SUBJECTDP_SLURM_GPU": style})
    assert settings.training_resources(run_of()) == asked
    on_cpu = settings.training_resources(run_of(performance={"device": "cpu"}))
    assert on_cpu.get("gpu", 0) == 0 and not str(on_cpu.get("gres", ":0")).endswith(":1")


def test_each_size_of_run_has_its_own_gpu_partition_and_pace():
    settings = cluster_settings(
        {
            "SUBJECTDP_SLURM_GPU": "gres=gpu:1g.10gb; gres=gpu:a100; gres=gpu:h100",
            "SUBJECTDP_SLURM_GPU_PARTITION": "mig;a100,v100;h100",
            "SUBJECTDP_SLURM_GPU_PACE": "2; 20; 80.5",
            "SUBJECTDP_SLURM_MINUTES": "9999,9999,9999",
        }
    )
    gpus = {"short": ("gpu:1g.10gb:1", "mig", 2), "medium": ("gpu:a100:1", "a100,v100", 20)}
    for run in (run_of(training={"rounds": 3000}), PAPER, SHAKESPEARE):
        gres, partition, pace = gpus.get(size_class(run), ("gpu:h100:1", "h100", 80.5))
        assert settings.training_resources(run) == {"gres": gres, "slurm_partition": partition}
        assert settings.minutes_of(run, 1) == max(LEAST_MINUTES, round(3 * forecast_seconds(run) / pace / 60))
    on_cpu = run_of(training={"rounds": 3000}, performance={"device": "cpu"})
    assert settings.minutes_of(on_cpu, 1) == round(3 * forecast_seconds(on_cpu) / 60)


def test_time_follows_the_forecast_with_a_margin():
    alone, longer = cluster_settings({}), run_of(training={"rounds": 3000})
    assert alone.minutes_of(SHORT, 1) == LEAST_MINUTES and alone.minutes_of(SHORT, 3) == 3 * LEAST_MINUTES
    assert 240 == alone.minutes_of(PAPER, 1) < 3 * forecast_seconds(PAPER) / 60
    assert LEAST_MINUTES < alone.minutes_of(longer, 1) == round(3 * forecast_seconds(longer) / 60)
    shared = cluster_settings({"SUBJECTDP_SLURM_RUNS_PER_JOB": "4"})
    assert 4 * shared.minutes_of(SHORT, 1) >= LEAST_MINUTES > shared.minutes_of(SHORT, 1)


def test_the_embedded_scenario_asks_for_less_than_five_times_what_it_uses():
    """Where they were measured first, 52 runs took 14.7 minutes together (Shakespeare with four silos then)."""
    runs = load_scenario(ROOT / "config/scenarios/embedded.yaml").runs
    settings = cluster_settings({"SUBJECTDP_SLURM_RUNS_PER_JOB": "8"})
    assert {settings.group_of(run) for run in runs} == {"short_runs"}
    asked = sum(settings.minutes_of(run, 1) for run in runs)
    assert len(runs) * 14.7 / 52 / asked >= 0.2


def test_time_and_memory_follow_size_and_attempt():
    settings = cluster_settings({"SUBJECTDP_SLURM_MINUTES": "2, 70,700"})
    usual = (SHORT, 2, "short", 4000), (PAPER, 70, "medium", 8000), (SHAKESPEARE, 700, "long", 16000)
    for run, minutes, size, memory in usual:
        assert size_class(run) == size
        assert [settings.minutes_of(run, n) for n in (1, 2, 3)] == [minutes, 2 * minutes, 3 * minutes]
        assert settings.memory_mb_of(run, 2) == 2 * memory


def test_only_short_runs_share_a_job():
    settings = cluster_settings({"SUBJECTDP_SLURM_RUNS_PER_JOB": "4"})
    longer = run_of(training={"rounds": 200})
    groups = [settings.group_of(run) for run in (SHORT, longer, PAPER, SHAKESPEARE)]
    assert groups == ["short_runs", "short_runs", None, None]
    assert cluster_settings({}).group_of(SHORT) is None and not cluster_settings({}).light_jobs_local


def test_the_profile_has_one_snakemake_run_all_of_a_shared_job(monkeypatch):
    monkeypatch.setattr(common_settings, "pass_group_args", False)  # fails if the plugin no longer has it
    monkeypatch.setenv("SUBJECTDP_SLURM_RUNS_PER_JOB", "4")
    monkeypatch.setenv("SUBJECTDP_SLURM_GPU", "none")
    profile = process_yaml((ROOT / "workflow/profiles/slurm/config.yaml").read_text())
    assert common_settings.pass_group_args
    assert "short_runs=4" in profile["group-components"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("GPU", "gpus", "gres=NAME"),
        ("GPU", "gpu:a 100", "MODEL"),
        ("GPU", "gpu;gpu:a100", "3 with semicolons, for short, medium, long runs"),
        ("GPU", "gpu;gpu:a100;gpu:h100", "one style for all"),
        ("GPU_PARTITION", "a100;;h100", "a partition for each size"),
        ("GPU_PACE", "fast", "a number of CPU cores above 0"),
        ("GPU_PACE", "0", "a number of CPU cores above 0"),
        ("MINUTES", "30", "3 whole numbers"),
        ("MINUTES", "30,x,60", "whole number"),
        ("MEMORY_MB", "1,2,3,4", "short, medium, long"),
        ("RUNS_PER_JOB", "two", "whole number"),
        ("LIGHT_JOBS", "login", "partition or local"),
        ("GPU_PARTITIONS", "a100", "Did you mean 'SUBJECTDP_SLURM_GPU_PARTITION'?"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(name, value, told):
    with pytest.raises(ConfigError) as caught:
        cluster_settings({f"SUBJECTDP_SLURM_{name}": value})
    assert f"SUBJECTDP_SLURM_{name}" in str(caught.value) and told in str(caught.value)


def test_work_counts_every_step_and_every_evaluation():
    run = run_of(training={"rounds": 3, "batch_size": 10, "evaluate_every": 2})
    work = work_of(run, silo_items=[25, 40], evaluated=100)
    assert work.steps == 3 * (3 + 4) * 4 / 2, "two silos stand for the four of the configuration"
    assert work.train_items == work.steps * 10
    assert work.evaluated_items == 2 * 100, "after round 2, and after the last"
    shorter = work_of(run, silo_items=[25, 40], evaluated=100, rounds=1)
    assert shorter.steps * 3 == work.steps


def test_a_part_of_the_silos_and_of_the_evaluation_costs_a_part():
    whole, part = run_of(), run_of(training={"silos_per_round": 1, "evaluation_items": 3})
    assert work_of(part).steps * 4 == work_of(whole).steps
    assert work_of(part).evaluated_items == 2 * 3 * part.training.rounds


def test_a_forecast_counts_the_rounds_that_are_run():
    """As published, HiGradAvgDP runs floor(100/√16) = 25 rounds of 100; made sound it runs them all."""

    def seconds(mode: str, rounds: int) -> float:
        changes = {"partition": {"silos": 16, "max_items_per_subject": 50}, "training": {"rounds": rounds}}
        return forecast_seconds(run_of(algorithm={"name": "higrad_avg_dp"}, privacy={"mode": mode}, **changes))

    assert pytest.approx(seconds("sound", 25)) == seconds("as_published", 100) < seconds("sound", 100)


def test_expected_items_are_those_of_the_papers():
    items = expected_items(PAPER)
    assert items.subjects == 3500
    assert items.train / items.subjects == pytest.approx(145, rel=0.005)
    text = expected_items(SHAKESPEARE)
    assert text.subjects == 660
    assert text.train == pytest.approx(3678452 * 0.8, rel=1e-6)
    few = expected_items(run_of(partition={"silos": 16, "silos_per_subject": 2, "max_items_per_subject": 3}))
    assert few.train == few.subjects * 2 * 3, "at no more silos than may hold a subject"


def test_training_costs_three_passes_and_an_evaluation_one():
    run = run_of(training={"rounds": 3, "batch_size": 10})
    work, flops = work_of(run), MODELS[str(run.model.name)].forward_flops
    assert work.operations == flops * (3 * work.train_items + work.evaluated_items)
