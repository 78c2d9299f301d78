"""Carries out a tutorial: writes its files, makes its edits and runs its commands in a copy of the project.

The line that opens a code block says what it is: ``python PATH`` and ``yaml PATH`` are files, ``diff PATH`` is an edit
(lines with ``+`` are added, with ``-`` taken away, the others must be there), and ``console`` has commands behind ``$``
with the lines that they print; ``...`` stands for any lines.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from project_copy import ROOT, copy_parts

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One code block of a document."""

    kind: str
    path: str
    text: str


def blocks(document: Path) -> list[Block]:
    """The code blocks of a document in their order."""
    return [Block(kind, path, text) for kind, path, text in _BLOCK.findall(document.read_text())]


def follow(document: Path, project: Path) -> dict[str, str]:
    """Does what the document says in a new copy of the project; returns what each command printed."""
    copy_parts(project)
    printed: dict[str, str] = {}
    for block in blocks(document):
        if block.kind == "console":
            printed |= _run_all(block.text, project)
        elif block.kind == "diff":
            edit(project / block.path, block.text)
        elif block.path:
            target = project / block.path
            if target.exists():
                raise AssertionError(f"{block.path} is in the project already: the tutorial would replace it")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
    return printed


def edit(path: Path, diff: str) -> None:
    """Makes the edit; what it takes away or keeps has to be in the file exactly once."""
    lines = diff.splitlines()
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    text = path.read_text()
    if text.count(before) != 1:
        raise AssertionError(f"{path.name} has {text.count(before)} places of\n{before}")
    path.write_text(text.replace(before, after))


def _run_all(text: str, project: Path) -> dict[str, str]:
    printed: dict[str, str] = {}
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        printed[command] = _run(command, project)
        check_output(command, expected, printed[command])
    return printed


def check_output(command: str, expected: str, output: str) -> None:
    """Every line that the document shows is printed, in that order; columns may be wider or narrower."""
    lines = iter(_squeezed(output))
    for wanted in _squeezed(expected):
        if wanted != "..." and wanted not in lines:  # `in` goes on where it stopped
            raise AssertionError(f"{command} does not print {wanted!r} (in this order), but\n{output}")


def _squeezed(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def _run(command: str, project: Path) -> str:
    environment = {
        **os.environ,
        "PATH": f"{_commands(project)}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project / "workflow" / "lib"),
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(project / ".cache"),
    }
    done = subprocess.run(
        command,
        shell=True,
        cwd=project,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    if done.returncode != 0:
        logs = "".join(path.read_text()[-1500:] for path in sorted(project.glob("results/logs/*/*.log"))[-3:])
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{logs}")
    return done.stdout


def _commands(project: Path) -> Path:
    """A folder with ``python``, ``snakemake`` and ``subjectdp`` of this interpreter, as an environment has them."""
    folder = project / ".commands"
    folder.mkdir(exist_ok=True)
    for name in ("python", "snakemake", "subjectdp"):
        file, module = folder / name, "" if name == "python" else f" -m {name}"
        file.write_text(f'#!/bin/sh\nexec {sys.executable}{module} "$@"\n')
        file.chmod(0o755)
    return folder


DOCS = ROOT / "docs"
