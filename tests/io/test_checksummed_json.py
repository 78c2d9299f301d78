"""A seal holds through a file, and breaks with any change."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subjectdp.io.atomic import SEAL, is_intact, sealed

NUMBERS = st.floats() | st.integers() | st.booleans() | st.none()
CONTENT = st.dictionaries(
    st.text(max_size=3).filter(lambda key: key != SEAL),
    st.recursive(NUMBERS | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
    max_size=4,
)


@given(CONTENT)
def test_a_seal_holds_through_json(content: dict[str, object]) -> None:
    assert is_intact(json.loads(json.dumps(sealed(content), indent=1, sort_keys=True)))


def test_any_other_character_in_a_value_breaks_it() -> None:
    text = json.dumps(sealed({"epsilon": 3.9999, "rounds": [1, 2, 3], "unit": "item"}))
    places = [place for place, character in enumerate(text) if character.isalnum()]
    broken = 0
    for place in places:
        changed = text[:place] + ("7" if text[place] != "7" else "8") + text[place + 1 :]
        try:
            read = json.loads(changed)
        except ValueError:
            continue  # no JSON any more
        assert not is_intact(read), changed
        broken += 1
    assert broken > 60


@pytest.mark.parametrize("content", [{}, {"a": 1}, [], None, "x", {SEAL: None}])
def test_what_was_never_sealed_is_not_intact(content: object) -> None:
    assert not is_intact(content)
