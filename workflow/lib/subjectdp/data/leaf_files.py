"""The JSON files of LEAF's output, in a folder, a zip file, or a single file. Imports nothing heavy."""

import json
import re
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from subjectdp.data import archives
from subjectdp.data.archives import Archive, Member
from subjectdp.errors import DataError

STAGES = (("train", "test"), ("rem_user_data",), ("sampled_data",), ("all_data",))


class LeafFile(NamedTuple):
    """A JSON file and its folder in LEAF's layout (``train``, ``all_data``, ...; empty if none)."""

    member: Member
    stage: str


def opened(path: Path) -> AbstractContextManager[Archive]:
    """A folder, a zip file, or a JSON file as an archive of one file."""
    if path.is_file() and path.suffix == ".json":
        return nullcontext(Archive(path.parent, [Member(path.name, path.stat().st_size)]))
    return archives.open_archive(path)


def find_files(archive: Archive) -> list[LeafFile]:
    """The JSON files of the most processed stage, in natural order; DataError if there are none."""
    found = [_leaf_file(m) for m in archive.members if m.name.endswith(".json") and _is_data(m.name)]
    if not found:
        raise DataError(
            f"{archive.path} holds no .json file: expected LEAF's all_data_*.json, or its train and test files."
        )
    found.sort(key=lambda file: (STAGES[0].index(file.stage) if file.stage in STAGES[0] else 0, _natural(file)))
    for stages in STAGES:
        chosen = [file for file in found if file.stage in stages]
        if chosen:
            return chosen
    return found


def _is_data(name: str) -> bool:
    base = name.rsplit("/", 1)[-1]
    return not base.startswith("._") and "__MACOSX" not in name and base != "users_and_plays.json"


def _leaf_file(member: Member) -> LeafFile:
    folder = member.name.split("/")[-2] if "/" in member.name else ""
    known = any(folder in stages for stages in STAGES)
    return LeafFile(member, folder if known else "")


def _natural(file: LeafFile) -> list[tuple[int, str]]:
    """Numbers by value: all_data_2 before all_data_10."""
    parts = re.split(r"([0-9]{1,18})", file.member.name)
    return [(int(p), "") if p.isdecimal() and p.isascii() else (-1, p) for p in parts]


_END = b'"user_data"'  # LEAF writes the lists users and num_samples before the items
_CHUNK, _MOST = 1 << 20, 1 << 26


def leaf_sizes(path: str) -> tuple[int, ...] | None:
    """Items of each user at ``path``; None where there is nothing to read, or the head does not tell."""
    file = Path(path)
    return _sizes(file, file.stat().st_mtime_ns) if file.exists() else None


@lru_cache(maxsize=8)
def _sizes(path: Path, changed: int) -> tuple[int, ...] | None:
    counts: Counter[str] = Counter()
    try:
        with opened(path) as archive:
            for file in find_files(archive):
                with archive.open(file.member) as stream:
                    content = b""
                    while _END not in content and len(content) < _MOST and (more := stream.read(_CHUNK)):
                        content += more
                head = json.loads(content.partition(_END)[0].decode().rstrip().rstrip(",") + "}")
                counts.update(dict(zip(head["users"], map(int, head["num_samples"]), strict=True)))
    except (DataError, ValueError, KeyError, TypeError):
        return None  # reading the whole files will say what is wrong
    return tuple(count for count in counts.values() if count > 0) or None
