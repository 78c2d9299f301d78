"""Code fingerprints: a hash of everything but settings and data that a stage's result depends on.

Snakemake sees neither an edited module that a script imports nor another version of torch. Each rule therefore carries
the fingerprint of its stages as a parameter: of the modules in their import closure, of the rule's script, and of the
versions of the numerical packages that these import. ``grimp`` finds the closure from the source, without importing it:
imports inside functions count, imports under ``if TYPE_CHECKING`` do not. Comments, layout, docstrings, descriptions
of configuration fields, messages of errors and log lines do not count, nor do file times. Two rules of the house keep
this complete (tests/workflow/test_house_rules.py): an ``__init__`` holds no code that its package's modules rely on,
and no module is imported by a literal name at run time.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import grimp

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.kept_facts import KeptFacts
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import unknown
from subjectdp.io.atomic import sha256_of
from subjectdp.models.catalogue import MODELS
from subjectdp.places import LIBRARY

PACKAGE = "subjectdp"

STAGES: dict[str, tuple[str, ...]] = {
    # Not subjectdp.data.prepare, which holds the steps of fetching and of preparing: an edited parser must not
    # fetch the archives again. Preparing refuses a record of files that it does not understand.
    "fetch": ("subjectdp.data.fetch",),
    "prepare": ("subjectdp.data.prepare",),
    "partition": ("subjectdp.data.partition",),
    "train": ("subjectdp.training.run", "subjectdp.algorithms.*"),
    "collect": ("subjectdp.results.collect",),
    "figure": ("subjectdp.figures.panels",),
    "statistics": ("subjectdp.data.statistics",),
    "report": ("subjectdp.report.page", "subjectdp.report.tables"),
}
"""Entry modules of each stage; ``package.*`` stands for a package and all modules in it."""

WITHOUT_EFFECT = (
    PACKAGE,  # the version
    # They name code or results and compute none; the entries of the two catalogues and the table of models count by
    # themselves. A new algorithm, data set or model reruns nothing.
    f"{PACKAGE}.config.fingerprint",
    f"{PACKAGE}.algorithms.registry",
    f"{PACKAGE}.data.catalogue",
    f"{PACKAGE}.models.catalogue",
    # They say something, wait, or transport bytes that are verified.
    f"{PACKAGE}.config.messages",
    f"{PACKAGE}.config.paths",
    f"{PACKAGE}.data.progress",
    f"{PACKAGE}.errors",
    f"{PACKAGE}.io.locks",
    f"{PACKAGE}.io.stop_signals",
    f"{PACKAGE}.places",
)
"""Modules that change no result. No closure includes or follows them."""

NUMERICAL = ("torch", "numpy", "opacus", "dp_accounting")
"""Packages whose version counts, as imported."""

_FETCHING = (f"{PACKAGE}.data.fetch", f"{PACKAGE}.data.embedded")
_MODEL_MODULES = {
    name: f"{PACKAGE}.models.{facts.builder.partition('.')[0]}" for name, facts in MODELS.items()
}
_LOGGERS, _LEVELS = ("log", "_LOGGER"), ("debug", "info", "warning", "error", "exception")


def fingerprint(*stages: str) -> str:
    """Hex digest of the code that the stages may run, and of the versions of the numerical packages that it imports.

    A stage is a name in :data:`STAGES`; ``train:NAME``, training with one algorithm; ``model:NAME``, a model, which
    leaves the modules of the others out; ``prepare:NAME``, reading one data set; ``generate:NAME``, making its embedded
    archives; ``script:NAME``, a script of the workflow; a module; or ``package.*``. A figure's code is
    ``fingerprint("figure", module_that_draws_it)``. Raises ConfigError for an unknown stage or module.
    """
    digest = hashlib.sha256()
    modules = closure(*stages)
    for module in modules:
        digest.update(f"{module}\0{_digest(_file_of(module))}\n".encode())
    for kind, _, name in (stage.partition(":") for stage in stages):
        if kind == "script":
            digest.update(f"{name}\0{_digest(LIBRARY.parent / 'scripts' / f'{name}.py')}\n".encode())
        if kind == "model":
            facts = MODELS[name]
            digest.update(f"{name}\0{facts.builder, dict(facts.parameters), facts.fixed_features}\n".encode())
    for package in _numerical(modules):
        digest.update(f"{package}\0{installed(package)}\n".encode())
    _kept(LIBRARY).write()
    return digest.hexdigest()[:16]


def training_stages(algorithm: str, model: str | None) -> tuple[str, ...]:
    """The stages whose code trains a run; without a model those of all models."""
    return (f"train:{algorithm}",) if model is None else (f"train:{algorithm}", f"model:{model}")


def closure(*stages: str) -> list[str]:
    """All modules of the package that the stages may import, their entry modules included, sorted."""
    imports = _imports()
    left_out = {*WITHOUT_EFFECT, *(module for stage in stages for module in _left_out(stage))}
    left_out -= {entry for stage in stages for entry in entry_modules(stage)}
    found: set[str] = set()
    waiting = {module for stage in stages for entry in entry_modules(stage) for module in _expanded(entry)}
    while waiting := waiting - left_out - found:
        found |= waiting
        waiting = {imported for module in waiting for imported in imports[module] if imported in imports}
    return sorted(found)


def entry_modules(stage: str) -> tuple[str, ...]:
    """The entries that a stage starts from; raises ConfigError for an unknown stage, algorithm, model or data set."""
    kind, _, name = stage.partition(":")
    if kind == "script" and name:
        return ()
    if kind == "train" and name:
        return f"{PACKAGE}.training.run", _known("algorithm", name, ALGORITHMS)
    if kind == "model" and name:
        return (_known("model", name, _MODEL_MODULES),)
    if kind in ("prepare", "generate") and name:
        facts = _known("data set", name, DATASETS)
        return (*STAGES[kind], facts.reader) if kind == "prepare" else (_FETCHING[1], facts.generator)
    if stage.startswith(f"{PACKAGE}."):
        return (stage,)
    entries: tuple[str, ...] = _known("stage", stage, STAGES)
    return entries


def _known(what: str, name: str, table: Mapping[str, Any]) -> Any:
    if name not in table:
        raise unknown(what, name, table)
    return table[name]


def _left_out(stage: str) -> Iterable[str]:
    """Modules that the closure's imports reach and this stage does not use."""
    kind, _, name = stage.partition(":")
    if kind == "model":
        return _MODEL_MODULES.values()
    if kind == "prepare":
        return (*_FETCHING, *(facts.reader for facts in DATASETS.values()))
    if kind == "generate":
        return [facts.generator for facts in DATASETS.values()]
    return ()


def installed(package: str) -> str:
    """The installed version of a package, without the build (``+cpu``); empty if it is not installed."""
    try:
        return version(package.replace("_", "-")).partition("+")[0]
    except PackageNotFoundError:
        return ""


def _numerical(modules: Iterable[str]) -> list[str]:
    """The numerical packages that modules import."""
    imports = _imports()
    used = {imported for module in modules for imported in imports[module]}
    return [package for package in NUMERICAL if package in used]


def _expanded(entry: str) -> set[str]:
    """The modules that an entry stands for."""
    modules, package = _imports(), entry.removesuffix(".*")
    if package not in modules:
        raise unknown("module", package, get_close_matches(package, sorted(modules), n=3))
    if entry == package:
        return {package}
    return {package, *(module for module in modules if module.startswith(f"{package}."))}


@cache
def _kept(library: Path) -> KeptFacts:
    """What has been read of the library's files: beside their byte code, since reading them takes half a second."""
    made_by = f"{sys.version} {grimp.__version__} {sha256_of(__file__)}"
    return KeptFacts(library / PACKAGE / "__pycache__" / "fingerprints.json", made_by)


@cache
def _imports() -> dict[str, set[str]]:
    """Each module of the package, and what it imports directly, other packages included."""
    files = sorted((LIBRARY / PACKAGE).rglob("*.py"))
    whole = b"".join(str(file.relative_to(LIBRARY)).encode() + b"\0" + file.read_bytes() for file in files)
    return {module: set(found) for module, found in _kept(LIBRARY).fact(whole, _graph).items()}


def _graph() -> dict[str, list[str]]:
    """:func:`_imports`, read from the source."""
    graph = grimp.build_graph(
        PACKAGE, exclude_type_checking_imports=True, cache_dir=None, include_external_packages=True
    )
    own = (module for module in graph.modules if module.partition(".")[0] == PACKAGE)
    return {module: sorted(graph.find_modules_directly_imported_by(module)) for module in own}


def _file_of(module: str) -> Path:
    path = LIBRARY.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _digest(file: Path) -> str:
    source = file.read_bytes()
    read: str = _kept(LIBRARY).fact(
        source, lambda: hashlib.sha256(meaning(source.decode()).encode()).hexdigest()
    )
    return read


def meaning(source: str) -> str:
    """The syntax tree of ``source`` as text, without what changes no result."""
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
    elif isinstance(value, ast.Raise) and isinstance(value.exc, ast.Call):
        parts.append("(Raise")  # an error's kind counts, its message does not
        _write(value.exc.func, parts)
        parts.append(")")
    elif not isinstance(value, ast.expr_context):  # implied by the place
        parts.append(f"({type(value).__name__}")
        for field in value._fields:
            _write(getattr(value, field, None), parts)
        parts.append(")")


def _is_cosmetic(node: Any) -> bool:
    """A docstring, a line for the log, or the keyword argument ``description``."""
    if isinstance(node, ast.Expr):
        return _is_text(node.value) or _logs(node.value)
    return isinstance(node, ast.keyword) and node.arg == "description"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _logs(node: ast.expr) -> bool:
    """A call such as ``_LOGGER.info(...)``."""
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return False
    return called.value.id in _LOGGERS and called.attr in _LEVELS
