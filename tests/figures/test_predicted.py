"""Runs with the noise of subjects that they do not have say so in every table and figure, and are never averaged in."""

import math
from pathlib import Path
from typing import Any

from figures.fake_runs import Fake, collected
from subjectdp.figures.style import in_order, styles_for
from subjectdp.report.tables import runs_summary
from subjectdp.results.shown_runs import algorithm_label, run_label

SOUND: dict[str, Any] = {"mode": "sound", "rounds": 8}
LABELS = ["SubjectRelease", "SubjectRelease [noise of 500 subjects]", "SubjectRelease [noise of 3,500 subjects]"]


def test_the_index_of_runs_names_the_subjects_and_their_epsilon(tmp_path: Path) -> None:
    predicted = [(n, s) for n in (None, 500, 3500) for s in (0, 1)]
    runs = collected(
        tmp_path, [Fake("subject_release", seed=s, predicted=n, **SOUND) for n, s in predicted]
    ).read_runs()
    assert runs["label"].tolist() == [label for label in LABELS for _ in (0, 1)]
    assert runs["predicted_subjects"].dropna().tolist() == [500.0] * 2 + [3500.0] * 2
    assert runs["predicted_subjects"].isna().tolist() == runs["epsilon_predicted"].isna().tolist()
    assert set(runs["epsilon_predicted"].dropna()) == {4.0}
    table = runs_summary(runs)
    assert table["label"].tolist() == [LABELS[0], LABELS[2], LABELS[1]] or table["label"].tolist() == LABELS
    assert table["seeds"].tolist() == [2, 2, 2]
    stated = {n for n in table["predicted_subjects"] if not math.isnan(n)}
    assert stated == {500.0, 3500.0}


def test_a_label_carries_the_prediction_and_keeps_the_algorithms_look() -> None:
    label = run_label("HiGradAvgDP (v1)", 3500)
    assert label == "HiGradAvgDP (v1) [noise of 3,500 subjects]"
    assert algorithm_label(label) == "HiGradAvgDP (v1)" == algorithm_label("HiGradAvgDP (v1)")
    styles = styles_for([label, "HiGradAvgDP (v1)", "Unknown", run_label("Unknown", 5)])
    assert styles[label] == styles["HiGradAvgDP (v1)"]
    assert styles["Unknown"] == styles[run_label("Unknown", 5)]
    order = in_order([run_label("FedAvg", 2), "UserLDP", "Unknown", label, "FedAvg"])
    assert order == ["FedAvg", "FedAvg [noise of 2 subjects]", "UserLDP", label, "Unknown"]
