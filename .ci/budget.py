"""The line budget: what each part of the tree may hold at most. Every limit may only shrink.

    python .ci/budget.py           fails where a part is over its limit, or far below it
    python .ci/budget.py --write   lowers the limits to what is there

A feature that needs more names what leaves, or raises a number of .ci/budget.json by hand, in a commit of its own that
says what a user gains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = ROOT / ".ci" / "budget.json"
LIBRARY = ROOT / "workflow" / "lib" / "subjectdp"
SLACK = 30  # lines a part may be below its limit before the limit has to follow


def lines(paths: list[Path]) -> int:
    """Lines of the files together."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def words(paths: list[Path]) -> int:
    """Words of the files together, as `wc -w` counts."""
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


def measured() -> dict[str, int]:
    """What is there: lines of each package, of the tests and the benchmarks, files, words of the docs."""
    packages = sorted(path for path in LIBRARY.iterdir() if (path / "__init__.py").exists())
    docs = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    found = {f"lines {path.name}": lines(sorted(path.rglob("*.py"))) for path in packages}
    found["lines top level"] = lines(sorted(LIBRARY.glob("*.py")))
    found["lines tests"] = lines(sorted((ROOT / "tests").rglob("*.py")))
    found["lines benchmarks"] = lines(sorted((ROOT / "benchmarks").rglob("*.py")))
    found["files of the library"] = len(list(LIBRARY.rglob("*.py")))
    found["words of the docs"] = words(docs)
    found["pages of the docs"] = len(list((ROOT / "docs").glob("*.md")))
    return found


def main() -> int:
    """Exit code: 1 where a part is over its limit, or a limit has to follow."""
    found = measured()
    limits = json.loads(LIMITS.read_text()) if LIMITS.exists() else found
    if "--write" in sys.argv:
        lower = {name: min(value, limits.get(name, value)) for name, value in found.items()}
        LIMITS.write_text(json.dumps(lower, indent=2) + "\n")
        limits = lower
    over = [name for name in found if found[name] > limits.get(name, 0)]
    below = [name for name in limits if found.get(name, 0) < limits[name] - SLACK * (1 + 9 * name.startswith("words"))]
    for name in over:
        print(f"{name}: {found[name]}, at most {limits.get(name, 0)}")
    for name in below:
        print(f"{name}: {found.get(name, 0)}, limit {limits[name]}: run python .ci/budget.py --write")
    library = sum(value for name, value in found.items() if name.startswith("lines ")) - found["lines tests"]
    print(f"library: {library - found['lines benchmarks']} lines in {found['files of the library']} files")
    return 1 if over or below else 0


if __name__ == "__main__":
    sys.exit(main())
