"""Ids: stable, the same for two ways to write one run, different for two runs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from subjectdp.config import RunConfig, load_run
from subjectdp.config.messages import section_of, walk_fields
from subjectdp.config.resolve import resolve_defaults
from subjectdp.config.scenario import normalised, set_dotted
from subjectdp.errors import ConfigError


@pytest.mark.parametrize("algorithm", ["fed_avg", "user_ldp", "central_sub_dp", "joint_noise"])
def test_a_run_is_made_resolved(algorithm: str) -> None:
    run = load_run({"algorithm": algorithm, "partition": {"max_items_per_subject": 4}})
    assert run == RunConfig.model_validate(run.model_dump()) and run.partition.silos_per_subject == 16
    assert resolve_defaults(run) is run


def test_golden_ids() -> None:
    """These must not change without a new ID_VERSION: results on disk are found by them."""
    run = load_run(
        {"algorithm": "higrad_avg_dp", "seed": 3, "partition": {"distribution": "power", "alpha": 16}}
    )
    assert re.fullmatch(r"femnist-higrad_avg_dp-v1-s3-[0-9a-f]{10}", run.run_id)
    assert re.fullmatch(r"femnist-power16-16-s3-[0-9a-f]{10}", run.partition_id)
    assert re.fullmatch(r"femnist-embedded-[0-9a-f]{10}", run.data_key)
    assert (run.run_id[-10:], run.partition_id[-10:], run.data_key[-10:]) == GOLDEN


GOLDEN = ("714959aaf6", "5544b795f7", "ffd27a9087")

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
    ("momentum of plain SGD", {}, {"training": {"optimizer": {"momentum": 0.5}}}),
    ("privacy of FedAvg", {}, {"privacy": {"epsilon": 1, "mode": "sound", "clip_norm": 3}}),
    (
        "horizontal rule of LocalItemDP",
        {"algorithm": "local_item_dp"},
        {"algorithm": "local_item_dp", "privacy": {"horizontal": "steps_times_s"}},
    ),
    (
        "folder of a file",
        {"data": {"source": "leaf_json", "path": "here/a.zip"}},
        {"data": {"source": "leaf_json", "path": "/there/a.zip"}},
    ),
    (
        "override of a download",
        {"data": {"source": "upstream"}},
        {"data": {"source": "upstream", "path": "/there"}},
    ),
    (
        "size of generated data, not used",
        {"data": {"source": "upstream"}},
        {"data": {"source": "upstream", "embedded": {"subjects": 9}}},
    ),
    (
        "one step of CentralSubDP",
        {"algorithm": "central_sub_dp"},
        {"algorithm": "central_sub_dp", "training": {"local_steps": 1}},
    ),
]


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_two_ways_to_write_a_run(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert load_run(one).run_id == load_run(other).run_id


# A run in which every key is read: changing any of them must change the id.
ALL_READ: dict[str, Any] = {
    "algorithm": "central_sub_dp",
    "data": {"dataset": "femnist"},
    "partition": {"distribution": "power"},
    "training": {"optimizer": {"name": "adam"}},
}
OTHER_VALUES: dict[str, Any] = {
    "privacy.noise_source": "secure",
    "seed": 1,
    "data.dataset": "shakespeare",
    "data.source": "upstream",
    "data.subjects": 30,
    "data.test_fraction": 0.3,
    "data.validation_fraction": 0.3,
    "data.duplicate_first_image_bug": True,
    "data.embedded.subjects": 61,
    "data.embedded.items_per_subject": 121,
    "data.embedded.seed": 1,
    "partition.silos": 15,
    "partition.distribution": "uniform",
    "partition.alpha": 2,
    "partition.max_items_per_subject": 5,
    "partition.silos_per_subject": 3,
    "algorithm.name": "local_item_dp",
    "privacy.mode": "sound",
    "privacy.horizontal": "sound",
    "privacy.epsilon": 3,
    "privacy.delta": 1e-6,
    "privacy.clip_norm": 2,
    "privacy.noise_multiplier": 1,
    "privacy.accountant": "rdp",
    "training.rounds": 99,
    "training.batch_size": 511,
    "training.sampling_fraction": 0.1,
    "training.sampling": "fixed_batch_size",
    "training.silos_per_round": 15,
    "training.optimizer.name": "momentum",
    "training.optimizer.learning_rate": 0.2,
    "training.optimizer.momentum": 0.8,
    "training.averaged_rounds": 0.25,
    "training.evaluate_every": 2,
    "training.evaluation_items": 100,
    "model.name": "small_cnn",
    "model.parameters": {"hidden": 5},
}
JOINT_VALUES: dict[str, Any] = {"noise": "skellam", "bits": 8, "colluding_silos": 1, "own_noise_only": True}
JOINT_ALONE = ("clipping", "fused_steps")  # tested by test_unread_keys
SUBJECT_VALUES: dict[str, Any] = {
    "sampling_probability": 0.5,
    "items": 4,
    "trust": "central",
    "weights": "proportional",
}
NOT_READ = {
    "data.path",
    "algorithm.variant",
    "training.local_steps",
    "training.silo_choice",
}  # tested by test_unread_keys
IN_SOUND_MODE = {"privacy.predicted_subjects"}  # likewise
OF_TABLES = {"data.label": "outcome", "data.subject": "ward", "data.silo": "clinic"}  # likewise


def changed(key: str, value: Any) -> dict[str, Any]:
    base: dict[str, Any] = normalised(ALL_READ)
    if key == "privacy.mode":
        base = set_dotted(base, "partition.max_items_per_subject", 5)
    return set_dotted(base, key, value)


@pytest.mark.parametrize("key", OTHER_VALUES)
def test_every_key_that_matters_changes_the_id(key: str) -> None:
    before = {**changed(key, OTHER_VALUES[key])}
    base = changed("privacy.mode", "as_published") if key == "privacy.mode" else changed("seed", 0)
    first, second = load_run(base), load_run(before)
    assert first.run_id != second.run_id
    section = key.partition(".")[0]
    of_data = section == "data" and key not in ("data.subjects", "data.validation_fraction")
    assert (first.data_key != second.data_key) == of_data
    if key != "privacy.mode":
        assert (first.partition_id != second.partition_id) == (section in ("seed", "data", "partition"))


def test_no_key_is_forgotten() -> None:
    leaves = {key for key, field in walk_fields(RunConfig) if section_of(field) is None}
    ignored = {key for key in leaves if key.startswith(("performance.", "data.expected"))}
    joint = {f"joint.{key}" for key in (*JOINT_VALUES, *JOINT_ALONE)}
    subject = {f"subject.{key}" for key in SUBJECT_VALUES}
    special = joint | subject
    assert leaves == set(OTHER_VALUES) | NOT_READ | IN_SOUND_MODE | set(OF_TABLES) | special | ignored


@pytest.mark.parametrize("key", OF_TABLES)
def test_the_columns_of_a_table_change_all_ids(key: str) -> None:
    data = {"source": "table", "path": "patients.csv", "label": "y", "subject": "person", "silo": "place"}
    first, second = (load_run({"data": each}) for each in (data, data | {key.split(".")[1]: OF_TABLES[key]}))
    assert first.data_key != second.data_key and first.run_id != second.run_id
    moved = load_run({"data": data | {"path": "elsewhere/patients.csv"}})
    assert moved.run_id == first.run_id


def test_fused_steps_are_another_run_of_joint_noise_as_published() -> None:
    def run(fused: list[int], **joint: Any) -> dict[str, Any]:
        return {
            "algorithm": "joint_noise",
            "joint": {"fused_steps": fused, **joint},
            "partition": {"silos": 2},
        }

    plain = load_run(run([])).run_id
    assert load_run(run([1, 1])).run_id == plain
    assert load_run(run([1, 2])).run_id != plain
    skellam = {"privacy": {"accountant": "rdp"}}
    sound = {"privacy": {"mode": "sound"}, "training": {"local_steps": 1}}
    for message, wrong in (
        ("one number for each of the 2 silos", run([2])),
        ("joint.fused_steps.*a whole number at least 1.*got 0", run([1, 0])),
        (r"\[\] when privacy.mode is sound.*joint.clipping: update", run([1, 2]) | sound),
        ("when joint.noise is skellam", run([1, 2], noise="skellam") | skellam),
        (
            "when training.sampling is fixed_batch_size",
            run([1, 2]) | {"training": {"sampling": "fixed_batch_size"}},
        ),
        ("sgd when joint.fused_steps", run([1, 2]) | {"training": {"optimizer": {"name": "adam"}}}),
    ):
        with pytest.raises(ConfigError, match=message):
            load_run(wrong)


def test_what_a_release_does_not_read() -> None:
    runs = [
        load_run(
            {
                "algorithm": "subject_release",
                "privacy": {"mode": "sound"},
                "training": {"batch_size": size, "local_steps": steps},
            }
        )
        for size, steps in ((7, None), (512, 1))
    ]
    assert runs[0].run_id == runs[1].run_id


def test_bits_are_read_where_noise_is_of_integers() -> None:
    integers = {"algorithm": "joint_noise", "privacy": {"accountant": "rdp"}}
    runs = [load_run({**integers, "joint": {"noise": "skellam", "bits": bits}}) for bits in (8, 9)]
    assert runs[0].run_id != runs[1].run_id
