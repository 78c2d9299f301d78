"""The RO-Crate: every file is listed with its hash, and the software is that of the runs."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

from subjectdp.report.crate import METADATA, write_crate

ABOUT = {"name": "tiny", "description": "Two runs.", "scenario": '{"name": "tiny"}'}


def crate(folder: Path) -> Path:
    """A crate of two runs with different versions of torch, and a table."""
    files = []
    for run, version in (("a", "2.13.0"), ("b", "2.14.0")):
        manifest = folder / f"{run}.json"
        manifest.write_text(json.dumps({"environment": {"packages": {"torch": version, "opacus": None}}}))
        files.append((f"runs/{run}/manifest.json", manifest))
    (folder / "runs.csv").write_text("run\na\nb\n")
    for file in folder.iterdir():
        os.utime(file, (86_400, 86_400))
    write_crate(folder / "crate.zip", ABOUT, [*files, ("tiny/tables/runs.csv", folder / "runs.csv")])
    return folder / "crate.zip"


def test_every_file_is_listed_with_its_hash(tmp_path: Path) -> None:
    with zipfile.ZipFile(crate(tmp_path)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    graph = {node["@id"]: node for node in json.loads(contents.pop(METADATA))["@graph"]}
    assert set(contents) == {
        "scenario.json",
        "tiny/tables/runs.csv",
        *(f"runs/{r}/manifest.json" for r in "ab"),
    }
    assert {part["@id"] for part in graph["./"]["hasPart"]} == set(contents)
    for name, content in contents.items():
        assert graph[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert graph[name]["contentSize"] == str(len(content))
    assert graph[METADATA]["about"] == {"@id": "./"} and graph["./"]["name"] == "tiny"
    assert graph["#subjectdp"]["softwareRequirements"] == ["torch==2.13.0", "torch==2.14.0"]


def test_what_the_specification_demands_of_the_root_is_there(tmp_path: Path) -> None:
    """RO-Crate 1.1, section 4.2: type, name, description, date and a described license."""
    with zipfile.ZipFile(crate(tmp_path)) as archive:
        metadata = json.loads(archive.read(METADATA))
    graph = {node["@id"]: node for node in metadata["@graph"]}
    root = graph["./"]
    assert root["@type"] == "Dataset" and root["datePublished"] == "1970-01-02"
    assert root["description"] and graph[root["license"]["@id"]]["name"] == "Apache License 2.0"
    assert "sha256" in metadata["@context"][1], "version 1.1 does not know it"


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir(), second.mkdir()
    assert crate(first).read_bytes() == crate(second).read_bytes()
