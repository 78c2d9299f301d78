"""Wrong command lines: one line that names what is wrong and what is allowed, exit code 2, no usage, no traceback."""

import shlex

import pytest

from cli.commands import SMOKE
from subjectdp.cli.main import main

PLAN = "--rounds 10 --steps-per-round 1 --sampling-probability 0.1"

# (command line, what the message says)
CASES: list[tuple[str, list[str]]] = [
    ("account", ["--algorithm, --rounds, --sampling-probability, --steps-per-round"]),
    ("account --algorithm foo", ["'foo'", "Known: capped_item_dp"]),
    ("account --algorithm fed_avgg --epsilon 3", ["'fed_avgg'", "Did you mean 'fed_avg'?"]),
    ("account --algorithm higrad_avg_dp:v7", ["'v7'", "Known: v1, v3"]),
    ("account --epsilon abc", ["--epsilon", "a number", "'abc'", "subjectdp account --help"]),
    ("account --rounds many", ["--rounds", "a whole number", "'many'"]),
    ("account --rounds 1.5", ["--rounds", "a whole number", "'1.5'"]),
    ("account --unit person", ["--unit", "'person'", "Known: item, silo, subject"]),
    ("account --mode sond", ["--mode", "Did you mean 'sound'?"]),
    ("account --accountant", ["--accountant", "expected one argument"]),
    ("account --run a --config b", ["--config: not allowed with argument --run"]),
    ("account --run nosuch --results /nowhere", ["RUN_ID", "'nosuch'"]),
    ("account --config nosuch.yaml", ["nosuch.yaml", "a readable file"]),
    (f"account --algorithm local_item_dp --silos 0 --noise-multiplier 1 {PLAN}", ["--silos", "at least 1", "0"]),
    (f"account --algorithm local_item_dp --noise-multiplier nan {PLAN}", ["noise_multiplier", "finite", "nan"]),
    ("account --algorithm local_item_dp --noise-multiplier 1 --rounds 9 --steps-per-round 1 --sampling-probability 2",
     ["--sampling-probability", "in (0, 1]", "2.0"]),
    (f"account --algorithm local_item_dp --noise-multipler 1 {PLAN}",
     ["--noise-multipler", "Did you mean --noise-multiplier?"]),
    (f"account --algorithm local_item_dp --delta 2 {PLAN}", ["delta", "less than 0.1", "2.0"]),
    ("inspect", ["dataset", "to be given"]),
    ("inspect mnist", ["'mnist'", "Did you mean 'femnist'?"]),
    ("inspect femnist", ["--path", "where the source upstream lies"]),
    ("inspect femnist --source leaf_json --path /nowhere", ["'/nowhere'", "existing"]),
    ("inspect femnist --source zip --path /nowhere", ["--source", "'zip'", "leaf_json"]),
    ("scenario", ["FILE"]),
    ("scenario nosuch.yaml", ["nosuch.yaml", "No such file"]),
    ("scenario /", ["Expected / to be a readable file"]),
    (f"scenario {SMOKE} --figure figure2", ["'figure2'", "Known: figure1, partition"]),
    (f"scenario {SMOKE} --figur figure1", ["--figur", "Did you mean --figure?", "subjectdp scenario --help"]),
    ("plan", ["FILE"]),
    ("runs --results /nowhere", ["/nowhere/runs", "a folder of runs"]),
    ("runs --dataset mnist", ["--dataset", "'mnist'"]),
    ("runs --algorithm foo", ["algorithm", "'foo'"]),
    ("runs --seed first", ["--seed", "a whole number"]),
    ("runs --jsn", ["--jsn", "Did you mean --json?"]),
    ("show", ["RUN_ID"]),
    ("show nosuch --results /nowhere", ["RUN_ID", "/nowhere/runs", "'nosuch'"]),
    ("show one two --results /nowhere", ["RUN_ID", "'one'"]),
    ("schema --wrote", ["--wrote", "Did you mean --write?"]),
    ("runns", ["'runns'", "Did you mean 'runs'?"]),
    ("frobnicate", ["'frobnicate'", "Known: account"]),
    ("", ["COMMAND"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "fragments"), CASES, ids=[line or "nothing" for line, _ in CASES])
def test_refused_in_one_line(capsys: pytest.CaptureFixture[str], line: str, fragments: list[str]) -> None:
    assert main(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured.err
    assert "usage:" not in captured.err and "Traceback" not in captured.err
    for fragment in fragments:
        assert fragment in captured.err, captured.err
