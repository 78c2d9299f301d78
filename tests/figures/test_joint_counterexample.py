"""The figure of the counterexample: the commonest setting, all series, values as CSV; broken input refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from subjectdp.errors import DataError
from subjectdp.figures.attacks import CASE_COLUMNS as COLUMNS
from subjectdp.figures.catalogue import make_figure
from subjectdp.results.inputs import FigureInputs

NAME = "joint_counterexample"


def table(*cases: tuple[int, int, float]) -> pd.DataFrame:
    rows = []
    for silos, steps, probability in cases:
        row = dict.fromkeys(COLUMNS, float(steps))
        row |= {"silos": silos, "local_steps": steps, "sampling_probability": probability, "runs": 1000}
        row |= {"lower_bound": 2.0 * steps, "epsilon_claimed": 1.5 * steps}
        rows.append(row)
    return pd.DataFrame(rows)


@pytest.mark.usefixtures("as_published")
@pytest.mark.slow
def test_the_commonest_setting_is_drawn_over_the_local_steps(tmp_path: Path) -> None:
    source = tmp_path / "counterexample.parquet"
    table((5, 50, 0.1), (10, 50, 0.1), (10, 1, 0.1), (10, 10, 0.1), (10, 50, 1.0)).to_parquet(source)
    paths = make_figure(NAME, FigureInputs(counterexample=source), tmp_path / "figure")
    assert {path.suffix for path in paths} == {".svg", ".png", ".pdf", ".csv", ".json"}
    assert all(path.stat().st_size > 100 for path in paths)
    values = pd.read_csv(tmp_path / "figure" / f"{NAME}.csv")
    bounds = values[(values["quantity"] == "epsilon") & (values["series"] == "lower_bound")]
    assert bounds["x"].tolist() == [1, 10, 50]
    assert bounds["mean"].tolist() == [2.0, 20.0, 100.0]
    assert set(values[values["quantity"] == "variance"]["series"]) == {"claimed", "released", "lower_bound"}


def test_a_table_without_a_column_or_rows_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "counterexample.parquet"
    table((5, 50, 0.1)).drop(columns="lower_bound").to_parquet(source)
    with pytest.raises(DataError, match="lower_bound"):
        make_figure(NAME, FigureInputs(counterexample=source), tmp_path)
    table((5, 50, 0.1)).iloc[:0].to_parquet(source)
    with pytest.raises(DataError, match="no rows"):
        make_figure(NAME, FigureInputs(counterexample=source), tmp_path)
    with pytest.raises(DataError, match="counterexample of the figure's inputs"):
        make_figure(NAME, FigureInputs(), tmp_path)
