"""``subjectdp scenario``: runs, overlays and figures."""

from pathlib import Path

import pytest

from cli.commands import SMOKE, run, run_json
from subjectdp.config import load_run, load_scenario


def test_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "scenario", SMOKE)
    assert (code, err) == (0, "")
    for config in load_scenario(SMOKE).runs:
        assert config.run_id in out
    content = run_json(capsys, "scenario", SMOKE)
    assert [each["run_id"] for each in content["runs"]] == [each.run_id for each in load_scenario(SMOKE).runs]
    for each in content["runs"]:
        assert load_run(each["config"]).run_id == each["run_id"]
        assert each["data_key"] in content["data"]
        assert each["partition_id"] in content["partitions"]


def test_scenario_overlay_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("sweep: [{seed: [0, 1], training.rounds: 3}]\nselections: {figure1: {seed: 1}}\n")
    content = run_json(capsys, "scenario", SMOKE, str(overlay))
    assert [each["config"]["training"]["rounds"] for each in content["runs"]] == [3, 3]
    content = run_json(capsys, "scenario", SMOKE, str(overlay), "--figure", "figure1")
    assert [each["config"]["seed"] for each in content["runs"]] == [1]
    code, _, err = run(capsys, "scenario", SMOKE, "--figure", "figure7")
    assert code == 2
    assert err.startswith("error: Unknown figure of this scenario 'figure7'.")
