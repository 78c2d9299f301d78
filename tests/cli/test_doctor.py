"""``subjectdp doctor``: what is wrong is found, named and ends in exit code 1; what is well is not complained of."""

import json
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from cli.commands import SCENARIOS, SMOKE, Captured, said
from subjectdp.cli import doctor
from subjectdp.cli.doctor import Finding, Level, examine, scenario_schema


def of(findings: list[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check.startswith(check)]


@pytest.fixture(autouse=True)
def a_machine_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Slurm, whatever the machine that runs the tests has."""
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)


def test_a_sound_machine(tmp_path: Path, capsys: Captured) -> None:
    content = json.loads(said(capsys, "doctor", "--results", tmp_path, "--scenario", SMOKE, "--json"))
    assert content["failed"] == 0 and "FAIL" not in {each["level"] for each in content["findings"]}
    checks = {each["check"] for each in content["findings"]}
    assert {"python", "packages", "devices", "configuration", "scenario", "disk", "slurm"} <= checks
    assert said(capsys, "doctor", "--results", tmp_path).rstrip().endswith("good")


def test_versions_are_compared_with_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.lock"
    local = metadata.version("torch").partition("+")[0]  # a CPU build, 2.13.0+cpu, satisfies 2.13.0
    lock.write_text(f"# a comment\ntorch=={local}\nnumpy=={metadata.version('numpy')}\n")
    (good,) = doctor._packages(lock)
    assert (good.level, good.detail) == (Level.GOOD, "all 2 of the lock, to the version")
    lock.write_text("torch==0.0.1\nno-such-package==1.0\n")
    missing, other = doctor._packages(lock)
    assert (missing.level, "no-such-package" in missing.detail) == (Level.FAIL, True)
    assert (other.level, "lock: 0.0.1" in other.detail) == (Level.WARNING, True)


def test_data_that_are_not_there_fail(tmp_path: Path) -> None:
    overlay, data = tmp_path / "real.yaml", tmp_path / "none.zip"
    overlay.write_text(f"run: {{data: {{source: leaf_json, path: {data}}}}}\n")
    for level in (Level.FAIL, Level.GOOD):
        found = of(examine(tmp_path, [SMOKE, str(overlay)]), "data")
        assert {each.level for each in found} == {level}
        data.write_bytes(b"")


def test_a_wrong_scenario_is_a_finding(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\nrun: {privacy: {epsilon: -1}}\n")
    (found,) = of(examine(tmp_path, [str(bad)]), "scenario")
    assert found.level is Level.FAIL and "privacy.epsilon" in found.detail


def test_broken_runs_and_a_full_disk_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (found,) = of(examine(tmp_path), "runs")
    assert (found.level, found.detail) == (Level.GOOD, "1 stopped")
    (tmp_path / "runs" / "a" / "manifest.json").write_text("{")
    monkeypatch.setattr(doctor, "LEAST_DISK_GB", 1e9)
    findings = examine(tmp_path)
    assert of(findings, "runs")[0].level is Level.FAIL
    assert of(findings, "disk")[0].level is Level.WARNING


def test_slurm_that_answers_and_slurm_that_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/sinfo")
    answered = subprocess.CompletedProcess([], 0, stdout="cpu* up 4 (null)\n")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: answered)
    assert doctor._slurm() == Finding("slurm", Level.GOOD, "cpu* up 4 (null)")

    def silent(*_: object, **options: float) -> None:
        raise subprocess.TimeoutExpired("sinfo", options["timeout"])

    monkeypatch.setattr(doctor.subprocess, "run", silent)
    found = doctor._slurm()
    assert found.level is Level.WARNING and "did not answer" in found.detail
    monkeypatch.setenv("SUBJECTDP_SLURM_GPU", "!")
    found = doctor._slurm()
    assert found.level is Level.FAIL and "SUBJECTDP_SLURM_GPU" in found.detail


@cache
def validator() -> Any:
    schema = scenario_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
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
