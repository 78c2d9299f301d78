"""Small files in the upstreams' formats, for tests of the data package."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image


def png(seed: int, side: int = 128, mode: str = "RGB") -> bytes:
    """A PNG of smooth random grey blobs, so that resampling filters give different values."""
    coarse = np.random.default_rng(seed).integers(0, 256, (9, 9), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).convert(mode)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def write_zip(path: Path, files: Mapping[str, bytes]) -> Path:
    """A deflated zip file with ``files`` in the order given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def nist_files(writers: int, images: int) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """by_class and by_write of ``writers`` with ``images`` each, and with files that LEAF leaves out."""
    codes = [f"{code:02x}" for code in (*range(0x30, 0x3A), *range(0x41, 0x5B), *range(0x61, 0x7B))]
    by_class: dict[str, bytes] = {"by_class/readme.txt": b"not an image"}
    by_write: dict[str, bytes] = {}
    number = 0
    for writer in reversed(range(writers)):
        for image in range(images):
            content = png(number)
            code = codes[(7 * number) % len(codes)]
            part = f"hsf_{writer % 3}"
            by_class[f"by_class/{code}/{part}/{part}_{number:05d}.png"] = content
            by_class[f"by_class/{code}/train_{code}/train_{code}_{number:05d}.png"] = content
            kind = "dlu"[image % 3]
            name = f"{kind}{writer:04d}_14"
            by_write[f"by_write/{part}/f{writer:04d}_14/{name}/{name}_{image:05d}.png"] = content
            number += 1
    by_class["by_class/30/hsf_0.mit"] = b"index file"
    by_class["by_class/30/hsf_1.mit/x.png"] = png(1)  # would win the label
    by_class["by_class/abc/hsf_0/x.png"] = b"class folder of three letters"
    return by_class, by_write


def nist_folder(folder: Path, writers: int = 4, images: int = 7) -> Path:
    """A folder with by_class.zip and by_write.zip."""
    by_class, by_write = nist_files(writers, images)
    write_zip(folder / "by_class.zip", by_class)
    write_zip(folder / "by_write.zip", by_write)
    return folder


def leaf_femnist(users: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """A LEAF FEMNIST document: grey levels / 255."""
    generator = np.random.default_rng(seed)
    data = {
        user: {
            "x": (generator.integers(0, 256, (items, 784)) / 255).tolist(),
            "y": generator.integers(0, 62, items).tolist(),
        }
        for user, items in users.items()
    }
    return {"users": list(users), "num_samples": list(users.values()), "user_data": data}


def leaf_windows(text: str) -> dict[str, list[str]]:
    """LEAF's windows of one user's text."""
    starts = range(len(text) - 80)
    return {"x": [text[i : i + 80] for i in starts], "y": [text[i + 80] for i in starts]}


def leaf_shakespeare(texts: Mapping[str, str], play: str = "A PLAY") -> dict[str, Any]:
    """A LEAF Shakespeare document."""
    data = {user: leaf_windows(text) for user, text in texts.items()}
    return {
        "users": list(texts),
        "hierarchies": [play] * len(texts),
        "num_samples": [len(value["y"]) for value in data.values()],
        "user_data": data,
    }


def write_document(path: Path, document: Any) -> Path:
    """Writes JSON as LEAF does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


_SPEECH = "Now is the winter of our discontent made glorious summer by this sun of York {n}; and all the clouds"


def etext(speeches: int = 12) -> str:
    """Two plays, one of them with speeches in column 0, after contents and sonnets, in the 1994 layout."""
    lines = ["This is the 100th Etext file", "CONTENTS", "1609", "THE SONNETS", "", "by William Shakespeare", ""]
    lines += ["  From fairest creatures. We desire increase", ""]
    lines += ["1595", "", "A PLAY OF TESTS", "", "", "by William Shakespeare", "", "ACT I. SCENE 1.", ""]
    for n in range(speeches):
        lines += [f"  KING. {_SPEECH.format(n=n)}", "    that lour'd   upon our house.", ""]
        lines += ["                 Enter a fool", f"  First Fool. {_SPEECH.format(n=n)}", "  [Exit]", "    ay me."]
    lines += ["  MUTE. One.", "  MUTE. Two.", *["  Brief. No more than a window."] * 2, "  BRIEF. Ay."]
    lines += ["1592", "", "THE COMEDY OF ERRORS", "", "", "by William Shakespeare", "", "ACT I. SCENE 1", ""]
    for n in range(speeches):
        lines += [f"DUKE. {_SPEECH.format(n=n)}", "", "  in column zero.", "<<NOTICE>>", "not spoken"]
        lines += [f"Dromio. {_SPEECH.format(n=n)}", "ACT II. SCENE 2", "nobody speaks"]
    return "\n".join(lines) + "\n"
