"""Code fingerprints: a hash of everything but settings and data that a stage's result depends on.

Snakemake sees neither an edited module that a script imports nor another version of torch. Each rule therefore carries
the fingerprint of its stages as a parameter: of the modules in their import closure, of the rule's script, and of the
versions of the numerical packages that these import. ``grimp`` finds the closure from the source, without importing it:
imports inside functions count, imports under ``if TYPE_CHECKING`` do not. Comments, layout, docstrings, the texts of
raised errors and file times do not count. Two rules of the house keep this complete
(tests/workflow/test_house_rules.py): an ``__init__`` holds no code that its package's modules rely on, and no module is
imported by a literal name at run time.
"""

import ast
import hashlib
import json
import marshal
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import grimp

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.resolve import data_key
from subjectdp.config.sections import DataConfig
from subjectdp.data.archives import HASHES, describe, load_sources
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.errors import SubjectDPError, unknown
from subjectdp.models.catalogue import MODELS
from subjectdp.places import LIBRARY, RESULTS, Places

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
    "report": ("subjectdp.report.tables",),
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
    f"{PACKAGE}.errors",
    f"{PACKAGE}.io.locks",
    f"{PACKAGE}.io.job_log",
    f"{PACKAGE}.places",
)
"""Modules that change no result. No closure includes or follows them."""

NUMERICAL = ("torch", "numpy", "opacus", "dp_accounting")  # packages whose version counts, as imported
_MODEL_MODULES = {name: f"{PACKAGE}.models.{facts.builder.partition('.')[0]}" for name, facts in MODELS.items()}


def fingerprint(*stages: str) -> str:
    """Hex digest of the code that the stages may run, and of the versions of the numerical packages that it imports.

    A stage is a name in :data:`STAGES`; ``train:NAME``, training with one algorithm; ``model:NAME``, a model, which
    leaves the modules of the others out; ``prepare:NAME``, reading one data set; ``generate:NAME``, making its embedded
    archives; ``script:NAME``, a script of the workflow; a module; or ``package.*``. A figure's code is
    ``fingerprint("figure", module_that_draws_it)``. Raises ConfigError for an unknown stage or module.
    """
    modules = closure(*stages)
    paths = {module: LIBRARY.joinpath(*module.split(".")) for module in modules}
    files = {name: path / "__init__.py" if path.is_dir() else path.with_suffix(".py") for name, path in paths.items()}
    content: list[Any] = [(module, _digest(file)) for module, file in files.items()]
    for kind, _, name in (stage.partition(":") for stage in stages):
        if kind == "script":
            content.append((name, _digest(LIBRARY.parent / "scripts" / f"{name}.py")))
        if kind == "model":
            model = MODELS[name]
            content.append((name, model.builder, dict(model.parameters), model.fixed_features))
    used = {imported for module in modules for imported in _imports()[module]}
    content += [(package, installed(package)) for package in NUMERICAL if package in used]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def training_stages(algorithm: str, model: str | None) -> tuple[str, ...]:
    """The stages whose code trains a run; without a model those of all models."""
    return (f"train:{algorithm}",) if model is None else (f"train:{algorithm}", f"model:{model}")


def closure(*stages: str) -> list[str]:
    """All modules of the package that the stages may import, their entry modules included, sorted."""
    imports = _imports()
    entries = {entry for stage in stages for entry in entry_modules(stage)}
    left_out = {*WITHOUT_EFFECT, *(module for stage in stages for module in _left_out(stage))} - entries
    reached: set[str] = set()
    waiting = {module for entry in entries for module in _expanded(entry)}
    while waiting := waiting - left_out - reached:
        reached |= waiting
        waiting = {imported for module in waiting for imported in imports[module] if imported in imports}
    return sorted(reached)


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
        return (*STAGES[kind], facts.reader) if kind == "prepare" else (facts.generator,)
    if stage.startswith(f"{PACKAGE}."):
        return (stage,)
    entries: tuple[str, ...] = _known("stage", stage, STAGES)
    return entries


def _known(what: str, name: str, table: Mapping[str, Any]) -> Any:
    if name not in table:
        raise unknown(what, name, table)
    return table[name]


def _left_out(stage: str) -> Iterable[str]:
    # modules that the closure's imports reach and this stage does not use
    kind, _, name = stage.partition(":")
    if kind == "model":
        return _MODEL_MODULES.values()
    if kind == "prepare":
        return (*STAGES["fetch"], *(facts.reader for facts in DATASETS.values()))
    return [facts.generator for facts in DATASETS.values()] if kind == "generate" else ()


def installed(package: str) -> str:
    """The installed version of a package, without the build (``+cpu``); empty if it is not installed."""
    try:
        return version(package.replace("_", "-")).partition("+")[0]
    except PackageNotFoundError:
        return ""


def _expanded(entry: str) -> set[str]:
    modules, package = _imports(), entry.removesuffix(".*")
    if package not in modules:
        raise unknown("module", package, get_close_matches(package, sorted(modules), n=3))
    below = {module for module in modules if module.startswith(f"{package}.")} if entry != package else set()
    return {package, *below}


@cache
def _imports() -> dict[str, set[str]]:
    graph = grimp.build_graph(
        PACKAGE, exclude_type_checking_imports=True, cache_dir=None, include_external_packages=True
    )
    own = (module for module in graph.modules if module.partition(".")[0] == PACKAGE)
    return {module: graph.find_modules_directly_imported_by(module) for module in own}


@cache
def _digest(file: Path) -> str:
    return hashlib.sha256(meaning(file.read_text(encoding="utf-8"))).hexdigest()


def meaning(source: str) -> bytes:
    """The bytecode of ``source`` without docstrings, as if written on one line; a raised error counts by its kind."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if hasattr(node, "lineno"):
            node.lineno = node.end_lineno = 1  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords, node.cause = [], [], None
    return marshal.dumps(compile(tree, "", "exec", dont_inherit=True, optimize=2), 2)


def source_content(data: DataConfig, results: str = RESULTS) -> str:
    """What the prepared data depend on, besides their configuration and the code that prepares them.

    embedded: the fingerprint of the code that generates the archives. upstream: names, formats and hashes in
    config/datasets.yaml; the hash of a file without one is recorded when it comes and enforced from then on.
    leaf_json: names, sizes and hashes of the files; those recorded where they are no longer there.
    """
    if data.source == Source.EMBEDDED:
        return fingerprint(f"generate:{data.dataset}")
    if data.source == Source.UPSTREAM:
        files = load_sources(data.dataset)[1]
        served = [(file, sorted({(m.bytes or 0, m.sha256 or "") for m in file.mirrors})) for file in files]
        return json.dumps([(file.name, file.format, bodies) for file, bodies in served])
    try:
        file = describe(Path(data.path or ""), Path(Places(results).data_dir(""), HASHES))
        return f"{file['bytes']} bytes, sha256 {file['sha256']}"
    except (OSError, SubjectDPError):  # fetching tells what is wrong
        return input_fingerprint(data, results).get("content", "")


def source_addresses(data: DataConfig) -> str:
    """The mirrors of a data set in config/datasets.yaml; empty for data that need none."""
    if data.source != Source.UPSTREAM:
        return ""
    files = load_sources(data.dataset)[1]
    return json.dumps([(file.name, [mirror.url for mirror in file.mirrors]) for file in files])


def input_fingerprint(data: DataConfig, results: str = RESULTS) -> dict[str, str]:
    """The ``content`` and ``code`` that the prepared data were made from; empty if there are none."""
    try:
        meta = json.loads(Path(Places(results).prepared_file(data_key(data), "meta.json")).read_text())
        return dict(meta["input_fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
