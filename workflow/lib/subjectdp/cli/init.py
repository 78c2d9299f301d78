"""``subjectdp inspect``: what a source of data holds; ``init``: a scenario for a table of one's own."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import sys
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from subjectdp.api.schedule import untuned_schedule
from subjectdp.cli.parser import add_json, check_output, values_of
from subjectdp.config.messages import validated
from subjectdp.config.resolve import expand_variables
from subjectdp.config.run import check_data
from subjectdp.config.scenario import RESERVED_NAMES, load_scenario_from_mapping
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.data.content import Content, check_content
from subjectdp.data.prepare import inspect_source, read_source
from subjectdp.data.sizes import FILE
from subjectdp.data.table import numbers_of, numbers_the_rows, read_frame
from subjectdp.errors import ConfigError, expected
from subjectdp.forecast.before_start import check_before_start
from subjectdp.io.atomic import write_text
from subjectdp.io.printing import flattened, print_json, print_pairs, print_table
from subjectdp.io.yaml_files import parse_yaml


def inspect_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", choices=tuple(DATASETS), help="data set; table: a file of one's own")
    help_ = "where it is (default: upstream, of a table: table)"
    parser.add_argument("--source", choices=values_of(Source), help=help_)
    help_ = "leaf_json: JSON, parquet or HDF5; table: CSV or parquet, a file or folder; upstream: folder of files"
    parser.add_argument("--path", help=help_)
    add_table(parser)
    parser.add_argument("--test-fraction", type=float, help="test part of the split (default: 0.2, text 0.1)")
    parser.add_argument("--duplicate-first-image-bug", action="store_true", help="FEMNIST: count as LEAF's code does")
    add_json(parser)


def inspect(options: argparse.Namespace) -> None:
    """Prints users, items, classes or plays, mean and standard deviation of the items per user, and the users left
    after the split, of a source of a data set.
    """
    source = options.source or ("table" if options.dataset == "table" else "upstream")
    if options.path is None and source != Source.EMBEDDED:
        raise expected("--path", None, f"where the source {source} lies")
    others = ("dataset", "test_fraction", "duplicate_first_image_bug")
    given = {"source": source, **table_keys(options), **{name: getattr(options, name) for name in others}}
    if options.path is not None:
        given["path"] = expand_variables(options.path)
    data = validated(DataConfig, given, "data")
    check_data(data.model_copy(update={"path": None}) if source == Source.EMBEDDED else data)
    summary = inspect_source(data)
    if options.json:
        print_json(summary)
    else:
        print_pairs((key.removeprefix("notes."), _short(value)) for key, value in flattened(summary))


def _short(value: Any) -> Any:
    return f"{len(value)}: {value[0]} ... {value[-1]}" if isinstance(value, list) and len(value) > 12 else value


def add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--label", metavar="COLUMN", help="table: the column of the label")
    parser.add_argument("--subject", metavar="COLUMN", help="table: whose an item is; several columns with commas")
    parser.add_argument("--silo", metavar="COLUMN", help="table: where an item lies; file: the file's name says it")
    parser.add_argument("--columns", metavar="COLUMNS", help="table: the features, with commas (default: all others)")
    parser.add_argument("--drop", metavar="COLUMNS", help="table: columns that are no features, with commas")
    parser.add_argument("--missing", choices=("refuse", "drop", "indicator"), help="table: cells without a value")
    parser.add_argument("--task", choices=("classification", "regression"), help="table: what the label is")
    help_ = "table: public range of numbers"
    parser.add_argument("--range", action="append", default=[], metavar="COLUMN=LEAST:LARGEST", help=help_)


def table_keys(options: argparse.Namespace) -> dict[str, Any]:
    """The keys of the section ``data`` that were given. Raises ConfigError for a range that is none."""
    names = ("label", "subject", "silo", "columns", "drop", "missing", "task")
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    for name in ("subject", "columns", "drop"):
        if name in given and (name != "subject" or "," in given[name]):
            given[name] = [each.strip() for each in given[name].split(",")]
    ranges = {}
    for text in options.range:
        name, _, bounds = text.rpartition("=")
        try:
            least, largest = map(float, bounds.split(":"))
        except ValueError:
            raise expected("--range", text, "COLUMN=LEAST:LARGEST, as age=0:100") from None
        if name in ranges or not -math.inf < least < largest < math.inf:
            raise expected("--range", text, "one of each column, the least value before the largest")
        ranges[name] = (least, largest)
    return given | ({"ranges": ranges} if ranges else {})


_QUESTIONS = {
    "label": "Which column is the label (what is predicted)? ",
    "subject": "Which column says whose a row is (several with commas; empty: each row is a person)? ",
    "silo": "Which column says where a row lies (empty: nowhere in particular)? ",
}
_SILOS = 4  # where the table names none
_FLATTER = 40  # of rates for labels in numbers from 0 to 1: their weights are as much smaller than logits'


def init_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", help="CSV or parquet file, or a folder of them")
    add_table(parser)
    parser.add_argument("--epsilon", type=float, default=4.0, help="of a person (default: %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-5, help="(default: %(default)s)")
    parser.add_argument("--out", metavar="FILE", help="scenario to write (default: the table's name, .yaml)")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def init(options: argparse.Namespace) -> None:
    """Looks at a table and writes a scenario that trains on it: plain, and with an ε for each person. Asks for the
    columns that no option names, where it runs in a terminal.
    """
    path = Path(options.table)
    out = Path(options.out or f"{path.name.split('.')[0]}.yaml")
    check_output("--out", str(out), (".yaml", ".yml"))
    if out.exists() and not options.force:
        raise expected("--out", str(out), "a file that is not there yet, or --force")
    keys = table_keys(options)
    named = {*np.atleast_1d(keys.get("subject", [])), keys.get("silo"), *keys.get("drop", [])}
    frame, _ = read_frame(path, options.silo == FILE, named)
    print_table(("column", "kind", "values", "missing"), [_described(frame[name]) for name in frame.columns])
    given = {**_asked(options), "source": "table", "path": str(path.resolve())}
    numbering = [name for name in frame.columns if numbers_the_rows(frame[name])]
    taken = {given["label"], given.get("silo"), *np.atleast_1d(given.get("subject", [])), *given.get("columns", [])}
    if dropped := [name for name in numbering if name not in taken]:
        given["drop"] = [*given.get("drop", []), *dropped]
    given["ranges"] = {**_ranges(frame, given), **given.get("ranges", {})}
    if frame.isna().any(axis=None) and "missing" not in given:
        given["missing"] = "indicator"
        print("\nCells without a value: 0, and 1 in a feature of their own (data.missing: indicator).")
    del frame  # as large as the one that is read now
    data = validated(DataConfig, given, "data")
    content = read_source(data, path)
    check_content(content)
    text = _scenario(_name(out.stem), given, content, options)
    check_before_start(load_scenario_from_mapping(parse_yaml(text, str(out))))
    write_text(out, text)
    _print_result(out, content, given, options)


def _name(stem: str) -> str:
    name = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_")[:64] or "table"
    return f"table-{name}" if name in RESERVED_NAMES else name


def _print_result(out: Path, content: Content, given: Mapping[str, Any], options: argparse.Namespace) -> None:
    people = len(content.items)
    places = f" at {len(content.silo_names)} silos" if content.silo_names else ""
    print(f"\nWrote {out}: {len(content.labels):,} rows of {people:,} people{places}, ε {options.epsilon:g} for each.")
    if set(given["ranges"]) - set(table_keys(options).get("ranges", {})):
        print("data.ranges was read from the table: put numbers there that anybody may know.")
    if options.delta * people >= 1:
        print(f"WARNING: delta {options.delta:g} is not below 1/{people}, one over the number of people.")
    named = shlex.quote(str(out))
    print(f"Next: subjectdp plan {named}, then subjectdp run {named}")


def _described(column: pd.Series[Any]) -> tuple[str, str, int, int]:
    missing, given = int(column.isna().sum()), column.dropna()
    if len(given) and not isinstance(given.iloc[0], Hashable):
        return str(column.name), "lists", len(given), missing
    return str(column.name), "numbers" if numbers_of(given).notna().all() else "words", given.nunique(), missing


def _asked(options: argparse.Namespace) -> dict[str, Any]:
    """The keys of ``data`` that options name, and the answers to what they leave open."""
    if sys.stdin.isatty():
        for key, question in _QUESTIONS.items():
            if getattr(options, key) is None:
                setattr(options, key, input(question).strip() or None)
    if options.label is None:
        raise ConfigError("Expected --label to be given: the column of what is predicted.")
    if options.subject is None:
        where = "Where each person has one row, name a column that numbers them."
        raise ConfigError(f"Expected --subject to be given: the column that says whose a row is. {where}")
    return table_keys(options)


def _ranges(frame: pd.DataFrame, given: Mapping[str, Any]) -> dict[str, list[float]]:
    """Ranges of the features in numbers that are not from 0 to 1, rounded outwards to one digit."""
    others = {given.get("label"), given.get("silo"), *np.atleast_1d(given.get("subject", [])), *given.get("drop", [])}
    if given.get("task") == "regression":
        others -= {given["label"]}
    found = {}
    for name in frame.columns:
        if name in others or (given.get("columns") and name not in (*given["columns"], given["label"])):
            continue
        finite = numbers_of(frame[name]).dropna()
        if len(finite) < frame[name].notna().sum() or not len(finite):
            continue
        least, largest = float(finite.min()), float(finite.max())
        if least < 0 or largest > 1:
            unit = 10.0 ** np.floor(np.log10(max(abs(least), abs(largest))))
            low, high = np.floor(least / unit), np.ceil(largest / unit)  # alike where all rows have one round number
            found[str(name)] = [float(unit * low), float(unit * max(high, low + 1))]
    return found


def _scenario(name: str, data: Mapping[str, Any], content: Content, options: argparse.Namespace) -> str:
    """The text of the scenario: a plain run, and SubjectRelease by the rule without tuning."""
    ranges_read = set(data["ranges"]) - set(table_keys(options).get("ranges", {}))
    silos = len(content.silo_names) or _SILOS
    people, width = len(content.items), content.features.shape[1]
    rule = untuned_schedule(people, (width + 1) * max(1, content.classes), options.epsilon, options.delta, silos)
    given = {key: value for key, value in data.items() if value}
    epsilon = repr(options.epsilon).removesuffix(".0")
    told = f"{Path(data['path']).name}: plain, and with ε = {epsilon} for each person."
    return _TEXT.format(
        name=name,
        description=json.dumps(told, ensure_ascii=False),  # a text in JSON is one in YAML
        epsilon=epsilon,
        delta=repr(options.delta),
        silos=silos,
        rounds=rule.rounds,
        clip_norm=rule.clip_norm,
        rate=rule.learning_rate / (1 if content.classes else _FLATTER),
        ranges=_READ_RANGES if ranges_read else "",
        data=yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=1000, default_flow_style=True).strip(),
    )


_READ_RANGES = """\
  # data.ranges was read from the table, and is itself private: put numbers there that anybody may know.
"""
_TEXT = """\
# Made by subjectdp init. SubjectRelease clips a person once a round over all silos. Rounds, clip norm and rate follow
# the rule without tuning: from the number of people and of weights, which are taken as public.
name: {name}
description: {description}

run:
{ranges}  data: {data}
  partition: {{silos: {silos}}}
  privacy: {{mode: sound, epsilon: {epsilon}, delta: {delta}}}
  training: {{rounds: {rounds}}}
  model: linear

algorithms:
  fed_avg:
    training: {{sampling_fraction: 0.1, optimizer: {{learning_rate: 0.3}}}}
  subject_release:
    subject: {{trust: local}}
    privacy: {{clip_norm: {clip_norm}}}
    training: {{averaged_rounds: 0.5, optimizer: {{learning_rate: {rate:.3g}}}}}

sweep:
  - algorithm: [fed_avg, subject_release]
    seed: [0, 1, 2]

figures: [accuracy_privacy, privacy, partition]
"""
