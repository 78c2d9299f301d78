"""Data sets without subjects: the files of Fashion-MNIST, CIFAR-10 with its network, and ACS Income."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from source_files import write_zip
from subjectdp.accounting.make_plan import plan_from_dict
from subjectdp.cli.ledger import ledger_rows
from subjectdp.config.run import RunConfig
from subjectdp.data import acs_income, idx
from subjectdp.data.acs_income import REGIONS, WIDTH, encode, read_region
from subjectdp.data.archives import load_sources
from subjectdp.data.cifar10 import ARCHIVE, BATCHES, CHECKPOINT, packed, read_archive, records
from subjectdp.data.content import count_content, split_items
from subjectdp.data.idx import idx_bytes, read_idx
from subjectdp.data.partition import make_partition
from subjectdp.data.prepare import fetch_sources, generate, prepare_dataset
from subjectdp.errors import ConfigError, DataError, ModelError
from subjectdp.models.resnext import FEATURES, MEAN, STD, features, load_checkpoint, random_weights
from subjectdp.report.statement import statement_sections
from subjectdp.training.run import train_run

REAL = os.environ.get("SUBJECTDP_REAL_DATA")
Captured = pytest.CaptureFixture[str]


# --- Fashion-MNIST ------------------------------------------------------------------------------------------


def _write(path: Path, shape: tuple[int, ...], values: bytes, kind: int = 8) -> Path:
    header = bytes([0, 0, kind, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    path.write_bytes(gzip.compress(header + values))
    return path


def test_the_format_is_the_published_one(tmp_path: Path) -> None:
    path = _write(tmp_path / "a.gz", (2, 3, 1), bytes(range(6)))
    assert read_idx(path, 3).tolist() == [[[0], [1], [2]], [[3], [4], [5]]]
    assert gzip.decompress(path.read_bytes()) == idx_bytes(np.arange(6, dtype=np.uint8).reshape(2, 3, 1))


@pytest.mark.parametrize(
    ("shape", "values", "kind"), [((2, 3), 6, 8), ((2, 3, 1), 5, 8), ((2, 3, 1), 7, 8), ((2, 3, 1), 6, 9)]
)
def test_other_files_are_refused(tmp_path: Path, shape: tuple[int, ...], values: int, kind: int) -> None:
    with pytest.raises(DataError):
        read_idx(_write(tmp_path / "a.gz", shape, bytes(values), kind), 3)


@pytest.mark.slow
def test_a_run_says_that_items_are_their_own_subjects(tmp_path: Path) -> None:
    data = {"dataset": "fashion_mnist", "embedded": {"subjects": 10, "items_per_subject": 20}}
    joint = {"algorithm": "joint_noise", "privacy": {"accountant": "rdp"}, "joint": {"noise": "skellam", "bits": 32}}
    more = {"partition": {"silos": 2, "distribution": "equal"}, "training": {"rounds": 1, "batch_size": 16}}
    run = RunConfig.model_validate({"data": data, "model": "tanh_cnn", **joint, **more})
    fetch_sources(run.data, tmp_path / "source")
    prepare_dataset(run.data, tmp_path / "source", tmp_path / "prepared")
    make_partition(tmp_path / "prepared", tmp_path / "partition", run)
    train_run(json.loads(run.model_dump_json()), tmp_path / "prepared", tmp_path / "partition", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert any("each item is its own subject" in line for line in manifest["privacy"]["card"])
    page = statement_sections(plan_from_dict(manifest["plan"]), manifest["privacy"], "a run")
    said = " ".join(text for section in page for text in (*section.paragraphs, *section.points))
    assert "do not say whose they are" in said and "each person, with" not in said
    assert [row["unit"] for row in ledger_rows([manifest], None)] == ["one item"]
    assert all(silo["max_items_per_subject"] == 1 for silo in manifest["plan"]["silos"])


@pytest.mark.skipif(REAL is None, reason="needs SUBJECTDP_REAL_DATA")
def test_the_first_real_images_are_read() -> None:
    content = idx.load_upstream(Path(str(REAL)) / "fashion_mnist_first")
    assert content.notes["images_of_files"] == {"train": 1813, "t10k": 1770}
    assert content.labels[:10].tolist() == [9, 0, 0, 3, 0, 2, 7, 2, 5, 5]
    assert count_content(content, 0.2)["train_items"] == 2866


# --- CIFAR-10 -----------------------------------------------------------------------------------------------


IMAGES = np.arange(6 * 3072, dtype=np.int64).astype(np.uint8).reshape(6, 3, 32, 32)
LABELS = np.array([3, 1, 4, 1, 5, 9], dtype=np.uint8)


def _archive(path: Path, **changes: bytes) -> Path:
    whole = {name: records(IMAGES[i : i + 1], LABELS[i : i + 1]) for i, name in enumerate(BATCHES)}
    path.write_bytes(packed(whole | changes))
    return path


def test_a_record_is_a_label_and_its_pixels(tmp_path: Path) -> None:
    images, labels = read_archive(_archive(tmp_path / ARCHIVE))
    assert (images == IMAGES).all() and (labels == LABELS).all()
    assert records(IMAGES[:1], LABELS[:1]) == bytes([3]) + IMAGES[0].tobytes()


@pytest.mark.parametrize("raw", [b"", bytes(3072), records(IMAGES, LABELS)[:-20], records(IMAGES[:1], LABELS[5:] + 1)])
def test_other_batches_are_refused(tmp_path: Path, raw: bytes) -> None:
    with pytest.raises(DataError, match="data_batch_2"):
        read_archive(_archive(tmp_path / ARCHIVE, **{"data_batch_2.bin": raw}))


class _Block(nn.Module):
    """The checkpoint's block as a module: an oracle that shares no code with the library's."""

    def __init__(self, inputs: int, outputs: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv_reduce, self.bn_reduce = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv_conv = nn.Conv2d(width, width, 3, stride, 1, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.conv_expand, self.bn_expand = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut.add_module("shortcut_conv", nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.add_module("shortcut_bn", nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn_reduce(self.conv_reduce(x)))
        y = F.relu(self.bn(self.conv_conv(y)))
        return F.relu(self.shortcut(x) + self.bn_expand(self.conv_expand(y)))


def _network(depth: int, base: int, groups: int) -> nn.Module:
    """``depth`` blocks a stage; base 64 and 8 groups with depth 3 are ResNeXt-29 (8 x 64)."""
    network, inputs = nn.Module(), 64
    network.add_module("conv_1_3x3", nn.Conv2d(3, 64, 3, 1, 1, bias=False))
    network.add_module("bn_1", nn.BatchNorm2d(64))
    for stage, (outputs, stride) in enumerate(((256, 1), (512, 2), (1024, 2)), start=1):
        blocks, width = nn.Sequential(), groups * base * outputs // 256
        for number in range(depth):
            block = _Block(inputs, outputs, width, stride if number == 0 else 1, groups)
            blocks.add_module(f"stage_{stage}_bottleneck_{number}", block)
            inputs = outputs
        network.add_module(f"stage_{stage}", blocks)
    network.add_module("classifier", nn.Linear(1024, 100))
    return network.eval()


def _random(network: nn.Module) -> nn.Module:
    """The network with statistics as after a training."""
    torch.manual_seed(0)
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            for tensor in (part.running_mean, part.bias.data):
                tensor.normal_(0, 0.3)  # type: ignore[union-attr]
            for tensor in (part.running_var, part.weight.data):
                tensor.uniform_(0.5, 1.5)  # type: ignore[union-attr]
    return network


def test_the_features_are_those_of_the_network_that_the_checkpoint_is_of(tmp_path: Path) -> None:
    network = _random(_network(depth=2, base=4, groups=2))
    state = {f"module.{name}": value for name, value in network.state_dict().items()}
    torch.save({"epoch": 300, "state_dict": state, "acc": 77.9, "optimizer": {}}, tmp_path / CHECKPOINT)
    images = torch.from_numpy(IMAGES[:3])
    with torch.inference_mode():
        x = (images / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
        parts = dict(network.named_children())
        x = F.relu(parts["bn_1"](parts["conv_1_3x3"](x)))
        for stage in (1, 2, 3):
            x = parts[f"stage_{stage}"](x)
        oracle = F.avg_pool2d(x, 8, 1).view(-1, 1024)
        found = features(load_checkpoint(tmp_path / CHECKPOINT), images)
    assert found.shape == (3, FEATURES)
    assert torch.allclose(found, oracle, rtol=1e-4, atol=1e-5)
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in _network(depth=3, base=64, groups=8).parameters())
    assert round(weights / 1e6, 2) == 34.52, "as published: 34.43 with ten classes instead of a hundred"


class _Evil:
    def __reduce__(self) -> Any:
        return print, ("code of a stranger",)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"weights": {}}, "state_dict"),
        ({"state_dict": {"fc.weight": torch.zeros(1)}}, "lacks"),
        ({"state_dict": _Evil()}, "no checkpoint that can be read"),
        (None, "finite"),
    ],
)
def test_other_checkpoints_are_refused(tmp_path: Path, content: Any, problem: str, capsys: Captured) -> None:
    if content is None:
        weights = random_weights(0, (4, 4, 4), 2)
        weights["bn_1.bias"][0] = float("nan")
        content = {"state_dict": weights}
    torch.save(content, tmp_path / CHECKPOINT)
    with pytest.raises(ModelError, match=problem):
        load_checkpoint(tmp_path / CHECKPOINT)
    assert capsys.readouterr().out == ""


# --- ACS Income ---------------------------------------------------------------------------------------------


KEPT = {"AGEP": 40, "SCHL": 21, "WKHP": 40, "COW": 1, "MAR": 5, "SEX": 2, "RAC1P": 9, "RELP": 0, "OCCP": 1020}
KEPT |= {"POBP": 303, "PINCP": 60000, "PWGTP": 1}


def _zip(folder: Path, people: pd.DataFrame) -> Path:
    return write_zip(folder / "csv_pal.zip", {"psam_p01.csv": people.to_csv(index=False).encode()})


@pytest.mark.parametrize(
    ("column", "value", "kept"),
    [("AGEP", 16, False), ("AGEP", 17, True), ("PINCP", 100, False), ("PINCP", 101, True), ("WKHP", 0, False)]
    + [("WKHP", "", False), ("PWGTP", 0, False), ("COW", "", True)],
)
def test_the_task_keeps_whom_folktables_keeps(tmp_path: Path, column: str, value: object, kept: bool) -> None:
    people = pd.DataFrame([KEPT, KEPT | {column: value}])
    assert len(read_region(_zip(tmp_path, people))) == 1 + kept


def test_a_person_as_numbers() -> None:
    row = encode(pd.DataFrame([KEPT]))[0]
    assert len(row) == WIDTH == 73
    assert row[:3] == pytest.approx([40 / 99, 21 / 24, 40 / 99])
    blocks = np.split(row[3:], np.cumsum([9, 5, 2, 9, 18, 20]))
    assert [int(block.argmax()) for block in blocks] == [0, 4, 1, 8, 0, 2, 4]
    assert all(block.sum() == 1 for block in blocks)
    unknown = encode(pd.DataFrame([KEPT | {"COW": np.nan, "OCCP": np.nan, "POBP": np.nan}]))[0]
    assert unknown.sum() == pytest.approx(row.sum() - 3)


@pytest.mark.parametrize(
    ("people", "problem"),
    [
        (pd.DataFrame([KEPT]).drop(columns="SEX"), "columns"),
        (pd.DataFrame([KEPT | {"AGEP": "old"}]), "of numbers"),
        (pd.DataFrame([KEPT | {"AGEP": 3}]), "nobody"),
    ],
)
def test_files_that_are_not_the_census_are_refused(tmp_path: Path, people: pd.DataFrame, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_region(_zip(tmp_path, people))


def test_all_regions_are_listed_with_a_mirror() -> None:
    assert [file.name for file in load_sources("acs_income")[1]] == [f"csv_p{region}.zip" for region in REGIONS]
    assert len(set(REGIONS)) == 51


@pytest.mark.slow
def test_generated_regions_differ_and_each_is_split_by_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 1530"):
        generate("acs_income", tmp_path, 10, 10, 0)
    generate("acs_income", tmp_path, 51, 80, 0)
    content = acs_income.load_upstream(tmp_path)
    total = np.bincount(content.silos)
    assert 0.15 < content.labels.mean() < 0.85 and total.max() > 5 * total.min()
    test = np.bincount(content.silos[split_items(content, 0, 0.2, 0.2).test_items], minlength=51)
    assert np.abs(test / total - 0.2).max() < 0.05
