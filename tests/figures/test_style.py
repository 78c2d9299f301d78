"""Series can be told apart by every reader."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from figures.fake_runs import Fake, collected
from subjectdp.figures.panels import ALGORITHM_STYLES, sequence_styles, styles_for
from subjectdp.report.tables import runs_summary
from subjectdp.results.shown_runs import algorithm_label, in_order, run_label

# Full deficiencies in linear RGB (Machado, Oliveira, Fernandes 2009, severity 1.0)
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def linear(color: str) -> np.ndarray:
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* (D65) from linear RGB."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = np.clip(matrix @ np.clip(rgb, 0, 1), 0, None) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_colours_of_the_algorithms_differ_also_for_the_colour_blind(deficiency: str) -> None:
    seen = {name: lab(DEFICIENCIES[deficiency] @ linear(s.color)) for name, s in ALGORITHM_STYLES.items()}
    for one, two in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[two]) > 10, (one, two)


def test_without_colour_marker_and_line_tell_every_algorithm_apart() -> None:
    for styles in (list(ALGORITHM_STYLES.values()), sequence_styles(6)):
        assert len({style.marker for style in styles}) == len(styles)
        assert len({style.line for style in styles}) == len(styles)


def test_every_colour_stands_out_from_white() -> None:
    assert all(lab(linear(style.color))[0] < 78 for style in ALGORITHM_STYLES.values())


def test_an_unknown_algorithm_gets_a_style_of_its_own_and_comes_last() -> None:
    styles = styles_for(["FedAvg", "Mine", "Another"])
    assert styles["FedAvg"] == ALGORITHM_STYLES["FedAvg"]
    assert styles["Mine"] != styles["Another"]
    assert in_order(["Mine", "UserLDP", "FedAvg"]) == ["FedAvg", "UserLDP", "Mine"]


SOUND: dict[str, Any] = {"mode": "sound", "rounds": 8}
LABELS = ["SubjectRelease", "SubjectRelease [noise of 500 subjects]", "SubjectRelease [noise of 3,500 subjects]"]


def test_the_index_of_runs_names_the_subjects_and_their_epsilon(tmp_path: Path) -> None:
    predicted = [(n, s) for n in (None, 500, 3500) for s in (0, 1)]
    fakes = [Fake("subject_release", seed=s, predicted=n, **SOUND) for n, s in predicted]
    runs = collected(tmp_path, fakes).read_runs()
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
