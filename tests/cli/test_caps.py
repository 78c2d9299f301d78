"""``subjectdp caps``: the table of a partition, and the partitions that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from subjectdp.cli.main import build_parser
from subjectdp.errors import SubjectDPError
from training import small_world


def run(*arguments: str) -> None:
    options = build_parser().parse_args(list(arguments))
    options.run(options)


def test_the_command_reads_a_partition_that_has_no_cap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_world.config(partition={"max_items_per_subject": None})
    _, partition = small_world.build(tmp_path, config)
    options = ["--rounds", "5", "--batch-size", "6", "--delta", "1e-3", "--caps", "1", "4"]
    run("caps", "--partition", str(partition), *options, "--json")
    rows = json.loads(capsys.readouterr().out)
    assert [row["cap"] for row in rows] == [1, 4]
    assert 0 < rows[0]["kept"] < rows[1]["kept"] <= 1
    run("caps", "--partition", str(partition), *options)
    text = capsys.readouterr().out
    assert text.count("the least") == 1 and text.startswith("cap   items kept")
    _, capped = small_world.build(tmp_path / "capped", small_world.config())
    with pytest.raises(SubjectDPError, match="without partition.max_items_per_subject"):
        run("caps", "--partition", str(capped), *options)
