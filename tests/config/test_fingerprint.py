"""Code fingerprints: a real edit changes the stages that use the module and no others, a cosmetic one changes none."""

import ast
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from subjectdp.algorithms.registry import ALGORITHMS
from subjectdp.config.fingerprint import STAGES, WITHOUT_EFFECT, closure, entry_modules, fingerprint, meaning
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import ConfigError
from subjectdp.figures.catalogue import FIGURES

ROOT = Path(__file__).resolve().parents[2]
MODULE = sys.modules["subjectdp.config.fingerprint"]


def test_a_closure_follows_imports_inside_functions_and_none_for_types() -> None:
    inside = set(closure("subjectdp.data.cifar10", "subjectdp.data.partition"))
    assert "subjectdp.models.resnext" in inside, "imported inside a function"
    assert "subjectdp.config.run" not in inside, "imported for the type checker alone"
    assert not inside & set(WITHOUT_EFFECT)
    both = closure("subjectdp.noise.keys", "subjectdp.io.atomic")
    assert set(both) == {*closure("subjectdp.noise.keys"), *closure("subjectdp.io.atomic")}
    assert set(ALGORITHMS.values()) <= set(closure("subjectdp.algorithms.*"))


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
def test_a_cosmetic_edit_changes_nothing(edit: Callable[[str], str]) -> None:
    text = '"""One."""\n\ndef f():\n    """Doc."""\n    return 1\n'
    assert edit(text) != text and meaning(edit(text)) == meaning(text) != meaning(text.replace("1", "2"))


# By kind of syntax; the walk over all nodes and the compiler do the same for each.
DIFFERENT = """x = 1; x = 1.0; x = True; x = '1'; x = b'1'; x = None; x = (1,); x = [1]; x += 1; del x; x == 1; f(x, 1);
f(x)(1); f(x=1); f(*x); f(**x); f'{x}'; f'{x!r}'; f'{x:1}'; x[1:]; x[:1]; x = y = 1; x, y = 1; x = {'b', 'a'};
def f(a, b): x; def f(a, /, b): x; def f(a, *, b): x; def f(a, b=1): x; async def f(a, b): x; raise A; raise B('x')"""


def test_what_means_something_else_is_another_text() -> None:
    sources = [source.strip() for source in DIFFERENT.split(";")]
    assert len({meaning(f"{source}\n") for source in sources}) == len(sources)
    assert meaning("if x:\n    y\n    z") != meaning("if x:\n    y\nz")
    assert meaning("x\n'a'") == meaning("x\n'b'") == meaning("x")


@pytest.mark.parametrize("script", sorted((ROOT / "workflow" / "scripts").glob("*.py")), ids=lambda path: path.stem)
def test_stages_start_where_the_scripts_do(script: Path) -> None:
    """Every module that a stage's script imports is in the stage's closure, apart from its logging."""
    stage = script.stem
    if stage not in STAGES:
        pytest.skip(f"{script.name} belongs to no stage of its own")
    tree = ast.parse(script.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    modules = {entry.module_path for entry in FIGURES.values()} if stage == "figure" else ()
    unseen = {name for name in imported if name.startswith("subjectdp.")} - set(closure(stage, *modules))
    excepted = {f"subjectdp.{name}" for name in ("figures.catalogue", "config.run", "config.sections")}
    excepted |= set(WITHOUT_EFFECT)
    if stage == "fetch":
        excepted.add("subjectdp.data.prepare")  # see STAGES
    assert unseen <= excepted


def test_a_model_leaves_the_others_out() -> None:
    def models(*names: str) -> set[str]:
        stages = (f"model:{name}" for name in names)
        found = closure("train:fed_avg", *stages)
        return {module.rpartition(".")[2] for module in found if module.startswith("subjectdp.models.")}

    assert models("small_cnn") == {"build", "image"}
    assert models("small_cnn", "char_ngram") == {"build", "image", "text"}
    assert models("handwriting_head") == models("english_head") == {"build", "fixed", "scattering"}
    assert models() > {"build", "fixed", "image", "linear", "text"}
    assert fingerprint("train:fed_avg", "model:small_lstm") != fingerprint("train:fed_avg", "model:leaf_lstm")


def test_a_version_counts_where_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = ("train:fed_avg", "partition", "collect")
    before = [fingerprint(stage) for stage in stages]
    for package, changes in (("torch", [True, False, False]), ("numpy", [True, True, True])):
        monkeypatch.setattr(MODULE, "installed", lambda name, changed=package: f"99 {name == changed}")
        unchanged = [fingerprint(stage) for stage in stages]
        monkeypatch.setattr(MODULE, "installed", lambda name: "99 False")
        assert [fingerprint(s) != other for s, other in zip(stages, unchanged, strict=True)] == changes
    monkeypatch.undo()
    assert [fingerprint(stage) for stage in stages] == before


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ("trian", r"Unknown stage 'trian'. Did you mean 'train'\?"),
        ("prepare:femnst", r"Unknown data set 'femnst'. Did you mean 'femnist'\?"),
        ("train:fedavg", "Unknown algorithm 'fedavg'"),
        ("subjectdp.trainin", "Unknown module 'subjectdp.trainin'"),
    ],
)
def test_unknown_stages_and_modules(stage: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fingerprint(stage)


def test_entries_exist() -> None:
    assert all(entry_modules(stage) and closure(stage) for stage in STAGES)
    assert set(WITHOUT_EFFECT) <= set(MODULE._imports())
    assert {"subjectdp.data.embedded_plays"} < set(closure("generate:shakespeare"))
    for name in DATASETS:
        assert {"subjectdp.data.prepare", DATASETS[name].reader} <= set(closure(f"prepare:{name}"))
