"""Scenario files that try to run code, read the environment, or leave the results folder; YAML that is no data."""

from pathlib import Path

import pytest

from hostile.limits import TOKEN, check_message, tree
from subjectdp.cli.main import main
from subjectdp.config.run import load_run
from subjectdp.config.scenario import load_scenario
from subjectdp.errors import ConfigError
from subjectdp.io.yaml_files import parse_yaml, read_yaml

CASES: dict[str, tuple[str, str]] = {
    "a call": ("name: !!python/object/apply:os.system ['touch pwned']", "plain YAML"),
    "a new object": ("name: !!python/object/new:subprocess.Popen [['touch', 'pwned']]", "plain YAML"),
    "a function": ("name: x\ndescription: !!python/name:os.system", "plain YAML: line 2: could not determine a con"),
    "a module": ("name: x\ndescription: !!python/module:os", "plain YAML"),
    "code for Snakemake": (
        "__use_yte__: true\n__definitions__:\n- import os\n- os.system('touch pwned')\nname: x",
        "__use_yte__",
    ),
    "an expression": ("name: ?open('pwned', 'w')", "name"),
    "bytes": ("name: x\ndescription: !!binary aGVsbG8=", "Expected description to be text"),
    "a set": ("name: x\nrun: !!set {seed}", "Expected run to be text"),
    "a date": ("name: x\nrun: {seed: 2001-01-01}", "Expected run.seed to be text, a number"),
    "an alias of itself": ("name: x\nrun: &a {data: *a}", "line 2: found unconstructable recursive node"),
    "a key twice, merged": ("name: x\nrun: {<<: {seed: 3}, <<: {seed: 4}}", "given twice"),
    "an attribute": ("name: x\nrun: {__class__: 1}", "'run.__class__'"),
    "an attribute in a sweep": ("name: x\nsweep: [{seed.__class__: 1}]", "'sweep[0].seed.__class__'"),
    "an attribute of a run": ("name: x\nsweep: [{run_id: a}]", "'sweep[0].run_id'"),
    "an attribute of a model": ("name: x\nsweep: [{model.parameters.__init__: 1}]", "model.parameters.__init__"),
    "no argument of a model": ("name: x\nsweep: [{model.parameters.: 1}]", "model.parameters"),
    "an attribute to select by": (
        "name: x\nfigures: [figure1]\nselections: {figure1: {__class__.__name__: x}}",
        "__class__",
    ),
    "a folder above": ("name: ../../evil", "name"),
    "an absolute folder": ("name: /tmp/evil", "name"),
    "a hidden folder": ("name: .ssh", "name"),
    "a name of two lines": ('name: "evil\\n"', "name"),
    "a shared folder": ("name: runs", "none of"),
    "a path with a zero": ('name: x\nrun: {data: {source: leaf_json, path: "a\\0b"}}', "data.path"),
    "a path of two lines": ('name: x\nrun: {data: {source: leaf_json, path: "a\\nb"}}', "data.path"),
    "a password": (f"name: x\nrun: {{data: {{source: leaf_json, path: '${{{TOKEN[0]}}}'}}}}", "data.path"),
    "a password or not": (f"name: x\nrun: {{data: {{source: leaf_json, path: '${{{TOKEN[0]}:-x}}'}}}}", "is not read"),
    "another path of Snakemake's": ("name: x\npathvars: {results: /tmp/evil}", "'pathvars'"),
    "an overlay of a list": ("name: x\nrun: [1]", "run"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_hostile_scenario_ends_in_its_message_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    text, told = CASES[case]
    monkeypatch.setenv(*TOKEN)
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.chdir(folder)
    (folder / "scenario.yaml").write_text(text)
    before = tree(tmp_path)
    assert main(["plan", "scenario.yaml"]) == 2
    output = capsys.readouterr()
    assert output.out == "" and told in output.err and TOKEN[1] not in output.err
    assert all(line.startswith("error: ") for line in output.err.splitlines())
    check_message(output.err.strip())
    assert tree(tmp_path) == before


def test_the_same_cases_without_their_fault_are_read(tmp_path: Path) -> None:
    """The refusals above are not those of an otherwise wrong file."""
    text = "name: x\nrun: &r {seed: 1, data: {source: leaf_json, path: a}}\nalgorithms: {fed_avg: {<<: {seed: 2}}}\n"
    path = tmp_path / "scenario.yaml"
    path.write_text(text + "sweep: [{model.parameters.hidden: 8, seed: [1, 2]}]\n")
    assert len(load_scenario(path).runs) == 2


@pytest.mark.parametrize("value", ["/there", f"${{{TOKEN[0]}}}"])
@pytest.mark.parametrize("name", ["HOME", "SCRATCH", "SUBJECTDP_ANY"])
def test_places_and_own_variables_are_read_and_not_expanded_again(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    run = load_run({"data": {"source": "leaf_json", "path": f"${{{name}}}/a.zip"}})
    assert run.data.path == f"{value}/a.zip"


@pytest.mark.parametrize("name", [TOKEN[0], "PATH", "AWS_SECRET_ACCESS_KEY", "subjectdp_any"])
def test_no_other_variable_is_read_whether_set_or_not(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for value in ("a-value", None):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match=f"{name} is not read") as caught:
            load_run({"data": {"source": "leaf_json", "path": f"${{{name}:-x}}/a.zip"}})
        assert "a-value" not in str(caught.value)


BOMB = b"a: &a [1,1,1,1,1,1,1,1,1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 106)
)
"""Aliases of aliases."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: the key 'a' is given twice"),
        ("a: 1\nb:\n  c: 1\n  c: 1\n", "line 4: the key 'c' is given twice"),
        ("a: 1\nb: [1, 2\nc: 3\n", "line 3: .*expected"),
        ("a: \x01\n", "ReaderError"),
        ("a: " + "[" * 3000, "RecursionError"),
        ("a: 1\n---\nb: 1\n", "line 2: .*another document"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"Expected mine.yaml to be plain YAML: {told}"):
        parse_yaml(text, "mine.yaml")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "to be a readable file: No such file"),
        (b"a: \xff", "to be UTF-8 text, got the byte 0xff in line 1"),
        (b"", "to be a mapping .key: value., got 'nothing'"),
        (b"[1]", "to be a mapping .key: value., got 'a list'"),
        (b"a: {1: 2}", "Expected every key under a to be text, got 1"),
        (b"a: " + b"[" * 40 + b"]" * 40, "a tree of at most .* 32 levels deep"),
        (b"a: " + b"{a: " * 60 + b"1" + b"}" * 60, "a tree of at most .* 32 levels deep"),
        (BOMB, "a tree of at most 200000 values"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        read_yaml(tmp_path / "mine.yaml")
