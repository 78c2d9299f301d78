"""Code fingerprints: a real edit changes the stages that use the module and no others, a cosmetic none."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from subjectdp.config.fingerprint import LIBRARY, STAGES, clear_cache, closure, entry_modules, fingerprint
from subjectdp.config.source_file import read_source
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]

FILES = {
    "__init__.py": '"""Root."""\n__version__ = "1"\n',
    "a/__init__.py": (
        '"""Re-exports."""\nfrom subjectdp.a.one import f\nfrom subjectdp.a.two import g as h\n'
        '__all__ = ["f", "h"]\n'
    ),
    "a/one.py": '"""One."""\n\ndef f():\n    """Doc."""\n    return 1\n',
    "a/two.py": "def g():\n    from subjectdp.leaf import x\n    return x\n",
    "leaf.py": "x = 1\n",
    "typed.py": "y = 1\n",
    "named.py": "z = 1\n",
    "code/__init__.py": "from subjectdp.leaf import x\nCONSTANT = x\n",
    "code/inner.py": "w = 1\n",
    "use_f.py": "from subjectdp.a import f\n",
    "use_h.py": "from subjectdp.a import h\n",
    "use_module.py": "from subjectdp.a import one\n",
    "use_relative.py": "from . import leaf\nfrom .a.two import g\n",
    "use_inner.py": "import subjectdp.code.inner\n",
    "use_dynamic.py": "import importlib\n\ndef f():\n    return importlib.import_module('subjectdp.named')\n",
    "use_types.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from subjectdp.typed import y\n"
        "else:\n    from subjectdp.leaf import x\n"
        "try:\n    from subjectdp.named import z\nexcept ImportError:\n    z = 0\n"
    ),
    "use_star.py": "from subjectdp.a import *\n",
    "cycle_1.py": "import subjectdp.cycle_2\n",
    "cycle_2.py": "import subjectdp.cycle_1\n",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "subjectdp" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    clear_cache()
    return tmp_path


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("use_f", {"use_f", "a.one"}),
        ("use_h", {"use_h", "a.two", "leaf"}),
        ("use_module", {"use_module", "a.one"}),
        ("use_relative", {"use_relative", "leaf", "a.two"}),
        ("use_inner", {"use_inner", "code", "code.inner", "leaf"}),
        ("use_dynamic", {"use_dynamic", "named"}),
        ("use_types", {"use_types", "leaf", "named"}),
        ("use_star", {"use_star", "a.one", "a.two", "leaf"}),
        ("cycle_1", {"cycle_1", "cycle_2"}),
        ("leaf", {"leaf"}),
        ("a.*", {"a.one", "a.two", "leaf"}),
    ],
)
def test_closure(library: Path, module: str, expected: set[str]) -> None:
    assert closure([f"subjectdp.{module}"], library) == sorted(f"subjectdp.{name}" for name in expected)


def edited(library: Path, name: str, edit: Callable[[str], str]) -> set[str]:
    """The modules ``use_*`` whose fingerprint an edit of one file changes."""
    stages = [f"subjectdp.{file.stem}" for file in (library / "subjectdp").glob("use_*.py")]
    clear_cache()
    before = {stage: fingerprint(stage, library) for stage in stages}
    file = library / "subjectdp" / name
    old = file.read_text()
    assert edit(old) != old
    file.write_text(edit(old))
    clear_cache()
    changed = {
        stage.partition(".use_")[2] for stage in stages if fingerprint(stage, library) != before[stage]
    }
    file.write_text(old)
    return changed


@pytest.mark.parametrize(
    ("name", "users"),
    [
        ("leaf.py", {"h", "relative", "inner", "types", "star"}),
        ("a/one.py", {"f", "module", "star"}),
        ("typed.py", set()),
        ("named.py", {"dynamic", "types"}),
        ("code/__init__.py", {"inner"}),
        ("a/__init__.py", {"f", "h", "module", "relative", "star"}),  # once it holds code of its own
    ],
)
def test_a_real_edit_changes_the_users_and_no_others(library: Path, name: str, users: set[str]) -> None:
    assert edited(library, name, lambda text: f"{text}\nanother = 2\n") == users


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "\n# a comment\n",
        lambda text: text.replace('"""One."""', '"""Another docstring."""'),
        lambda text: text.replace('    """Doc."""\n', ""),
        lambda text: text.replace("def f():", "\n\n\ndef f( ):"),
    ],
    ids=["comment", "docstring", "docstring removed", "layout"],
)
def test_a_cosmetic_edit_changes_nothing(library: Path, edit: Callable[[str], str]) -> None:
    assert edited(library, "a/one.py", edit) == set()


def test_a_re_export_more_changes_nothing(library: Path) -> None:
    assert edited(library, "a/__init__.py", lambda text: text + "from subjectdp.a.two import g\n") == set()
    assert edited(library, "__init__.py", lambda text: text.replace('"1"', '"2"')) == set()


DIFFERENT = [
    "x = 1",
    "x = 1.0",
    "x = True",
    "x = '1'",
    "x = b'1'",
    "x = None",
    "x: int = 1",
    "x = (1,)",
    "x = [1]",
    "x += 1",
    "del x",
    "x == 1",
    "f(x, 1)",
    "f(x)(1)",
    "f(x=1)",
    "f(*x)",
    "f(**x)",
    "x = y = 1",
    "x, y = 1",
    "if x:\n    y\n    z",
    "if x:\n    y\nz",
    "if x:\n    y\nelse:\n    z",
    "def f(a, b): x",
    "def f(a, /, b): x",
    "def f(a, *, b): x",
    "def f(a, b=1): x",
    "def f(a, *, b=1): x",
    "async def f(a, b): x",
    "f'{x}'",
    "f'{x!r}'",
    "f'{x:1}'",
    "x = '1) (Name'",
    "x = '1) (Name '",
    "x[1:]",
    "x[:1]",
]


def test_what_means_something_else_is_another_digest(tmp_path: Path) -> None:
    digests = {}
    for source in DIFFERENT:
        file = tmp_path / "module.py"
        file.write_text(f"{source}\n0\n")
        digests[source] = read_source(file, "subjectdp.module").digest
    texts = [ast.dump(ast.parse(f"{source}\n0\n")) for source in DIFFERENT]
    assert len(set(texts)) == len(DIFFERENT), "by Python's own account"
    assert len(set(digests.values())) == len(DIFFERENT)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The library itself, to be edited."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(LIBRARY / "subjectdp", tmp_path / "subjectdp", ignore=ignored)
    return tmp_path


def prints(library: Path) -> dict[str, str]:
    clear_cache()
    return {stage: fingerprint(stage, library) for stage in STAGES}


def changed_stages(copy: Path, before: dict[str, str], module: str, edit: Callable[[str], str]) -> set[str]:
    """The stages whose fingerprint an edit of one module changes."""
    file = copy / "subjectdp" / f"{module}.py"
    text = file.read_text()
    assert edit(text) != text
    file.write_text(edit(text))
    after = prints(copy)
    file.write_text(text)
    return {stage for stage in STAGES if after[stage] != before[stage]}


def add_code(text: str) -> str:
    return f"{text}\n\ndef added() -> int:\n    return 1\n"


def test_analysis_and_training_are_apart(copy: Path) -> None:
    before = prints(copy)
    assert changed_stages(copy, before, "figures/style", add_code) == {"figures", "report"}
    assert changed_stages(copy, before, "algorithms/higrad_avg_dp", add_code) == {"train"}
    assert changed_stages(copy, before, "noise/gaussian", add_code) == {"train"}
    assert changed_stages(copy, before, "config/fingerprint", add_code) == set()
    assert changed_stages(copy, before, "config/source_file", add_code) == set()
    assert changed_stages(copy, before, "cli/main", add_code) == set()
    assert changed_stages(copy, before, "errors", add_code) == set(STAGES)


def test_descriptions_of_settings_are_cosmetic(copy: Path) -> None:
    before = prints(copy)

    def edit(text: str) -> str:
        return text.replace("Number of silos S.", "How many silos.")

    assert changed_stages(copy, before, "config/models", edit) == set()
    assert "train" in changed_stages(
        copy, before, "config/models", lambda text: text.replace("default=16", "default=8")
    )


@pytest.mark.parametrize(
    "script", sorted((ROOT / "workflow" / "scripts").glob("*.py")), ids=lambda path: path.stem
)
def test_stages_start_where_the_scripts_do(script: Path) -> None:
    """Every module that a stage's script imports is in the stage's closure, apart from its logging."""
    stage = {"figure": "figures"}.get(script.stem, script.stem)
    if stage not in STAGES:
        pytest.skip(f"{script.name} belongs to no stage of its own")
    tree = ast.parse(script.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    unseen = {name for name in imported if name.startswith("subjectdp.")} - set(closure(STAGES[stage]))
    excepted = {"subjectdp.io.joblog", "subjectdp.figures.catalogue", "subjectdp.config.models"}
    excepted |= {"subjectdp.forecast.cluster", "subjectdp.config.paths"}  # where and how a job runs
    if stage == "fetch":
        excepted.add("subjectdp.data.prepare")  # see STAGES
    assert unseen <= excepted


def test_every_algorithm_is_a_stage(copy: Path) -> None:
    from subjectdp.algorithms.registry import ALGORITHMS

    def of_algorithms() -> dict[str, str]:
        clear_cache()
        return {name: fingerprint(f"train:{name}", copy) for name in ALGORITHMS}

    before = of_algorithms()
    file = copy / "subjectdp" / "algorithms" / "user_ldp.py"
    file.write_text(add_code(file.read_text()))
    after = of_algorithms()
    assert [name for name in ALGORITHMS if before[name] != after[name]] == ["user_ldp"]


def test_every_data_set_is_a_stage() -> None:
    for name in DATASETS:
        assert {"subjectdp.data.prepare", DATASETS[name].reader} <= set(
            closure(entry_modules(f"prepare:{name}"))
        )


@pytest.mark.parametrize("registry", ["algorithms/registry", "data/catalogue"])
def test_an_entry_more_in_a_registry_runs_nothing_again(copy: Path, registry: str) -> None:
    assert changed_stages(copy, prints(copy), registry, add_code) == set()


def test_every_figure_is_a_stage() -> None:
    from subjectdp.figures.catalogue import FIGURES

    prints = {name: fingerprint(f"figure:{name}") for name in FIGURES}
    assert prints["figure1"] != prints["privacy"]
    assert "subjectdp.figures.each.privacy" not in closure(entry_modules("figure:figure1"))


def test_unknown_stages_and_modules() -> None:
    with pytest.raises(ConfigError, match=r"Unknown stage 'trian'. Did you mean 'train'\?"):
        fingerprint("trian")
    with pytest.raises(ConfigError, match=r"Unknown figure 'figure9'"):
        fingerprint("figure:figure9")
    with pytest.raises(ConfigError, match=r"Unknown data set 'femnst'. Did you mean 'femnist'\?"):
        fingerprint("prepare:femnst")
    with pytest.raises(ConfigError, match=r"Unknown algorithm 'fedavg'"):
        fingerprint("train:fedavg")
    with pytest.raises(ConfigError, match=r"Unknown module 'subjectdp.trainin'"):
        fingerprint("subjectdp.trainin")


def test_all_stages_are_quick_and_import_nothing() -> None:
    clear_cache()
    started = time.process_time()
    assert all(len(fingerprint(stage)) == 16 for stage in STAGES)
    assert time.process_time() - started < 1.0  # 0.15 s where it was written
    code = (
        "import sys; from subjectdp.config.fingerprint import *; [fingerprint(s) for s in STAGES];"
        "print([n for n in ('torch', 'pandas', 'numpy') if n in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(LIBRARY)}
    )
    assert done.stdout.strip() == "[]"
