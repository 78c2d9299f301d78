"""Stroke fields: thinning keeps the topology, distances are exact, every class has a shape of its own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import label

from subjectdp.data.embedded.glyphs import CLASSES, DISTANCE_UNIT, FACES, GRID, stroke_fields, thin

EIGHT = np.ones((3, 3), dtype=bool)


@settings(max_examples=60, deadline=None)
@given(arrays(bool, (3, 14, 17), elements=st.booleans()))
def test_thinning_keeps_pieces(bitmaps):
    for bitmap, skeleton in zip(bitmaps, thin(bitmaps), strict=True):
        assert not (skeleton & ~bitmap).any()
        pieces, count = label(bitmap, structure=EIGHT)
        assert set(np.unique(pieces[skeleton])) - {0} == set(range(1, count + 1))
        assert label(skeleton, structure=EIGHT)[1] == count


def test_thinning_of_a_bar_and_a_dot():
    bitmap = np.zeros((1, 20, 20), dtype=bool)
    bitmap[0, 4:9, 2:18] = True  # a bar 5 high
    bitmap[0, 14:16, 10:12] = True  # a dot 2 x 2, which plain Zhang-Suen erases
    skeleton = thin(bitmap)[0]
    assert skeleton[:12].sum(axis=0).max() == 1
    assert set(np.flatnonzero(skeleton[:12].any(axis=1))) <= {5, 6, 7}
    assert skeleton[14:16, 10:12].sum() == 1
    assert bitmap[0, 4:9, 2:18].all(), "the input stays as it was"


def test_classes_are_in_the_order_of_leaf():
    assert len(CLASSES) == 62
    assert [CLASSES[k] for k in (0, 9, 10, 35, 36, 61)] == ["0", "9", "A", "Z", "a", "z"]


@pytest.mark.slow
def test_fields_hold_exact_distances_to_a_thin_line():
    fields = stroke_fields()
    assert fields.distance.shape == (len(FACES), 62, GRID, GRID)
    for face, character in ((0, "8"), (3, "g"), (4, "W")):
        field = fields.distance[face, CLASSES.index(character)]
        line = np.argwhere(field == 0)
        assert 60 < len(line) < 500
        for row, column in ((0, 0), (50, 61), (111, 40), (70, 20)):
            nearest = np.sqrt(((line - (row, column)) ** 2).sum(axis=1)).min()
            assert abs(int(field[row, column]) / DISTANCE_UNIT - nearest) <= 0.5 / DISTANCE_UNIT + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("face", range(len(FACES)))
def test_each_class_has_a_shape_of_its_own(face):
    fields = stroke_fields()
    lines = fields.distance[face] == 0
    assert lines.any(axis=(1, 2)).all()
    assert len({line.tobytes() for line in lines}) == 62
    border = fields.distance[face][:, [0, -1], :].min(), fields.distance[face][:, :, [0, -1]].min()
    assert min(border) >= 4 * DISTANCE_UNIT, "no glyph is cut off by the grid"


def test_only_dotted_characters_are_in_two_pieces():
    lines = stroke_fields().distance[0] == 0
    pieces = {CLASSES[k]: label(lines[k], structure=EIGHT)[1] for k in range(62)}
    assert {character for character, count in pieces.items() if count != 1} == {"i", "j"}


def test_faces_without_a_shape_borrow_the_first_ones():
    fields = stroke_fields()
    for face, class_index in np.argwhere(~fields.lends):
        assert (fields.distance[face, class_index] == fields.distance[0, class_index]).all()
    assert fields.lends[0].all()
