"""What a parsed data set has to fulfil, and its counts."""

from dataclasses import replace

import numpy as np
import pytest

from data.made_content import images, text_of
from subjectdp.data.content import check_content, check_expected, count_content, most_copies
from subjectdp.errors import DataError


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"subject_ids": []}, "no subject"),
        ({"groups": ["", ""]}, "lengths"),
        ({"subject_ids": ["a", "a", "b"]}, "not unique"),
        ({"items": np.array([5, 9, 0])}, "without items"),
        ({"items": np.array([5, 9, 3])}, "outside of the features"),
        ({"first_items": np.array([-1, 5, 14])}, "outside of the features"),
        ({"labels": np.zeros(15, dtype=np.uint8)}, "15 labels"),
        ({"labels": np.full(16, 62, dtype=np.uint8)}, "labels to be 0..61"),
    ],
)
def test_inconsistent_content_is_refused(change: dict[str, object], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        check_content(replace(images([5, 9, 2]), **change))  # type: ignore[arg-type]


def test_a_symbol_outside_of_the_vocabulary_is_refused() -> None:
    with pytest.raises(DataError, match=r"symbols to be 0\.\.79"):
        check_content(replace(text_of([5]), features=np.full(85, 80, dtype=np.uint8)))


def test_counts_and_expected_counts() -> None:
    counts = count_content(images([5, 9, 1]), 0.2)
    assert (counts["users"], counts["items"], counts["users_after_split"]) == (3, 15, 2)
    assert counts["std"] == pytest.approx(np.sqrt(((5 - 5) ** 2 + (9 - 5) ** 2 + (1 - 5) ** 2) / 3))
    check_expected(counts, {"users": 3})
    with pytest.raises(DataError, match="users: expected 4, found 3; items: expected 16, found 15"):
        check_expected(counts, {"users": 4, "items": 16, "groups": 0})
    with pytest.raises(DataError, match="no such count"):
        check_expected(counts, {"wombats": 1})


def test_copies_of_an_item_within_a_subject_are_counted() -> None:
    """LEAF lists a first image twice; the same image of another subject is another subject's item."""
    content = images([5, 7, 4])
    assert most_copies(content) == 1 == most_copies(text_of([9, 20]))
    content.features[5] = content.features[0]
    assert most_copies(content) == 1
    content.features[6] = content.features[5]
    assert most_copies(content) == 2
    content.features[9] = content.features[5]
    assert most_copies(content) == 3
