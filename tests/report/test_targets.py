"""The papers' numbers: the file is whole, agrees with what the code knows of the papers, and refuses nonsense."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subjectdp.accounting import table1
from subjectdp.data.statistics import paper_settings
from subjectdp.errors import ConfigError
from subjectdp.report.targets import COLUMNS, Kind, Measured, Target, Verdict, judge, read_targets

FILE = Path(__file__).resolve().parents[2] / "config" / "targets.csv"


@pytest.fixture(scope="module")
def targets() -> dict[str, Target]:
    return {target.id: target for target in read_targets(FILE)}


def test_table_1_is_there_whole_as_the_accounting_prints_it(targets: dict[str, Target]) -> None:
    rows = [t for t in targets.values() if t.place == "Table 1"]
    found: dict[tuple[int, int], dict[str, float]] = {}
    for target in rows:
        key = (int(target.setting.local_steps or 0), target.setting.silos or 0)
        found.setdefault(key, {})[target.metric] = target.printed
        assert target.tolerance == 0.005, "half a unit of the second decimal"
    assert len(rows) == 24
    assert found == {key: {"noise_multiplier": s, "epsilon": e} for key, (s, e) in table1.PRINTED.items()}


def test_sampling_agrees_with_the_settings_that_are_drawn(targets: dict[str, Target]) -> None:
    for known in paper_settings():
        place = (known.dataset, known.subjects, known.alpha)
        same = [t for t in targets.values() if (t.setting.dataset, t.setting.subjects, t.setting.alpha) == place]
        subjects = {t.printed for t in same if t.metric == "subjects_per_batch"}
        groups = {t.printed for t in same if t.metric.startswith("largest_group")}
        assert subjects == ({known.published.subjects} if known.published.subjects else set())
        assert groups == ({known.published.largest_group} if known.published.largest_group else set())
        assert all(t.setting.batch_size == known.batch_size for t in same)


def test_tolerances_follow_the_stated_rule(targets: dict[str, Target]) -> None:
    """docs/findings.md: 2 points for accuracies, 3 or 5 % for differences, half a unit or 1 % for counts."""
    for target in targets.values():
        if target.kind is Kind.RELATIVE:
            assert target.tolerance == (5 if target.printed == 0 else 3)
        elif target.metric == "test_accuracy" and target.kind is Kind.VALUE:
            assert target.tolerance == 2
        elif target.metric in ("items_per_subject", "subjects_per_batch"):
            assert target.tolerance == pytest.approx(0.01 * target.printed)
        elif target.metric.startswith("largest_group") or target.unit == "orders of magnitude":
            assert target.tolerance == 0.5
        elif target.metric in ("rounds_executed", "subjects"):
            assert target.tolerance == 0
        elif target.kind in (Kind.ORDER, Kind.BOUND):
            assert math.isnan(target.tolerance)


with FILE.open(newline="") as stream:
    ROWS: list[dict[str, Any]] = list(csv.DictReader(stream))


def written(tmp_path: Path, rows: list[dict[str, Any]], columns: list[str] = COLUMNS) -> Path:
    path = tmp_path / "targets.csv"
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"paper": "v2"}, "row 2, paper"),
        ({"kind": "values"}, "row 2, kind to be 'value', 'relative'"),
        ({"metric": "accuracy"}, "row 2, metric"),
        ({"algorithm": "higrad_avg_dp:v7"}, "v7"),
        ({"algorithm": "local_itm_dp"}, "Did you mean 'local_item_dp'"),
        ({"printed": "78 %"}, "row 2, printed"),
        ({"printed": ""}, "printed and tolerance"),
        ({"tolerance": "-1"}, "at least 0"),
        ({"versus": "fed_avg"}, "versus"),
        ({"kind": "order", "printed": "", "tolerance": ""}, "another algorithm"),
        ({"kind": "order", "printed": "", "tolerance": "", "versus": "local_item_dp"}, "another setting"),
        ({"subjects": "0"}, "row 2, subjects"),
        ({"alpha": "-2"}, "row 2, alpha"),
        ({"local_steps": "epochs"}, "local_steps"),
        ({"horizontal": "all"}, "row 2, horizontal"),
        ({"not_counted": "v0-nothing"}, "row 2, not_counted"),
        ({"versus_setting": "seed=3"}, "versus_setting"),
        ({"id": " "}, "row 2, id"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_wrong_row_is_refused(tmp_path: Path, values: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_targets(written(tmp_path, [{**ROWS[0], **values}]))


def test_wrong_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an existing file"):
        read_targets(tmp_path / "none.csv")
    with pytest.raises(ConfigError, match="each once"):
        read_targets(written(tmp_path, [ROWS[0], ROWS[0]]))
    with pytest.raises(ConfigError, match="columns"):
        read_targets(written(tmp_path, [{"id": "x"}], ["id"]))
    path = written(tmp_path, ROWS[:1])
    path.write_text(path.read_text().rstrip() + ",one,too,many\n")
    with pytest.raises(ConfigError, match="each of 23 columns"):
        read_targets(path)


VALUE = next(target for target in read_targets(FILE) if target.id == "v1-femnist-local-item")
VALUE = replace(VALUE, printed=78.0, tolerance=2.0)
ORDER = replace(VALUE, kind=Kind.ORDER, versus=("fed_avg",), printed=math.nan, tolerance=math.nan)
CLAIM = replace(VALUE, kind=Kind.CLAIM, metric="epsilon", printed=4.0, tolerance=0.005)
BOUND = replace(VALUE, kind=Kind.BOUND, metric="excess_loss", printed=math.nan, tolerance=math.nan)
BELOW = replace(VALUE, kind=Kind.BELOW, printed=50.0, tolerance=0.0)


def ours(low: float, high: float, **more: object) -> Measured:
    mean = (low + high) / 2
    return replace(Measured(mean, low, high, 3, "here"), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "measured", "verdict"),
    [
        *((VALUE, ours(*interval), Verdict.REPRODUCED) for interval in ((76.5, 79.5), (76.0, 80.0))),
        *((VALUE, ours(*interval), Verdict.DIFFERS) for interval in ((70.0, 75.9), (80.1, 81.0))),
        *((VALUE, ours(*interval), Verdict.NOT_AT_THIS_SCALE) for interval in ((75.9, 79.0), (60.0, 90.0))),
        (VALUE, ours(76.5, 79.5, at_setting=False), Verdict.NOT_AT_THIS_SCALE),
        (VALUE, ours(76.5, 79.5, synthetic=True), Verdict.NOT_AT_THIS_SCALE),
        *((kind, ours(math.nan, math.nan), Verdict.NOT_AT_THIS_SCALE) for kind in (VALUE, ORDER, BOUND)),
        (VALUE, None, Verdict.NOT_RUN),
        (BELOW, ours(40.0, 49.9), Verdict.REPRODUCED),
        (BELOW, ours(50.0, 52.0), Verdict.DIFFERS),
        (BELOW, ours(45.0, 55.0), Verdict.NOT_AT_THIS_SCALE),
        (ORDER, ours(0.1, 8.0), Verdict.REPRODUCED),
        (ORDER, ours(0.1, 8.0, at_setting=False), Verdict.REPRODUCED),
        (ORDER, ours(0.1, 8.0, synthetic=True), Verdict.NOT_AT_THIS_SCALE),
        (ORDER, ours(-8.0, -0.1, at_setting=False), Verdict.DIFFERS),
        (ORDER, ours(-1.0, 8.0), Verdict.NOT_AT_THIS_SCALE),
        (CLAIM, ours(3.997, 3.997, synthetic=True, at_setting=False), Verdict.REPRODUCED),
        (CLAIM, ours(4.1, 4.1, epsilon_lower=4.1), Verdict.REFUTED),
        (CLAIM, ours(4.1, 4.1), Verdict.NOT_PROVABLE),
        (CLAIM, ours(9.0, 9.0, epsilon_lower=3.9), Verdict.NOT_PROVABLE),
        (CLAIM, Measured(math.inf, math.inf, math.inf, 0, "here"), Verdict.NOT_PROVABLE),
        (CLAIM, Measured(math.inf, math.inf, math.inf, 0, "here", epsilon_lower=5.0), Verdict.REFUTED),
        (BOUND, ours(-3.0, -0.1, synthetic=True), Verdict.REPRODUCED),
        (BOUND, ours(-3.0, -0.1, cannot_fail=True), Verdict.CANNOT_FAIL),
        (BOUND, ours(0.1, 2.0), Verdict.REFUTED),
        (BOUND, ours(-0.1, 0.1), Verdict.NOT_AT_THIS_SCALE),
    ],
)
def test_the_rule(target: Target, measured: Measured | None, verdict: Verdict) -> None:
    found, reason = judge(target, measured)
    assert found is verdict
    assert reason
