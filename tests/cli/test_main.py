"""The command line: help, exit codes, errors without tracebacks, closed pipes and plain terminals."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.commands import ROOT, SCENARIOS
from subjectdp import __version__
from subjectdp.cli.main import build_parser, main


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"subjectdp {__version__}\n"
    text = build_parser(()).format_help()
    for command in ("inspect", "scenario", "runs", "show", "doctor", "schema"):
        assert f"\n    {command} " in text
    assert max(len(line) for line in text.split("\n")) <= 100


def test_as_a_module_and_into_a_closed_pipe() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib")}
    command = f"{sys.executable} -m subjectdp scenario {SCENARIOS / 'paper.yaml'} --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_a_terminal_without_greek_letters(results: Path) -> None:
    command = [sys.executable, "-m", "subjectdp", "runs", "--results", str(results)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT / "workflow/lib")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "? published*" in done.stdout


@pytest.mark.slow
def test_commands_without_the_pipelines_packages_say_what_to_install() -> None:
    """As after ``pip install subjectdp``: no YAML, no pandas, no grimp."""
    code = (
        "import sys\n"
        "for name in ('yaml', 'pandas', 'grimp', 'pyarrow', 'opacus'): sys.modules[name] = None\n"
        "from subjectdp.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )

    def without(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow" / "lib")}
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    schedule = ["--rounds", "2", "--steps-per-round", "2", "--sampling-probability", "0.1"]
    done = without("account", "--algorithm", "local_item_dp", *schedule, "--noise-multiplier", "2")
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("epsilon ")
    for arguments in (["scenario", "--json", "x.yaml"], ["account", "--run", "some"]):
        refused = without(*arguments)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "pip install 'subjectdp[pipeline]'" in refused.stderr and "Traceback" not in refused.stderr
    help_ = without("--help")
    assert help_.returncode == 0 and "scenario" in help_.stdout
