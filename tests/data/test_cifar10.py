"""CIFAR-10: the archive, the network, its checkpoints, and the generated files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from subjectdp.data.cifar10 import ARCHIVE, BATCHES, CHECKPOINT, load_upstream, read_archive
from subjectdp.data.content import check_content
from subjectdp.data.embedded import generate
from subjectdp.data.embedded.pictures import packed, records
from subjectdp.errors import DataError, ModelError
from subjectdp.models.resnext import FEATURES, MEAN, STD, features, load_checkpoint, random_weights

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


class _Evil:
    def __reduce__(self) -> Any:
        return print, ("code of a stranger",)


@pytest.mark.parametrize(
    "content", [b"", bytes(3072), records(IMAGES, LABELS)[:-20], records(IMAGES[:1], LABELS[5:] + 1)]
)
def test_other_batches_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match="data_batch_2"):
        read_archive(_archive(tmp_path / ARCHIVE, **{"data_batch_2.bin": content}))


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


def test_resnext_29_8x64_has_the_published_number_of_weights() -> None:
    with torch.device("meta"):
        network = _network(depth=3, base=64, groups=8)
    millions = sum(weight.numel() for weight in network.parameters()) / 1e6
    assert round(millions, 2) == 34.52  # 34.43 with ten classes instead of a hundred


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"weights": {}}, "state_dict"),
        ({"state_dict": {"fc.weight": torch.zeros(1)}}, "lacks"),
        ({"state_dict": _Evil()}, "no checkpoint that can be read"),
        (None, "finite"),
    ],
)
def test_other_checkpoints_are_refused(
    tmp_path: Path, content: Any, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is None:
        weights = random_weights(0, (4, 4, 4), 2)
        weights["bn_1.bias"][0] = float("nan")
        content = {"state_dict": weights}
    torch.save(content, tmp_path / CHECKPOINT)
    with pytest.raises(ModelError, match=problem):
        load_checkpoint(tmp_path / CHECKPOINT)
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_generated_files_are_read(tmp_path: Path) -> None:
    generate("cifar10", tmp_path, 5, 8, seed=3)
    content = load_upstream(tmp_path)
    check_content(content)
    assert content.features.shape == (40, FEATURES) and (content.features.std(axis=0) > 0).mean() > 0.9
    assert (tmp_path / CHECKPOINT).stat().st_size < 5e6
