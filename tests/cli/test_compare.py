"""``subjectdp show A B``: what differs between two runs."""

import json
from pathlib import Path

import pytest

from cli.commands import SMOKE, run, run_json
from subjectdp.config import load_scenario


def test_compare(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (config.run_id for config in load_scenario(SMOKE).runs[:2])
    path = results / "runs" / second / "manifest.json"
    manifest = json.loads(path.read_text()) | {"code_fingerprint": "abc"}
    manifest["privacy"]["sound"]["item"]["epsilon"] = 7.5
    path.write_text(json.dumps(manifest))
    common = (first, second, "--results", str(results))
    comparison = run_json(capsys, "show", *common)
    assert comparison["settings"] == {"algorithm.name": ["fed_avg", "local_item_dp"]}
    assert comparison["metrics"]["test_accuracy"] == [0.1234, 1.1234]
    assert comparison["epsilon"]["sound, one item"] == [3.25, 7.5]
    assert comparison["epsilon"]["sound, one subject at all its silos"] == [None, None]
    assert comparison["made_with"] == {"code": [None, "abc"]}
    code, out, _ = run(capsys, "show", *common)
    assert code == 0
    assert "algorithm.name  fed_avg  local_item_dp" in out
    code, out, _ = run(capsys, "show", first, first, "--results", str(results))
    assert "the settings are the same" in out and "code and machine are the same" in out
    code, _, err = run(capsys, "show", first, "femnist-higrad", "--results", str(results))
    assert code == 2 and "to be finished" in err
