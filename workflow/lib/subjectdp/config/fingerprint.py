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
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import grimp

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.paths import RESULTS, data_dir, prepared_file
from subjectdp.config.resolve import data_key
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.data.local_files import HASHES, describe
from subjectdp.data.sources import load_sources
from subjectdp.errors import StorageError, SubjectDPError, unknown
from subjectdp.io.atomic import sha256_of, write_bytes
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
    f"{PACKAGE}.io.job_log",
    f"{PACKAGE}.places",
)
"""Modules that change no result. No closure includes or follows them."""

NUMERICAL = ("torch", "numpy", "opacus", "dp_accounting")
"""Packages whose version counts, as imported."""

_FETCHING = (f"{PACKAGE}.data.fetch", f"{PACKAGE}.data.embedded")
_MODEL_MODULES = {
    name: f"{PACKAGE}.models.{facts.builder.partition('.')[0]}" for name, facts in MODELS.items()
}
_MOST_KEPT = 2000  # facts of files; above, those that nobody asked for are dropped
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
    imports = _imports()
    used = {imported for module in modules for imported in imports[module]}
    return [package for package in NUMERICAL if package in used]


def _expanded(entry: str) -> set[str]:
    modules, package = _imports(), entry.removesuffix(".*")
    if package not in modules:
        raise unknown("module", package, get_close_matches(package, sorted(modules), n=3))
    if entry == package:
        return {package}
    return {package, *(module for module in modules if module.startswith(f"{package}."))}


class _Kept:
    def __init__(self, path: Path) -> None:
        self._path, self._made_by = path, f"{sys.version} {grimp.__version__} {sha256_of(__file__)}"
        self._facts, self._asked, self._new = dict[str, Any](), set[str](), False
        try:
            content = json.loads(path.read_text())
            self._facts = dict(content["facts"]) if content["made_by"] == self._made_by else {}
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def fact(self, source: bytes, compute: Callable[[], Any]) -> Any:
        """The JSON-able fact that ``compute`` reads from ``source``."""
        key = hashlib.sha256(source).hexdigest()
        self._asked.add(key)
        if key not in self._facts:
            self._facts[key], self._new = compute(), True
        return self._facts[key]

    def write(self) -> None:
        """Keeps new facts for other processes, if there are any and the library can be written to."""
        if not self._new:
            return
        if len(self._facts) > _MOST_KEPT:
            self._facts = {key: self._facts[key] for key in self._asked}
        with suppress(OSError, StorageError):
            text = json.dumps({"made_by": self._made_by, "facts": self._facts})
            write_bytes(self._path, text.encode())
            self._new = False


@cache
def _kept(library: Path) -> _Kept:
    return _Kept(library / PACKAGE / "__pycache__" / "fingerprints.json")


@cache
def _imports() -> dict[str, set[str]]:
    files = sorted((LIBRARY / PACKAGE).rglob("*.py"))
    whole = b"".join(str(file.relative_to(LIBRARY)).encode() + b"\0" + file.read_bytes() for file in files)
    return {module: set(found) for module, found in _kept(LIBRARY).fact(whole, _graph).items()}


def _graph() -> dict[str, list[str]]:
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
    return ast.dump(_Meaning().visit(ast.parse(source)))


class _Meaning(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        value = node.value
        text = isinstance(value, ast.Constant) and isinstance(value.value, str)
        return None if text or _logs(value) else self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> ast.AST | None:
        return None if node.arg == "description" else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):  # an error's kind counts
            return ast.Raise(ast.Call(node.exc.func, [], []), None)
        return self.generic_visit(node)


def _logs(node: ast.expr) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return False
    return called.value.id in _LOGGERS and called.attr in _LEVELS


# --- what the data's sources hold -----------------------------------------------------------------------------


def source_content(data: DataConfig, results: str = RESULTS) -> str:
    """What the prepared data depend on, besides their configuration and the code that prepares them.

    embedded: the fingerprint of the code that generates the archives. upstream: names, formats and hashes in
    config/datasets.yaml; the hash of a file without one is recorded when it comes and enforced from then on.
    leaf_json: names, sizes and hashes of the files; those recorded where they are no longer there.
    """
    if data.source == Source.EMBEDDED:
        return fingerprint(f"generate:{data.dataset}")
    if data.source == Source.UPSTREAM:
        return _upstream_content(data.dataset)
    try:
        found = describe(Path(data.path or ""), Path(data_dir("", results)) / HASHES)
        return f"{found['bytes']} bytes, sha256 {found['sha256']}"
    except (OSError, SubjectDPError):  # fetching tells what is wrong
        return made_from(data, results).get("content", "")


def source_addresses(data: DataConfig) -> str:
    """The mirrors of a data set in config/datasets.yaml; empty for data that need none."""
    if data.source != Source.UPSTREAM:
        return ""
    files = load_sources(data.dataset)[1]
    return json.dumps([(file.name, [mirror.url for mirror in file.mirrors]) for file in files])


def made_from(data: DataConfig, results: str = RESULTS) -> dict[str, str]:
    """The ``content`` and ``code`` that the prepared data were made from; empty if there are none."""
    try:
        meta = json.loads(Path(prepared_file(data_key(data), "meta.json", results)).read_text())
        return dict(meta["made_from"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _upstream_content(dataset: str) -> str:
    files = load_sources(dataset)[1]
    served = [(file, sorted({(m.bytes or 0, m.sha256 or "") for m in file.mirrors})) for file in files]
    return json.dumps([(file.name, file.format, bodies) for file, bodies in served])
