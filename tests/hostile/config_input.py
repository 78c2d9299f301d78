"""Scenario files and overlays: hostile YAML, and a slow reading of what is accepted."""

from __future__ import annotations

import copy
import functools
import json
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hostile.mutations import generator, mutate
from hostile.outcomes import Case, Failure, Invalid, text_or_invalid
from subjectdp.config import load_run, load_scenario, load_scenario_from_mapping, paths
from subjectdp.config.layers import RUN_KEYS
from subjectdp.errors import SubjectDPError

FIRST, OVERLAY = "scenario.yaml", "overlay.yaml"
ROOT = Path(__file__).resolve().parents[2]
TOKEN = ("HOSTILE_TEST_TOKEN", "a-secret-that-no-message-may-show")
"""A variable of the environment, as a site's passwords are, that no scenario may read."""

SAMPLES: tuple[dict[str, Any], ...] = (
    {
        "name": "one",
        "run": {"algorithm": "local_item_dp", "training": {"rounds": 20}},
        "figures": ["figure1"],
    },
    {
        "name": "two",
        "run": {"partition": {"silos": 4, "distribution": "power", "alpha": 2}, "seed": 3},
        "datasets": {"shakespeare": {"training": {"rounds": 30}}},
        "algorithms": {
            "higrad_avg_dp:v3": {"privacy": {"clip_norm": 0.5}, "datasets": {"femnist": {"seed": 1}}}
        },
        "sweep": [
            {"algorithm": ["fed_avg", "higrad_avg_dp:v3"], "data.dataset": ["femnist", "shakespeare"]},
            {"name": "label", "algorithm": "user_ldp", "privacy.epsilon": [1, 4.5]},
        ],
        "figures": ["figure2", "privacy"],
        "selections": {"figure2": {"data.dataset": "femnist"}},
    },
    {
        "name": "three",
        "run": {
            "data": {
                "source": "leaf_json",
                "path": "${SUBJECTDP_NOWHERE:-data}/leaf.zip",
                "expected": {"users": 180},
            },
            "privacy": {"mode": "sound", "epsilon": 4, "delta": 1e-5},
            "partition": {"max_items_per_subject": 8},
            "model": {"name": "small_cnn", "parameters": {"width": 8}},
        },
    },
)
TEXTS = (
    "!!python/object/apply:os.system ['touch pwned']",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!binary aGVsbG8=",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "2001-01-01",
    "&a [*a]",
    "*unknown",
    "0x" + "f" * 6000,
    "1" * 6000,
    "1:" * 200 + "1",
    "${HOSTILE_TEST_TOKEN}",
    "${HOSTILE_TEST_TOKEN:-x}/a.zip",
    "${${HOME}}",
    "${HOME",
    "../../../etc/passwd",
    '"a\\0b"',
    "{" * 40 + "}" * 40,
    "[" * 1500,
    "- &a [x, x]\n- *a",
    ".nan",
    "-.inf",
    "~",
    "yes",
    "''",
    "|\n  " + "text " * 500,
)
KEYS = (
    "__class__",
    "__use_yte__",
    "__definitions__",
    "run.__class__",
    "seed.__init__",
    "model.parameters.__init__",
    "model_config",
    "data_key",
    "run_id",
    "..",
    "a/b",
    "<<",
    "? x",
    "name",
    *RUN_KEYS,
)
VALUES = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2,
        1e308,
        1e-320,
        2**63,
        2**70,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        {},
    ),
    *(
        [[]],
        [1, 2],
        {"a": 1},
        "../x",
        "a/b",
        "a\0b",
        "${HOSTILE_TEST_TOKEN}",
        "fed_avg",
        "higrad_avg_dp:v1",
        "joint_noise",
    ),
    *(
        "shakespeare",
        "upstream",
        "leaf_json",
        "1e-5",
        "x" * 5000,
        [1] * 300,
        {"k" * 300: {"k": {}}},
        10**5000,
    ),
)
_ID = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,150}")


class ConfigReader:
    """A scenario and an overlay. What is valid is the library's to say; what it accepts must be read rightly."""

    name = "configuration"
    decisive = False

    def generated(self) -> SearchStrategy[Case]:
        """Scenarios with values of any kind at any key."""
        scalars = st.sampled_from(VALUES[:-1]) | st.integers() | st.floats() | st.text(max_size=6)
        values = st.recursive(
            scalars,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys(), inner, max_size=3),
            max_leaves=6,
        )
        edits = st.lists(st.tuples(_keys(), values), max_size=3)
        return st.builds(_edited, st.sampled_from(SAMPLES), edits, st.booleans())

    def mutated(self, key: str) -> Case:
        """Changes of bytes and lines of the files, and of values and keys of what they hold."""
        rng = generator(key)
        content = copy.deepcopy(rng.choice(SAMPLES))
        kind = rng.random()
        if kind < 0.1:
            return _case(content, {}, valid=True, style=rng.choice((True, False, None)), order=rng)
        if kind < 0.35:
            raw = yaml.safe_dump(content).encode()
            return Case({FIRST: mutate(raw, rng), OVERLAY: b"{}"})
        if kind < 0.6:
            return Case({FIRST: _with_text(yaml.safe_dump(content), rng).encode(), OVERLAY: b"{}"})
        overlay: dict[str, Any] = {}
        for target in (content, overlay if kind < 0.8 else content):
            container, place = rng.choice([*_places(target)] or [(target, "run")])
            _set(container, place, rng)
        return _case(content, overlay)

    def read(self, folder: Path) -> Any:
        """The runs of the scenario by id, each with its whole configuration."""
        scenario = load_scenario([folder / FIRST, folder / OVERLAY])
        runs = {run.run_id: run.model_dump(mode="json") for run in scenario.runs}
        for run_id, run in runs.items():
            _check_run(run_id, run)
        for made in (*scenario.datasets_by_key, *scenario.partitions_by_id, scenario.name):
            _check_id(made)
        return runs

    def oracle(self, folder: Path) -> Any:
        """The same runs from files read by PyYAML alone, merged key by key."""
        trees = [text_or_invalid(functools.partial(_slow_yaml, folder / name)) for name in (FIRST, OVERLAY)]
        try:
            scenario = load_scenario_from_mapping(_slow_merge(*trees))
        except SubjectDPError as problem:
            raise Invalid(str(problem)) from None
        return {run.run_id: run.model_dump(mode="json") for run in scenario.runs}


def _check_run(run_id: str, run: dict[str, Any]) -> None:
    """Invariants of an accepted run."""
    _check_id(run_id)
    if TOKEN[1] in json.dumps(run):
        raise Failure("a variable of the environment is in a run's configuration")
    if not (0 < run["privacy"]["epsilon"] < math.inf and 0 < run["privacy"]["delta"] < 1):
        raise Failure("a privacy target out of its range was accepted")
    if not (
        1 <= run["training"]["silos_per_round"] <= run["partition"]["silos"]
        and run["training"]["batch_size"] >= 1
    ):
        raise Failure("an impossible schedule was accepted")
    if load_run(run).run_id != run_id:
        raise Failure("a run's written configuration is another run")


def _check_id(made: str) -> None:
    """An id is one component of a path, and stays below the results."""
    inside = PurePosixPath(paths.run_dir(made)).parts == ("results", "runs", made)
    if _ID.fullmatch(made) is None or not inside or ".." in made:
        raise Failure(f"the id {made!r} is not one component of a path")


# --- inputs -------------------------------------------------------------------------------------------------


def _keys() -> SearchStrategy[str]:
    return st.sampled_from(KEYS) | st.text(max_size=4)


def _case(
    content: Any,
    overlay: Any,
    valid: bool = False,
    style: bool | None = False,
    order: random.Random | None = None,
) -> Case:
    if order is not None and isinstance(content, dict):
        keys = list(content)
        order.shuffle(keys)
        content = {key: content[key] for key in keys}
    dumped = [_dump(tree, style).encode("utf-8", "surrogatepass") for tree in (content, overlay)]
    return Case({FIRST: b"# a comment\n" + dumped[0], OVERLAY: dumped[1]}, valid)


def _dump(tree: Any, style: bool | None) -> str:
    """As YAML; what PyYAML cannot write (a number too long for text), as hexadecimal."""
    dumper = type("_Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(
        int, lambda d, n: d.represent_scalar("tag:yaml.org,2002:int", hex(n) if n > 2**80 else str(n))
    )
    return str(yaml.dump(tree, Dumper=dumper, default_flow_style=style, sort_keys=False, allow_unicode=True))


def _edited(sample: dict[str, Any], edits: list[tuple[str, Any]], in_overlay: bool) -> Case:
    content: dict[str, Any] = copy.deepcopy(sample)
    overlay: dict[str, Any] = {}
    for key, value in edits:
        place = overlay if in_overlay else content
        section = place.setdefault("run", {})
        if isinstance(section, dict) and key in RUN_KEYS and "." not in key:
            section[key] = value
        else:
            place[key] = value
    return _case(content, overlay)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _set(container: Any, place: Any, rng: random.Random) -> None:
    kind, value = rng.randrange(4), copy.deepcopy(rng.choice(VALUES))  # later changes must not change VALUES
    if isinstance(container, dict) and kind == 0:
        container[rng.choice(KEYS)] = container.pop(place, None)
    elif isinstance(container, dict) and kind == 1:
        container[rng.choice(KEYS)] = value
    elif isinstance(container, list) and kind == 0:
        container.append(value)
    else:
        container[place] = value


def _with_text(text: str, rng: random.Random) -> str:
    """A line of YAML changed: its value, its key, or repeated; or a new one."""
    lines = text.split("\n")
    place = rng.randrange(len(lines))
    key, colon, _ = lines[place].partition(":")
    kind = rng.randrange(4)
    if kind == 0 and colon:
        lines[place] = f"{key}: {rng.choice(TEXTS)}"
    elif kind == 1:
        lines.insert(place, lines[place])
    elif kind == 2:
        lines.insert(0, f"{rng.choice(KEYS)}: {rng.choice(TEXTS)}")
    else:
        indent = key[: len(key) - len(key.lstrip())]
        lines.insert(place, f"{indent}{rng.choice(KEYS)}: {rng.choice(TEXTS)}")
    return "\n".join(lines)


# --- the slow reader ----------------------------------------------------------------------------------------


def _slow_yaml(path: Path) -> dict[str, Any]:
    text = path.read_bytes().decode()
    _no_double(yaml.compose(text), 0)
    content = yaml.safe_load(text)
    if not isinstance(content, dict):
        raise Invalid("no mapping")
    return content


def _no_double(node: Any, depth: int) -> None:
    """Refuses a mapping with one key twice, by the text of its keys."""
    if depth > 40:
        raise Invalid("depth")
    if isinstance(node, yaml.MappingNode):
        keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) != len(keys):
            raise Invalid("a key twice")
        for _, value in node.value:
            _no_double(value, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _no_double(value, depth + 1)


def _slow_merge(first: Any, second: Any) -> dict[str, Any]:
    """By leaves: each of the second tree's leaves set into a copy of the first tree."""
    merged: dict[str, Any] = copy.deepcopy(first)
    waiting = [(merged, key, value) for key, value in second.items()]
    while waiting:
        place, key, value = waiting.pop()
        if isinstance(value, dict) and isinstance(place.get(key), dict):
            waiting += [(place[key], inner, below) for inner, below in value.items()]
        else:
            place[key] = value
    return merged
