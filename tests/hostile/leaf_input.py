"""LEAF's JSON: hostile documents, and a slow reader that parses the file whole and checks rule by rule."""

from __future__ import annotations

import copy
import json
import random
import re
import unicodedata
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from hostile.mutations import generator, mutate
from hostile.outcomes import Case, Invalid, real_file
from hostile.zips import change_field, unzipped, zipped
from source_files import leaf_femnist, leaf_shakespeare
from subjectdp.data import leaf_json
from subjectdp.data.content import Content, check_content
from subjectdp.data.shakespeare import VOCABULARY

FILE, ARCHIVE = "all_data.json", "leaf.zip"
TEXT = "Shall I compare thee to a summer's day? Thou art more lovely and more temperate: rough winds. " * 2
NAMES = (
    "../../etc/passwd",
    "a/b",
    "a\\b",
    "a\nb",
    "a\0b",
    "",
    " ",
    "a" * 201,
    "a" * 200,
    "a\u202eb",
    "a\u200b",
    "\ud800",
    "\u00e9",
    "e\u0301",
    "f0000_14",
    "..",
    "\ufeffx",
    "__class__",
)
VALUES = (
    *(None, True, False, -1, 0, 62, 0.5, 3.0, 1e308, 10**30, -(10**30), 2**63, "", "1", [], {}, [[]], [None]),
    *({"x": []}, {"x": [], "y": []}, "a" * 3000, [0] * 784, [0.0] * 783, [[0.0] * 784], [1] * 3, *NAMES),
)


class LeafReader:
    """LEAF's JSON of one data set; the oracle decides both ways."""

    decisive = True

    def __init__(self, dataset: str) -> None:
        self.dataset, self.name = dataset, f"leaf_json_{dataset}"

    def generated(self) -> SearchStrategy[Case]:
        """Documents of the right shape whose parts may be anything."""
        return _documents(self.dataset).map(lambda document: Case({FILE: json.dumps(document).encode()}))

    def mutated(self, key: str) -> Case:
        """Changes of bytes in one half, of values, keys and lists in the other; some inputs are zipped."""
        rng = generator(key)
        case = self._mutated(rng)
        kind = rng.random()
        if kind > 0.3:
            return case
        packed = zipped({FILE: case.files[FILE]}, rng)
        if kind > 0.1:
            return Case({ARCHIVE: packed}, valid=case.valid)
        return Case({ARCHIVE: change_field(packed, rng) if kind > 0.04 else mutate(packed, rng)}, exact=False)

    def _mutated(self, rng: random.Random) -> Case:
        raw = _sample(self.dataset, rng.random() < 0.2)
        document = json.loads(raw)
        if rng.random() < 0.15:
            return Case({FILE: _rewritten(document, rng)}, valid=True)
        if rng.random() < 0.5:
            return Case({FILE: mutate(raw, rng)})
        for _ in range(rng.choice((1, 1, 2))):
            _change(document, rng)
        raw = _dump(document, rng)
        return Case({FILE: mutate(raw, rng) if rng.random() < 0.2 else raw})

    def read(self, folder: Path) -> Any:
        """Users with their items, and their plays."""
        packed = folder / ARCHIVE
        content = leaf_json.load(self.dataset, packed if packed.is_file() else folder / FILE)
        check_content(content)
        return items_of(content)

    def oracle(self, folder: Path) -> Any:
        """As :meth:`read`."""
        packed = folder / ARCHIVE
        raw = unzipped(packed, ".json") if packed.is_file() else (folder / FILE).read_bytes()
        return slow_leaf(raw, self.dataset)


def items_of(content: Content) -> dict[str, tuple[str, Any]]:
    """User -> (play, its text) or ("", its images as label and grey levels), in Python's own types."""
    found: dict[str, tuple[str, Any]] = {}
    columns = zip(content.subject_ids, content.groups, content.first_items, content.items, strict=True)
    for user, group, first, items in columns:
        span = slice(int(first), int(first + items + content.window))
        if content.kind == "text":
            found[user] = (group, "".join(VOCABULARY[symbol] for symbol in content.features[span]))
        else:
            images = content.features[span].reshape(int(items), -1).tolist()
            found[user] = (group, list(zip(content.labels[span].tolist(), images, strict=True)))
    return found


# --- inputs -------------------------------------------------------------------------------------------------


@cache
def _sample(dataset: str, real: bool) -> bytes:
    """A document as LEAF writes it; with ``real``, of three images of the real data set where it is at hand."""
    if dataset == "shakespeare":
        return json.dumps(leaf_shakespeare({"PLAY_KING": TEXT[:130], "PLAY_FOOL": TEXT[30:120]})).encode()
    path = real_file("femnist_leaf_180_writers.zip") if real else None
    if path is None:
        return json.dumps(leaf_femnist({"f0000_14": 2, "f0001_41": 1})).encode()
    with zipfile.ZipFile(path) as archive:
        document = json.loads(
            archive.read(min(name for name in archive.namelist() if name.endswith(".json")))
        )
    counts = dict(zip(document["users"][:2], (2, 1), strict=True))
    data = {u: {key: value[:n] for key, value in document["user_data"][u].items()} for u, n in counts.items()}
    return json.dumps({"users": list(counts), "num_samples": [*counts.values()], "user_data": data}).encode()


def _dump(document: Any, rng: random.Random) -> bytes:
    """Any way to write the document; sometimes what JSON does not know (NaN) or a bare surrogate."""
    text = json.dumps(
        document,
        indent=rng.choice((None, None, 1)),
        ensure_ascii=rng.random() < 0.7,
        separators=rng.choice(((",", ":"), (", ", ": "), (" ,", " : "))),
        sort_keys=rng.random() < 0.2,
    )
    return text.encode("utf-8", "surrogatepass")


def _rewritten(document: dict[str, Any], rng: random.Random) -> bytes:
    """The same data, written as no LEAF does: other orders, more keys, escaped symbols, numbers in other notations."""
    order = rng.sample(range(len(document["users"])), len(document["users"]))
    for key in ("users", "num_samples", "hierarchies"):
        if key in document:
            document[key] = [document[key][place] for place in order]
    document["note"] = rng.choice(VALUES[:10])
    for value in document["user_data"].values():
        value["raw"] = rng.choice(("", 'a]}"\\', [[{}]], None))
    keys = rng.sample(sorted(document), len(document))
    raw = _dump({key: document[key] for key in keys}, rng)
    if rng.random() < 0.5:
        raw = re.sub(rb"\b0\.([0-9]+)\b", lambda m: b"%dE-%d" % (int(m[1]), len(m[1])), raw)
    if rng.random() < 0.5:
        raw = re.sub(rb"(?<=[a-z])e(?=[a-z])", rb"\\u0065", raw)
    return b" \n\t" + raw + b"\r\n "


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key or index), rows of pixels only at their ends."""
    keys = list(value) if isinstance(value, dict) else [0, len(value) - 1] if value else []
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _change(document: dict[str, Any], rng: random.Random) -> None:
    """One change of a value, key or list, somewhere."""
    places = list(_places(document))
    if not places:
        return
    container, key = rng.choice(places)
    kind = rng.randrange(6)
    if kind == 0:
        del container[key]
    elif kind == 1 and isinstance(container, dict):
        container[rng.choice((*NAMES, "x", "y", "users", "user_data"))] = container.pop(key)
    elif kind == 2 and isinstance(container, list):
        container.append(container[key])
    elif kind == 3 and isinstance(container, list):
        container.reverse()
    elif kind == 4:
        name = rng.choice(NAMES)
        users, data = document.get("users"), document.get("user_data")
        if (
            isinstance(users, list)
            and isinstance(data, dict)
            and users
            and isinstance(users[0], str)
            and data.get(users[0])
        ):
            data[name] = data.pop(users[0])
            users[0] = name
    else:
        container[key] = copy.deepcopy(rng.choice((*VALUES, float("nan"), float("-inf"))))


def _documents(dataset: str) -> SearchStrategy[Any]:
    odd = st.sampled_from(VALUES) | st.floats() | st.integers() | st.text(max_size=5)
    names = st.sampled_from(("u", "v", *NAMES)) | st.text(min_size=1, max_size=4)
    if dataset == "femnist":
        row = st.lists(st.sampled_from((0, 1, 0.0, 1.0, 7 / 255, 100 / 255, 0.3)), min_size=784, max_size=784)
        row = (
            st.builds(lambda value, count: [value] * count, st.sampled_from((0.0, 1, 9 / 255)), st.just(784))
            | row
        )
        item = st.tuples(row | odd, st.integers(0, 61) | odd)
        user = st.lists(item, max_size=2).map(lambda i: {"x": [x for x, _ in i], "y": [y for _, y in i]})
    else:
        texts = st.text(VOCABULARY, min_size=81, max_size=84) | st.text(max_size=82)
        user = texts.map(lambda t: leaf_shakespeare({"u": t})["user_data"]["u"])
    data = st.dictionaries(names, user | odd, max_size=2)
    return data.flatmap(lambda users: _headers(users, odd))


def _headers(users: dict[str, Any], odd: SearchStrategy[Any]) -> SearchStrategy[Any]:
    counts = [len(value["y"]) if isinstance(value, dict) and "y" in value else 0 for value in users.values()]
    wanted = {"users": list(users), "num_samples": counts, "user_data": users}
    return st.just(wanted) | st.dictionaries(
        st.sampled_from(("users", "num_samples", "hierarchies")), odd
    ).map(lambda changes: {**wanted, **changes})


# --- the slow reader ----------------------------------------------------------------------------------------


def _require(condition: bool, reason: str) -> None:
    if not condition:
        raise Invalid(reason)


def _no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len({key for key, _ in pairs}) == len(pairs), "a key twice")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise Invalid(name)


def _name(name: Any, reason: str) -> None:
    _require(isinstance(name, str) and 0 < len(name) <= 200 and name.strip() != "", reason)
    _require(not any(unicodedata.category(c)[0] in "C" for c in name), reason)
    _require(not any(unicodedata.category(c) in ("Zl", "Zp", "Zs") and c != " " for c in name), reason)
    _require("/" not in name and "\\" not in name and name not in (".", ".."), reason)


def slow_leaf(raw: bytes, dataset: str) -> dict[str, tuple[str, Any]]:
    """What a LEAF document says, by LEAF's rules one after another; :class:`Invalid` where one is broken."""
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_double, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise Invalid(str(problem)) from None
    _require(isinstance(document, dict) and isinstance(document.get("user_data"), dict), "no user_data")
    data, users, declared = document["user_data"], document.get("users"), document.get("num_samples")
    _require(isinstance(users, list) and isinstance(declared, list) and len(users) == len(declared), "header")
    _require(all(isinstance(user, str) for user in users) and len(set(users)) == len(users), "users")
    _require(set(users) == set(data), "other users")
    plays = document.get("hierarchies") if dataset == "shakespeare" else None
    _require(plays is None or (isinstance(plays, list) and len(plays) == len(users)), "plays")
    found = {}
    for user, value in data.items():
        _name(user, "name of a user")
        items = _slow_user(value, dataset)
        if items:
            found[user] = items
    for place, (user, count) in enumerate(zip(users, declared, strict=True)):
        allowed = {len(data[user]["y"])} | (
            {len(data[user]["y"]) + 79} if dataset == "shakespeare" else set()
        )
        _require(type(count) is int and count in allowed, "count")
        if plays is not None:
            _name(plays[place], "name of a play")
    _require(bool(found), "nobody")
    looks = [unicodedata.normalize("NFKC", user).strip() for user in found]
    _require(len(set(looks)) == len(looks), "look-alikes")
    group_of = dict(zip(users, plays or [""] * len(users), strict=True))
    groups = {group_of[user] for user in found}
    _require(len({unicodedata.normalize("NFKC", g).strip() for g in groups}) == len(groups), "look-alikes")
    return {user: (group_of[user], items) for user, items in found.items()}


def _slow_user(value: Any, dataset: str) -> Any:
    _require(isinstance(value, dict) and "x" in value and "y" in value, "no user")
    x, y = value["x"], value["y"]
    _require(isinstance(x, list) and isinstance(y, list) and len(x) == len(y), "lists")
    if dataset == "shakespeare":
        return _slow_text(x, y)
    images = []
    for row, label in zip(x, y, strict=True):
        _require(type(label) is int and 0 <= label <= 61, "label")
        _require(isinstance(row, list) and len(row) == 784, "row")
        images.append((label, [_grey(pixel) for pixel in row]))
    return images


def _grey(pixel: Any) -> int:
    _require(type(pixel) in (int, float) and 0 <= pixel <= 1, "pixel")
    level = round(255 * pixel)
    _require(abs(255 * pixel - level) <= 1e-3, "pixel between grey levels")
    return level


def _slow_text(x: list[Any], y: list[Any]) -> str:
    _require(all(isinstance(w, str) and len(w) == 80 for w in x), "window")
    _require(all(isinstance(c, str) and len(c) == 1 for c in y), "next symbol")
    if not x:
        return ""
    for place in range(len(x) - 1):
        _require(x[place + 1] == x[place][1:] + y[place], "order")
    text: str = x[0] + "".join(y)
    _require(all(symbol in VOCABULARY for symbol in text), "symbol")
    return text
