"""Tables (runs by setting, sampling at the papers' scale, SubjectRelease's lead over other algorithms), and pages.

Pages are made by one template, page.html: files that open without a server and ask for nothing.
"""

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment

from subjectdp.accounting.epsilon import SEARCH, epsilon_of
from subjectdp.accounting.events import merged, recorded_loss
from subjectdp.algorithms.registry import algorithm, label
from subjectdp.config.run import settings_apart
from subjectdp.data.partition import EQUAL, INHERENT
from subjectdp.data.statistics import summary_table
from subjectdp.errors import DataError, expected
from subjectdp.io.atomic import write_text
from subjectdp.plan.plan import TrustModel
from subjectdp.results.collect import read_frame
from subjectdp.results.select import are_private, guarantees, largest_of, mean_interval, paired_difference, sound_runs
from subjectdp.results.shown_runs import datasets_in_order, in_order

SETTING = (
    *("dataset", "label", "mode", "horizontal", "subjects", "alpha", "silos", "silos_per_subject"),
    *("epsilon", "delta", "batch_size"),
)
_PRIVACY_ONLY = ("mode", "horizontal", "epsilon", "delta")  # meaningless without noise
_SOUND = ("epsilon_sound_item", "epsilon_sound_subject_one_silo", "epsilon_sound_subject")
# What a reader looks for comes first, the other settings and the cost after it.
_FIRST = (
    *("dataset", "label", "settings", "mode", "subjects", "silos", "alpha"),
    *("test_accuracy_percent", "test_accuracy_half_width", "seeds"),
    *("epsilon_as_published", "published_guarantee", *_SOUND, "subject_guarantee"),
)


def runs_summary(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per setting: accuracy with its 95 % interval over seeds, ε as published and sound, cost.

    ``epsilon_*`` are the largest of a seed, empty if none is stated; ``epsilon_sound_subject_all_seeds`` is that of all
    seeds together; ``settings`` tells the rows of an algorithm apart; ``subject_guarantee`` is "conditional" where a
    sound ε rests on a bound that was read from the data.
    """
    epochs = {steps: f"{-steps} epochs" if steps else "one epoch" for steps in runs["local_steps"] if steps <= 0}
    runs = runs.assign(local_steps=runs["local_steps"].map(lambda steps: epochs.get(steps, str(steps))))
    runs.loc[~are_private(runs), list(_PRIVACY_ONLY)] = [np.nan, np.nan, np.nan, np.nan]
    runs["epsilon"] = runs["epsilon"].replace(math.inf, math.nan)  # a given noise multiplier has no target
    laws = runs["setting"].map(lambda text: json.loads(text)["partition"]["distribution"])
    runs.loc[laws.isin([EQUAL, INHERENT]), "alpha"] = math.nan
    runs.loc[runs["mode"] == "sound", "horizontal"] = np.nan  # rules that only published accounting reads
    runs["batch_size"] = runs["batch_size"].mask(runs["algorithm"].map(lambda name: algorithm(name).samples_subjects))
    keys = [*SETTING, "local_steps"]
    apart = settings_apart({text: json.loads(text) for text in runs["setting"].unique()})
    rows = [
        {**_summary_row(dict(zip(keys, key, strict=False)), part), "settings": apart[part["setting"].iloc[0]]}
        for key, part in runs.groupby([*keys, "setting"], dropna=False)
    ]
    table = _ordered(pd.DataFrame(rows))
    return table[[*_FIRST, *(name for name in table.columns if name not in _FIRST)]]


def statistics_comparison(statistics: pd.DataFrame) -> pd.DataFrame:
    """Sampling at the papers' scale beside the papers' numbers, with the difference in per cent of theirs."""
    table = summary_table(statistics)
    if table.empty:
        raise expected("settings of the statistics", "none known", "at least one of the papers' settings", DataError)
    for quantity in ("subjects", "largest_group"):
        published = table[f"{quantity}_published"]
        table[f"{quantity}_difference_percent"] = 100 * (table[f"{quantity}_mean"] / published - 1)
    return table


def _summary_row(setting: dict[str, object], part: pd.DataFrame) -> dict[str, object]:
    accuracy = mean_interval(part["final_test_accuracy"] * 100)
    validation = 100 * part["final_validation_accuracy"].mean()  # NaN where no person has an item to spare for it
    published = largest_of(part["epsilon_as_published"])
    return {
        **setting,
        "synthetic": bool(part["synthetic"].any()),
        "seeds": accuracy.count,
        "test_accuracy_percent": round(accuracy.mean, 3),
        "test_accuracy_half_width": round(accuracy.half_width, 3),
        "validation_accuracy_percent": round(validation, 3),
        "test_loss": round(part["final_test_loss"].mean(skipna=False), 4),
        "epsilon_as_published": published,
        "published_guarantee": "" if math.isnan(published) else "no",
        **{name: largest_of(part[name]) for name in _SOUND},
        "epsilon_sound_subject_all_seeds": _all_seeds(part),
        "subject_guarantee": guarantees(part),
        "predicted_subjects": largest_of(part["predicted_subjects"]),
        "epsilon_predicted": largest_of(part["epsilon_predicted"]),
        "rounds_executed": int(part["rounds_executed"].max()),
        "wall_seconds": round(part["wall_seconds"].mean(skipna=False), 1),
        "peak_memory_mb": round(part["peak_memory_mb"].mean(skipna=False), 1),
        "run_ids": " ".join(sorted(part["run_id"])),
    }


def _all_seeds(part: pd.DataFrame) -> float:
    losses = [recorded_loss(json.loads(text)) for text in part["subject_event"]]
    known = [loss for loss in losses if loss is not None]
    stated = part["epsilon_sound_subject"].notna().all() and len(known) == len(losses)
    if not stated or part["seed"].nunique() < len(part):
        return math.nan
    together = merged(step for loss in known for step in loss)
    return epsilon_of(together, float(part["delta"].iloc[0]), resolution=SEARCH)


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    places = {"dataset": datasets_in_order(table["dataset"]).index, "label": in_order(table["label"]).index}
    columns = {name: table[name].map(place) for name, place in places.items()}
    keys = table.assign(mode=table["mode"].astype(object).fillna(""), **columns)
    order = ["dataset", "label", "alpha", "silos_per_subject", "subjects", "mode", "epsilon"]
    return table.loc[keys.sort_values(order).index].reset_index(drop=True)


_REFERENCE_NAME = "subject_release"
REFERENCE = label(_REFERENCE_NAME, None)  # the algorithm whose lead over the others is stated, by its label
LEADS = (
    "dataset",
    "noise_subjects",  # number of subjects that the noise is for: predicted, or the runs' own
    "epsilon",  # the target
    *("silos", "silos_per_subject"),  # the most that may hold a subject
    "algorithm",
    "unit",  # that ε is for; empty: no privacy
    *("seeds", "test_accuracy_percent", "test_accuracy_half_width"),  # of the 95 % t-interval
    *("lead", "lead_low", "lead_high"),  # of SubjectRelease, in points, over the seeds that both have
    "epsilon_stated",  # at the unit, for noise_subjects
    *("epsilon_own_subject", "subject_guarantee"),  # of the same runs, for their own subjects over all silos
)
_PLACE = ("noise_subjects", "epsilon", "silos_per_subject")


def leads(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each data set, number of subjects, ε, number of silos of a subject, and algorithm (:data:`LEADS`).

    Only runs whose subjects lie evenly over their silos count; algorithms without privacy have a row at every ε. Of an
    algorithm that was run under several trust models, runs under local trust count where there are some. Raises
    DataError for no such sound run, none of SubjectRelease, or two of one algorithm, seed, number and ε.
    """
    runs = runs[runs["alpha"] == 1]
    if not (runs["algorithm"] == _REFERENCE_NAME).any():
        allowed = f"{_REFERENCE_NAME} on subjects that lie evenly over their silos"
        raise expected("algorithms of the runs", sorted(set(runs["algorithm"])), allowed, DataError)
    alike = ["label", "dataset", "subjects", "epsilon", "silos", "silos_per_subject", "seed"]
    local = runs["trust"] == TrustModel.LOCAL
    some_local = runs[alike].assign(local=local).groupby(alike)["local"].transform("any")
    runs, _ = sound_runs(runs[local | ~some_local], vary=(*_PLACE, "subjects"))
    private = runs[runs["unit"] != ""]
    rows = []
    for place, part in private.groupby(["dataset", "silos", *_PLACE]):
        facts = dict(zip(["dataset", "silos", *_PLACE], place, strict=True))
        same = pd.Series(runs["unit"] == "")  # without privacy, on the same data, subjects and silos
        for column in ("dataset", "subjects", "silos", "silos_per_subject"):
            same &= runs[column] == part[column].max()
        shown = pd.concat([runs[same], part])
        reference = _by_seed(shown, REFERENCE)
        rows += [facts | _row(shown, name, reference) for name in in_order(shown["name"])]
    table = pd.DataFrame(rows, columns=list(LEADS))  # by data set, silos and place, as the groups were
    first = table["dataset"].map(datasets_in_order(table["dataset"]).index)
    return table.loc[first.sort_values(kind="stable").index].reset_index(drop=True)


def _by_seed(runs: pd.DataFrame, name: str) -> pd.Series:
    part = runs[runs["name"] == name]
    return part.set_index("seed")["final_test_accuracy"] * 100


def _row(runs: pd.DataFrame, name: str, reference: pd.Series) -> dict[str, object]:
    part, own = runs[runs["name"] == name], _by_seed(runs, name)
    accuracy = mean_interval(own)
    seeds = sorted(set(own.index) & set(reference.index))
    lead = [float("nan")] * 3
    if seeds and name != REFERENCE:
        ahead = paired_difference(reference.loc[seeds], own.loc[seeds])
        lead = [ahead.mean, ahead.low, ahead.high]
    return {
        "algorithm": name,
        "unit": part["unit"].iloc[0],
        "seeds": accuracy.count,
        "test_accuracy_percent": round(accuracy.mean, 3),
        "test_accuracy_half_width": round(accuracy.half_width, 3),
        **{key: round(value, 3) for key, value in zip(("lead", "lead_low", "lead_high"), lead, strict=True)},
        "epsilon_stated": largest_of(part["epsilon_stated"]),
        "epsilon_own_subject": largest_of(part["epsilon_sound_subject"]),
        "subject_guarantee": guarantees(part),
    }


TEMPLATE = Path(__file__).with_name("page.html")
_TYPES = {".csv": "text/csv", ".svg": "image/svg+xml"}


def write_table_page(source_csv: Path | str, target_html: Path | str, title: str) -> None:
    """Writes a CSV as a sortable page that carries it; DataError for a CSV that is missing, empty or without rows."""
    write_page(target_html, title, csv=Path(source_csv), tables=[("", "", read_frame(source_csv, ()))])


def write_page(target: Path | str, title: str, **parts: Any) -> None:
    """Writes page.html with its ``parts``; all text is escaped but captions."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"short": _short, "exact": _exact, "data_uri": data_uri}
    write_text(target, environment.from_string(TEMPLATE.read_text()).render(title=title, **parts))


def data_uri(path: Path) -> str:
    """The content of a CSV or SVG file as a data URI; DataError if it is missing or empty."""
    content = path.read_bytes() if path.is_file() else b""
    if not content:
        raise expected(str(path), "nothing", "a file with content", DataError)
    return f"data:{_TYPES[path.suffix]};base64,{base64.b64encode(content).decode()}"


def _short(value: float) -> str:
    if math.isinf(value):
        return "∞"
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def _exact(value: float) -> str:
    return "Infinity" if math.isinf(value) else repr(float(value))
