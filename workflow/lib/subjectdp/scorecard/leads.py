"""Sound algorithms at equal settings: accuracy, and SubjectRelease's lead over each with its interval."""

import pandas as pd

from subjectdp.algorithms.registry import label
from subjectdp.errors import DataError, expected
from subjectdp.figures.style import in_order
from subjectdp.plan.plan import TrustModel
from subjectdp.results.intervals import largest_of, mean_interval, paired_difference
from subjectdp.results.select import sound_runs
from subjectdp.results.shown_runs import datasets_in_order

_REFERENCE_NAME = "subject_release"
REFERENCE = label(_REFERENCE_NAME, None)  # the algorithm whose lead over the others is stated, by its label
COLUMNS = (
    "dataset",
    "noise_subjects",  # number of subjects that the noise is for: predicted, or the runs' own
    "epsilon",  # the target
    *("silos", "silos_per_subject"),  # the most that may hold a subject
    "algorithm",
    "unit",  # that ε is for; empty: no privacy
    *("seeds", "test_accuracy_percent", "test_accuracy_half_width"),  # of the 95 % t-interval
    *("lead", "lead_low", "lead_high"),  # of SubjectRelease, in points, over the seeds that both have
    "epsilon_stated",  # at the unit, for noise_subjects
    "epsilon_own_subject",  # of the same runs, for their own subjects over all silos
)
_PLACE = ("noise_subjects", "epsilon", "silos_per_subject")


def leads(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each data set, number of subjects, ε, number of silos of a subject, and algorithm (:data:`COLUMNS`).

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
    table = pd.DataFrame(rows, columns=list(COLUMNS))  # by data set, silos and place, as the groups were
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
    }
