"""YAML as plain data: what is refused, and where the message says it stands."""

from pathlib import Path

import pytest

from subjectdp.errors import ConfigError
from subjectdp.io.yaml_files import parse_yaml, read_yaml

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
        ("a: 1\nb: !!python/name:os.system\n", "line 2: could not determine a constructor"),
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
        (b"a: 2001-01-01", "Expected a to be text, a number"),
        (b"a: &a [*a]", "line 1: found unconstructable recursive node"),
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
