"""Ids: stable, the same for two ways to write one run, different for two runs; no key is dropped.

A key that alters a guarantee changes the run id, or another value than the default is refused. The values are made
from the fields: a new key is tested as soon as it is there.
"""

import re
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from subjectdp.algorithms.registry import ALGORITHMS, algorithm
from subjectdp.config.messages import allowed_text, section_of, walk_fields
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.run import RunConfig, load_run
from subjectdp.config.scenario import set_dotted
from subjectdp.config.sections import RunSections, normalised
from subjectdp.errors import ConfigError


@pytest.mark.parametrize("algorithm", ["fed_avg", "user_ldp", "central_sub_dp", "joint_noise"])
def test_a_run_is_made_resolved(algorithm: str) -> None:
    run = load_run({"algorithm": algorithm, "partition": {"max_items_per_subject": 4}})
    assert run == RunConfig.model_validate(run.model_dump()) and run.partition.silos_per_subject == 16
    assert resolve_defaults(run) is run


def test_golden_ids() -> None:
    """These must not change without a new ID_VERSION: results on disk are found by them."""
    run = load_run({"algorithm": "higrad_avg_dp", "seed": 3, "partition": {"distribution": "power", "alpha": 16}})
    assert re.fullmatch(r"femnist-higrad_avg_dp-v1-s3-[0-9a-f]{10}", run.run_id)
    assert re.fullmatch(r"femnist-power16-16-s3-[0-9a-f]{10}", run.partition_id)
    assert re.fullmatch(r"femnist-embedded-[0-9a-f]{10}", run.data_key)
    hashes = run.run_id[-10:], run.partition_id[-10:], run.data_key[-10:]
    assert hashes == ("714959aaf6", "5544b795f7", "ffd27a9087")


UPSTREAM = {"source": "upstream"}
ITEM, CENTRAL = {"algorithm": "local_item_dp"}, {"algorithm": "central_sub_dp"}
HERE, THERE = ({"source": "leaf_json", "path": f"{folder}/a.zip"} for folder in ("here", "/there"))

SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("variant", {"algorithm": "higrad_avg_dp"}, {"algorithm": "higrad_avg_dp:v1"}),
    ("model", {}, {"model": "leaf_cnn"}),
    ("split", {}, {"data": {"test_fraction": 0.2}}),
    ("all silos", {"partition": {"silos": 8}}, {"partition": {"silos": 8, "silos_per_subject": 8}}),
    ("all silos a round", {}, {"training": {"silos_per_round": 16}}),
    ("number as text", {"privacy": {"epsilon": 4.0}}, {"privacy": {"epsilon": "4"}}),
    ("whole number", {"partition": {"alpha": 1}}, {"partition": {"alpha": 1.0}}),
    ("performance", {}, {"performance": {"threads": 8, "device": "cuda:1"}}),
    ("expected counts", {}, {"data": {"expected": {"users": 60}}}),
    ("privacy of FedAvg", {}, {"privacy": {"epsilon": 1, "mode": "sound", "clip_norm": 3}}),
    ("horizontal rule of LocalItemDP", ITEM, {**ITEM, "privacy": {"horizontal": "steps_times_s"}}),
    ("folder of a file", {"data": HERE}, {"data": THERE}),
    ("override of a download", {"data": UPSTREAM}, {"data": {**UPSTREAM, "path": "/there"}}),
    ("one step of CentralSubDP", CENTRAL, {**CENTRAL, "training": {"local_steps": 1}}),
]


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_two_ways_to_write_a_run(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert load_run(one).run_id == load_run(other).run_id


OF_TABLES = {
    "data.label": "outcome",
    "data.subject": "ward",
    "data.silo": "clinic",
    "data.columns": ["age"],
    "data.drop": ["age"],
    "data.missing": "drop",
    "data.ranges": {"age": [0, 100]},
    "data.task": "regression",
}
# A run in which every key is read: changing any of them must change the id.
ALL_READ: dict[str, Any] = {
    "algorithm": "central_sub_dp",
    "data": {"dataset": "femnist"},
    "partition": {"distribution": "power"},
    "training": {"optimizer": {"name": "adam"}},
}
CHOSEN: dict[str, Any] = {  # where the first value that a key takes would break a rule, or is read nowhere
    "data.source": "upstream",
    "data.subjects": 30,
    "partition.silos": 15,
    "partition.distribution": "uniform",
    "algorithm.name": "local_item_dp",
    "privacy.horizontal": "sound",
    "privacy.predicted_subjects": 3500,
    "joint.fused_steps": [1, 2],
    "training.rounds": 99,
    "training.batch_size": 511,
    "training.optimizer.name": "momentum",
    **OF_TABLES,
    "model.name": "small_cnn",
    "model.parameters": {"hidden": 5},
}


def other_value(key: str, field: FieldInfo) -> Any:
    """A value that the field takes, and not its default."""
    allowed = allowed_text(field)
    words = allowed.removeprefix("one of ").split(", ") if allowed.startswith("one of") else []
    for value in (*words, True, False, 9, 3, 2, 1, 0.3, 1e-6, "some"):
        try:
            run: Any = RunSections.model_validate(normalised(set_dotted({}, key, value)))
        except ValidationError:
            continue
        for part in key.split("."):
            run = getattr(run, part)
        if run != field.default:
            return value
    raise AssertionError(f"no value for {key}")


OTHER_VALUES = {
    key: CHOSEN[key] if key in CHOSEN else other_value(key, field)
    for key, field in walk_fields(RunConfig)
    if section_of(field) is None and not key.startswith(("performance.", "data.expected", "algorithm.variant"))
}
OF_OTHERS = ("joint.", "subject.", "data.path", "training.local_", "training.silo_choice", "privacy.predicted_subjects")
READ_BY_ALL_READ = [key for key in OTHER_VALUES if not key.startswith((*OF_OTHERS, *OF_TABLES))]


def changed(key: str, value: Any) -> dict[str, Any]:
    base: dict[str, Any] = normalised(ALL_READ)
    if key == "privacy.mode":
        base = set_dotted(base, "partition.max_items_per_subject", 5)
    return set_dotted(base, key, value)


@pytest.mark.parametrize("key", READ_BY_ALL_READ)
def test_every_key_that_matters_changes_the_id(key: str) -> None:
    base = changed("privacy.mode", "as_published") if key == "privacy.mode" else changed("seed", 0)
    first, second = load_run(base), load_run(changed(key, OTHER_VALUES[key]))
    assert first.run_id != second.run_id
    section = key.partition(".")[0]
    of_data = section == "data" and key not in ("data.subjects", "data.validation_fraction")
    assert (first.data_key != second.data_key) == of_data
    if key != "privacy.mode":
        assert (first.partition_id != second.partition_id) == (section in ("seed", "data", "partition"))


@pytest.mark.parametrize("key", OF_TABLES)
def test_the_columns_of_a_table_change_all_ids(key: str) -> None:
    data = {"source": "table", "path": "patients.csv", "label": "y", "subject": "person", "silo": "place"}
    first, second = (load_run({"data": each}) for each in (data, data | {key.split(".")[1]: OF_TABLES[key]}))
    assert first.data_key != second.data_key and first.run_id != second.run_id
    moved = load_run({"data": data | {"path": "elsewhere/patients.csv"}})
    assert moved.run_id == first.run_id


SECTIONS = ("partition", "privacy", "joint", "subject", "training")
VALUES = {key: value for key, value in OTHER_VALUES.items() if key.partition(".")[0] in SECTIONS}
VALUES |= {"training.silo_choice": "random"}
# decision 0022: common sections may set it for many algorithms
WITHOUT_EFFECT = {(name, "training.batch_size") for name in ("subject_release", "subject_sampling", "uldp_fl")}


def base(name: str) -> dict[str, Any]:
    """A run in sound mode, in which every algorithm may run."""
    run: dict[str, Any] = {
        "algorithm": name,
        "partition": {"silos": 16, "distribution": "power", "max_items_per_subject": 8},
        "privacy": {"mode": "sound"},
        "training": {"local_steps": 1},
    }
    return dict(normalised(run))


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("key", VALUES)
def test_a_key_changes_the_id_or_is_refused(name: str, key: str) -> None:
    value = "as_published" if key == "privacy.mode" else VALUES[key]
    plain = load_run(base(name)).run_id
    try:
        changed = load_run(set_dotted(base(name), key, value)).run_id
    except ConfigError as refused:
        lines = [line for line in str(refused).splitlines() if line.startswith(f"Expected {key} ")]
        number = str(value).strip("[]()") if isinstance(value, list) else str(value)
        assert any(number in line for line in lines) or key in str(refused)
        return
    idle = (name, key) in WITHOUT_EFFECT
    idle |= name == "fed_avg" and key.startswith("privacy.")  # it claims no privacy
    idle |= key == "privacy.horizontal" and not algorithm(name).reads_key(key)
    assert (changed != plain) != idle


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("local_item_dp", "joint.colluding_silos", 1),
        ("subject_sampling", "joint.own_noise_only", True),
        ("subject_sampling", "subject.weights", "fixed"),
        ("fed_avg", "joint.noise", "skellam"),
        ("capped_item_dp", "subject.trust", "secure_aggregation"),
        ("subject_release", "joint.fused_steps", [2] * 16),
    ],
)
def test_a_key_that_is_not_read_is_refused(name: str, key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        load_run(set_dotted(base(name), key, value))
    text = str(refused.value)
    assert f"Expected {key} to be" in text and f"when algorithm.name is {name} (not read)" in text


@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize(("key", "value"), [("colluding_silos", 1), ("own_noise_only", True)])
def test_who_tells_its_noise_matters_under_secure_aggregation_alone(trust: str, key: str, value: Any) -> None:
    run = set_dotted(base("subject_release"), "subject.trust", trust)
    with pytest.raises(ConfigError, match=f"Expected joint.{key} to be .* under {trust} trust"):
        load_run(set_dotted(run, f"joint.{key}", value))


def test_a_batch_size_beside_a_fraction_is_refused() -> None:
    run = base("joint_noise") | {"training": {"local_steps": 1, "batch_size": 64, "sampling_fraction": 0.05}}
    with pytest.raises(ConfigError, match="training.batch_size.*512 when training.sampling_fraction is given"):
        load_run(run)
    del run["training"]["batch_size"]
    assert load_run(run).training.sampling_fraction == 0.05
