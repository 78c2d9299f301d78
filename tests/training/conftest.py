"""What the tests of training share."""

import pytest

from subjectdp.training import run
from training import small_world


@pytest.fixture(autouse=True)
def models_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    small_world.try_models_once(monkeypatch)


@pytest.fixture
def quick_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan's ε takes longer than these trainings: it is not worked out."""
    monkeypatch.setattr(run, "_privacy", lambda inputs: {"of": repr(inputs.plan)})
