"""README and docs: links and anchors resolve, commands exist, the README stays short and prints true output."""

import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import subjectdp
from mutants.catalogue import MUTANTS
from subjectdp.cli.main import COMMANDS, build_parser, main
from subjectdp.config.scenario import RUN_KEYS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "config/README.md", *DOCS.rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
PITFALLS = (DOCS / "pitfalls.md").read_text(encoding="utf-8")

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    headings = (re.sub(r"[^\w\- ]", "", heading.strip().lower()) for heading in _HEADING.findall(_prose(page)))
    return {heading.replace(" ", "-") for heading in headings}


def _broken(page: Path) -> list[str]:
    broken = []
    for link in _LINK.findall(_prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_resolve(page: Path) -> None:
    assert _broken(page) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title, here\n[a](#a-title-here) [b](#no) [c](no.md) [d](page.md#no) [e](http://a.org)\n")
    assert _broken(page) == ["#no", "no.md", "page.md#no"]


def test_the_index_lists_every_page() -> None:
    listed = {(DOCS / link).resolve() for link in _LINK.findall(_prose(DOCS / "README.md"))}
    assert {page for page in DOCS.glob("*.md") if page.name != "README.md"} <= listed
    decisions = (DOCS / "decisions/README.md").read_text(encoding="utf-8")
    assert [page.name for page in DOCS.glob("decisions/0*.md") if page.name not in decisions] == []


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 650


def _commands() -> list[str]:
    blocks = [text.replace("\\\n", " ") for language, text in _FENCE.findall(README) if language == ""]
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    return [re.sub(r"^([A-Z][A-Z0-9_]*=\S+ +)+", "", line.split(" #")[0].strip()) for line in lines]


def test_commands_of_the_readme_exist() -> None:
    targets = subprocess.run(
        ["make", "--question", "--print-data-base", "--no-builtin-rules"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    commands = _commands()
    assert len(commands) > 5
    for command in commands:
        program, *arguments = shlex.split(command)
        if program == "make":
            assert re.search(rf"^{re.escape(arguments[0])}:", targets, re.MULTILINE), command
        elif program == "subjectdp":
            build_parser().parse_args(arguments)
        else:
            assert program in {"snakemake", "source"}, command
        for argument in arguments:
            if argument.startswith("config/"):
                assert (ROOT / argument).is_file(), command


@pytest.mark.slow
def test_the_readme_shows_what_its_account_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = [command for command in _commands() if command.startswith("subjectdp account")]
    (shown,) = [text for language, text in _FENCE.findall(README) if language == "text"]
    assert main(shlex.split(command)[1:]) == 0
    assert shown in capsys.readouterr().out


def _tests_of_pitfalls() -> list[str]:
    return [" ".join(text.split()) for text in re.findall(r"\*Tests?\*: (.+?)\n\n", PITFALLS, re.DOTALL)]


def test_the_tests_that_pitfalls_names_exist() -> None:
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", " ".join(_tests_of_pitfalls()))
    assert len(named) > 40
    for file, function in named:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert not function or f"def {function}(" in text, f"{file}::{function}"


def test_the_planted_bugs_that_pitfalls_names_exist() -> None:
    named = re.findall(r'"([^"]+)"', " ".join(_tests_of_pitfalls()))
    assert len(named) > 25
    assert set(named) <= {mutant.name for mutant in MUTANTS}


_MADE_BY_TUTORIALS = {"algorithms/central_item_dp.py", "data/digits_csv.py"}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CHANGELOG.md"],  # which names what is gone
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_files_and_modules_that_a_page_names_exist(page: Path) -> None:
    text = _prose(page)
    folders = (ROOT, ROOT / "workflow/lib/subjectdp", ROOT / "tests")
    files = set(re.findall(r"`([\w./-]+/[\w-]+\.(?:py|smk|yaml|csv|md))`", text)) - _MADE_BY_TUTORIALS
    missing = [file for file in files if not any((folder / file).exists() for folder in folders)]
    assert [file for file in missing if not file.startswith("results/")] == []
    modules = set(re.findall(r"`(subjectdp(?:\.[a-z_]\w*)+)", text))
    assert [name for name in modules if not _resolves(name)] == []


def _resolves(name: str) -> bool:
    *parents, last = name.split(".")
    folder = ROOT.joinpath("workflow/lib", *parents)
    if (folder / last).is_dir() or (folder / f"{last}.py").is_file():
        return True
    module = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    return module.is_file() and re.search(rf"\b{last}\b", module.read_text(encoding="utf-8")) is not None


# --- as a site: strictly built, references made from schema, commands and docstrings; opens without a server ---


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


@pytest.mark.long
def test_the_references_are_complete(site: Path) -> None:
    configuration = text_of(site / "reference-configuration.html")
    assert [key for key in RUN_KEYS if "." in key and f"{key.rpartition('.')[2]}" not in configuration] == []
    commands = text_of(site / "reference-cli.html")
    missing = [name for name in COMMANDS if f"usage: subjectdp {name}" not in commands]
    assert missing == []
    api = text_of(site / "reference-api.html")
    assert [name for name in subjectdp.__all__ if name not in api] == []


@pytest.mark.long
def test_every_page_opens_without_a_server(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    pages = {page.with_name("index.html") if page.name == "README.html" else page for page in pages}
    assert [str(page) for page in pages if not (site / page).is_file()] == []
    for page in pages:
        links = re.findall(r'<(?:link|script|img)[^>]+(?:href|src)="([^"]+)"', (site / page).read_text())
        local = [link for link in links if not link.startswith(("data:", "http"))]
        assert local and not [link for link in local if link.startswith("/")], "relative: no server needed"
        assert [link for link in local if not (site / page.parent / link.partition("?")[0]).exists()] == []
