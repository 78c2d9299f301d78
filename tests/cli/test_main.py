"""The command line: help, exit codes, errors without tracebacks, closed pipes and plain terminals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import ROOT, SCENARIOS
from subjectdp import __version__
from subjectdp.cli.main import build_parser, main


def python(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """What a process of Python on this library says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib"), **environment}
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"subjectdp {__version__}\n"
    lines = build_parser(()).format_help().splitlines()
    assert max(map(len, lines)) <= 100
    start = lines.index("commands:") + 1
    commands = lines[start : lines.index("", start)]
    assert all(line.startswith("    ") and len(line.split(maxsplit=1)) == 2 for line in commands), "a line each"
    assert {"inspect", "scenario", "runs", "show", "doctor", "schema"} <= {line.split()[0] for line in commands}
    assert "COMMAND" not in "".join(commands)


def test_as_a_module_and_into_a_closed_pipe() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib")}
    command = f"{sys.executable} -m subjectdp scenario {SCENARIOS / 'paper.yaml'} --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_a_terminal_without_greek_letters(results: Path) -> None:
    done = python("-m", "subjectdp", "runs", "--results", results, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "") and "? published*" in done.stdout


WITHOUT = """
import sys
for name in ('yaml', 'pandas', 'grimp', 'pyarrow', 'opacus'): sys.modules[name] = None
from subjectdp.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_commands_without_the_pipelines_packages_say_what_to_install() -> None:
    """As after ``pip install subjectdp``: no YAML, no pandas, no grimp."""
    plan = "--rounds 2 --steps-per-round 2 --sampling-probability 0.1 --noise-multiplier 2"
    done = python("-c", WITHOUT, "account", "--algorithm", "local_item_dp", *plan.split())
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("epsilon ")
    for arguments in (["scenario", "--json", "x.yaml"], ["account", "--run", "some"]):
        refused = python("-c", WITHOUT, *arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "pip install 'subjectdp[pipeline]'" in refused.stderr and "Traceback" not in refused.stderr
    help_ = python("-c", WITHOUT, "--help")
    assert help_.returncode == 0 and "scenario" in help_.stdout
