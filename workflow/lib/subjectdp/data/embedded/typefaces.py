"""Typefaces that look handwritten, as npm installs them from Fontsource, for ``subjectdp pretrain --typefaces``.

They are public (SIL Open Font License or Apache License 2.0) and their designers, not the writers of any data set, drew
them. None is a part of this package: ``npm ci --prefix envs/typefaces --ignore-scripts`` fetches them.
"""

from __future__ import annotations

from pathlib import Path

from subjectdp.data.embedded.glyphs import CLASSES, PRINT, Face
from subjectdp.errors import expected
from subjectdp.io.atomic import sha256_of

SHA256 = {
    "annie-use-your-telescope": "555a3ba045673dfa29aa1b2ed52f17772212380d2da9a79dc813ef51e26b0147",
    "architects-daughter": "0249dd5f81431dbf8a8406996c43f8018bf707221cf261d75145f083bb7091cf",
    "caveat": "38b98dbeb922a14a74dfb41f83fc24e0e645e2eed9ce72145fefbdae8828cbfb",
    "coming-soon": "d0a25ae9b9ffb2a2c235687f1698af2bbe18a84f47f1b099077a50382b812858",
    "covered-by-your-grace": "876d8371eedf1f9add237910aea034ca42cd5bdc8f7d722c7a04819ab3f711b8",
    "crafty-girls": "5d7392f508057ab8c20fa7e92989e679a9efd058b9d7736d688a614df9a79dfa",
    "gloria-hallelujah": "31e7def8cf155d4dcc98216517ad509923a8a197bc9c8937668d04767c52040e",
    "gochi-hand": "82a4149218f2edccef96d2b0ed5bf92adc6ea290222bac4dcfa3de91afb6b3a3",
    "handlee": "9a8af5254df769bbdc196fd998231daec67c81dc3d6fd6f294ed80c2c4343551",
    "homemade-apple": "998f34b48e0bcb8974dc6e8d94961a87689ca40e3258554d2f6fc3778b1968a3",
    "indie-flower": "2cf7154e899ad16246196238d6d13f0135c5feba2d8ccde5d97a22664d012660",
    "just-another-hand": "996689005263a02315843bd1eff3f67b71ec1ca25be7fa9ee4523e4d282b7b89",
    "kalam": "70ab8c1d2c10a28f213c6f1c359888624d5e650ffcd64f93a8194c3e14403746",
    "nothing-you-could-do": "454bff123de1c8224aff670f12797ca91cf54becf6f8359391bd37a6dd68a60e",
    "over-the-rainbow": "e721f12763490802b576b3c1511cf4a0c6a33221772bf846885a295e5b758e3e",
    "patrick-hand": "0f7031f6665437e04d6f354c5f64d6ae6777b498afbe804638c45b957a7ce8aa",
    "permanent-marker": "ab8ac2bb72d48e089e37d8eefbacdfe2d74ccd48ae786d952fce9874837d2b2b",
    "reenie-beanie": "1b86681155e125625f01839b2e6688dde2b2a7766a8eb49645b3a8707c2bee9f",
    "rock-salt": "358d065405a805204d48cc51cc48a8447f8d86369aa05d44c70e0111d7ee7e29",
    "schoolbell": "a448b8f4209a8ca16adc48753170f40a57e17f70675963e092501ed48842e4c8",
    "shadows-into-light": "93cff8110a18bb3e1fb0179c95f706ed1e8037e2e527c4cb425b46deaddbd975",
    "sue-ellen-francisco": "e2c988155c07d4a26b81216397fa1841af0916c9737a61e05ea38bd1bd5361b1",
    "the-girl-next-door": "301aabf8a983d1231988eea6e125338a3933bd69de8b14137df80840c8d8c5e8",
    "waiting-for-the-sunrise": "8a2cf921d4129a7d447370c559d0687579e842196c9e80a774fb428b1755911b",
}
"""Family -> SHA-256 of its file, version 5.3.0 of each package."""

_SHARE = 5.0
_PRINT_SHARE = 0.7  # of each share that a face of the embedded data set has there
_CAPITALS_ALONE = ("permanent-marker", "rock-salt")  # their small letters look like capitals


def typefaces(folder: Path) -> tuple[Face, ...]:
    """All faces: the installed ones, each with the same share, and those of the embedded data set.

    Args:
        folder: ``node_modules`` that ``npm ci`` filled.

    Raises:
        ConfigError: a file is missing or another one.
    """
    faces = [Face(_checked(folder, family), _SHARE, _lends(family)) for family in SHA256]
    return (*faces, *(Face(face.file, _PRINT_SHARE * face.share, face.lends) for face in PRINT))


def _checked(folder: Path, family: str) -> Path:
    file = folder / "@fontsource" / family / "files" / f"{family}-latin-400-normal.woff"
    found = sha256_of(file)[:16] + "..." if file.is_file() else "no file"
    if found != SHA256[family][:16] + "...":
        allowed = f"the file of sha256 {SHA256[family][:16]}...; run npm ci --prefix envs/typefaces --ignore-scripts"
        raise expected(str(file), found, allowed)
    return file


def _lends(family: str) -> str:
    return CLASSES[:36] if family in _CAPITALS_ALONE else CLASSES
