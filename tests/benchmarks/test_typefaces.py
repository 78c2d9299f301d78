"""The typefaces of ``python -m benchmarks.pretrain --typefaces``: which files are taken, and what they lend."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from benchmarks import pretraining
from benchmarks import typefaces as module
from benchmarks.pretraining import (
    OF_TYPEFACES,
    Settings,
    characters_of,
    fit_head,
    of_head,
    outputs_of,
    pretrain,
)
from subjectdp.data.embedded.glyphs import CLASSES, FACES, PRINT, StrokeFields, stroke_fields
from subjectdp.errors import ConfigError
from subjectdp.io.atomic import sha256_of
from subjectdp.models.handwriting import HandwritingFeatures

LOCK = Path(__file__).parents[2] / "envs" / "typefaces" / "package-lock.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if npm had installed two families, one of which has no small letters and lends none to the head."""
    rows = ["family,lends,head,sha256"]
    for family, face, facts in (("caveat", PRINT[0], "all,yes"), ("rock-salt", PRINT[3], "capitals,no")):
        file = tmp_path / "@fontsource" / family / "files" / f"{family}-latin-400-normal.woff"
        file.parent.mkdir(parents=True)
        shutil.copy(face.file, file)
        rows.append(f"{family},{facts},{sha256_of(face.file)}")
    table = tmp_path / "typefaces.csv"
    table.write_text("\n".join(rows) + "\n")
    monkeypatch.setattr(module, "TABLE", table)
    return tmp_path


@pytest.mark.slow
def test_faces_are_the_installed_ones_and_those_of_the_embedded_data(folder: Path) -> None:
    fields = stroke_fields(module.typefaces(folder))
    assert fields.lends.sum(1).tolist()[:2] == [62, 36] and len(fields.shares) == FACES + 2
    assert fields.shares.sum() == pytest.approx(1) and fields.shares[0] == fields.shares[1]
    small = CLASSES.index("a")
    assert np.array_equal(fields.distance[1, small], fields.distance[0, small]), "borrowed"
    assert not np.array_equal(fields.distance[1, 10], fields.distance[0, 10])


def test_a_missing_or_another_file_is_refused(folder: Path) -> None:
    file = folder / "@fontsource" / "caveat" / "files" / "caveat-latin-400-normal.woff"
    file.write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"caveat-latin-400-normal.woff to be the file of sha256 .* npm ci"):
        module.typefaces(folder)
    file.unlink()
    with pytest.raises(ConfigError, match="got 'no file'"):
        module.typefaces(folder)


def test_the_head_is_fitted_to_characters_of_some_faces_and_of_other_writers(folder: Path) -> None:
    every, some = module.typefaces(folder), module.typefaces(folder, of_head=True)
    assert len(every) == FACES + 2 and len(some) == FACES + 1 and some[0].file == every[0].file
    assert sum(face.share for face in every) == pytest.approx(sum(face.share for face in some))
    assert of_head(OF_TYPEFACES) == replace(OF_TYPEFACES, writers=1200, seed=OF_TYPEFACES.seed + 1)


@pytest.mark.slow
def test_a_pretraining_with_typefaces_fits_the_head_to_the_characters_of_its_own_faces(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And to features as a run reads them from the file: another memory layout would round differently."""
    drawn, made = [], []

    def recorded(fields: StrokeFields, settings: Settings) -> tuple[Tensor, Tensor]:
        drawn.append((len(fields.shares), settings))
        made.append(characters_of(fields, settings))
        return made[-1]

    monkeypatch.setattr(pretraining, "characters_of", recorded)
    tiny = Settings(writers=6, items_per_writer=40, epochs=1, batch_size=8, seed=5)
    pretrain(tiny, tmp_path / "weights", folder)
    assert drawn == [(FACES + 2, tiny), (FACES + 1, of_head(tiny))]
    tensors, (images, labels) = load_file(tmp_path / "weights"), made[-1]
    outputs = outputs_of(HandwritingFeatures(tensors), images, of_head(tiny))
    assert torch.equal(fit_head(outputs, labels, tiny.head_decay).half(), tensors["head"])


def test_npm_installs_the_families_of_the_table() -> None:
    packages = json.loads(LOCK.read_text())["packages"]
    found = {name.rpartition("/")[2]: facts for name, facts in packages.items() if name}
    with module.TABLE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["family"] for row in rows] == sorted(found) and len(rows) == 107
    assert sum(row["head"] == "yes" for row in rows) == 24
    asked = json.loads(LOCK.with_name("package.json").read_text())["dependencies"]
    assert asked == {f"@fontsource/{family}": facts["version"] for family, facts in found.items()}
    for facts in found.values():
        assert facts["version"] in ("5.2.7", "5.2.8", "5.3.0", "5.3.1") and facts["integrity"].startswith("sha512-")
        assert facts["license"] in ("OFL-1.1", "Apache-2.0")
