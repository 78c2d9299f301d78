"""A figure's page of the report carries the figure once, and its values."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pandas as pd
import pytest

from figures.fake_runs import collected, grid
from subjectdp.errors import DataError
from subjectdp.figures import panels
from subjectdp.figures.catalogue import make_figure
from subjectdp.report.figure_page import MOST_ROWS, write_figure_page


@pytest.mark.slow
def test_a_figures_page_carries_the_figure_once_and_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(panels, "_SAVED", {"svg": panels._SAVED["svg"]})  # the page carries no other
    inputs = collected(tmp_path, grid(["fed_avg", "local_item_dp"], ["femnist"], [0, 1], rounds=4))
    make_figure("figure1_v3", inputs, tmp_path / "figure")
    page = write_figure_page("figure1_v3", "Figure <1>", tmp_path / "figure").read_text()
    carried = [base64.b64decode(content) for content in re.findall(r"base64,([A-Za-z0-9+/=]+)\"", page)]
    whole = [tmp_path / f"figure/figure1_v3{suffix}" for suffix in (".svg", ".csv")]
    assert sorted(carried) == sorted(path.read_bytes() for path in whole)
    assert "<h1>Figure &lt;1&gt;</h1>" in page
    values = pd.read_csv(tmp_path / "figure/figure1_v3.csv")
    assert page.count("<tr>") == 1 + min(len(values), MOST_ROWS)
    (tmp_path / "figure/figure1_v3.csv").write_text("")
    with pytest.raises(DataError, match="figure1_v3.csv"):
        write_figure_page("figure1_v3", "Figure 1", tmp_path / "figure")
