"""The typefaces of ``subjectdp pretrain --typefaces``: which files are taken, and what they lend."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from subjectdp.data.embedded import typefaces as module
from subjectdp.data.embedded.glyphs import CLASSES, FACES, PRINT, stroke_fields
from subjectdp.errors import ConfigError
from subjectdp.io.atomic import sha256_of

LOCK = Path(__file__).parents[2] / "envs" / "typefaces" / "package-lock.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if npm had installed two families, one of which has no small letters."""
    for family, face in (("caveat", PRINT[0]), ("rock-salt", PRINT[3])):
        file = tmp_path / "@fontsource" / family / "files" / f"{family}-latin-400-normal.woff"
        file.parent.mkdir(parents=True)
        shutil.copy(face.file, file)
    hashes = {"caveat": sha256_of(PRINT[0].file), "rock-salt": sha256_of(PRINT[3].file)}
    monkeypatch.setattr(module, "SHA256", hashes)
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


def test_npm_installs_the_families_of_the_table() -> None:
    packages = json.loads(LOCK.read_text())["packages"]
    found = {name.rpartition("/")[2]: facts for name, facts in packages.items() if name}
    assert found.keys() == module.SHA256.keys()
    for facts in found.values():
        assert facts["version"] == "5.3.0" and facts["integrity"].startswith("sha512-")
        assert facts["license"] in ("OFL-1.1", "Apache-2.0")
