"""Every reader under damaged files: another whole result or one clear error, nothing else.

The files of each reader are generated, one of them is changed by a key, and the source is read within limits of time
and memory. 700 inputs are read with every change, 12,000 by ``make fuzz``; its last line is ``N inputs, N read, N
refused``. ``SUBJECTDP_FUZZ_INPUTS`` and ``SUBJECTDP_FUZZ_SEED`` choose others.
"""

import logging
import os
import random
import resource
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hostile.limits import TOKEN, check_message, limit_memory, limited_time, tree
from source_files import leaf_femnist, leaf_shakespeare, write_document
from subjectdp.config.scenario import load_scenario
from subjectdp.config.sections import DataConfig
from subjectdp.data.catalogue import DATASETS
from subjectdp.data.content import check_content
from subjectdp.data.prepare import generate, read_source
from subjectdp.errors import SubjectDPError

Read = Callable[[Path], object]
TOKENS = (
    *(b"\0", b"\x00" * 64, b"\xff\xfe", b"\xef\xbb\xbf", b"PK\x03\x04", b"PK\x05\x06", b"../../", b'"', b"NaN", b"-1"),
    *(b"\\ud800", b"1e999", b"9" * 5000, b"[[[[", b"{}", b"<html>", b"\r", b"\xe2\x80\xa8", b"${HOME}", b"\xff" * 8),
)
TEXT = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough winds. " * 3
SCENARIO = """name: x
run:
  data: {dataset: femnist, embedded: {subjects: 9, items_per_subject: 40}}
  training: {rounds: 6, batch_size: 16, optimizer: {learning_rate: 0.5}}
algorithms: {local_item_dp: {privacy: {clip_norm: 0.5}}}
sweep: [{algorithm: [local_item_dp, "higrad_avg_dp:v1"], seed: [0, 1]}]
figures: [figure1]
"""

ITEMS = {"shakespeare": 150, "acs_income": 400}  # the fewest that are generated


def upstream(dataset: str) -> tuple[Callable[[Path], object], Read]:
    """Generated files in upstream's formats, and their reader."""
    options = DataConfig(dataset=dataset)
    decode = dataset != "cifar10"  # whose features take a network
    return (
        lambda folder: generate(dataset, folder, 4, ITEMS.get(dataset, 12), 0),
        lambda folder: check_content(read_source(options, folder, decode)),
    )


def in_place(dataset: str, source: str, name: str, **options: str) -> Read:
    def read(folder: Path) -> None:
        wanted = DataConfig(dataset=dataset, source=source, path=str(folder / name), **options)
        check_content(read_source(wanted, folder))

    return read


def table(folder: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    frame = pd.DataFrame(rows, columns=["age", "pressure"])
    frame.assign(label=["ill", "well"] * 20, who=[f"p{i // 3}" for i in range(40)]).to_csv(
        folder / "t.csv", index=False
    )


READERS: dict[str, tuple[Callable[[Path], object], Read]] = {
    **{name: upstream(name) for name, facts in DATASETS.items() if facts.generator},
    "leaf femnist": (
        lambda folder: write_document(folder / "all_data.json", leaf_femnist({"f0_1": 4, "f0_2": 3})),
        in_place("femnist", "leaf_json", "all_data.json"),
    ),
    "leaf shakespeare": (
        lambda folder: write_document(folder / "all_data.json", leaf_shakespeare({"A": TEXT, "B": TEXT[::-1]})),
        in_place("shakespeare", "leaf_json", "all_data.json"),
    ),
    "table": (table, in_place("table", "table", "t.csv", label="label", subject="who")),
    "scenario": (
        lambda folder: (folder / "x.yaml").write_text(SCENARIO),
        lambda folder: load_scenario(folder / "x.yaml").runs,
    ),
}
INPUTS = int(os.environ.get("SUBJECTDP_FUZZ_INPUTS", "700")) // len(READERS)
SEED = int(os.environ.get("SUBJECTDP_FUZZ_SEED", "0"))


def changed(raw: bytes, rng: random.Random) -> bytes:
    """``raw`` with one to four changes: of a byte, a number, a span; mostly one."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        start = rng.randrange(len(raw) + 1)
        end = min(len(raw), start + rng.choice((1, 2, 7, 30, 200, 3000)))
        head, span, tail = raw[:start], raw[start:end], raw[end:]
        raw = rng.choice(
            (
                head + rng.randbytes(1) + raw[start + 1 :],
                head + rng.choice((b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\x80")) + raw[start + 1 :],
                head + tail,
                head + span + span * rng.choice((1, 20)) + tail,
                head + rng.choice(TOKENS) + span + tail,
                head + rng.randbytes(len(span)) + tail,
                head or raw,
            )
        )
    return raw


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A limit of memory, a secret in the environment, and no log."""
    monkeypatch.setenv(*TOKEN)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    limit_memory()
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    resource.setrlimit(resource.RLIMIT_AS, limits)


def refused(read: Read, folder: Path) -> str | None:
    """The message of the refusal; None: read. Any other exception, a hang or a changed folder is a failure."""
    before = tree(folder)
    try:
        with limited_time(), warnings.catch_warnings(action="ignore"):
            read(folder)
        message = None
    except SubjectDPError as problem:
        message = str(problem)
        check_message(message)
        assert TOKEN[1] not in message
    assert tree(folder) == before, "reading changed the folder of the input"
    return message


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_every_input_is_read_or_refused(name: str, guarded: None, tmp_path: Path, tally: Callable[..., None]) -> None:
    make, read = READERS[name]
    whole = tmp_path / "whole"
    whole.mkdir()
    make(whole)
    assert refused(read, whole) is None, "the files as they are"
    files = [path.relative_to(whole) for path in sorted(whole.rglob("*")) if path.is_file()]
    messages = []
    for number in range(INPUTS):
        rng = random.Random(f"{SEED}/{name}/{number}")
        folder = tmp_path / "one"
        shutil.copytree(whole, folder)
        victim = folder / rng.choice(files)
        victim.write_bytes(changed(victim.read_bytes(), rng))
        messages.append(refused(read, folder))
        shutil.rmtree(folder)
    count = sum(message is not None for message in messages)
    tally(inputs=INPUTS, read=INPUTS - count, refused=count)
    assert count > INPUTS / 8, "the changes no longer reach the reader"


def made(name: str, folder: Path) -> tuple[Read, Path]:
    """A reader, and the first of the files that were made for it."""
    make, read = READERS[name]
    make(folder)
    return read, next(path for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", [None, b"", b"<!DOCTYPE html><html><body>Please log in</body></html>"])
def test_a_missing_file_an_empty_one_and_a_page_are_refused(name: str, content: bytes | None, tmp_path: Path) -> None:
    read, victim = made(name, tmp_path)
    if content is None:
        victim.unlink()
    else:
        victim.write_bytes(content)
    assert refused(read, tmp_path) is not None


@pytest.mark.parametrize("name", [name for name in READERS if name not in ("scenario", "table", "shakespeare")])
def test_a_truncated_file_is_refused(name: str, tmp_path: Path) -> None:
    """Of a text and a table no reader can tell; the counts of ``data.expected`` do."""
    read, victim = made(name, tmp_path)
    raw = victim.read_bytes()
    for share in (0.1, 0.5, 0.9):
        victim.write_bytes(raw[: int(share * len(raw))])
        assert refused(read, tmp_path) is not None, share
