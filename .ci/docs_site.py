"""Hooks of mkdocs: pages that are generated, and links that leave docs/.

Generated pages: the reference of configuration keys, the command line, the API. Links to the repository's other pages
go to their copies in the site; links to source files stay relative, which works as long as site/ is in the checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow" / "lib"))

import subjectdp  # noqa: E402
from subjectdp.cli.doctor import readme_text  # noqa: E402
from subjectdp.cli.main import build_parser  # noqa: E402

COPIED = {
    "config/README.md": "reference-configuration.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages outside docs/ -> their place in the site."""

_HOME = {"README.md": "README.md", "docs": "README.md"}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_TITLE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)  # a code block with the name of its file
_PATTERN = re.compile(r"matching (\^\S+\$)")  # a regular expression in a table, which is no link
_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds the generated pages."""
    pages = {"reference-cli.md": _command_line(), "reference-api.md": _api()}
    pages |= {target: (ROOT / source).read_text() for source, target in COPIED.items()}
    pages[COPIED["config/README.md"]] = _PATTERN.sub(r"matching `\1`", readme_text(ROOT / "config"))
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links that leave docs/ lead to a page of the site, or to the file in the checkout."""
    name = page.file.src_uri
    source = next((ROOT / path for path, target in COPIED.items() if target == name), ROOT / "docs" / name)
    kept: list[str] = []

    def keep(found: re.Match[str]) -> str:
        kept.append(_TITLE.sub(r'```\1 title="\2"', found[0]))
        return f"\0{len(kept) - 1}\0"

    text = _LINK.sub(lambda found: _linked(found, source, Path(name)), _FENCE.sub(keep, markdown))
    return re.sub(r"\0(\d+)\0", lambda found: kept[int(found[1])], text)


def _linked(found: re.Match[str], source: Path, page: Path) -> str:
    image, words, link = found.groups()
    path, _, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", link):
        return found[0]
    target = (source.parent / path).resolve()
    if not target.exists():
        raise PluginError(f"{page}: the link {link} leads nowhere")
    inside = target.relative_to(ROOT).as_posix()
    place = COPIED.get(inside) or _HOME.get(inside)
    if inside.startswith("docs/") and target.is_file():
        place = inside.removeprefix("docs/")
    if place is not None:
        to = os.path.relpath(place, page.parent) + (f"#{anchor}" if anchor else "")
        return f"{image}[{words}]({to})"
    return f'<a href="{os.path.relpath(Path("..") / inside, page.parent)}">{_plain(words)}</a>'


def _plain(words: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", words)


def _command_line() -> str:
    """The help of every command."""
    parser = build_parser()
    (commands,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    os.environ["COLUMNS"] = "100"
    parts = ["# Command line", "Written from the commands' own help.", _help(parser, "subjectdp")]
    parts += [_help(command, f"subjectdp {name}") for name, command in commands.choices.items()]
    return "\n\n".join(parts) + "\n"


def _help(parser: argparse.ArgumentParser, name: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        parser.print_help()
    return f"## {name}\n\n```text\n{text.getvalue().rstrip()}\n```"


def _api() -> str:
    """Every public name with its docstring."""
    homes = {name: f"subjectdp.api.{subjectdp._HOMES[name]}.{name}" for name in subjectdp.__all__}
    parts = ["# Python API", "What `import subjectdp` offers; written from the docstrings."]
    return "\n\n".join([*parts, *(f"::: {path}" for path in homes.values())]) + "\n"
