"""Scenarios: overlays, the order of overrides, expansion, selections, and the files that are shipped."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.scenario import Scenario, load_scenario, load_scenario_from_mapping, merge
from subjectdp.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED = ROOT / "config/scenarios/embedded.yaml"
SCENARIOS = sorted((ROOT / "config" / "scenarios").glob("*.yaml"))


@cache
def shipped(file: Path) -> Scenario:
    return load_scenario(file)


@pytest.mark.slow
@pytest.mark.parametrize("file", SCENARIOS, ids=[file.stem for file in SCENARIOS])
def test_shipped_scenario(file: Path) -> None:
    scenario = shipped(file)
    assert scenario.name == file.stem
    assert scenario.description
    assert scenario.figures
    assert len(scenario.runs) == len({run.run_id for run in scenario.runs}) > 0
    # A dry-run reads the files with Snakemake's own YAML reader; both must agree.
    read_plainly = load_scenario_from_mapping(yaml.safe_load(file.read_text()))
    assert list(read_plainly.runs_by_id) == list(scenario.runs_by_id)
    if any(run.data.source == "embedded" for run in scenario.runs):
        assert scenario.synthetic_note


def test_embedded_covers_every_algorithm_and_figure() -> None:
    scenario = shipped(EMBEDDED)
    labels = {(run.data.dataset, run.algorithm.label) for run in scenario.runs}
    order = {"FedAvg", "LocalItemDP", "UserLDP", "LocalGroupDP", "HiGradAvgDP (v1)", "HiGradAvgDP (v3)"}
    once = {"CentralSubDP", "JointNoise", "SubjectRelease", "SubjectSampling", "CappedItemDP"}
    papers = {(dataset, label) for dataset in ("femnist", "shakespeare") for label in order}
    assert labels == papers | {("femnist", label) for label in once}
    assert {"figure1", "figure2", "figure3", "figure1_v3", "figure2_v3", "figure3_v3"} <= set(scenario.figures)


def test_known_scenario_by_hand() -> None:
    scenario = load_scenario_from_mapping(
        {
            "name": "test",
            "run": {"partition": {"silos": 4}},
            "sweep": [
                {"name": "first", "algorithm": ["fed_avg", "higrad_avg_dp:v3"], "seed": [0, 1]},
                {"data.dataset": "shakespeare", "privacy.epsilon": [1, 4]},
            ],
        }
    )
    seen = [(r.data.dataset, r.algorithm.label, r.seed, r.partition.silos) for r in scenario.runs]
    # FedAvg reads no epsilon: the two runs of the second block are one.
    assert seen == [
        ("femnist", "FedAvg", 0, 4),
        ("femnist", "FedAvg", 1, 4),
        ("femnist", "HiGradAvgDP (v3)", 0, 4),
        ("femnist", "HiGradAvgDP (v3)", 1, 4),
        ("shakespeare", "FedAvg", 0, 4),
    ]
    assert len(scenario.datasets_by_key) == 2
    assert len(scenario.partitions_by_id) == 3


def test_overrides_in_their_order() -> None:
    def at(value: float) -> dict[str, Any]:
        return {"training": {"optimizer": {"learning_rate": value}}}

    v3: dict[str, Any] = {"algorithm": "higrad_avg_dp:v3"}
    algorithm = {"higrad_avg_dp": at(0.4) | {"datasets": {"femnist": at(0.5), "shakespeare": at(9)}}}
    variant = {"higrad_avg_dp:v3": at(0.6) | {"datasets": {"femnist": at(0.7)}}, "higrad_avg_dp:v1": at(9)}
    layers: list[tuple[float, dict[str, Any]]] = [
        (0.1, {"run": v3}),
        (0.2, {"run": v3 | at(0.2)}),
        (0.3, {"datasets": {"femnist": at(0.3), "shakespeare": at(9)}}),
        (0.4, {"algorithms": {"higrad_avg_dp": at(0.4), "fed_avg": at(9)}}),
        (0.5, {"algorithms": algorithm}),
        (0.6, {"algorithms": algorithm | {"higrad_avg_dp:v3": at(0.6)}}),
        (0.7, {"algorithms": algorithm | variant}),
        (0.8, {"sweep": [{"training.optimizer.learning_rate": 0.8}]}),
    ]
    content: dict[str, Any] = {}
    for rate, more in layers:
        content |= more
        below, over = dict(content, name="x"), {"sweep": content.get("sweep", [])}  # an overlay: not all below is read
        (run,) = load_scenario_from_mapping(below, over).runs
        assert run.training.optimizer.learning_rate == rate


def lying_over_embedded(tmp_path: Path, text: str) -> Scenario:
    (tmp_path / "mine.yaml").write_text(text)
    return load_scenario([EMBEDDED, tmp_path / "mine.yaml"])


def test_run_of_an_overlay_wins_over_datasets_algorithms_and_sweep_below(tmp_path: Path) -> None:
    """As people write one: Adam, rate 0.001, batch 128, over a scenario that sets all three in several places."""
    training = "{batch_size: 128, optimizer: {name: adam, learning_rate: 0.001, momentum: 0.8}}"
    scenario = lying_over_embedded(tmp_path, f"name: mine\nrun: {{training: {training}}}")
    below = shipped(EMBEDDED)
    assert {b.training.optimizer.name for b in below.runs} == {"sgd", "momentum"}
    for run in scenario.runs:
        optimizer = run.training.optimizer
        assert (optimizer.name, optimizer.learning_rate, optimizer.momentum) == ("adam", 0.001, 0.8)
        # subject_sampling and subject_release draw subjects and read no mini-batch size
        assert run.training.batch_size == 128 or run.algorithm.name.startswith("subject_")
    assert len(scenario.runs) == len(below.runs)
    assert not set(scenario.runs_by_id) & set(below.runs_by_id)
    shown = [[len(each.runs_of_figure(name)) for name in below.figures] for each in (below, scenario)]
    assert shown[0] == shown[1] and min(shown[0]) < len(below.runs), "what a figure chooses below it still chooses"


def test_another_algorithm_keeps_no_variant_and_another_model_no_parameters() -> None:
    below = {"algorithm": {"name": "higrad_avg_dp", "variant": "v3"}, "model": {"name": "a", "parameters": {"b": 1}}}
    assert merge(below, {"algorithm": {"name": "user_ldp"}})["algorithm"] == {"name": "user_ldp"}
    assert merge(below, {"model": {"name": "c"}})["model"] == {"name": "c"}
    assert merge(below, {"model": {"parameters": {"d": 2}}})["model"]["parameters"] == {"b": 1, "d": 2}


AXIS = {"privacy.noise_multiplier": 2}


def test_another_source_keeps_no_size_of_generated_data_from_below() -> None:
    """A later file, or an axis, cannot take the section out; in one place both are a mistake."""
    below = {"name": "x", "run": {"data": {"embedded": {"subjects": 9}}}}
    over = {"run": {"data": {"source": "leaf_json", "path": "a.zip"}}}
    for contents in ((below, over), ({**below, "sweep": [{"data.path": "a.zip", "data.source": "leaf_json"}]},)):
        (run,) = load_scenario_from_mapping(*contents).runs
        assert (run.data.source, run.data.embedded.subjects) == ("leaf_json", 60)
    with pytest.raises(ConfigError, match="embedded.subjects to be 60 when data.source is leaf_json"):
        load_scenario_from_mapping(below, merge(over, below))
    target = {"name": "x", "run": {"algorithm": "local_item_dp", "privacy": {"epsilon": 1}}}
    for contents in ((target, {"run": {"privacy": {"noise_multiplier": 2}}}), ({**target, "sweep": [AXIS]},)):
        assert [run.privacy.epsilon for run in load_scenario_from_mapping(*contents).runs] == [4.0]


def test_an_axis_of_a_part_lies_over_that_of_the_whole_in_any_order() -> None:
    axes = {"algorithm.variant": ["v1", "v3"], "algorithm": "higrad_avg_dp"}
    runs = load_scenario_from_mapping({"name": "x", "sweep": [axes]}).runs
    assert [run.algorithm.variant for run in runs] == ["v1", "v3"]


def test_datasets_and_algorithms_of_an_overlay_win_over_those_below(tmp_path: Path) -> None:
    base, over = tmp_path / "base.yaml", tmp_path / "over.yaml"
    base.write_text(
        "name: base\nfigures: [cost]\ndatasets: {femnist: {training: {rounds: 5}}}\n"
        "algorithms:\n"
        "  fed_avg: {training: {rounds: 6, evaluate_every: 4}, datasets: {shakespeare: {training: {rounds: 7}}}}\n"
        "sweep: [{data.dataset: [femnist, shakespeare], algorithm: [fed_avg, local_item_dp], seed: 3}]\n"
    )

    def rounds(text: str) -> list[int]:
        over.write_text(text)
        scenario = load_scenario([base, over])
        assert {run.seed for run in scenario.runs} == {3} and scenario.figures == ["cost"]
        return [run.training.rounds for run in scenario.runs]

    assert rounds("description: nothing") == [6, 5, 7, 100]
    assert rounds("datasets: {femnist: {training: {rounds: 8}}}") == [8, 8, 7, 100]
    assert rounds("algorithms: {fed_avg: {training: {rounds: 9}}}") == [9, 5, 9, 100]
    assert rounds("sweep: [{algorithm: local_item_dp, seed: 3}]") == [5]  # what lies below may serve other sweeps


def test_selections_below_drop_no_run_of_an_overlay(tmp_path: Path) -> None:
    sound = "run: {privacy: {mode: sound}, partition: {max_items_per_subject: 8}}\n"
    sweep = "sweep: [{algorithm: [fed_avg, local_item_dp, 'higrad_avg_dp:v1'], seed: 0}]\n"
    scenario = lying_over_embedded(tmp_path, f"name: mine\n{sound}{sweep}figures: [figure1, privacy]\n")
    assert scenario.runs_of_figure("figure1") == scenario.runs_of_figure("privacy") == scenario.runs
    assert len(scenario.runs) == 3

    changed = "sweep: [{name: fresh, algorithm: [fed_avg, capped_item_dp]}]\nfigures: [privacy]\n"
    own = "selections: {privacy: {algorithm: capped_item_dp}}\n"
    scenario = lying_over_embedded(tmp_path, f"name: mine\n{sound}{changed}{own}")
    assert [run.algorithm.name for run in scenario.runs_of_figure("privacy")] == ["capped_item_dp"]


def test_selections() -> None:
    scenario = load_scenario_from_mapping(
        {
            "name": "test",
            "sweep": [{"algorithm": ["fed_avg", "higrad_avg_dp:v1", "higrad_avg_dp:v3"], "data.subjects": [None, 20]}],
            "figures": ["figure1", "figure2", "figure3", "privacy"],
            "selections": {
                "figure1": {"data.subjects": None},
                "figure2": {"data.subjects": [None, 20], "algorithm": ["fed_avg", "higrad_avg_dp:v3"]},
                "figure3": {"algorithm.name": "higrad_avg_dp", "data.subjects": 20},
            },
        }
    )
    counts = {figure: len(scenario.runs_of_figure(figure)) for figure in scenario.figures}
    assert counts == {"figure1": 3, "figure2": 4, "figure3": 2, "privacy": 6}


def test_a_selection_by_a_parameter_of_the_model() -> None:
    name, sweep = "model.parameters.width", {"model.name": "small_cnn", "model.parameters.width": [4, 8]}
    content = {"name": "test", "sweep": [sweep], "figures": ["figure1"], "selections": {"figure1": {name: 8}}}
    (run,) = load_scenario_from_mapping(content).runs_of_figure("figure1")
    assert run.model.parameters == {"width": 8}


def test_the_sweep_of_the_readme_lies_over_the_embedded_scenario(tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [text for text in blocks if "sweep:" in text]
    (tmp_path / "mine.yaml").write_text(block)
    assert len(block.strip().splitlines()) == 3
    scenario = load_scenario([EMBEDDED, tmp_path / "mine.yaml"])
    assert {run.training.batch_size for run in scenario.runs} == {128}, "the embedded scenario's own settings"
    labels = {"FedAvg", "LocalItemDP", "HiGradAvgDP (v1)"}
    assert all({run.algorithm.label for run in scenario.runs_of_figure(name)} == labels for name in scenario.figures)


def test_path_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBJECTDP_TEST_DATA", "/data")
    monkeypatch.delenv("SUBJECTDP_TEST_OTHER", raising=False)

    def path(text: str, source: str = "leaf_json") -> str | None:
        return load_run({"data": {"source": source, "path": text}}).data.path

    assert path("${SUBJECTDP_TEST_DATA}/a.zip") == "/data/a.zip"
    assert path("${SUBJECTDP_TEST_OTHER:-local/b.zip}") == "local/b.zip"
    assert path("${SUBJECTDP_TEST_DATA:-local}/b.zip") == "/data/b.zip"
    assert path("${SUBJECTDP_TEST_OTHER:-}", "upstream") is None
    assert path("a$b.zip") == "a$b.zip"


@pytest.mark.slow
def test_a_run_survives_json() -> None:
    for file in SCENARIOS:
        for run in shipped(file).runs[:40]:
            again = RunConfig.model_validate_json(run.model_dump_json())
            assert again == run
            assert (again.run_id, again.partition_id, again.data_key) == (run.run_id, run.partition_id, run.data_key)
