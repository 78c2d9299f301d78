"""Compiled functions where numba has no folder for its cache."""

import pytest

from subjectdp import compiled


def test_where_no_folder_can_be_written_the_functions_are_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    real, asked = compiled.njit, []

    def refusing(function=None, **options):
        asked.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(function)

    monkeypatch.setattr(compiled, "njit", refusing)
    double = compiled.compiled(lambda number: 2 * number)
    assert double(21) == 42 and asked == [{"cache": True}, {}]
