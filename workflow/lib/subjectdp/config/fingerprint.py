"""Code fingerprints: a hash of the library code that a stage of the workflow may run.

Snakemake sees changes of a script, not of the modules that the script imports. Each rule therefore carries
the fingerprint of its stage as a parameter: it changes when, and only when, the meaning of some module in the
stage's import closure may have changed. The closure is found by reading the source, without importing it:

- imports inside functions count, imports under ``if TYPE_CHECKING`` do not;
- ``from package import name`` follows the submodule ``name``, or whatever a plain ``__init__`` re-exports as
  it; an ``__init__`` of nothing but imports and dunder names has no hash of its own;
- ``import_module`` with a text argument counts as an import.

What a source file means is :mod:`subjectdp.config.source_file`'s to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.source_file import Import, SourceFile, read_source
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import SubjectDPError, unknown
from subjectdp.places import LIBRARY

PACKAGE = "subjectdp"

STAGES: dict[str, tuple[str, ...]] = {
    # Not subjectdp.data.prepare, which holds the steps of fetching and of preparing: an edited parser must not
    # fetch (or generate) the archives again. Preparing refuses a record of files that it does not understand.
    "fetch": ("subjectdp.data.fetch", "subjectdp.data.embedded.*"),
    "prepare": ("subjectdp.data.prepare",),
    "partition": ("subjectdp.data.partition",),
    "train": ("subjectdp.training.run", "subjectdp.algorithms.*"),
    "collect": ("subjectdp.results.collect",),
    "figures": ("subjectdp.figures.each.*", "subjectdp.report.report_figures"),
    "statistics": ("subjectdp.data.statistics",),
    "report": ("subjectdp.report.report", "subjectdp.report.tables"),
}
"""Entry modules of each stage; ``package.*`` stands for a package with all that is in it."""

_NAMES_ONLY = (
    f"{PACKAGE}.config.fingerprint",
    f"{PACKAGE}.algorithms.registry",
    f"{PACKAGE}.data.catalogue",
)
"""Modules that name code or results and change none: they are no part of any closure, so that a new algorithm or data
set runs nothing again. The modules that the two lists name are entries of the stages that use them."""


def fingerprint(stage: str, library: Path | str = LIBRARY) -> str:
    """Hex digest of the code that a stage may run.

    Besides the names in :data:`STAGES`, ``figure:NAME`` is the stage that draws one figure, ``train:NAME`` the
    one that trains with one algorithm, ``prepare:NAME`` the one that reads one data set, and a module or
    ``package.*`` is a stage of its own.
    Raises ConfigError for an unknown stage or module.
    """
    root = Path(library)
    digest = hashlib.sha256()
    for module in closure(entry_modules(stage), root):
        digest.update(f"{module}\0{_module(root, module).digest}\n".encode())
    return digest.hexdigest()[:16]


def entry_modules(stage: str) -> tuple[str, ...]:
    """The modules that a stage starts from; raises ConfigError for an unknown stage or figure."""
    kind, _, name = stage.partition(":")
    if kind == "train" and name:
        if name not in ALGORITHMS:
            raise unknown("algorithm", name, ALGORITHMS)
        return f"{PACKAGE}.training.run", ALGORITHMS[name]
    if kind == "prepare" and name:
        if name not in DATASETS:
            raise unknown("data set", name, DATASETS)
        return *STAGES[kind], DATASETS[name].reader
    if kind == "figure" and name:
        figures = import_module(f"{PACKAGE}.figures.catalogue").FIGURES
        if name not in figures:
            raise unknown("figure", name, figures)
        return figures[name].module_path, f"{PACKAGE}.figures.panels", f"{PACKAGE}.report.report_figures"
    if stage in STAGES:
        return STAGES[stage]
    if stage.startswith(f"{PACKAGE}."):
        return (stage,)
    raise unknown("stage", stage, STAGES)


def closure(entries: Iterable[str], library: Path | str = LIBRARY) -> list[str]:
    """All modules of the package that the entry modules may import, sorted, themselves included."""
    return sorted(_closure(tuple(entries), Path(library)))


@cache
def _closure(entries: tuple[str, ...], root: Path) -> frozenset[str]:
    waiting: list[Import] = [(module, ()) for entry in entries for module in _expanded(entry, root)]
    done: set[Import] = set()
    found: set[str] = set()
    while waiting:
        step = waiting.pop()
        if step in done:
            continue
        done.add(step)
        module, names = step
        if module in _NAMES_ONLY or _file(root, module) is None:
            continue
        waiting.extend((parent, ()) for parent in _parents(module))
        code = _module(root, module)
        if code.plain:
            waiting.extend(_through_plain(root, module, code, names))
        else:
            found.add(module)
            waiting.extend(code.imports)
            waiting.extend((f"{module}.{name}", ()) for name in names)
    return frozenset(found)


def _through_plain(root: Path, module: str, code: SourceFile, names: Iterable[str]) -> Iterator[Import]:
    """What importing ``names`` through an ``__init__`` of mere re-exports leads to."""
    for name in names:
        if name in code.exports:
            yield code.exports[name]
        elif name == "*":
            yield from code.exports.values()
        elif _file(root, f"{module}.{name}") is not None:
            yield f"{module}.{name}", ()


def _expanded(entry: str, root: Path) -> list[str]:
    """The modules that an entry stands for."""
    package = entry.removesuffix(".*")
    file = _file(root, package)
    if file is None:
        raise _no_module(package, root)
    if not entry.endswith(".*") or file.name != "__init__.py":
        return [package]
    return [name for name in _all_modules(root) if name == package or name.startswith(f"{package}.")]


def _no_module(module: str, root: Path) -> SubjectDPError:
    return unknown("module", module, get_close_matches(module, _all_modules(root), n=3))


@cache
def _all_modules(root: Path) -> tuple[str, ...]:
    files = sorted((root / PACKAGE).rglob("*.py"))
    dotted = (".".join(file.relative_to(root).with_suffix("").parts) for file in files)
    return tuple(name.removesuffix(".__init__") for name in dotted)


def _parents(module: str) -> Iterator[str]:
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


@cache
def _file(root: Path, module: str) -> Path | None:
    if module != PACKAGE and not module.startswith(f"{PACKAGE}."):
        return None
    base = root.joinpath(*module.split("."))
    for file in (base / "__init__.py", base.with_suffix(".py")):
        if file.is_file():
            return file
    return None


@cache
def _module(root: Path, module: str) -> SourceFile:
    file = _file(root, module)
    if file is None:
        raise _no_module(module, root)
    return read_source(file, module)


def clear_cache() -> None:
    """Forgets what has been read, for a process that edits the library."""
    for cached in (_closure, _all_modules, _file, _module):
        cached.cache_clear()
