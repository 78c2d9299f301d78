"""The wheel and the source archive: what they bring, and that they work alone."""

import email
import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conda_environments import pins, with_dependencies

ROOT = Path(__file__).parents[2]
CORE = {"torch", "dp-accounting", "numpy", "scipy", "safetensors", "pydantic", "numba"}
OFFLINE = ("ConnectionError", "No matching distribution", "timed out", "Name or service")

ENGINE = """
import sys, torch, subjectdp
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(4, 2)
data = TensorDataset(torch.randn(30, 4), torch.randint(0, 2, (30,)))
engine = subjectdp.SubjectPrivacyEngine()
settings = subjectdp.PrivacySettings("subject", noise_multiplier=2.0, max_items_per_subject=2)
model, optimizer, loss, loader = engine.make_private(
    model, torch.optim.SGD(model.parameters(), lr=0.1), torch.nn.CrossEntropyLoss(),
    DataLoader(data, batch_size=6), [i // 3 for i in range(30)], settings)
for inputs, targets in loader:
    loss(model(inputs), targets).backward()
    optimizer.step()
print(engine.steps, round(engine.get_epsilon(), 2), "pandas" in sys.modules, "yaml" in sys.modules)
"""


def run(*command: object, folder: Path, library: Path | None = None) -> subprocess.CompletedProcess[str]:
    """In ``folder``, with ``library`` on the path and not this checkout's."""
    words = [str(word) for word in command]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {} if library is None else {"PYTHONPATH": str(library)}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def copy_tracked(source: Path, *wanted: str) -> None:
    """The tracked files whose paths start so, as a source archive has them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [name for name in listed.split("\0") if name and name.startswith(wanted)]
    if not names:
        pytest.skip("no git checkout")
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, source / name, follow_symlinks=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the tracked files alone, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    copy_tracked(source, "workflow/lib/", "pyproject.toml", "README.md", "LICENSE")
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    built = run(sys.executable, "-m", "pip", "wheel", *options, source, folder=folder)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("subjectdp-*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_asks_for_the_core_and_offers_the_rest(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = [name for name in names if name.endswith("METADATA")]
        message = email.message_from_bytes(archive.read(metadata))
    required = message.get_all("Requires-Dist") or []
    core = {text.partition(">")[0].partition("<")[0].strip() for text in required if "extra ==" not in text}
    assert core == CORE
    assert {"pipeline", "opacus"} <= set(message.get_all("Provides-Extra") or [])
    assert "subjectdp/py.typed" in names and "subjectdp/api/engine.py" in names
    assert any(name.endswith(".safetensors") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


def lend_torch(folder: Path, python: Path) -> None:
    """Makes this environment's torch and what it needs importable in another one: it is gigabytes to install."""
    place = run(python, "-c", "import site; print(site.getsitepackages()[0])", folder=folder).stdout.strip()
    lent = folder / "lent"
    lent.mkdir()
    for name in with_dependencies({"torch"}, pins("requirements.lock")):
        files = importlib.metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (lent / top).symlink_to(importlib.metadata.distribution(name).locate_file(top))
    Path(place, "lent.pth").write_text(f"{lent}\n")


@pytest.mark.long
def test_the_wheel_works_alone_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    """Accounting, the command line and the engine, with the core's packages only; needs a package index."""
    assert run(sys.executable, "-m", "venv", tmp_path / "empty", folder=tmp_path).returncode == 0
    python = tmp_path / "empty" / "bin" / "python"
    lend_torch(tmp_path, python)
    options = ("--quiet", "--constraint", ROOT / "requirements.lock")
    installed = run(python, "-m", "pip", "install", *options, wheel, folder=tmp_path)
    if installed.returncode and any(word in installed.stderr for word in OFFLINE):
        pytest.skip("no package index can be reached")
    assert installed.returncode == 0, installed.stderr
    packages = run(python, "-m", "pip", "list", folder=tmp_path).stdout.lower()
    assert "dp-accounting" in packages or "dp_accounting" in packages
    assert not [name for name in ("snakemake", "pandas", "seaborn", "opacus", "pyarrow") if name in packages]

    counts = tmp_path / "counts.csv"
    counts.write_text("subject,silo,items\nann,north,30\nben,north,30\nann,south,60\n")
    command = tmp_path / "empty" / "bin" / "subjectdp"
    schedule = ("--rounds", 5, "--steps-per-round", 4, "--batch-size", 6, "--noise-multiplier", 2)
    done = run(command, "account", "--algorithm", "local_item_dp", "--counts", counts, *schedule, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one subject, at all its silos" in done.stdout
    refused = run(command, "doctor", folder=tmp_path)
    assert refused.returncode == 2 and "subjectdp[pipeline]" in refused.stderr

    trained = run(python, "-c", ENGINE, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    steps, epsilon, *loaded = trained.stdout.split()
    assert int(steps) == 3 and 0 < float(epsilon) < 10 and loaded == ["False", "False"]


@pytest.mark.long
def test_the_source_archive_draws_figures(tmp_path: Path) -> None:
    """Without a checkout of git. Not by make, which would install the archive into the environment of these tests."""
    source = tmp_path / "archive"
    copy_tracked(source, "")
    for scenario, options in (("embedded", ["-n"]), ("smoke", [])):
        command = ("-m", "subjectdp", "run", f"config/scenarios/{scenario}.yaml", "--cores", "2", "--", *options)
        done = run(sys.executable, *command, folder=source, library=source / "workflow" / "lib")
        assert done.returncode == 0, done.stderr
    assert (source / "results" / "smoke" / "index.html").is_file()
