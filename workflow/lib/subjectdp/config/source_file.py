"""What one source file means to a fingerprint: its code without layout and words, what it imports, what it re-exports.

Comments, layout, docstrings and the ``description`` of configuration fields do not count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Import = tuple[str, tuple[str, ...]]
"""A module and the names taken from it (none: the module itself)."""


@dataclass(frozen=True)
class SourceFile:
    """What one source file means to a fingerprint."""

    digest: str
    imports: tuple[Import, ...]
    exports: dict[str, Import]  # of a plain __init__: name -> where it comes from
    plain: bool  # an __init__ of nothing but docstring, imports and dunder names


def read_source(file: Path, module: str) -> SourceFile:
    """Reads the source of ``module``, without importing it."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source, str(file))
    is_package = file.name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    bodies = list(_bodies(tree))
    imports = [step for body in bodies for node in body for step in _imports(node, package)]
    if "import_module" in source:
        imports.extend(_dynamic_imports(tree))
    exports = {
        name: step
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for name, step in _bound(node, package)
    }
    plain = is_package and all(_is_plain(node) for node in tree.body)
    _strip(tree, bodies, "description=" in source)
    parts: list[str] = []
    _write(tree, parts)
    digest = hashlib.sha256(" ".join(parts).encode()).hexdigest()
    return SourceFile(digest, tuple(dict.fromkeys(imports)), exports, plain)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    """All lists of statements in ``tree``, except what only a type checker reads."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list) and not (field == "body" and _for_type_checker(node)):
                yield body
                waiting.extend(body)
        waiting.extend(getattr(node, "handlers", ()))
        waiting.extend(getattr(node, "cases", ()))


def _for_type_checker(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def _imports(node: ast.stmt, package: str) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, ()) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield _source_of(node, package), tuple(alias.name for alias in node.names)


def _bound(node: ast.ImportFrom, package: str) -> Iterator[tuple[str, Import]]:
    """(name, where it comes from) of one ``from`` statement of an ``__init__``."""
    source = _source_of(node, package)
    for alias in node.names:
        yield alias.asname or alias.name, (source, (alias.name,))


def _source_of(node: ast.ImportFrom, package: str) -> str:
    """The absolute name of the module that a ``from`` statement reads."""
    if node.level == 0:
        return node.module or ""
    base = package
    for _ in range(node.level - 1):
        base = base.rpartition(".")[0]
    return f"{base}.{node.module}" if node.module else base


def _dynamic_imports(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name_of(node.func) == "import_module" and node.args:
            argument = node.args[0]
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value, ()


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_plain(node: ast.stmt) -> bool:
    """A docstring, an import from the package, or an assignment to a dunder name."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Name) and target.id.startswith("__") for target in node.targets)
    return isinstance(node, ast.ImportFrom)


def _strip(tree: ast.AST, bodies: list[list[ast.stmt]], descriptions: bool) -> None:
    """Removes docstrings (text that stands as a statement) and, where asked, descriptions of fields."""
    for body in bodies:
        kept = [node for node in body if not _is_text(node)]
        body[:] = kept or [ast.Pass()]
    if descriptions:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name_of(node.func) == "Field":
                node.keywords = [keyword for keyword in node.keywords if keyword.arg != "description"]


def _write(value: Any, parts: list[str]) -> None:
    """A tree as text, in half the time that ``ast.dump`` takes; a place implies its context (load or store)."""
    if isinstance(value, list):
        parts.append("[")
        for item in value:
            _write(item, parts)
        parts.append("]")
    elif not isinstance(value, ast.AST):
        parts.append(repr(value))
    elif not isinstance(value, ast.expr_context):
        parts.append(f"({type(value).__name__}")
        for field in value._fields:
            _write(getattr(value, field, None), parts)
        parts.append(")")


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
