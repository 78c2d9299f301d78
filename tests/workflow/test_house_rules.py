"""House rules that no linter checks: short scripts and signatures, imports, what stays light, current pages."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import architecture
from subjectdp.algorithms.registry import ALGORITHMS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "workflow" / "lib"
SCRIPTS = sorted((ROOT / "workflow" / "scripts").glob("*.py"))
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
MODULES = sorted((LIBRARY / "subjectdp").rglob("*.py"))
HEAVY = {"torch", "pandas", "numpy", "opacus", "dp_accounting", "scipy", "matplotlib", "seaborn", "pyarrow"}
PIPELINE = {"pandas", "yaml", "grimp", "pyarrow", "requests", "snakemake", "seaborn", "torch", "opacus"}
MOST_ARGUMENTS, MOST_LINES = 6, 30
IMPORTS_INSIDE_FUNCTIONS = 26  # may only shrink

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, Function)]


def modules_below(package: str) -> list[str]:
    """Dotted names of all modules of a package of the library."""
    folder = LIBRARY / Path(*package.split("."))
    names = [path.relative_to(LIBRARY).with_suffix("") for path in sorted(folder.rglob("*.py"))]
    return [".".join(name.parts).removesuffix(".__init__") for name in names]


def loaded_by(modules: list[str]) -> set[str]:
    """Top-level packages in memory after a fresh interpreter has imported ``modules``."""
    code = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    environment = {**os.environ, "PYTHONPATH": str(LIBRARY)}
    printed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(printed.stdout))


def rule_imports() -> list[str]:
    """Modules of the library that the Snakefile and the rules import."""
    found = set()
    for path in (ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *RULES):
        for base, names in re.findall(r"^from (subjectdp[\w.]*) import ([\w, ]+)$", path.read_text(), re.MULTILINE):
            found |= {base} | {f"{base}.{name.strip()}" for name in names.split(",")}
        found |= set(re.findall(r"^import (subjectdp[\w.]*)", path.read_text(), re.MULTILINE))
    return sorted(name for name in found if (LIBRARY / Path(*name.split("."))).with_suffix(".py").exists())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_thin(script):
    text = script.read_text()
    assert len(text.splitlines()) <= 40
    assert ast.get_docstring(tree(script)), "says what it does"
    assert not functions(script) and "\nclass " not in text, "logic is the library's"
    assert "with job_log(snakemake.log[0]" in text
    assert re.findall(r"^(?:import|from) subjectdp\S*", text, re.MULTILINE)[0] == "import subjectdp.io.job_start"


@pytest.mark.parametrize("module", ALGORITHMS.values())
def test_algorithms_read_as_pseudo_code(module):
    path = (LIBRARY / Path(*module.split("."))).with_suffix(".py")
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 120


def arguments(function: Function) -> int:
    every = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    return len([argument for argument in every if argument.arg not in ("self", "cls")])


def lines(function: Function) -> int:
    """Of the body: docstrings may be long."""
    start = function.body[1 if ast.get_docstring(function) and len(function.body) > 1 else 0].lineno
    return (function.end_lineno or start) - start + 1


@pytest.mark.parametrize(("size", "most"), [(arguments, MOST_ARGUMENTS), (lines, MOST_LINES)])
def test_functions_are_small(size: Callable[[Function], int], most: int) -> None:
    sizes = {(str(path), f.name, f.lineno): size(f) for path in MODULES for f in functions(path)}
    assert {place: found for place, found in sizes.items() if found > most} == {}


def test_no_module_compares_names_of_algorithms():
    """What sets an algorithm apart is declared in its file (a fact of its mechanism, or a key that it reads)."""
    names = [module.rpartition(".")[2] for module in ALGORITHMS.values()]
    comparison = re.compile(rf"""(==|!=|\bin\b|startswith\() *["'(]*({"|".join(names)})\b""")
    others = [path for path in MODULES if "algorithms" not in path.parts]
    assert [path for path in others if comparison.search(path.read_text(encoding="utf-8"))] == []


def test_imports_stand_at_the_top():
    """An import inside a function keeps a light process light, and says so; nothing else needs one."""
    found = [node for path in MODULES for function in functions(path) for node in ast.walk(function)]
    inside = {node for node in found if isinstance(node, ast.Import | ast.ImportFrom)}
    assert len(inside) <= IMPORTS_INSIDE_FUNCTIONS


def test_what_fingerprints_rely_on():
    """No ``import_module("literal")``, which they do not see; no code in an ``__init__``, which they do not follow."""
    defining = ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
    hidden, running = [], []
    for path in MODULES:
        module = tree(path)
        calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and node.args]
        hidden += [
            f"{path.name}:{node.lineno}"
            for node in calls
            if "import_module" in ast.unparse(node.func) and isinstance(node.args[0], ast.Constant)
        ]
        if path.name == "__init__.py":
            others = [node for node in module.body if not isinstance(node, defining)]
            others = [node for node in others if not ast.unparse(node).startswith("if TYPE_CHECKING:")]
            texts = [node for node in others if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
            running += [path] if others != texts else []
    assert not hidden, "write an import statement"
    assert not running


def test_the_library_checks_input_without_assert():
    assert not [path for path in MODULES for node in ast.walk(tree(path)) if isinstance(node, ast.Assert)]


def test_no_file_names_a_path_of_a_machine():
    """Files that git tracks; ``/tmp`` stands in hostile inputs."""
    homes = "|".join("/" + home for home in ("home/[a-z]", "root/", "Users/", "work/"))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    files = [ROOT / name for name in listed.splitlines() if Path(name).suffix not in {".png", ".safetensors"}]
    files = [file for file in files if file.is_file() and not file.is_symlink()] or MODULES
    assert not [file for file in files if re.search(homes, file.read_text(encoding="utf-8", errors="replace"))]


def test_no_trial_leaves_tables_or_scenarios_at_the_top():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    own = {".yaml", ".csv", ".json", ".parquet", ".log", ".txt", ".py", ".png"}
    top = [Path(name) for name in listed.splitlines() if "/" not in name and not name.startswith(".")]
    assert not [name for name in top if name.suffix in own]


def test_every_script_is_used_and_every_used_script_exists():
    used = {name for path in RULES for name in re.findall(r'"\.\./scripts/(\w+\.py)"', path.read_text())}
    assert used == {script.name for script in SCRIPTS}


def test_no_rule_runs_python_inline_or_retries_by_itself():
    """A run block costs seconds a job, a retry is inside a cluster job, the sweep is known when it is parsed."""
    for path in (ROOT / "Snakefile", ROOT / "workflow" / "Snakefile", *RULES):
        assert not re.search(r"^(\s+run:|\s+retries:|checkpoint )", path.read_text(), re.MULTILINE), path.name


def test_time_and_memory_grow_with_the_attempt():
    """A retry after running out of memory or time would otherwise run out of it again."""
    text = "".join(path.read_text() for path in RULES)
    blocks = re.findall(r"^ +resources:\n((?: {8,}.*\n)+)", text, re.MULTILINE)
    assert len(blocks) > 10, "the search finds the rules' resources"
    for block in blocks:
        fixed = re.search(r"(mem_mb|runtime)=(?!lambda wildcards, attempt)", block)
        assert not fixed and re.search(r"\*\*resources_for\(|attempt", block), block
    names: dict[str, object] = {}
    exec(re.search(r"^def resources_for\(.*?^    }\n", text, re.MULTILINE | re.DOTALL)[0], names)
    asked = names["resources_for"](1000, 15)
    assert {name: of(None, attempt=2) for name, of in asked.items()} == {"mem_mb": 2000, "runtime": 30}


@pytest.mark.long
@pytest.mark.parametrize(
    ("modules", "seen", "kept_out"),
    [
        (rule_imports(), "subjectdp", HEAVY),
        (modules_below("subjectdp.config"), "pydantic", HEAVY),
        (
            [m for name in ("results", "figures", "report") for m in modules_below(f"subjectdp.{name}")],
            "pandas",
            {"torch", "opacus"},
        ),
        (["subjectdp.api.accounting", "subjectdp.cli.account"], "scipy", PIPELINE),
        (["subjectdp.forecast.plan_report"], "pandas", {"torch"}),
        (modules_below("subjectdp.data"), "numpy", {"torch", "opacus"}),
    ],
    ids=["the Snakefile", "the configuration", "analysis", "accounting", "a plan", "data"],
)
def test_light_processes_stay_light(modules, seen, kept_out):
    loaded = loaded_by(modules)
    assert seen in loaded, "the check sees what is imported"
    assert not loaded & kept_out


def test_the_default_profile_cannot_silence_another():
    for line in (ROOT / "workflow/profiles/default/config.yaml").read_text().splitlines():
        assert not re.match(r"(executor|jobs|cores|default-resources|set-resources|retries)\b", line)


def without_numbers(text: str) -> str:
    """Line counts change with every commit; they need not be exact."""
    return re.sub(r"\d[\d,]*", "N", text)


def test_the_page_is_current() -> None:
    page = architecture.PAGE.read_text(encoding="utf-8")
    assert without_numbers(architecture.updated(page)) == without_numbers(page), "make architecture"
    (total,) = re.findall(r"all of them.* ([\d,]+) \|", page)
    written, now = int(total.replace(",", "")), sum(map(architecture.lines, sum(architecture.layers(), [])))
    assert abs(written - now) < 0.1 * now, "make architecture"


@pytest.mark.parametrize("type_checking", [False, True])
def test_no_modules_import_one_another(type_checking: bool) -> None:
    """Neither at run time nor with the imports that only a type checker reads."""
    assert not list(architecture.circles(architecture.import_graph(type_checking)))
