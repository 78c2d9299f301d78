"""What the tests of training share."""

import pytest

from subjectdp.training import run


@pytest.fixture
def quick_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan's ε takes longer than these trainings: it is not worked out."""
    monkeypatch.setattr(run, "_privacy", lambda inputs: {"of": repr(inputs.plan)})
