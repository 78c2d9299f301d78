"""The table of mirrors: the project's own, and broken ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from subjectdp.data.sources import find_table, load_sources
from subjectdp.errors import ConfigError

GOOD: dict[str, Any] = {
    "femnist": {
        "license": "free",
        "files": {
            "a.zip": {"format": "zip", "mirrors": [{"url": "https://x/a.zip", "bytes": None, "sha256": None}]}
        },
    }
}


def _write(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "datasets.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("dataset", "files"), [("femnist", ["by_class.zip", "by_write.zip"]), ("shakespeare", ["100.txt"])]
)
def test_the_projects_table(dataset: str, files: list[str]) -> None:
    sources = load_sources(dataset)
    assert [file.name for file in sources.files] == files and sources.license != ""
    assert all(len({mirror.url for mirror in file.mirrors}) >= 2 for file in sources.files)


def test_the_table_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = find_table().read_bytes()
    monkeypatch.chdir(tmp_path)
    assert find_table().read_bytes() == here


def _with(path: str, value: Any) -> dict[str, Any]:
    table = yaml.safe_load(yaml.safe_dump(GOOD))
    place: Any = table["femnist"]
    keys = path.split("/")
    for key in keys[:-1]:
        place = place[int(key) if key.isdigit() else key]
    last = keys[-1]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return table


_FILE = "files/a.zip"
_MIRROR = f"{_FILE}/mirrors/0"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "a mapping"),
        ("a: [", "plain YAML"),
        ({"femnits": {}}, "Did you mean 'femnits'"),
        (_with("licence", "x"), "Did you mean 'license'"),
        (_with("license", KeyError), "lacks license"),
        (_with("files", {}), "mapping with at least one entry"),
        (_with("files", {"../a": {}}), "file name"),
        (_with(f"{_FILE}/format", "tar"), "zip or gzip or binary or text"),
        (_with(f"{_FILE}/mirrors", "none"), "a list, empty for a file that only data.path gives"),
        (_with(f"{_MIRROR}/url", "ftp://x/a"), "http or https"),
        (_with(f"{_MIRROR}/bytes", 0), "above 0"),
        (_with(f"{_MIRROR}/bytes", True), "above 0"),
        (_with(f"{_MIRROR}/sha256", "abc"), "64 hex digits"),
        (_with(f"{_MIRROR}/sha", "abc"), "Did you mean"),
        (_with(f"{_MIRROR}/bytes", KeyError), "lacks bytes"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, content: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_sources("femnist", _write(tmp_path, content))


def test_a_good_table_is_read(tmp_path: Path) -> None:
    (file,) = load_sources("femnist", _write(tmp_path, GOOD)).files
    assert (file.name, file.format, file.mirrors[0].url) == ("a.zip", "zip", "https://x/a.zip")
