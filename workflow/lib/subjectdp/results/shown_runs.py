"""Which runs a figure shows, one setting, one run per algorithm and seed; and what runs and numbers are called.

Decided from settings alone, so that a figure that cannot be drawn is refused before anything is trained
(``forecast.before_start``). Imports nothing heavy: the Snakefile reads it.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from subjectdp.algorithms import registry
from subjectdp.algorithms.registry import algorithm, is_private
from subjectdp.data.catalogue import DATASETS
from subjectdp.errors import DataError, expected, unknown
from subjectdp.io.printing import flattened

Row = Mapping[Any, Any]  # a run: its label, and at least the columns of setting_columns
_MOST_TRIED = 1000  # settings that are looked at; of more no figure shows each
_REFERENCE: dict[str, Any] = {"mode": "as_published", "horizontal": "rounds_over_sqrt_s", "alpha": 1.0}
CONDITIONAL_MARK = "†"
CONDITIONAL_NOTE = "† conditional: the most items of a subject, or its silos, are read from the data and not enforced"
NO_IDS = "no subject ids"  # the guarantee of a subject where each item is its own
_COLUMNS = ("mode", "horizontal", "alpha", "epsilon", "delta", "silos", "rounds", "batch_size")


@dataclass(frozen=True)
class Shown:
    vary: tuple[str, ...] = ()  # swept columns that the figure shows; ``local_steps`` is one too
    hidden: tuple[str, ...] = ()  # labels of algorithms that it leaves out
    private: bool = False  # whether it leaves out algorithms that claim no privacy
    swept: str = ""  # a column of which an algorithm has several values, else it is left out; empty: none


def setting_columns(config: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of runs.parquet that are settings of the run; ``config`` is the run's as in its manifest.

    ``epsilon`` is infinite where the noise multiplier is given, ``local_steps`` 0 for one local epoch, -n for n of
    them, ``alpha`` 1 for a uniform partition, ``setting`` JSON text that is equal for the seeds of one setting.
    """
    data, partition, privacy, training = (config[key] for key in ("data", "partition", "privacy", "training"))
    held, joint = partition.get("silos_per_subject"), config.get("joint") or {}
    alone, epochs = int(algorithm(config["algorithm"]["name"]).one_step_per_round), training.get("local_epochs") or 1
    shared = {key: value for key, value in config.items() if key not in ("seed", "performance")}
    shared["data"] = {**data, "path": PurePath(data.get("path") or "").name, "expected": {}}
    return {
        "seed": config["seed"],
        **{name: data[name] for name in ("dataset", "source")},
        "trimmed": data.get("subjects") is not None,
        "algorithm": config["algorithm"]["name"],
        "variant": config["algorithm"].get("variant"),
        **{name: privacy[name] for name in ("mode", "horizontal", "delta")},
        "trust": (config.get("subject") or {}).get("trust"),
        "alpha": float(partition["alpha"]) if partition.get("distribution") == "power" else 1.0,
        "silos": partition["silos"],
        "silos_per_subject": partition["silos"] if held is None else held,
        "epsilon": privacy["epsilon"] if privacy.get("noise_multiplier") is None else math.inf,
        **{name: training[name] for name in ("rounds", "batch_size")},
        "local_steps": training.get("local_steps") or alone or (-epochs if epochs > 1 else 0),
        "model": config["model"]["name"],
        **{f"joint_{name}": joint.get(name) for name in ("clipping", "noise", "bits")},
        "own_noise_only": bool(joint.get("own_noise_only")),
        "setting": json.dumps(shared, sort_keys=True),
    }


MOST_SETTINGS = 6  # that a figure shows side by side; of more it shows one, and says so


def settings_of(rows: Sequence[Row], shown: Shown) -> list[tuple[str, list[int]]]:
    """The settings among the runs of each data set, in words, and the positions of the runs of each.

    A baseline that does not read a swept key, and an algorithm with rounds or mini-batches of its own, are in all of
    them. One setting, all runs, where no data set has several. Raises DataError where no run is left.
    """
    candidates = _candidates(rows, shown)
    found: list[tuple[str, list[int]]] = []
    datasets = datasets_in_order(rows[place]["dataset"] for place in candidates)
    for dataset in datasets:
        part = [place for place in candidates if rows[place]["dataset"] == dataset]
        keys = _other_keys(rows, part, shown.vary)
        own = [_with_other_keys(row, keys) for row in rows]
        found += _settings_of_data(part, own, [*(name for name in _COLUMNS if name not in shown.vary), *keys])
    return found if len(found) > len(datasets) else [("", sorted(candidates))]


def _other_keys(rows: Sequence[Row], part: Sequence[int], vary: Sequence[str]) -> list[str]:
    """The dotted keys without a column, such as clip norm and rate, in which runs of one algorithm differ."""
    alike: defaultdict[tuple[Any, ...], dict[str, int]] = defaultdict(dict)
    for place in part:
        row = rows[place]
        known = (row.get(name) for name in dict.fromkeys((*_COLUMNS, *vary)))
        alike[row["label"], *known].setdefault(row["setting"], place)
    several = [[json.loads(setting) for setting in settings] for settings in alike.values() if len(settings) > 1]
    return sorted({key for first, *others in several for other in others for key in differing_keys(first, other)})


def _with_other_keys(row: Row, keys: Sequence[str]) -> Row:
    values = dict(flattened(json.loads(row["setting"])))
    noise = values.get("privacy.noise_multiplier")  # beside it the target is not read
    target = row["epsilon"] if noise is None else f"that of noise {noise:g}"
    return {**row, "epsilon": target, **{key: values.get(key) for key in keys}}


def _settings_of_data(part: list[int], rows: Sequence[Row], columns: Sequence[str]) -> list[tuple[str, list[int]]]:
    found: dict[tuple[int, ...], tuple[Any, ...]] = {}
    there = {tuple(rows[place][name] for name in columns) for place in part}
    if len(there) > _MOST_TRIED:
        return [("", part)]
    for values in sorted(there, key=lambda values: [_in_order(value) for value in values]):
        places = part
        for column, value in zip(columns, values, strict=True):
            places = [place for place in places if rows[place][column] == value or _anywhere(rows, part, place, column)]
        found.setdefault(tuple(sorted(places)), values)
    found = {places: values for places, values in found.items() if not any(set(places) < set(more) for more in found)}
    named = _telling(list(found.values()))
    return [
        (", ".join(_words(columns[number], values[number]) for number in named), list(places))
        for places, values in found.items()
    ]


def _anywhere(rows: Sequence[Row], part: Sequence[int], place: int, column: str) -> bool:
    """Whether a run is shown whatever the value of the column."""
    row = rows[place]
    if _unread(row, column):
        return True
    return (column in ("rounds", "batch_size") or "." in column) and all(
        rows[other][column] == row[column] for other in part if rows[other]["label"] == row["label"]
    )


def _unread(row: Row, column: str) -> bool:
    return column in ("mode", "horizontal", "epsilon", "delta") and not is_private(row["algorithm"])


def _telling(settings: Sequence[tuple[Any, ...]]) -> list[int]:
    """The fewest places of the settings' values, from the last on left out, that still tell them apart."""
    named = list(range(len(settings[0]) if settings else 0))
    for place in named[::-1]:
        fewer = [each for each in named if each != place]
        if len({tuple(values[each] for each in fewer) for values in settings}) == len(settings):
            named = fewer
    return named


def _in_order(value: Any) -> tuple[bool, str, float]:
    number = isinstance(value, int | float)
    return not number, "" if number else str(value), value if number else 0


def shown_rows(rows: Sequence[Row], shown: Shown) -> tuple[list[int], list[str]]:
    """Positions of the runs of one setting for each data set, rising, and a note for each choice that left runs out.

    For swept columns that the figure does not show the papers' value is taken if present (as published, α = 1), else
    the most frequent one. An algorithm that was run with other rounds or mini-batches alone keeps them.
    Raises DataError where no run is left, or the runs of an algorithm differ in more than the seed.
    """
    candidates = _candidates(rows, shown)
    chosen: list[int] = []
    notes: list[str] = []
    for dataset in datasets_in_order(rows[place]["dataset"] for place in candidates):
        part = [place for place in candidates if rows[place]["dataset"] == dataset]
        for column in _COLUMNS:
            values = [rows[place][column] for place in part if not _unread(rows[place], column)]
            if column in shown.vary or len(set(values)) < 2:
                continue
            value = _preferred(values, column)
            kept = _at(rows, part, column, value)
            if len(kept) < len(part):
                notes.append(f"{dataset_name(dataset)}: only {_words(column, value)} shown")
            part = kept
        require_one_setting([rows[place] for place in part], shown.vary)
        notes += (f"{dataset_name(dataset)}: {words}" for words in _other_data([rows[place] for place in part]))
        chosen += part
    return sorted(chosen), notes


def _other_data(rows: Sequence[Row]) -> Iterator[str]:
    """The keys of the data, such as the number of people, in which algorithms side by side differ."""
    found: defaultdict[str, defaultdict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        for key, value in flattened(json.loads(row["setting"])["data"]):
            found[key][row["label"]].add("–" if value is None else str(value))
    for key, values in found.items():
        single = {label: each for label, (each, *others) in values.items() if not others}
        if len(single) == len(values) and len(set(single.values())) > 1:
            yield f"data.{key} differs: {', '.join(f'{label} {single[label]}' for label in in_order(single))}"


def _candidates(rows: Sequence[Row], shown: Shown) -> list[int]:
    if not rows:
        raise expected("runs to draw", "none", "at least one run", DataError)
    for column in (*shown.vary, *filter(None, [shown.swept])):
        if column not in rows[0]:
            raise unknown("column that the figure varies", column, map(str, rows[0]), DataError)
    labels = sorted({str(row["label"]) for row in rows})
    kept = [place for place, row in enumerate(rows) if row["label"] not in shown.hidden]
    if not kept:
        raise expected("algorithms to draw", labels, f"others than {', '.join(shown.hidden)}", DataError)
    if shown.private:
        kept = [place for place in kept if is_private(rows[place]["algorithm"])]
        if not kept:
            raise expected("algorithms of the scenario", labels, "at least one with noise", DataError)
    if shown.swept:
        values: defaultdict[tuple[str, str], set[Any]] = defaultdict(set)
        for place in kept:
            values[rows[place]["dataset"], rows[place]["label"]].add(rows[place][shown.swept])
        values_there = sorted({rows[place][shown.swept] for place in kept})
        kept = [place for place in kept if len(values[rows[place]["dataset"], rows[place]["label"]]) > 1]
        if not kept:
            wanted = "at least two values for an algorithm"
            raise expected(f"{shown.swept} of the runs", values_there, wanted, DataError)
    return kept


def _preferred(values: Sequence[Any], column: str) -> Any:
    reference = _REFERENCE.get(column)
    if reference is not None and reference in values:
        return reference
    counts = Counter(values)
    most = max(counts.values())
    return min(value for value, count in counts.items() if count == most)


def _at(rows: Sequence[Row], part: Sequence[int], column: str, value: Any) -> list[int]:
    by_label: defaultdict[str, list[int]] = defaultdict(list)
    for place in part:
        by_label[rows[place]["label"]].append(place)
    kept = []
    for places in by_label.values():
        values = [rows[place][column] for place in places]
        own = column in ("rounds", "batch_size") or _unread(rows[places[0]], column)
        wanted = _preferred(values, column) if own and value not in values else value
        kept += [place for place, one in zip(places, values, strict=True) if one == wanted]
    return kept


def _words(column: str, value: Any) -> str:
    names = {"alpha": "α", "epsilon": "ε", "delta": "δ", "batch_size": "batch size"}
    if column in ("mode", "horizontal"):
        return str(value).replace("_", " ")
    if column == "epsilon" and value == math.inf:
        return "given noise multiplier"
    shown = f"{value:g}" if isinstance(value, int | float) else "–" if value is None else str(value)
    return f"{names.get(column, column.rpartition('.')[2].replace('_', ' '))} = {shown.replace('_', ' ')}"


def require_one_setting(rows: Iterable[Row], by: Sequence[str]) -> None:
    """DataError unless the runs of a label and place (columns ``by``) differ in the seed alone, each in its own."""
    alike: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        alike[row["label"], *(row.get(name) for name in by)].append(row)
    for (label, *_), same in alike.items():
        others = [row for row in same if row["setting"] != same[0]["setting"]]
        if others or len({row["seed"] for row in same}) < len(same):
            pair = same[0], (others or same[1:])[0]
            count = len({row["setting"] for row in same}) if others else len(same)
            seeds = " and ".join(map(str, dict.fromkeys(row["seed"] for row in pair)))
            differing = differing_keys(*[json.loads(row["setting"]) for row in pair])
            found = f"{count} that differ in {', '.join(differing) or 'nothing but their ids'}"
            allowed = "one: choose it (`selections`), or leave the figure out"
            raise expected(f"runs of {label} with seed {seeds}", found, allowed, DataError)


def differing_keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """The dotted keys in which two configurations differ, sorted."""
    one, other = dict(flattened(dict(first))), dict(flattened(dict(second)))
    return sorted(key for key in one | other if one.get(key) != other.get(key))


_PREDICTED = " [noise of "


def run_label(label: str, predicted_subjects: int | None) -> str:
    """The algorithm's label; marked, in every table and figure, if the noise is that of more subjects."""
    return label if predicted_subjects is None else f"{label}{_PREDICTED}{predicted_subjects:,} subjects]"


def algorithm_label(label: str) -> str:
    """The algorithm's own label, without the mark of :func:`run_label`."""
    return label.partition(_PREDICTED)[0]


def dataset_name(dataset: str) -> str:
    """The display name of a data set: femnist -> FEMNIST."""
    return DATASETS[dataset].label if dataset in DATASETS else dataset


def datasets_in_order(datasets: Iterable[str]) -> list[str]:
    """Distinct data sets in the papers' order: FEMNIST first, unknown ones last."""
    order = {name: index for index, name in enumerate(DATASETS)}
    return sorted(set(datasets), key=lambda name: (order.get(name, len(order)), name))


def in_order(labels: Iterable[str]) -> list[str]:
    """Labels of algorithms in the order of the registry (the papers' order), unknown ones last by name."""
    known = [registry.label(name, variant) for name in registry.ALGORITHMS for variant in algorithm(name).variants]
    order = {name: index for index, name in enumerate(known)}
    return sorted(set(labels), key=lambda name: (order.get(algorithm_label(name), len(order)), name))


def format_epsilon(value: float) -> str:
    """An ε with at most three significant digits: 4, 8.33, 57.9, 145, 1e7, ∞; a dash if none is stated (NaN)."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    if value >= 99_999.5:
        return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")
    if value >= 99.95:
        return f"{value:,.0f}"
    digits = 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
