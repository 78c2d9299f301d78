"""The scenario's tables by name, each from its collected tables.

No part of a table's code fingerprint, which each rule states for its own table.
"""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from subjectdp.accounting import table1
from subjectdp.errors import DataError, unknown
from subjectdp.io.atomic import write_frame
from subjectdp.report import scorecard
from subjectdp.report.tables import leads, runs_summary, statistics_comparison, write_table_page
from subjectdp.results.collect import FigureInputs

TABLES: dict[str, Callable[[FigureInputs], pd.DataFrame]] = {
    "runs_summary": lambda inputs: runs_summary(inputs.read_runs()),
    "statistics": lambda inputs: statistics_comparison(inputs.read_statistics()),
    "table1": lambda inputs: pd.DataFrame(table1.rows()),
    "leads": lambda inputs: leads(inputs.read_runs()),
    "scorecard": scorecard.build,
}


def make_table(name: str, inputs: FigureInputs, title: str, target_csv: Path | str, target_html: Path | str) -> None:
    """Writes a table as CSV and as a page; DataError if unknown or damaged, ConfigError for a wrong file of targets."""
    if name not in TABLES:
        raise unknown("table", name, TABLES, DataError)
    write_frame(target_csv, TABLES[name](inputs))
    write_table_page(target_csv, target_html, title)
