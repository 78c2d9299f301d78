"""Which jobs a change causes on finished results: those that it affects and no others.

The results are faked: empty files that Snakemake takes for finished (``--touch``). Each row of the table changes one
thing, asks a dry run for its jobs, and undoes the change.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from dry_runs import dry_run, job_counts
from subjectdp.config.fingerprint import fingerprint, source_content
from subjectdp.config.scenario import load_scenario_from_mapping

pytestmark = pytest.mark.long
LIBRARY = Path("workflow/lib/subjectdp")
LEAF, SOURCES = Path("leaf/femnist"), "config/datasets.yaml"
MODELS, CAPTION = LIBRARY / "models/catalogue.py", LIBRARY / "figures/captions/figure1.rst"
SCENARIO = {
    "name": "changes",
    "run": {"partition": {"silos": 2}, "training": {"rounds": 2}},
    "datasets": {"femnist": {"model": {"name": "small_cnn"}}, "shakespeare": {"model": {"name": "char_ngram"}}},
    "sweep": [
        {"data.dataset": "femnist", "algorithm": ["fed_avg", "local_item_dp"]},
        {"data.dataset": "shakespeare", "algorithm": ["fed_avg"]},
        {
            "data.dataset": "femnist",
            "data.source": "leaf_json",
            "data.path": "${SUBJECTDP_LEAF:-leaf}/femnist",
            "algorithm": ["local_group_dp"],
        },
        {"data.dataset": "shakespeare", "data.source": "upstream", "algorithm": ["local_group_dp"]},
    ],
    "figures": ["figure1", "partition"],
}
ARGUMENTS = ["--configfile", "scenario.yaml"]
TABLES = {"collect": 1, "figure1": 1, "results_page": 1, "runs_summary": 1, "scorecard": 1}
"""What follows from any training."""
DRAWN = {"figure1": 1, "results_page": 1}


@dataclass(frozen=True)
class Finished:
    """A copy of the project with finished results of the scenario."""

    root: Path

    def jobs(self, *arguments: str, root: Path | None = None, **environment: str) -> dict[str, int]:
        """Rule -> number of planned jobs, without the target."""
        printed = self.snakemake("--dry-run", "--quiet", "rules", *arguments, root=root, **environment)
        if "Nothing to be done" in printed:
            return {}
        assert "Job stats:" in printed, printed[-3000:]
        return {name: count for name, count in job_counts(printed).items() if name != "all"}

    def snakemake(self, *arguments: str, root: Path | None = None, **environment: str) -> str:
        """What Snakemake prints, in the project or in another folder."""
        settings = {"XDG_CACHE_HOME": str(self.root / ".cache"), "PYTHONPATH": "", **environment}
        return dry_run(root or self.root, [*arguments, *ARGUMENTS], settings).stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, make_project: Callable) -> Finished:
    """The project with faked results: every output that a dry run names, and Snakemake's records of them."""
    root = make_project(tmp_path_factory.mktemp("reruns") / "project").root
    (root / "scenario.yaml").write_text(yaml.safe_dump(SCENARIO))
    (root / LEAF).mkdir(parents=True)
    (root / LEAF / "all_data.json").write_text('{"users": ["a"]}')
    project = Finished(root)
    summary = project.snakemake("--detailed-summary", "--dry-run").split("output_file\t", 1)[1]
    for output in re.findall(r"^(results/\S+)\t", summary, re.MULTILINE):
        (root / output).parent.mkdir(parents=True, exist_ok=True)
        (root / output).write_text(output)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for key, data in load_scenario_from_mapping(SCENARIO).datasets_by_key.items():
            code = fingerprint("script:prepare", f"prepare:{data.dataset}")
            meta = {"input_fingerprint": {"content": source_content(data), "code": code}}
            (root / "results/data" / key / "prepared/meta.json").write_text(json.dumps(meta))
    project.snakemake("--touch", "--forceall", "--quiet", "all")
    return project


@contextmanager
def kept(*files: Path) -> Iterator[None]:
    """Puts files back as they were, with their times."""
    before = [(file, file.read_bytes(), file.stat()) for file in files]
    try:
        yield
    finally:
        for file, content, status in before:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@dataclass(frozen=True)
class Edit:
    """Replaces ``old`` by ``new`` in a file; without ``old`` appends ``new``."""

    file: Path | str
    new: str
    old: str = ""

    def __call__(self, root: Path) -> None:
        file = root / self.file
        text = file.read_text()
        assert self.old in text, f"{self.file} does not hold {self.old!r}"
        file.write_text(text.replace(self.old, self.new, 1) if self.old else text + self.new)


CODE = "\n\ndef added() -> int:\n    return 1\n"


def code(module: str) -> Edit:
    """New code in a module of the library."""
    return Edit(LIBRARY / f"{module}.py", CODE)


def trained(runs: int) -> dict[str, int]:
    return {"train": runs, **TABLES}


def prepared(data_sets: int, runs: int) -> dict[str, int]:
    return {"prepare": data_sets, "partition": data_sets, "figure_partition": 1, **trained(runs)}


CHANGES: dict[str, tuple[Edit, dict[str, int]]] = {
    "a comment in a script": (Edit("workflow/scripts/train.py", "\n# a comment\n"), {}),
    "code in a script": (Edit("workflow/scripts/train.py", "\nADDED = 1\n"), trained(5)),
    "a docstring": (Edit(LIBRARY / "engine/clipping.py", '"""Other words. ', '"""'), {}),
    "the message of an error": (
        Edit(LIBRARY / "models/build.py", "Expected model.parameters which", "Expected model.parameters that"), {}),
    "how errors are worded": (code("errors"), {}),
    "the clipping engine": (code("engine/clipping"), trained(5)),
    "one algorithm": (code("algorithms/local_item_dp"), trained(1)),
    "an algorithm that no run uses": (code("algorithms/user_ldp"), {}),
    "a model of text": (code("models/text"), trained(2)),
    "a model of images": (code("models/image"), trained(3)),
    "a model that no run uses": (code("models/fixed"), {}),
    "a default of a model": (Edit(MODELS, "_WIDTHS = Parameter(20", "_WIDTHS = Parameter(16"), trained(3)),
    "another entry in the list of models": (
        Edit(MODELS, '    "new": ModelSpec("text", "text.New", {}, 1),\n    "char', '    "char'), {}),
    "a figure": (code("figures/papers"), DRAWN),
    "which runs a figure shows": (
        Edit(CAPTION, "hidden: FedAvg", "hidden: JointNoise"), DRAWN),
    "another figure": (Edit(LIBRARY / "figures/captions/figure2.rst", "hidden: FedAvg", "hidden: JointNoise"), {}),
    "the reader of one data set": (code("data/femnist"), prepared(2, 3)),
    "how silos are dealt": (code("data/partition"), {"partition": 4, "figure_partition": 1, **trained(5)}),
    "how files are downloaded": (code("data/fetch"), {"fetch": 1}),
    "generated text": (code("data/embedded_plays"), {"fetch": 1, **prepared(1, 1)}),
    "a mirror": (Edit(SOURCES, "gutenberg.org/cache/", "gutenberg.org/files/"), {"fetch": 1}),
    "the hash that a mirror must have": (
        Edit(SOURCES, "sha256: d5601d", "sha256: c5601d"), {"fetch": 1, **prepared(1, 1)}),
    "another data set's mirrors": (Edit(SOURCES, "https://example.org/", "https://s3.amazonaws.com/"), {}),
    "LEAF's data, as many bytes": (Edit(LEAF / "all_data.json", '["b"]', '["a"]'), {"fetch": 1, **prepared(1, 1)}),
    "the lock file, nothing installed": (Edit("requirements.lock", "numpy==2.0.0", "numpy=="), {}),
    "the papers' numbers": (Edit("config/targets.csv", "\n"), {"scorecard": 1, "results_page": 1}),
    "the report's opening text": (Edit("workflow/report/workflow.rst", "\nmore\n"), {}),
    "a caption": (Edit(CAPTION, "\nmore\n"), {"results_page": 1}),
    "one more seed": (
        Edit("scenario.yaml", "run:\n  seed: 1\n", "run:\n"), {"partition": 4, "figure_partition": 1, **trained(5)}),
    "settings of speed": (Edit("scenario.yaml", "run:\n  performance: {physical_batch_size: 77}\n", "run:\n"), {}),
}  # fmt: skip


def test_finished_results_are_finished(finished: Finished) -> None:
    scenario = load_scenario_from_mapping(SCENARIO)
    assert len(scenario.runs) == 5 and len(scenario.datasets_by_key) == 4
    assert finished.jobs() == {}
    assert finished.jobs("--forceall") == {"fetch": 4, **prepared(4, 5)}


def test_edits_that_change_no_result_cause_no_job(finished: Finished) -> None:
    """All of them at once."""
    edits = [edit for edit, jobs in CHANGES.values() if not jobs]
    assert len(edits) >= 10
    with kept(*{finished.root / edit.file for edit in edits}):
        for edit in edits:
            edit(finished.root)
        assert finished.jobs() == {}


@pytest.mark.parametrize(
    ("edit", "jobs"),
    [change for change in CHANGES.values() if change[1]],
    ids=[name for name, change in CHANGES.items() if change[1]],
)
def test_an_edit_causes_the_jobs_that_it_affects(finished: Finished, edit: Edit, jobs: dict[str, int]) -> None:
    with kept(finished.root / edit.file):
        edit(finished.root)
        assert finished.jobs() == jobs


@pytest.mark.parametrize(
    ("package", "jobs"), [("pandas", {}), ("opacus", trained(5)), ("numpy", {"fetch": 2, **prepared(4, 5)})]
)
def test_a_version_counts_where_it_computes(
    finished: Finished, tmp_path: Path, package: str, jobs: dict[str, int]
) -> None:
    """Another version is installed: its metadata come first on the path."""
    metadata = tmp_path / f"{package}-99.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 99.0\n")
    planned = finished.jobs(PYTHONPATH=str(tmp_path))
    wanted = ("fetch", "prepare", "partition", "train")
    assert [planned.get(rule, 0) for rule in wanted] == [jobs.get(rule, 0) for rule in wanted]


def test_places_and_times_rerun_nothing(finished: Finished, tmp_path: Path) -> None:
    """LEAF's folder moved, gone, or touched; prepared data touched."""
    leaf, root = finished.root / LEAF, finished.root
    shutil.copytree(leaf, tmp_path / "femnist")
    assert finished.jobs(SUBJECTDP_LEAF=str(tmp_path)) == {}
    with ExitStack() as stack:
        for file in (leaf / "all_data.json", *root.glob("results/data/*/prepared/*")):
            stack.enter_context(kept(file))
            os.utime(file)
        assert finished.jobs() == {}


def test_a_fresh_clone_with_copied_results_has_nothing_to_do(finished: Finished, tmp_path: Path) -> None:
    """Every file is new, the code is younger than the results, and the place is another one."""
    clone = tmp_path / "clone"
    shutil.copytree(finished.root, clone, symlinks=True, copy_function=shutil.copyfile)
    for file in sorted((clone / "workflow").rglob("*")):
        os.utime(file)
    assert finished.jobs(root=clone) == {}


def test_what_is_missing_is_made_again(finished: Finished) -> None:
    manifest = sorted(finished.root.glob("results/runs/*/manifest.json"))[0]
    with kept(manifest):
        manifest.unlink()
        assert finished.jobs() == trained(1)
