"""Generated files: up to date, complete, and in agreement with what is accepted."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from subjectdp.config.schema import generated_files, scenario_schema, stale_files, write_generated

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"


def test_generated_files_are_up_to_date() -> None:
    assert stale_files(CONFIG) == [], "run subjectdp schema --write"


def test_writing_and_noticing_drift(tmp_path: Path) -> None:
    assert {path.name for path in write_generated(tmp_path)} == set(generated_files(tmp_path))
    assert write_generated(tmp_path) == []
    (tmp_path / "config.schema.json").write_text("{}")
    assert [path.name for path in stale_files(tmp_path)] == ["config.schema.json"]


def validator() -> Any:
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted((CONFIG / "scenarios").glob("*.yaml")), ids=lambda path: path.stem)
def test_schema_accepts_the_shipped_scenarios(file: Path) -> None:
    assert list(validator().iter_errors(yaml.safe_load(file.read_text()))) == []


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"name": "a b"},
        {"name": "a", "runs": {}},
        {"name": "a", "run": {"privacy": {"epsilonn": 1}}},
        {"name": "a", "run": {"privacy": {"epsilon": -1}}},
        {"name": "a", "run": {"training": {"optimizer": {"name": "lion"}}}},
        {"name": "a", "sweep": [{"privacy.epsilonn": 1}]},
        {"name": "a", "datasets": {"mnist": {}}},
        {"name": "a", "algorithms": {"fedavg": {}}},
        {"name": "a", "algorithms": {"fed_avg": {"datasets": {"mnist": {}}}}},
        {"name": "a", "figures": ["figure9"]},
    ],
)
def test_schema_refuses(content: dict[str, Any]) -> None:
    assert list(validator().iter_errors(content))
