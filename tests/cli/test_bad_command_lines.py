"""Wrong command lines: one line that names what is wrong and what is allowed, exit code 2, no usage, no traceback."""

import shlex
from pathlib import Path

import pytest

from cli.commands import SMOKE, Captured, refused

PLAN = "--rounds 10 --steps-per-round 1 --sampling-probability 0.1"
COUNTED = "account --algorithm local_item_dp --rounds 5 --steps-per-round 4 --noise-multiplier 2"
PEOPLE = "account --algorithm local_item_dp --rounds 5 --epochs 2 --batch-size 2 --counts few.csv"
FIXED = "account --algorithm local_item_dp --rounds 9 --steps-per-round 50 --noise-multiplier 1 --items 1000"

# (command line, what the message says)
CASES: list[tuple[str, list[str]]] = [
    ("account", ["--algorithm, --rounds, --sampling-probability, --steps-per-round"]),
    ("account --algorithm foo", ["'foo'", "Known: ", "capped_item_dp"]),
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
    (f"account --algorithm local_item_dp --noise-multiplier nan {PLAN}", ["Expected --noise-multiplier", "nan"]),
    ("account --algorithm local_item_dp --noise-multiplier 1 --rounds 9 --steps-per-round 1 --sampling-probability 2",
     ["--sampling-probability", "in (0, 1]", "2.0"]),
    (f"account --algorithm local_item_dp --noise-multipler 1 {PLAN}",
     ["--noise-multipler", "Did you mean --noise-multiplier?"]),
    (f"account --algorithm local_item_dp --delta 2 {PLAN}", ["Expected --delta", "less than 0.1", "2.0"]),
    (f"account --algorithm user_ldp --clipping update --noise-multiplier 1 {PLAN}",
     ["--clipping", "item with algorithm user_ldp"]),
    *((f"account --run any --{option}", [f"--{option.split()[0]} to be left out with --run and --config"])
      for option in ("delta 1e-5", "noise-multiplier 5", "colluding-silos 0", "counts c.csv")),
    ("account --algorithm capped_item_dp --counts counts.csv",
     ["Expected --rounds, --batch-size, --max-items-per-subject to be given"]),
    (f"{COUNTED} --counts bad.csv --batch-size 6", ["bad.csv, line 72: expected items to be a whole number"]),
    (f"{COUNTED} --sampling-probability 0.1 --batch-size 6",
     ["--batch-size to be given with --counts or --silo-sizes only"]),
    (f"{COUNTED} --counts counts.csv --batch-size 6 --silos 2 --items 60",
     ["--silos, --items to be left out with --counts"]),
    (f"{COUNTED} --counts counts.csv --batch-size 61", ["--batch-size to be at most 60"]),
    (f"{COUNTED} --counts counts.csv --batch-size 0", ["--batch-size to be at least 1"]),
    (f"{COUNTED} --counts counts.csv --batch-size 6 --sampling-probability 0.1", ["--batch-size to be left out"]),
    (f"{COUNTED} --counts counts.csv", ["Expected --batch-size to be given"]),
    (f"{COUNTED} --counts counts.csv --sampling-probability 0.1 --sampling fixed_batch_size", ["give --batch-size"]),
    (f"{PEOPLE} --noise-multiplier 5 --silo-sizes sizes.csv", ["one of --counts and --silo-sizes"]),
    (f"{PEOPLE} --noise-multiplier 5 --steps-per-round 2",
     ["--epochs to be left out where --steps-per-round is given"]),
    (f"{PEOPLE} --caps few", ["--caps to be whole numbers with commas"]),
    *((f"{PEOPLE} --caps 2 --{option}", [f"--{option.split()[0]} to be left out with --caps"])
      for option in ("statement a.md", "noise-multiplier 5", "by-person", "accountant rdp", "own-noise-only")),
    (f"{PEOPLE} --figure a.png", ["--figure to be left out with all but --caps"]),
    (f"{PEOPLE} --epsilon 4 --noise-multiplier 5", ["--epsilon to be left out with --noise-multiplier"]),
    (f"{PEOPLE} --horizontal none", ["--horizontal to be left out with --mode sound"]),
    (f"{PEOPLE} --caps 1 --figure a.bmp", ["--figure to be a name that ends in .png, .pdf, .svg"]),
    (f"{PEOPLE} --caps 1 --figure none/a.png", ["--figure to be a file in a folder that is there, got 'none/a.png'"]),
    (f"{PEOPLE} --noise-multiplier 5 --statement a.txt", ["--statement to be a name that ends in .md, .html, .pdf"]),
    (f"{PEOPLE} --noise-multiplier 5 --results there", ["--results to be left out with all but --run and --config"]),
    (f"{PEOPLE} --mode as_published --horizontal none", ["--horizontal to be left out with --algorithm local_item_dp"]),
    (f"account --algorithm fed_avg {PLAN} --epsilon 5", ["--epsilon to be left out with --algorithm fed_avg, got 5.0"]),
    ("account --algorithm local_item_dp:v1", ["Unknown algorithm.variant of local_item_dp 'v1'. There are none."]),
    ("account --rounds 5 --algorithm user_ldp --rounds 50", ["Expected --rounds to be given once."]),
    (f"{FIXED} --sampling-probability 1e-8", ["the sampling probability to be at least 1e-07, got 1e-08"]),
    (f"account --algorithm local_item_dp {PLAN} --silos 1000000", ["--silos to be at most 32767"]),
    (f"account --algorithm user_ldp {PLAN} --max-items-per-subject 1000000", ["to be at most 100000"]),
    (f"account --algorithm local_item_dp {PLAN} --by-person", ["Expected --max-items-per-subject to be given"]),
    ("account --algorithm local_item_dp --rounds 1000000000 --steps-per-round 1 --sampling-probability 0.1",
     ["local steps of a silo in all rounds to be at most 100,000,000, got 1000000000"]),
    (f"account --algorithm subject_release --trust secure_aggregation --silos 3 --colluding-silos 5 {PLAN}",
     ["Expected --colluding-silos to be fewer than the 3 silos of a round, got 5."]),
    (f"{FIXED} --sampling fixed_batch_size --sampling-probability 0.01 --accountant opacus",
     ["Expected --accountant to be one that bounds", "when --mode is sound (pld or rdp)"]),
    (f"account --algorithm local_item_dp --trust secure_aggregation --noise-multiplier 2 {PLAN.replace('d 1', 'd 2')}",
     ["Expected --steps-per-round to be 1 when --algorithm is local_item_dp", "set --clipping update, or --own-noi"]),
    (f"{PEOPLE} --noise-multiplier 2 --silos-per-subject 7", ["Expected --silos-per-subject to be from "]),
    ("statement nosuch --output page.docx", ["--output to be a name that ends in .md"]),
    ("audit fed_avg", ["Unknown attack on 'fed_avg'"]),
    ("audit higrad_avg_dp --seconds 0", ["--seconds"]),
    ("audit higrad_avg_dp --seconds inf", ["--seconds to be above 0, got inf"]),
    ("audit higrad_avg_dp --seed -1", ["--seed to be a whole number from 0 on, got -1"]),
    (f"run '{SMOKE}' -- --configfile more.yaml", ["name all scenario files before --, got '--configfile'"]),
    (f"plan '{SMOKE}' --results visits.csv", ["visits.csv", "Not a directory"]),
    (f"run '{SMOKE}' --cores 0", ["--cores to be a whole number from 1 on, got 0"]),
    ("init visits.csv --label cost --out visits.csv", ["--out to be a name that ends in .yaml"]),
    ("init visits.csv --label cost --out there.yaml", ["a file that is not there yet, or --force"]),
    ("init nowhere.csv --label cost --out there.yaml", ["a file that is not there yet"]),  # before a table is read
    ("inspect", ["dataset", "to be given"]),
    ("inspect mnist", ["'mnist'", "Did you mean 'femnist'?"]),
    ("inspect femnist", ["--path", "where the source upstream lies"]),
    ("inspect femnist --source leaf_json --path /nowhere", ["'/nowhere'", "existing"]),
    ("inspect femnist --source zip --path /nowhere", ["--source", "'zip'", "leaf_json"]),
    ("inspect femnist --source embedded --label y", ["data.label to be null when data.source is embedded (not read)"]),
    ("inspect femnist --source table --path visits.csv --label cost",
     ["data.source to be embedded or leaf_json or upstream when data.dataset is femnist"]),
    ("inspect shakespeare --path . --duplicate-first-image-bug", ["false when data.dataset is shakespeare"]),
    ("plan nosuch.yaml", ["nosuch.yaml", "No such file"]),
    ("plan /", ["Expected / to be a readable file"]),
    ("ledger", ["at least one RUN"]),
    ("plan", ["FILE"]),
    ("runs --results /nowhere", ["/nowhere/runs", "a folder of runs"]),
    ("runs --dataset mnist", ["--dataset", "'mnist'"]),
    ("runs --algorithm userldp", ["algorithm", "'userldp'", "Did you mean 'user_ldp'"]),
    ("runs --algorithm higrad_avg_dp:v2", ["Did you mean 'higrad_avg_dp:v"]),
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
def test_refused_in_one_line(capsys: Captured, tables: Path, line: str, fragments: list[str]) -> None:
    before = sorted(tables.iterdir())
    message = refused(capsys, *shlex.split(line))
    assert message.count("\n") == 1 and all(fragment in message for fragment in fragments), message
    assert sorted(tables.iterdir()) == before


@pytest.mark.parametrize("q", ["0.0004", "0.5005"])
def test_a_fixed_batch_is_a_whole_number_of_items(capsys: Captured, q: str) -> None:
    """Rounded down to no item at all it would cost nothing: ε = 0."""
    message = refused(capsys, *f"{FIXED} --sampling fixed_batch_size --sampling-probability {q}".split())
    assert "a whole number of items from 1 to 1000" in message
