"""The docs as a site: strictly built, references made from schema, commands and docstrings; opens without a server."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import subjectdp
from subjectdp.cli.main import COMMANDS
from subjectdp.config.scenario import RUN_KEYS

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text()))


def test_the_references_are_complete(site: Path) -> None:
    configuration = text_of(site / "reference-configuration.html")
    assert [key for key in RUN_KEYS if "." in key and f"{key.rpartition('.')[2]}" not in configuration] == []
    commands = text_of(site / "reference-cli.html")
    missing = [name for name in COMMANDS if f"usage: subjectdp {name}" not in commands]
    assert missing == []
    api = text_of(site / "reference-api.html")
    assert [name for name in subjectdp.__all__ if name not in api] == []


def test_every_page_opens_without_a_server(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    pages = {page.with_name("index.html") if page.name == "README.html" else page for page in pages}
    assert [str(page) for page in pages if not (site / page).is_file()] == []
    for page in pages:
        links = re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="([^"]+)"', (site / page).read_text())
        local = [link for link in links if not link.startswith(("data:", "http"))]
        assert local and not [link for link in local if link.startswith("/")], "relative: no server needed"
        assert [link for link in local if not (site / page.parent / link.partition("?")[0]).exists()] == []
