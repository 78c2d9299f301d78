"""The closed form of the sum of all steps: known answers, the accountant above it, and the page's own ten lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from subjectdp.accounting.epsilon import epsilon_of
from subjectdp.accounting.events import MixtureSteps, Shift, sampled_gaussian, subject_sampling_probability
from subjectdp.accounting.gaussian import gdp_epsilon
from subjectdp.auditing.lower_bounds import least_epsilon
from subjectdp.errors import PrivacyError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "findings.md"
Q_S = subject_sampling_probability(512 / 25_375, 8)
SIGMA = 1.8155  # Opacus' RDP accountant, (4, 1e-5), 5,000 steps of q = 512 / 25,375


def test_without_sampling_it_is_the_gaussian_mechanisms_epsilon() -> None:
    """The sum tells all: μ = s √N / σ."""
    loss = MixtureSteps(50.0, sampled_gaussian(1.0, 2.0), 400)
    assert least_epsilon(loss, 1e-5) == pytest.approx(gdp_epsilon(2 * 20 / 50, 1e-5), abs=1e-4)


@pytest.mark.parametrize(("steps", "least"), [(1_250, 16.74), (20_000, 119.12)])
def test_v1_at_the_papers_scale_is_below_the_accountants_value(steps: int, least: float) -> None:
    loss = MixtureSteps(SIGMA, sampled_gaussian(Q_S), steps)
    found = least_epsilon(loss, 1e-5)
    assert found == pytest.approx(least, abs=0.02)
    assert found < epsilon_of((loss,), 1e-5, "pld") < 1.1 * found


def test_steps_that_move_by_several_values_are_refused() -> None:
    with pytest.raises(PrivacyError, match="0 and one other"):
        least_epsilon(MixtureSteps(1.0, Shift((0.0, 1.0, 2.0), (0.5, 0.3, 0.2)), 3), 1e-5)


def test_the_pages_ten_lines_print_what_the_page_says() -> None:
    (code,) = re.findall(
        r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert "subjectdp" not in code, "no code under test"
    names: dict[str, Any] = {}
    exec(code, names)
    printed = [float(value) for value in re.findall(r"# ([\d.]+)$", code, re.MULTILINE)]
    calls = re.findall(r"^print\((.*)\)\s+#", code, re.MULTILINE)
    assert [round(eval(call, names), 1) for call in calls] == printed
    loss = MixtureSteps(1.816, sampled_gaussian(Q_S), 1_250)
    assert printed[0] == pytest.approx(least_epsilon(loss, 1e-5), abs=0.06)
