"""The page of provenance: what the runs came from, and the card of each setting's weakest run."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pandas as pd
import pytest

from figures.fake_runs import grid, list_files, write_runs
from subjectdp.io.atomic import sha256_of
from subjectdp.report.provenance import write_provenance
from subjectdp.results.collect import collect_scenario

LOCK = "torch==2.13.0\n"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of two algorithms with two seeds each; each run's card names it."""
    folder = tmp_path_factory.mktemp("provenance")
    folders = write_runs(folder / "runs", grid(["fed_avg", "local_item_dp"], ["femnist"], [0, 1], rounds=4))
    for number, run in enumerate(folders):
        path = run / "manifest.json"
        manifest = {key: value for key, value in json.loads(path.read_text()).items() if key != "seal"}
        manifest["privacy"]["card"] = [f"<card> of {run.name}"]
        if manifest["config"]["seed"] == 1 and manifest["privacy"]["sound"].get("subject"):
            manifest["privacy"]["sound"]["subject"]["epsilon"] = 900.0
        manifest["data"] = {
            "inputs": [{"file": "a.zip", "sha256": "5a" * 32}],
            "sha256": {"labels": "b6" * 32},
        }
        packages = {"torch": "2.13.0" if number else "2.12.0", "opacus": None}
        manifest["environment"] = {"python": "3.11.7", "packages": packages, "lock_sha256": "c7" * 32}
        path.write_text(json.dumps(manifest))
        list_files(run)
    collect_scenario(folders, folder)
    (folder / "requirements.lock").write_text(LOCK)
    target = folder / "provenance.html"
    write_provenance(
        folder / "runs.parquet", folder / "runs", '{"name": "tiny"}', folder / "requirements.lock", target
    )
    return target.read_text()


def test_a_setting_shows_the_card_of_its_run_with_the_largest_epsilon(page: str) -> None:
    cards = pd.Series([line for line in html.unescape(page).splitlines() if "<card> of" in line])
    assert len(cards) == 2
    assert cards.str.contains("local_item_dp-s1").sum() == 1, "of seed 1, whose ε is larger"
    assert "<card>" not in page, "escaped"


def test_scenario_lock_data_and_software_are_there(page: str) -> None:
    text = html.unescape(page)
    for fact in (
        '{"name": "tiny"}',
        LOCK,
        "source a.zip",
        "5a" * 32,
        "prepared labels",
        "b6" * 32,
        "c7" * 32,
    ):
        assert fact in text
    assert "opacus" not in text and "3.11.7" in text
    cells = [re.findall(r">([^<]+)</td>", row) for row in page.split("<tr>")]
    assert ["torch", "2.12.0", "1"] in cells and ["torch", "2.13.0", "3"] in cells


def test_the_lock_is_named_by_its_hash(page: str, tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    assert sha256_of(tmp_path / "lock") in page
