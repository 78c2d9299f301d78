"""Writes the generated part of docs/extending.md: the packages, their arrows, their sizes and their circles.

    PYTHONPATH=tests:workflow/lib python -m architecture

The layers are those of the contract in pyproject.toml, the imports those that grimp reads.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "subjectdp"
LIBRARY = ROOT / "workflow" / "lib" / PACKAGE
PAGE = ROOT / "docs" / "extending.md"
BEGIN, END = "<!-- generated: make architecture -->", "<!-- end of the generated part -->"

Arrows = dict[str, set[str]]


def layers() -> list[list[str]]:
    """The packages of each layer, lowest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    names = [layer.strip("()").split(" | ") for layer in settings["contracts"][0]["layers"]]
    present = [[name for name in layer if source(name).exists()] for layer in reversed(names)]
    return [layer for layer in present if layer]


def source(package: str) -> Path:
    """The file or folder of a package of the library."""
    folder = LIBRARY / package
    return folder if folder.is_dir() else folder.with_suffix(".py")


def import_graph(type_checking: bool = False) -> grimp.ImportGraph:
    """The imports of all modules; with ``type_checking`` also those that only a type checker reads."""
    return grimp.build_graph(PACKAGE, exclude_type_checking_imports=not type_checking, cache_dir=None)


def arrows(graph: grimp.ImportGraph) -> Arrows:
    """Package -> lower packages that it imports from."""
    height = {name: number for number, layer in enumerate(layers()) for name in layer}
    found: Arrows = {name: set() for name in height}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            importer, target = package_of(module), package_of(imported)
            if height.get(target, 99) < height.get(importer, -1):
                found[importer].add(target)
    return found


def package_of(module: str) -> str:
    """``subjectdp.engine.rules`` -> ``engine``."""
    return f"{module}.".split(".")[1]


def without_implied(found: Arrows) -> Arrows:
    """The arrows that no chain of others implies."""

    def reached(package: str) -> set[str]:
        return found[package].union(*(reached(lower) for lower in found[package]))

    return {package: lower - set().union(*(reached(other) for other in lower)) for package, lower in found.items()}


def circles(graph: grimp.ImportGraph) -> Iterator[list[str]]:
    """Groups of modules that import one another, directly or not, without the package's name."""
    upstream = {module: graph.find_upstream_modules(module) for module in graph.modules}
    seen: set[str] = set()
    for module in sorted(upstream):
        circle = {module, *(other for other in upstream[module] if module in upstream[other])}
        if len(circle) > 1 and module not in seen:
            yield sorted(name.removeprefix(f"{PACKAGE}.") for name in circle)
        seen |= circle


def files(package: str) -> list[Path]:
    path = source(package)
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def lines(package: str) -> int:
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files(package))


def sentence(package: str) -> str:
    """The first paragraph of a package's docstring."""
    path = source(package)
    file = path / "__init__.py" if path.is_dir() else path
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def picture() -> str:
    """The packages as a mermaid flowchart; an arrow points to what is imported."""
    names = [name for layer in reversed(layers()) for name in layer]
    shown = without_implied(arrows(import_graph()))
    edges = [f"  {name} --> {lower}" for name in names for lower in sorted(shown[name])]
    return "\n".join(["```mermaid", "flowchart TD", *edges, "```"])


def table() -> str:
    """One row a package, highest layer first."""
    rows = ["| package | what it is | files | lines |", "| --- | --- | ---: | ---: |"]
    names = [name for layer in reversed(layers()) for name in layer]
    for name in names:
        rows.append(f"| `{name}` | {sentence(name)} | {len(files(name))} | {lines(name):,} |")
    total = sum(map(lines, names))
    rows.append(f"| | **all of them** | {sum(len(files(name)) for name in names)} | {total:,} |")
    return "\n".join(rows)


def generated() -> str:
    """The generated part of the page."""
    return f"{BEGIN}\n\n{picture()}\n\n{table()}\n\n{END}"


def updated(page: str) -> str:
    """The page with its generated part as it should be."""
    before, _, rest = page.partition(BEGIN)
    return before + generated() + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
