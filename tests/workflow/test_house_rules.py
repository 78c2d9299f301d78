"""Rules of the code base that no linter knows: thin scripts, and who may import what."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "workflow" / "lib"
SCRIPTS = sorted((ROOT / "workflow" / "scripts").glob("*.py"))
RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
HEAVY = {"torch", "pandas", "numpy", "opacus", "dp_accounting", "scipy", "matplotlib", "seaborn", "pyarrow"}


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
    for path in (ROOT / "Snakefile", *RULES):
        for base, names in re.findall(
            r"^from (subjectdp[\w.]*) import ([\w, ]+)$", path.read_text(), re.MULTILINE
        ):
            found |= {base} | {f"{base}.{name.strip()}" for name in names.split(",")}
        found |= set(re.findall(r"^import (subjectdp[\w.]*)", path.read_text(), re.MULTILINE))
    return sorted(name for name in found if (LIBRARY / Path(*name.split("."))).with_suffix(".py").exists())


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_thin(script):
    text = script.read_text()
    assert len(text.splitlines()) <= 40
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "says what it does"
    assert not [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)], (
        "logic is the library's"
    )
    assert "job_log(snakemake.log[0])" in text


def test_every_script_is_used_and_every_used_script_exists():
    used = {name for path in RULES for name in re.findall(r'"\.\./scripts/(\w+\.py)"', path.read_text())}
    assert used == {script.name for script in SCRIPTS}


def test_no_rule_runs_python_inline_or_retries_by_itself():
    for path in (ROOT / "Snakefile", *RULES):
        text = path.read_text()
        assert not re.search(r"^\s+run:", text, re.MULTILINE), f"{path.name}: a run block costs seconds a job"
        assert not re.search(r"^\s+retries:", text, re.MULTILINE), (
            f"{path.name}: a cluster job would retry inside itself"
        )
        assert not re.search(r"^checkpoint ", text, re.MULTILINE), (
            f"{path.name}: the sweep is known when it is parsed"
        )


def test_time_and_memory_grow_with_the_attempt():
    asked = [line.strip() for path in RULES for line in path.read_text().splitlines() if "mem_mb=" in line]
    asked += [line.strip() for path in RULES for line in path.read_text().splitlines() if "runtime=" in line]
    assert len(asked) > 20
    fixed = [line for line in asked if not re.search(r"=(grows\(|lambda wildcards, attempt)", line)]
    assert not fixed, "a job that ran out of it would run out of it again"


def test_the_snakefile_imports_nothing_heavy():
    modules = rule_imports()
    assert "subjectdp.config.paths" in modules, "the search for imports works"
    assert not loaded_by(modules) & HEAVY


def test_the_configuration_imports_nothing_heavy():
    modules = modules_below("subjectdp.config")
    assert len(modules) > 5
    assert not loaded_by(modules) & HEAVY


def test_analysis_never_imports_torch():
    packages = ("results", "figures", "scorecard", "report")
    modules = [module for name in packages for module in modules_below(f"subjectdp.{name}")]
    assert "subjectdp.results.collect" in modules
    loaded = loaded_by(modules)
    assert "pandas" in loaded, "the check sees what is imported"
    assert not loaded & {"torch", "opacus"}


def test_data_never_imports_torch():
    assert not loaded_by(modules_below("subjectdp.data")) & {"torch", "opacus"}


def test_the_default_profile_cannot_silence_another():
    for line in (ROOT / "workflow/profiles/default/config.yaml").read_text().splitlines():
        assert not re.match(r"(executor|jobs|cores|default-resources|set-resources|retries)\b", line)


def test_the_bare_profile_name_resolves():
    link = ROOT / "slurm"
    assert link.is_symlink() and os.readlink(link) == "workflow/profiles/slurm"
    assert (link / "config.yaml").is_file()


def test_snakemake_finds_the_default_profile():
    """It looks for ``profiles/default`` beside the Snakefile, and for others there too."""
    link = ROOT / "profiles"
    assert link.is_symlink() and os.readlink(link) == "workflow/profiles"
    assert (link / "default" / "config.yaml").is_file()
