"""Generated configurations: a valid scenario or one ConfigError, never another exception."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from subjectdp.config import load_scenario_from_mapping
from subjectdp.config.scenario import RUN_KEYS, set_dotted
from subjectdp.errors import ConfigError
from subjectdp.io.yaml_files import parse_yaml, read_yaml

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [read_yaml(file) for file in sorted((ROOT / "config" / "scenarios").glob("*.yaml"))]
WORDS = ["fed_avg", "higrad_avg_dp:v3", "joint_noise", "shakespeare", "upstream", "leaf_json", "sound", "power", "v1"]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-1, 20),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from([*WORDS, "1e-5", "${HOME}/x", "${", "nan"]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=6), st.sampled_from(RUN_KEYS)), inner, max_size=4),
    ),
    max_leaves=10,
)
keys = st.sampled_from(
    ["name", "description", "run", "sweep", "datasets", "algorithms", "figures", "selections"]
    + ["datasets.femnist", "algorithms.fed_avg", "algorithms.fed_avg.datasets", "selections.figure1"]
    + [f"run.{key}" for key in RUN_KEYS]
)


def accepted(content: Any) -> bool:
    """Whether the scenario is taken; anything but a scenario with sound runs or a ConfigError fails the test."""
    try:
        scenario = load_scenario_from_mapping(content)
    except ConfigError as problem:
        assert str(problem).strip()
        assert all(len(line) < 2000 for line in str(problem).split("\n"))
        return False
    assert scenario.runs
    for run in scenario.runs:
        assert run.privacy.epsilon > 0
        assert run.training.batch_size >= 1
        assert (run.training.silos_per_round or 0) <= run.partition.silos
    return True


@pytest.mark.long
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(base=st.sampled_from(SHIPPED), edits=st.lists(st.tuples(keys, values), min_size=1, max_size=3))
def test_edited_scenarios(base: dict[str, Any], edits: list[tuple[str, Any]]) -> None:
    content: dict[str, Any] = base
    for key, value in edits:
        content = set_dotted(content, key, value)
    accepted(content)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(axes=st.lists(st.dictionaries(st.sampled_from(RUN_KEYS), values, max_size=3), max_size=2))
def test_generated_sweeps(axes: list[dict[str, Any]]) -> None:
    accepted({"name": "generated", "sweep": axes})


@settings(max_examples=200, deadline=None)
@given(text=st.one_of(st.text(max_size=60), st.text("{}[]:,-&*!|>'\"#%@ \n\tab1", max_size=60)))
def test_generated_yaml(text: str) -> None:
    try:
        content = parse_yaml(text, "generated")
    except ConfigError:
        return
    assert isinstance(content, dict)


@pytest.mark.slow
def test_the_generators_reach_valid_scenarios() -> None:
    assert all(accepted(content) for content in SHIPPED)
    assert accepted(set_dotted(SHIPPED[0], "run.seed", 3))
