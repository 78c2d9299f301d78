"""What private selections release, as rows of the table of leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from subjectdp.plan.plan import PrivacyUnit
from subjectdp.results.intervals import mean_interval
from subjectdp.results.labels import algorithm_label
from subjectdp.results.select import silos_of_subject
from subjectdp.scorecard.leads import COLUMNS

_SETTING = ["dataset", "noise_subjects", "silos", "silos_per_subject", "algorithm"]


def selected(runs: pd.DataFrame, statements: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each setting (:data:`leads.COLUMNS`), over the released runs alone.

    ``statements``: the scenario's private_selection.json. Both ``epsilon_stated`` and ``epsilon_own_subject`` are the
    largest ε of a whole selection for a subject; ``epsilon`` is what it may be. Selections that keep ε for items only,
    runs with predicted noise and subjects that lie unevenly over their silos are left out.
    """
    at_subject = [each for each in statements if each["unit"] == PrivacyUnit.SUBJECT]
    released = pd.DataFrame(map(_of_statement, at_subject), columns=["run_id", "epsilon", "epsilon_selected"])
    own = runs[runs["predicted_subjects"].isna() & (runs["alpha"] == 1)].drop(columns="epsilon")
    table = own.merge(released, on="run_id").assign(
        algorithm=lambda found: found["label"].map(algorithm_label),
        noise_subjects=lambda found: found["subjects"].astype(float),
        silos_per_subject=lambda found: [float(silos_of_subject(text)) for text in found["config"]],
    )
    groups = table.groupby([*_SETTING, "epsilon"], sort=True)
    rows = [dict(zip([*_SETTING, "epsilon"], key, strict=True)) | _reached(part) for key, part in groups]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_statement(statement: Mapping[str, Any]) -> dict[str, object]:
    return {
        "run_id": statement["released"],
        "epsilon": statement["private_selection"]["epsilon"],
        "epsilon_selected": statement["epsilon"][PrivacyUnit.SUBJECT],
    }


def _reached(part: pd.DataFrame) -> dict[str, object]:
    accuracy, most = mean_interval(100 * part["final_test_accuracy"]), float(part["epsilon_selected"].max())
    return {
        "unit": PrivacyUnit.SUBJECT.value,
        "seeds": accuracy.count,
        "test_accuracy_percent": round(accuracy.mean, 3),
        "test_accuracy_half_width": round(accuracy.half_width, 3),
        "epsilon_stated": most,
        "epsilon_own_subject": most,
    }
