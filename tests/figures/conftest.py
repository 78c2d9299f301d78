"""Figures are drawn coarsely and once: tests look at values, texts and layout, not at pixels."""

from __future__ import annotations

import pytest

from subjectdp.figures import panels


@pytest.fixture
def as_published() -> None:
    """For tests of the files: they are saved in every format."""


@pytest.fixture(autouse=True)
def light(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "_TYPICAL_DPI", 40)
    if "as_published" not in request.fixturenames:
        monkeypatch.setattr(panels, "_SAVED", {"svg": panels._SAVED["svg"]})
