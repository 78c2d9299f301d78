"""Bad configuration: one clear line that names key, value and what is allowed, and where it stands in which file."""

import re
from pathlib import Path
from typing import Any

import pytest

from cli.commands import refused
from subjectdp.config.messages import allowed_text, walk_fields
from subjectdp.config.scenario import given_values, load_scenario, load_scenario_from_mapping
from subjectdp.config.sections import RunSections
from subjectdp.data.catalogue import DatasetSpec
from subjectdp.errors import ConfigError, SubjectDPError
from subjectdp.forecast.before_start import check_before_start
from subjectdp.models.catalogue import ModelSpec

# (dotted key of the run, value, what the message must contain besides the key)
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
    ("partition.alpha", 2, ["2", "1.0 unless partition.distribution is power (not read)"]),
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
    """In run and as an axis. A shorthand's message names its key, data.source's the key that is then missing."""
    scenarios: list[dict[str, Any]] = [{"run": nested(key, value)}]
    if not isinstance(value, list):
        scenarios.append({"sweep": [{key: value}]})
    for scenario in scenarios:
        message = message_of({"name": "bad", **scenario})
        assert "\n" not in message and all(fragment in message for fragment in [key, *fragments]), message


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
BOTH = "sweep: [{seed: 0, algorithm: fed_avg}, {seed: 1, algorithm: user_ldp}]\nfigures: [figure1]\n"


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


# (what is wrong, the file after its first line "name: x", the line of the problem if it has one, what is said)
CASES: list[tuple[str, str, int | None, list[str]]] = [
    ("text for a width", "run:\n  model: {name: small_cnn, parameters: {width: eight}}", 3,
     ["model.parameters.width", "a whole number from 4 to 4096 that is a multiple of 4", "'eight'"]),
    ("misspelt parameter", "run:\n  model:\n    name: small_cnn\n    parameters: {widht: 8}", 5,
     ["'model.parameters.widht'", "Did you mean 'model.parameters.width'?"]),
    ("width that no group fits", "run:\n  model: {name: small_cnn, parameters: {width: 6}}", 3, ["multiple of 4", "6"]),
    ("parameter of another model", "run:\n  model: {name: logistic, parameters: {width: 8}}", 3,
     ["'model.parameters.width'", "Known: model.parameters.pool"]),
    ("pool", "run:\n  model: {name: logistic, parameters: {pool: 3}}", 3, ["one of 1, 2, 4, 7, 8, 14, 16", "3"]),
    ("true for a number", "run:\n  model: {parameters: {hidden: true}}", 3, ["a whole number", "True"]),
    ("number for true", "run:\n  model: {name: handwriting_head, parameters: {from_synthetic: 1}}", 3,
     ["true or false"]),
    ("n-grams of nothing", "run:\n"
     "  data: {dataset: shakespeare}\n  model: {name: char_ngram, parameters: {singles: 0, pairs: 0}}", 4,
     ["singles", "at least 1 where pairs is 0"]),
    ("two projections", "run:\n  model: {name: scattering_head, parameters: {directions: 8, components: 16}}", 3,
     ["model.parameters.components", "0 where directions is not 0", "16"]),
    ("missing folder", "run:\n  data:\n    source: leaf_json\n    path: /nowhere/leaf", 5,
     ["data.path", "a file or folder that exists", "'/nowhere/leaf'"]),
    ("mini-batch above a silo", "run:\n  training:\n    batch_size: 5000", 4,
     ["training.batch_size", "smallest silo", "288 each", "5000"]),
    ("British axis", "sweep:\n  - training.optimiser.name: adam", 3, ["Did you mean 'training.optimizer.name'?"]),
    ("British section", "run:\n  training:\n    optimiser: {name: adam}", 4, ["'run.training.optimizer'?"]),
    ("key of a run at the top", "seed: 3", 2, ["Write run: {seed: 3};", "--config 'run={seed: 3}'"]),
    ("dotted key at the top", "training.batch_size: 5", 2, ["Write run: {training: {batch_size: 5}}"]),
    ("list in a block's section", "sweep:\n  - algorithm: user_ldp\n    privacy: {epsilon: [1, 2]}", 4,
     ["privacy.epsilon", "sweep: [{privacy.epsilon: [1, 2]}]"]),
    ("list in run", "run:\n  seed: [0, 1, 2]", 3, ["sweep: [{seed: [0, 1, 2]}]"]),
    ("one figure", "figures: figure1", 2, ["Write figures: [figure1]."]),
    ("sweep as a mapping", "sweep:\n  seed: [0, 1]", 2, ["a list", "'- ' before its first key, seed"]),
    ("empty sweep", "sweep:", 2, ["sweep", "a list", "None"]),
    ("mode for privacy", "run:\n  privacy: sound", 3, ["Write privacy: {mode: sound}."]),
    ("name for an optimiser", "run:\n  training: {optimizer: adam}", 3, ["Write optimizer: {name: adam}."]),
    ("unknown override", "run: {}\nalgorithms:\n  fedavg: {seed: 1}", 4, ["'fedavg'", "Did you mean 'fed_avg'?"]),
    ("override of no run", "algorithms:\n  user_ldp: {seed: 1}", 3, ["algorithms.user_ldp", "a run of the sweep"]),
    ("override of the other variant", "sweep: [{algorithm: [fed_avg]}]\nalgorithms:\n  higrad_avg_dp:v1: {seed: 1}", 4,
     ["algorithms.higrad_avg_dp:v1", "a run of the sweep"]),
    ("override of no run's data", "algorithms:\n  fed_avg:\n    datasets:\n      shakespeare: {seed: 1}", 5,
     ["algorithms.fed_avg.datasets.shakespeare"]),
    ("data set of no run", "datasets:\n  shakespeare: {seed: 1}", 3, ["datasets.shakespeare", "a run of the sweep"]),
    ("nested selection", "figures: [figure1]\nselections:\n  figure1: {data: {subjects: null}}", 4,
     ["selections.figure1.data", "Write dotted keys: data.KEY"]),
    ("unknown figure", "figures:\n  - figure1\n  - figure4", 4, ["'figure4'", "Did you mean 'figure3'?"]),
    ("a key with a space", "sweep:\n  - seed : 1\n    partition.max items: 3", 4, ["'sweep[0].partition.max items'"]),
    ("a key with a quote", "descriptio'n: x", 2, ["Did you mean 'description'?"]),
    ("unknown selection", "selections:\n  figure1: {sed: 0}", 3, ["'selections.figure1.sed'"]),
    ("no space after a dash", "sweep:\n  -algorithm: fed_avg", 2, ["sweep", "a list"]),
    ("no colon", "run:\n  seed 3", 2, ["run", "a mapping", "seed 3"]),
    ("range", "sweep:\n  - seed: 0..4", 3, ["seed", "a whole number", "0..4"]),
    ("maybe", "run:\n  joint: {own_noise_only: maybe}", 3, ["true or false", "maybe"]),
    ("sound without a cap", "run:\n  algorithm: higrad_avg_dp:v3\n  privacy:\n    mode: sound", 5,
     ["partition.max_items_per_subject", "an enforced cap"]),
    ("momentum that SGD does not read", "run:\n  training:\n    optimizer: {momentum: 0.5}", 4,
     ["training.optimizer.momentum", "0.9 unless training.optimizer.name is momentum or adam (not read)"]),
    ("base 8", "run:\n  seed: 010", 3, ["010 is read in base 8 or 60", "line 3"]),
    ("base 60", "run:\n  seed: 1:40", 3, ["1:40 is read in base 8 or 60"]),
    ("key twice", "run:\n  seed: 1\n  seed: 2", 4, ["'seed' is given twice", "line 4"]),
    ("unknown section", "run: {privcy: {}}", None, ["'run.privcy'", "Did you mean 'run.privacy'?"]),
    ("unknown key", "run: {privacy: {epsilonn: 1}}", None, ["'run.privacy.epsilonn'", "privacy.epsilon'?"]),
    ("one-letter key", "run: {q: 1}", None, ["'run.q'", "Known: "]),
    ("key of another section", "run: {epsilon: 1}", None, ["'run.epsilon'", "mean 'run.privacy.epsilon'?"]),
    ("axis without section", "sweep: [{alpha: [1]}]", None, ["'sweep[0].alpha'", "'partition.alpha'"]),
    ("axis without values", "sweep: [{seed: []}]", None, ["sweep[0].seed", "[]", "at least one value"]),
    ("axis of lists", "sweep: [{seed: [[1, 2]]}]", None, ["sweep[0].seed", "not of lists"]),
    ("label as number", "sweep: [{name: 3}]", None, ["sweep[0].name", "text"]),
    ("too many runs", f"sweep: [{{seed: 1, partition.silos: {[1] * 400}, training.rounds: {[4] * 400}}}]", None,
     ["160000", "at most 100000"]),
    ("data set override", "datasets: {mnist: {}}", None, ["data set in datasets", "'mnist'"]),
    ("data set in data set override", "datasets: {femnist: {data: {dataset: shakespeare}}}", None,
     ["datasets.femnist.data.dataset", "absent"]),
    ("algorithm in algorithm override", "algorithms: {fed_avg: {algorithm: user_ldp}}", None,
     ["algorithms.fed_avg.algorithm", "absent"]),
    ("figure twice", "figures: [figure1, figure1]", 2, ["figures", "figure1 once", "figure1-LABEL"]),
    ("axis of lists in a section", "sweep: [{data.columns: [[a], [b]]}]", None, ["data: [{columns: [...]}, {"]),
    ("selection of no run", "sweep: [{seed: [0, 1]}]\nfigures: [figure1]\nselections: {figure1: {seed: [0, 9]}}", None,
     ["selections.figure1.seed", "of a run (0, 1)", "9"]),
    ("selection of no run together", f"{BOTH}selections: {{figure1: {{seed: 0, algorithm.name: user_ldp}}}}", None,
     ["selections.figure1", "at least one run"]),
    ("selection by a section", "figures: [figure1]\nselections: {figure1: {model: leaf_cnn}}", None,
     ["selections.figure1.model", "Write dotted keys: model.KEY"]),
    ("selection of a baseline alone", f"{BOTH}selections: {{figure1: {{seed: 0, privacy.mode: as_published}}}}", None,
     ["selections.figure1", "at least one run"]),
    ("parameter of a model as list", "run: {model: {parameters: {hidden: [1]}}}", None,
     ["model.parameters.hidden", "a whole number", "[1]"]),
    ("s > S in a sweep", "sweep: [{partition.silos: [4, 16], training.silos_per_round: 8}]", None,
     ["training.silos_per_round", "at most partition.silos (4)", "8"]),
    ("updates as published", "run: {algorithm: joint_noise, joint: {clipping: update}}", None,
     ["privacy.mode", "'as_published'", "sound when joint.clipping is update (no paper of this project states an ε"]),
    ("updates in integers",
     "run: {algorithm: joint_noise, joint: {clipping: update, noise: skellam},\n"
     "      privacy: {mode: sound, accountant: rdp}}", None,
     ["joint.noise", "'skellam'", "gaussian when joint.clipping is update"]),
    ("fused steps of too few silos", "run: {algorithm: joint_noise, joint: {fused_steps: [1, 2]}}", None,
     ["joint.fused_steps", "[1, 2]", "one number for each of the 16 silos"]),
    ("no steps", f"run: {{algorithm: joint_noise, joint: {{fused_steps: {[0] * 16}}}}}", None,
     ["joint.fused_steps", "at least 1"]),
    ("integer noise and momentum",
     "run: {algorithm: joint_noise, joint: {noise: skellam}, privacy: {accountant: rdp},\n"
     "      training: {optimizer: {name: momentum}}}", None,
     ["training.optimizer", "'momentum'", "sgd when joint.noise is skellam"]),
    ("a default beside another run's value",
     "sweep:\n- {algorithm: joint_noise, joint.clipping: update}\n- {algorithm: local_item_dp, privacy.mode: sound}", 3,
     ["privacy.mode", "sound when joint.clipping is update", "'as_published'"]),
    ("rule", "run: {algorithm: uldp_fl, privacy: {mode: sound, horizontal: none}}", 2, ["sound or left out"]),
    ("own noise as published", "run: {algorithm: joint_noise, joint: {own_noise_only: true}}", 2, ["mode is sound"]),
    ("central with local steps", "run: {algorithm: central_sub_dp, training: {local_steps: 5}}", None,
     ["training.local_steps", "5", "1 or null when algorithm.name is central_sub_dp"]),
    ("no round left", "run: {algorithm: user_ldp, training: {rounds: 3}}", None,
     ["training.rounds", "3", "at least 4"]),
    ("LEAF's bug in LEAF's JSON",
     "run: {data: {source: leaf_json, path: a.zip, duplicate_first_image_bug: true}}", None,
     ["data.duplicate_first_image_bug", "false when data.source is leaf_json"]),
    ("generated data beside a table",
     "run: {data: {source: table, path: a.csv, label: y, embedded: {subjects: 9}}}", None,
     ["data.embedded.subjects", "60 when data.source is table (not read)", "9"]),
    ("LEAF's bug in another data set", "run: {data: {dataset: shakespeare, duplicate_first_image_bug: true}}", None,
     ["data.duplicate_first_image_bug", "false when data.dataset is shakespeare (not read)"]),
    ("bits of Gaussian noise", "run: {algorithm: joint_noise, joint: {bits: 4}}", None,
     ["joint.bits", "16 unless joint.noise is skellam (not read)"]),
    ("a target beside given noise", "run: {algorithm: local_item_dp, privacy: {epsilon: 2, noise_multiplier: 1}}", None,
     ["privacy.epsilon", "4.0 when privacy.noise_multiplier is given (not read)"]),
    ("a target's axis beside given noise",
     "sweep: [{algorithm: local_item_dp, privacy.epsilon: [1, 4], privacy.noise_multiplier: 2}]", None,
     ["privacy.epsilon", "4.0 when privacy.noise_multiplier is given (not read), got 1"]),
    ("two axes of one key", "sweep: [{privacy.epsilon: [1, 2], privacy: {epsilon: 4}}]", None,
     ["without privacy.epsilon, which the axis privacy.epsilon sets"]),
    ("two variants", "sweep: [{algorithm: 'user_ldp:v3', algorithm.variant: v1}]", None,
     ["sweep[0].algorithm.variant", "without algorithm.variant, which the axis algorithm sets"]),
    ("unset variable", "run: {data: {source: leaf_json, path: '${SUBJECTDP_NO_SUCH}/a.zip'}}", None,
     ["data.path", "${SUBJECTDP_NO_SUCH}/a.zip", "variables are set"]),
    ("empty variable", "run: {data: {source: leaf_json, path: '${SUBJECTDP_NO_SUCH:-}'}}", None,
     ["data.path", "not empty"]),
    ("two files of one name",
     "sweep: [{data.source: leaf_json, data.path: [a/all.zip, b/all.zip], seed: [0, 1]}]", None,
     ["data.path", "'b/all.zip'", "'a/all.zip'"]),
    ("two expectations of one source",
     "sweep: [{data.expected.users: [60, 61], seed: [0, 1]}, {data.expected.users: 61, seed: 2}]", None,
     ["data.expected", "61", "60"]),
    ("release with local steps",
     "run: {algorithm: subject_release, privacy: {mode: sound}, training: {local_steps: 2}}", None,
     ["training.local_steps", "1 or null when algorithm.name is subject_release"]),
    ("prediction of given noise",
     "run: {algorithm: subject_release, privacy: {mode: sound, predicted_subjects: 9, noise_multiplier: 1}}", None,
     ["privacy.predicted_subjects", "null where privacy.noise_multiplier is given"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "fragments"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_file_is_refused_with_line_and_fix(tmp_path: Path, text: str, line: int | None, fragments: list[str]) -> None:
    """Files as people write them at first, before anything runs."""
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: x\n{text}\n")
    with pytest.raises(SubjectDPError) as caught:
        check_before_start(load_scenario([file]), str(tmp_path), [file])
    message = str(caught.value)
    assert "\n" not in message
    assert line is None or f"({file}:{line})" in message or f"{file} to be plain YAML: line {line}:" in message, message
    assert all(fragment in message for fragment in fragments), message


ADVICE = """run: {seed: 3}; run: {training: {batch_size: 5}}; figures: [figure1]; run: {data: {dataset: femnist}};
sweep: [{algorithm: user_ldp, privacy.epsilon: [1, 2]}]; run: {training: {optimizer: {name: adam}}}"""


def test_the_right_forms_are_right(tmp_path: Path) -> None:
    """What the messages advise is accepted."""
    for advice in ADVICE.split(";"):
        (tmp_path / "mine.yaml").write_text(f"name: x\n{advice.strip()}\n")
        assert load_scenario(tmp_path / "mine.yaml").runs, advice


def test_a_problem_of_an_overlay_names_the_overlay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, over = tmp_path / "base.yaml", tmp_path / "over.yaml"
    base.write_text("name: x\nrun:\n  training: {rounds: 3}\n")
    over.write_text("# mine\nrun:\n  training:\n    rounds: 0\n")
    assert f"({over}:4)" in refused(capsys, "plan", base, over)
    over.write_text("\nsweep: {seed: 1}\n")
    base.write_text("name: x\nsweep: [{seed: 0}]\n")
    assert f"({over}:2)" in refused(capsys, "plan", base, over)
    over.write_text("description: nothing\n")
    base.write_text("name: x\nrun:\n  training: {rounds: 0}\n")
    assert f"({base}:3)" in refused(capsys, "plan", base, over)


def test_values_of_the_command_line_are_those_of_a_file() -> None:
    nested = {"run": {}, "sweep": []}  # Snakemake reads numbers and null in them as text
    entries = [
        "run={data: {subjects: null}, seed: 3}",
        "sweep=[{seed: [0, 1]}]",
        "run='privacy: {delta: 1e-6}'",
        "name=a",
    ]
    data = {"data": {"subjects": None}}
    wanted = {"name": "a", "run": {**data, "seed": 3, "privacy": {"delta": 1e-6}}, "sweep": [{"seed": [0, 1]}]}
    assert given_values(entries, {"name": "a", **nested}) == wanted
    assert given_values(["synthetic_note=null"], {"synthetic_note": "null"}) == {"synthetic_note": None}
    assert given_values(["run={'data': {'subjects': None}}"], nested) == {"run": data}, "a profile's mapping"
    for value, told in (("{seed: 1, seed: 2}", "'seed' is given twice"), ("{'seed': 010}", "base 8")):
        with pytest.raises(ConfigError, match=told):
            given_values([f"run={value}"], nested)


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
    keys = [line.split()[1] for line in message.split("\n")]
    assert keys == ["run.privacy.epsilon", "run.privacy.delta", "run.training.batch_size"]


def test_a_long_value_is_cut() -> None:
    message = message_of({"name": "bad", "run": {"privacy": {"epsilon": "9" * 5000 + "x"}}})
    assert len(message) < 500
    assert "(5003 characters)" in message


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: DatasetSpec("Mine", "mine", "images", (1, 28, 28), 10), "Unknown kind of the data set Mine 'images'"),
        (lambda: ModelSpec("vectors", "linear.Mine", {}, 1), "Unknown kind of the model linear.Mine 'vectors'"),
        (lambda: ModelSpec("image", "image.Mine", {"width": 8}, 1), "width of the model image.Mine to be a Parameter"),
    ],
)
def test_an_entry_of_a_catalogue_is_checked_where_it_is_made(make: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()
