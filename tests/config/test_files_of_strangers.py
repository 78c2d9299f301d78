"""Scenario files as people write them at first: refused before anything runs, with the line and the right form."""

from pathlib import Path

import pytest

from subjectdp.cli.main import main
from subjectdp.config import load_scenario

# (what is wrong, the file after its first line "name: x", the line of the problem, what the message says)
CASES: list[tuple[str, str, int, list[str]]] = [
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
    ("n-grams of nothing", "run:\n  data: {dataset: shakespeare}\n"
     "  model: {name: char_ngram, parameters: {singles: 0, pairs: 0}}", 4, ["singles", "at least 1 where pairs is 0"]),
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
    ("nested selection", "figures: [figure1]\nselections:\n  figure1: {data: {subjects: null}}", 4,
     ["selections.figure1.data", "Write dotted keys: data.KEY"]),
    ("unknown figure", "figures:\n  - figure1\n  - figure4", 4, ["'figure4'", "Did you mean 'figure3'?"]),
    ("unknown selection", "selections:\n  figure1: {sed: 0}", 3, ["'selections.figure1.sed'"]),
    ("no space after a dash", "sweep:\n  -algorithm: fed_avg", 2, ["sweep", "a list"]),
    ("no colon", "run:\n  seed 3", 2, ["run", "a mapping", "seed 3"]),
    ("range", "sweep:\n  - seed: 0..4", 3, ["seed", "a whole number", "0..4"]),
    ("maybe", "run:\n  joint: {own_noise_only: maybe}", 3, ["true or false", "maybe"]),
    ("more subjects than there are", "run:\n  data: {subjects: 1000}", 3, ["at most data.embedded.subjects (60)"]),
    ("sound without a cap", "run:\n  algorithm: higrad_avg_dp:v3\n  privacy:\n    mode: sound", 5, ["an enforced cap"]),
    ("key that is not read", "run:\n  joint:\n    colluding_silos: 1", 4, ["joint.colluding_silos", "not read"]),
    (
        "momentum that SGD does not read",
        "run:\n  training:\n    optimizer: {momentum: 0.5}",
        4,
        ["training.optimizer.momentum", "not read; momentum and adam"],
    ),
    ("tab", "run:\n\tseed: 1", 3, ["plain YAML", "line 3"]),
    ("open bracket", "sweep: [{seed: 1\nfigures: []", 3, ["plain YAML", "line 3"]),
    ("key twice", "run:\n  seed: 1\n  seed: 2", 4, ["'seed' is given twice", "line 4"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "fragments"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_refused_with_line_and_right_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: int, fragments: list[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"name: x\n{text}\n")
    assert main(["scenario", str(file), "--results", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ") and "Traceback" not in message
    assert f"({file}:{line})" in message or f"{file} to be plain YAML: line {line}:" in message, message
    for fragment in fragments:
        assert fragment in message, message


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
    assert main(["scenario", str(base), str(over)]) == 2
    assert f"({over}:4)" in capsys.readouterr().err
    over.write_text("description: nothing\n")
    base.write_text("name: x\nrun:\n  training: {rounds: 0}\n")
    assert main(["scenario", str(base), str(over)]) == 2
    assert f"({base}:3)" in capsys.readouterr().err
