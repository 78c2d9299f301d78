"""Code fingerprints: a hash of the library code that a stage of the workflow may run.

Snakemake sees an edited script, not an edited module that the script imports. Each rule therefore carries the
fingerprint of its stage as a parameter. It changes if, and only if, the code of a module in the stage's import closure
changes. ``grimp`` finds the closure from the source, without importing it: imports inside functions count, imports
under ``if TYPE_CHECKING`` do not. Comments, layout, docstrings and the ``description`` of configuration fields do not
count. Two rules of the house keep this complete (tests/workflow/test_house_rules.py): an ``__init__`` holds no code
that its package's modules rely on, and no module is imported by a literal name at run time.
"""

from __future__ import annotations

import ast
import hashlib
from difflib import get_close_matches
from functools import cache
from typing import Any

import grimp

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import unknown
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
    "figure": ("subjectdp.figures.panels", "subjectdp.report.figure_page"),
    "statistics": ("subjectdp.data.statistics",),
    "report": ("subjectdp.report.page", "subjectdp.report.tables"),
}
"""Entry modules of each stage; ``package.*`` stands for a package and all modules in it."""

NAMES_ONLY = (
    PACKAGE,  # the version
    f"{PACKAGE}.config.fingerprint",
    f"{PACKAGE}.algorithms.registry",
    f"{PACKAGE}.data.catalogue",
)
"""Modules that name code or results and compute none. No closure includes or follows them, so that a new algorithm or
data set reruns nothing. The modules that the two catalogues name are entries of the stages that use them."""


def fingerprint(*stages: str) -> str:
    """Hex digest of the code that the stages may run.

    A stage is a name in :data:`STAGES`; ``train:NAME``, training with one algorithm; ``prepare:NAME``, reading one
    data set; a module; or ``package.*``. A figure's code is ``fingerprint("figure", module_that_draws_it)``.
    Raises ConfigError for an unknown stage or module.
    """
    digest = hashlib.sha256()
    for module in closure(*stages):
        digest.update(f"{module}\0{_digest(module)}\n".encode())
    return digest.hexdigest()[:16]


def closure(*stages: str) -> list[str]:
    """All modules of the package that the stages may import, their entry modules included, sorted."""
    entries = {module for stage in stages for entry in entry_modules(stage) for module in _expanded(entry)}
    found = entries.union(*map(_graph().find_upstream_modules, entries))
    return sorted(found.difference(NAMES_ONLY))


def entry_modules(stage: str) -> tuple[str, ...]:
    """The entries that a stage starts from; raises ConfigError for an unknown stage, algorithm or data set."""
    kind, _, name = stage.partition(":")
    if kind == "train" and name:
        if name not in ALGORITHMS:
            raise unknown("algorithm", name, ALGORITHMS)
        return f"{PACKAGE}.training.run", ALGORITHMS[name]
    if kind == "prepare" and name:
        if name not in DATASETS:
            raise unknown("data set", name, DATASETS)
        return *STAGES[kind], DATASETS[name].reader
    if stage.startswith(f"{PACKAGE}."):
        return (stage,)
    if stage not in STAGES:
        raise unknown("stage", stage, STAGES)
    return STAGES[stage]


def _expanded(entry: str) -> set[str]:
    """The modules that an entry stands for."""
    graph, package = _graph(), entry.removesuffix(".*")
    if package not in graph.modules:
        raise unknown("module", package, get_close_matches(package, sorted(graph.modules), n=3))
    return {package} if entry == package else {package, *graph.find_descendants(package)}


@cache
def _graph() -> grimp.ImportGraph:
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    for module in NAMES_ONLY:
        for importer in graph.find_modules_that_directly_import(module):
            graph.remove_import(importer=importer, imported=module)
    return graph


@cache
def _digest(module: str) -> str:
    path = LIBRARY.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return hashlib.sha256(meaning(file.read_text(encoding="utf-8")).encode()).hexdigest()


def meaning(source: str) -> str:
    """The syntax tree of ``source`` as text, without strings that stand as statements and without descriptions."""
    parts: list[str] = []
    _write(ast.parse(source), parts)
    return " ".join(parts)


def _write(value: Any, parts: list[str]) -> None:
    """Appends the text of a tree. Twice as fast as ``ast.dump`` after a ``NodeTransformer``; Snakemake waits for it."""
    if isinstance(value, list):
        parts.append("[")
        for item in value:
            if not _is_cosmetic(item):
                _write(item, parts)
        parts.append("]")
    elif not isinstance(value, ast.AST):
        parts.append(repr(value))
    elif not isinstance(value, ast.expr_context):  # implied by the place
        parts.append(f"({type(value).__name__}")
        for field in value._fields:
            _write(getattr(value, field, None), parts)
        parts.append(")")


def _is_cosmetic(node: Any) -> bool:
    """A docstring, or the keyword argument ``description``."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return isinstance(node, ast.keyword) and node.arg == "description"
