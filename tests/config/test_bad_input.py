"""Bad configuration: each case gets one clear line naming key, value and what is allowed."""

import re
from pathlib import Path
from typing import Any

import pytest

from subjectdp.config import load_scenario, load_scenario_from_mapping
from subjectdp.config.messages import allowed_text, walk_fields
from subjectdp.config.sections import RunSections
from subjectdp.errors import ConfigError

# (dotted key of the run, value, what the message must contain besides the key), in run and as an axis
RUN_CASES: list[tuple[str, Any, list[str]]] = [
    ("algorithm.name", "fedavg", ["'fedavg'", "Did you mean 'fed_avg'?", "local_item_dp"]),
    ("algorithm", "higrad_avg:v1", ["algorithm.name", "'higrad_avg'", "Did you mean 'higrad_avg_dp'?"]),
    ("algorithm", "higrad_avg_dp:v2", ["algorithm.variant of higrad_avg_dp", "'v2'", "v1, v3"]),
    ("algorithm", "fed_avg:v1", ["algorithm.variant", "'v1'", "null (fed_avg has no variants)"]),
    ("algorithm", 3, ["algorithm", "a mapping", "3"]),
    ("data.source", "leaf_json", ["data.path", "None", "when data.source is leaf_json"]),
    ("data.path", "x.zip", ["'x.zip'", "null when data.source is embedded"]),
    ("data.path", 5, ["text", "5"]),
    ("data.subjects", 61, ["61", "at most data.embedded.subjects (60)"]),
    ("partition.alpha", 2, ["2", "1 when partition.distribution is uniform (set it to power)"]),
    ("partition.silos_per_subject", 17, ["at most partition.silos (16)", "17"]),
    ("training.silos_per_round", 17, ["at most partition.silos (16)", "17"]),
    ("training.optimizer", "sgd", ["a mapping", "sgd"]),
    ("model.name", "leaf_lstm", ["'leaf_lstm'", "or handwriting_head or stroke_head when data.dataset is femnist"]),
    ("model.parameters", ["hidden"], ["a mapping", "hidden"]),
    ("performance.device", "gpu", ["auto|cpu|cuda", "gpu"]),
]  # fmt: skip


def nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def message_of(content: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_scenario_from_mapping(content)
    return str(caught.value)


@pytest.mark.parametrize(("key", "value", "fragments"), RUN_CASES, ids=[f"{k}={v}" for k, v, _ in RUN_CASES])
def test_value_of_a_run(key: str, value: Any, fragments: list[str]) -> None:
    scenarios: list[dict[str, Any]] = [{"run": nested(key, value)}]
    if not isinstance(value, list):
        scenarios.append({"sweep": [{key: value}]})
    for scenario in scenarios:
        message = message_of({"name": "bad", **scenario})
        assert "\n" not in message
        # The shorthand's message names the key that it stands for, data.source the key that is then missing.
        assert key in message
        for fragment in fragments:
            assert fragment in message, message


ONE_OF = {
    key: text.removeprefix("one of ").split(", ")
    for key, field in walk_fields(RunSections)
    if (text := allowed_text(field)).startswith("one of ")
}


@pytest.mark.parametrize("key", ONE_OF)
def test_a_word_is_one_of_those_that_the_reference_names(key: str) -> None:
    message = message_of({"name": "bad", "run": nested(key, "nonsense")})
    assert f"Unknown run.{key} 'nonsense'." in message
    assert all(name in message for name in ONE_OF[key] if name != "or null")


ALLOWED = {key: allowed_text(field) for key, field in walk_fields(RunSections)}
NUMBERS = {key: text for key, text in ALLOWED.items() if "number" in text and "a list" not in text}
OUTSIDE = {"at least": -1.0, "greater than": 0.0, "at most": 1.0, "less than": 0.0}


@pytest.mark.parametrize("key", NUMBERS)
def test_a_number_is_one_and_in_its_range(key: str) -> None:
    """What the reference says is allowed is what is refused beyond it."""
    allowed = NUMBERS[key]
    bounds = re.findall(rf"({'|'.join(OUTSIDE)}) (\S+?)(?=,? |,|$)", allowed)
    outside = [float(bound) + OUTSIDE[kind] for kind, bound in bounds]
    assert outside, "every number has a bound"
    for value in (*outside, True, "seven", float("nan"), float("inf")):
        message = message_of({"name": "bad", "run": nested(key, value)})
        assert f"Expected run.{key} to be {allowed}, got " in message


RELEASE = {"algorithm": "subject_release", "privacy": {"mode": "sound"}}
WHOLE_CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("unknown section", {"run": {"privcy": {}}}, ["'run.privcy'", "Did you mean 'run.privacy'?"]),
    ("unknown key", {"run": {"privacy": {"epsilonn": 1}}}, ["'run.privacy.epsilonn'", "privacy.epsilon'?"]),
    ("one-letter key", {"run": {"q": 1}}, ["'run.q'", "Known: "]),
    ("key of another section", {"run": {"epsilon": 1}}, ["'run.epsilon'", "mean 'run.privacy.epsilon'?"]),
    ("axis without section", {"sweep": [{"alpha": [1]}]}, ["'sweep[0].alpha'", "'partition.alpha'"]),
    ("axis without values", {"sweep": [{"seed": []}]}, ["sweep[0].seed", "[]", "at least one value"]),
    ("axis of lists", {"sweep": [{"seed": [[1, 2]]}]}, ["sweep[0].seed", "not of lists"]),
    ("label as number", {"sweep": [{"name": 3}]}, ["sweep[0].name", "text"]),
    ("too many runs", {"sweep": [{"seed": 1, "partition.silos": [1] * 400, "training.rounds": [4] * 400}]},
     ["160000", "at most 100000"]),
    ("data set override", {"datasets": {"mnist": {}}}, ["data set in datasets", "'mnist'"]),
    ("data set in data set override", {"datasets": {"femnist": {"data": {"dataset": "shakespeare"}}}},
     ["datasets.femnist.data.dataset", "absent"]),
    ("algorithm in algorithm override", {"algorithms": {"fed_avg": {"algorithm": "user_ldp"}}},
     ["algorithms.fed_avg.algorithm", "absent"]),
    ("selection of no run", {"figures": ["figure1"], "selections": {"figure1": {"seed": 9}}},
     ["selections.figure1", "at least one run"]),
    ("parameter of a model as list", {"run": {"model": {"parameters": {"hidden": [1]}}}},
     ["model.parameters.hidden", "a whole number", "[1]"]),
    ("s > S in a sweep", {"sweep": [{"partition.silos": [4, 16], "training.silos_per_round": 8}]},
     ["training.silos_per_round", "at most partition.silos (4)", "8"]),
    ("updates as published",
     {"run": {"algorithm": "joint_noise", "joint": {"clipping": "update"}}},
     ["privacy.mode", "'as_published'", "sound when joint.clipping is update"]),
    ("updates in integers",
     {"run": {"algorithm": "joint_noise", "joint": {"clipping": "update", "noise": "skellam"},
              "privacy": {"mode": "sound", "accountant": "rdp"}}},
     ["joint.noise", "'skellam'", "gaussian when joint.clipping is update"]),
    ("fused steps of too few silos",
     {"run": {"algorithm": "joint_noise", "joint": {"fused_steps": [1, 2]}}},
     ["joint.fused_steps", "[1, 2]", "one number for each of the 16 silos"]),
    ("no steps",
     {"run": {"algorithm": "joint_noise", "joint": {"fused_steps": [0] * 16}}},
     ["joint.fused_steps", "at least 1"]),
    ("integer noise and momentum",
     {"run": {"algorithm": "joint_noise", "joint": {"noise": "skellam"}, "privacy": {"accountant": "rdp"},
              "training": {"optimizer": {"name": "momentum"}}}},
     ["training.optimizer", "'momentum'", "sgd when joint.noise is skellam"]),
    ("central with local steps", {"run": {"algorithm": "central_sub_dp", "training": {"local_steps": 5}}},
     ["training.local_steps", "5", "1 or null when algorithm.name is central_sub_dp"]),
    ("no round left", {"run": {"algorithm": "user_ldp", "training": {"rounds": 3}}},
     ["training.rounds", "3", "at least 4"]),
    ("LEAF's bug in LEAF's JSON",
     {"run": {"data": {"source": "leaf_json", "path": "a.zip", "duplicate_first_image_bug": True}}},
     ["data.duplicate_first_image_bug", "false when data.source is leaf_json"]),
    ("unset variable", {"run": {"data": {"source": "leaf_json", "path": "${SUBJECTDP_NO_SUCH}/a.zip"}}},
     ["data.path", "${SUBJECTDP_NO_SUCH}/a.zip", "variables are set"]),
    ("empty variable", {"run": {"data": {"source": "leaf_json", "path": "${SUBJECTDP_NO_SUCH:-}"}}},
     ["data.path", "not empty"]),
    ("two files of one name",
     {"sweep": [{"data.source": "leaf_json", "data.path": ["a/all.zip", "b/all.zip"], "seed": [0, 1]}]},
     ["data.path", "'b/all.zip'", "'a/all.zip'"]),
    ("two expectations of one source",
     {"sweep": [{"data.expected.users": [60, 61], "seed": [0, 1]}, {"data.expected.users": 61, "seed": 2}]},
     ["data.expected", "61", "60"]),
    ("capped items without a cap", {"run": {"algorithm": "capped_item_dp", "privacy": {"mode": "sound"}}},
     ["partition.max_items_per_subject", "an enforced cap"]),
    ("release with local steps", {"run": {**RELEASE, "training": {"local_steps": 2}}},
     ["training.local_steps", "1 or null when algorithm.name is subject_release"]),
    ("prediction of given noise",
     {"run": {**RELEASE, "privacy": {"mode": "sound", "predicted_subjects": 9, "noise_multiplier": 1}}},
     ["privacy.predicted_subjects", "null where privacy.noise_multiplier is given"]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "fragments"), [case[1:] for case in WHOLE_CASES], ids=[c[0] for c in WHOLE_CASES])
def test_whole_scenario(content: dict[str, Any], fragments: list[str]) -> None:
    message = message_of({"name": "bad", **content})
    assert "\n" not in message
    for fragment in fragments:
        assert fragment in message, message


FILE_CASES: list[tuple[str, bytes, list[str]]] = [
    ("empty", b"", ["a mapping", "nothing"]),
    ("text", b"hello", ["a mapping", "a str"]),
    ("not UTF-8", b"run: {}\nname: \xff\xfe\n", ["UTF-8", "0xff in line 2"]),
    ("a number as key", b"name: a\nrun: {1: 2}\n", ["every key under run", "1"]),
    ("two documents", b"name: a\n---\nname: b\n", ["plain YAML"]),
    ("too deep", b"name: a\nrun: " + b"{a: " * 60 + b"1" + b"}" * 60, ["a tree of", "32 levels deep"]),
    ("absurdly deep", b"name: " + b"[" * 1500, ["plain YAML"]),
    (
        "a bomb of aliases",
        b"name: x\na: &a [1,1,1,1,1,1,1,1,1]\n"
        + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 106)),
        ["a tree of at most 200000 values"],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("content", "fragments"), [case[1:] for case in FILE_CASES], ids=[c[0] for c in FILE_CASES])
def test_scenario_file(tmp_path: Path, content: bytes, fragments: list[str]) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_scenario(file)
    assert "\n" not in str(caught.value)
    for fragment in fragments:
        assert fragment in str(caught.value)


def test_missing_file_and_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.yaml to be a readable file"):
        load_scenario(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="to be a readable file"):
        load_scenario(tmp_path)
    with pytest.raises(ConfigError, match="at least one scenario file"):
        load_scenario([])
    with pytest.raises(ConfigError, match="Expected name to be given"):
        load_scenario_from_mapping({})


def test_several_problems_are_told_at_once() -> None:
    message = message_of({"name": "bad", "run": {"privacy": {"epsilon": 0, "delta": 2}, "training": {"batch_size": 0}}})
    assert [line.split()[1] for line in message.split("\n")] == [
        "run.privacy.epsilon",
        "run.privacy.delta",
        "run.training.batch_size",
    ]


def test_a_long_value_is_cut() -> None:
    message = message_of({"name": "bad", "run": {"privacy": {"epsilon": "9" * 5000 + "x"}}})
    assert len(message) < 500
    assert "(5003 characters)" in message
