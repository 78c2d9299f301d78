"""Figures are drawn coarsely: tests look at values and layout, not at pixels."""

from __future__ import annotations

import pytest

from subjectdp.figures import panels


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_TYPICAL_DPI", 40)
