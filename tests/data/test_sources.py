"""The table of mirrors: the project's own, and broken ones."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from subjectdp.data.sources import find_table, load_sources
from subjectdp.errors import ConfigError

GOOD: dict[str, Any] = {
    "femnist": {
        "license": "free",
        "files": {"a.zip": {"format": "zip", "mirrors": [{"url": "https://x/a.zip", "bytes": None, "sha256": None}]}},
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
    licence, sources = load_sources(dataset)
    assert [file.name for file in sources] == files and licence != ""
    assert all(len({mirror.url for mirror in file.mirrors}) >= 2 for file in sources)


def test_the_table_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = find_table().read_bytes()
    monkeypatch.chdir(tmp_path)
    assert find_table().read_bytes() == here


def _with(path: str, value: Any) -> dict[str, Any]:
    """The good table with another value at a path of keys; KeyError: without the key."""
    table: Any = yaml.safe_load(yaml.safe_dump(GOOD))
    *keys, last = path.split("/")
    place = table["femnist"]
    for key in keys:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    if value is KeyError:
        del place[last]
    return table


_FILE = "files/a.zip"
_MIRROR = f"{_FILE}/mirrors/0"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "a mapping"),
        ("a: [", "plain YAML"),
        ({"femnits": {}}, "Did you mean 'femnits'"),
        (_with("licence", "x"), "femnist.licence: Extra inputs"),
        (_with("license", KeyError), "femnist.license: Field required"),
        (_with("files", {}), "femnist.files: .* at least 1 item"),
        (_with("files", {"../a": {}}), "femnist.files.../a"),
        (_with(f"{_FILE}/format", "tar"), "format: Input should be 'zip', 'gzip', 'binary' or 'text', got 'tar'"),
        (_with(f"{_FILE}/mirrors", "none"), "mirrors: .* valid list, got 'none'"),
        (_with(f"{_MIRROR}/url", "ftp://x/a"), "url: .* got 'ftp://x/a'"),
        (_with(f"{_MIRROR}/bytes", True), "bytes: .* valid integer, got True"),
        (_with(f"{_MIRROR}/sha256", "abc"), "sha256: .* got 'abc'"),
        (_with(f"{_MIRROR}/bytes", KeyError), "bytes: Field required"),
    ],
)
def test_a_bad_table_is_refused(tmp_path: Path, content: Any, problem: str) -> None:
    assert load_sources("femnist", _write(tmp_path, GOOD))[1][0].mirrors[0].url == "https://x/a.zip"
    with pytest.raises(ConfigError, match=problem):
        load_sources("femnist", _write(tmp_path, content))
