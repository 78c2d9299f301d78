"""How many items each user of LEAF's JSON has, from the heads of the files: seconds, whatever their size."""

from __future__ import annotations

import json
from collections import Counter
from functools import lru_cache
from pathlib import Path

from subjectdp.data.leaf_files import find_files, opened
from subjectdp.errors import DataError

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
